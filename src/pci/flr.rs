//! A function level reset that we do ourselves, through config space: the caller owns the deadline, where the
//! kernel's reset of a dead device sleeps for a minute and more (`reference/hardware.md` 1.8, 1.9 B).
//!
//! ```text
//!   (saved) ─▶ COMMAND quiet ─▶ nothing pending? ─▶ initiate ─▶ 100 ms silence ─▶ answers? ─▶ write back ─▶ compare
//!                                  └▶ given up: COMMAND as it was
//!              └──────────────────── marked: a kill in here leaves the device changed ────────────────────────────┘
//! ```
//!
//! What was saved lies in a journal meanwhile; who finds it calls [`awaited`], then [`mend`].

mod compare;
mod gate;
mod registers;
mod restore;

use std::io;
use std::time::{Duration, Instant};

pub use compare::may_differ;
pub use gate::{Way, way};
use registers::{Registers, Width};

use super::config_space::{ConfigSpace, Unread};
use super::pause;
use super::sysfs::Function;

const COMMAND: usize = 0x04;
/// Neither decoding nor mastering, and no interrupt by wire.
const QUIET: u32 = 0x0400;
/// Waits between looks for pending transactions, as the kernel has them.
const PENDING: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];
/// A function need not answer for so long after its reset, and must not be asked (PCIe 6.6.2).
const SILENCE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// How long its parts may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the silence's end until the function answers.
    pub ready: Duration,
    /// To write everything back and compare.
    pub restore: Duration,
}

impl Limits {
    /// How long the device may be other than it was found.
    #[must_use]
    pub fn section(&self) -> Duration {
        PENDING.iter().sum::<Duration>() + SILENCE + self.ready + LONGEST_PAUSE + self.restore
    }
}

/// Told how long the device may be other than it was, before it is; and `None` once it is whole or given up.
pub type Mark<'a> = &'a mut dyn FnMut(Option<Duration>) -> io::Result<()>;

/// What a reset through config space has to know.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The function.
    pub function: &'a Function,
    /// What its configuration space held before.
    pub saved: &'a ConfigSpace,
    /// How long it may take.
    pub limits: Limits,
    /// Errors that were logged before the reset are cleared, as the kernel does where it owns error reporting.
    pub clear_errors: bool,
}

/// Why a function was not reset, or is not what it was.
#[derive(Debug)]
pub enum NotReset {
    /// Nothing was written, or nothing arrived.
    Untouched(io::Error),
    /// Transactions are pending and stay so; everything is as it was.
    Pending,
    /// Everything is as it was: the reset did nothing.
    Ineffective,
    /// It does not answer.
    NotReady,
    /// It does not hold any more what it held: what it should, and does.
    Differs(String),
    /// It answers all ones again, or cannot be read.
    Unread(Unread),
    /// A register could not be read or written in the middle.
    Io(io::Error),
}

impl NotReset {
    /// Whether the function is as it was found, so that the journal has done its service.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Untouched(_) | Self::Pending | Self::Ineffective)
    }
}

impl From<io::Error> for NotReset {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Resets a function whose [`way`] was found and whose configuration space lies in a journal.
///
/// # Errors
/// See [`NotReset`].
pub fn reset(plan: &Plan<'_>, way: Way, mark: Mark<'_>) -> Result<(), NotReset> {
    // One open file throughout: if the function is removed meanwhile and another one comes, this file stays dead.
    let registers = Registers::open(plan.function).map_err(NotReset::Untouched)?;
    mark(Some(plan.limits.section())).map_err(NotReset::Untouched)?;
    let result = in_section(plan, &registers, way);
    // Whoever does not hear it has gone, and we end with the next line.
    let _ = mark(None);
    result
}

fn in_section(plan: &Plan<'_>, registers: &Registers, way: Way) -> Result<(), NotReset> {
    registers.write(COMMAND, Width::Two, QUIET).map_err(NotReset::Untouched)?;
    if !is_settled(registers, way)? {
        restored(plan, registers)?;
        return Err(NotReset::Pending);
    }
    match way {
        Way::Express { control, .. } => {
            let value = u32::from(plan.saved.word(control)) | Way::INITIATE;
            registers.write(control, Width::Two, value)?;
        }
        Way::Advanced { control, .. } => registers.write(control, Width::One, 1)?,
    }
    if !plan.saved.is_ready_at_once() {
        pause(SILENCE);
    }
    answers(registers, plan.limits.ready, Some(way))?;
    // Whatever resets also clears what made it quiet.
    let is_untouched = registers.read(COMMAND, Width::Two)? == QUIET;
    restored(plan, registers)?;
    if is_untouched { Err(NotReset::Ineffective) } else { Ok(()) }
}

/// What a function holds that another worker may just have reset, once it answers.
///
/// # Errors
/// [`NotReset::NotReady`], [`NotReset::Unread`] or [`NotReset::Io`].
pub fn awaited(function: &Function, ready: Duration) -> Result<ConfigSpace, NotReset> {
    pause(SILENCE);
    answers(&Registers::open(function)?, ready, None)?;
    ConfigSpace::read(function).map_err(NotReset::Unread)
}

/// Brings back what a worker saved that did not live to restore it; how many registers were lost.
///
/// # Errors
/// See [`NotReset`].
pub fn mend(plan: &Plan<'_>) -> Result<usize, NotReset> {
    restored(plan, &Registers::open(plan.function).map_err(NotReset::Untouched)?)
}

/// Whether no transaction is pending, or will be soon.
fn is_settled(registers: &Registers, way: Way) -> io::Result<bool> {
    let (at, width, bit) = way.pending();
    for wait in PENDING {
        pause(wait);
        if registers.read(at, width)? & bit == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn answers(registers: &Registers, limit: Duration, way: Option<Way>) -> Result<(), NotReset> {
    let start = Instant::now();
    let mut wait = Duration::from_millis(1);
    while !is_ready(registers, way)? {
        if start.elapsed() > limit {
            return Err(NotReset::NotReady);
        }
        pause(wait);
        wait = LONGEST_PAUSE.min(2 * wait);
    }
    Ok(())
}

/// Whether it answers: dword 0 first, since on a dead function each further one may cost a completion timeout.
fn is_ready(registers: &Registers, way: Option<Way>) -> io::Result<bool> {
    if !ConfigSpace::is_answer(registers.read(0, Width::Four)?) {
        return Ok(false);
    }
    if registers.read(COMMAND, Width::Four)? == u32::MAX {
        return Ok(false);
    }
    // The bit that initiates reads zero: one that is still there has not been seen yet.
    match way {
        Some(Way::Express { control, .. }) => Ok(registers.read(control, Width::Two)? & Way::INITIATE == 0),
        Some(Way::Advanced { .. }) | None => Ok(true),
    }
}

fn restored(plan: &Plan<'_>, registers: &Registers) -> Result<usize, NotReset> {
    let lost = restore::write_back(registers, plan.saved, plan.clear_errors)?;
    let now = ConfigSpace::read(plan.function).map_err(NotReset::Unread)?;
    match compare::differences(plan.saved, &now) {
        None => Ok(lost),
        Some(differences) => Err(NotReset::Differs(differences)),
    }
}

#[cfg(test)]
mod tests;
