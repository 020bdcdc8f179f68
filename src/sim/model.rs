use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::attributes::Settings;
use super::config::{CONFIG, Space};
use super::scrubs::Scrubs;
use super::{DeviceSpec, Fault};

/// What a device has been through, as the device counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Resets carried out.
    pub resets: u32,
    /// Times that its whole memory was overwritten and then zeroed.
    pub scrubs: u32,
}

/// A device without its mount: what it answers, and what a reset and a write session do to it.
#[derive(Debug)]
pub struct Device {
    pub(super) spec: DeviceSpec,
    pub(super) scrubs: Scrubs,
    pub(super) settings: Settings,
    pub(super) damage: Option<Damage>,
    bar: u64,
    config: Space,
    resets: u32,
    /// A function level reset by a write to config space, and when it is over; `None`: never.
    resetting: Option<Option<Instant>>,
    fill_skipped: bool,
}

/// What a reset has done to a device; stays until its fault is set anew or power is cycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Dead,
    BarsLost,
    /// No write to config space arrives.
    Deaf,
    NarrowLink,
    /// An error stands in its status.
    ErrorLogged,
    /// The kernel has counted one.
    ErrorCounted,
}

/// What a write to config space led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It holds what was written.
    Taken,
    /// It holds something else.
    Changed,
    /// A reset has begun.
    ResetBegun,
}

/// Where writes through the write-combining BAR land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// In the memory.
    Memory,
    /// In something that nobody reads.
    Nowhere,
}

impl Device {
    /// `number`: that of its slot, from which its bus addresses follow; `content`: of its memory.
    #[must_use]
    pub fn new(spec: DeviceSpec, number: u32, content: Vec<u8>) -> Self {
        let bar = (1 << 45) | u64::from(number) << 37;
        Self {
            scrubs: Scrubs::over(content),
            settings: Settings::default(),
            damage: None,
            config: Space::healthy(&spec, bar),
            spec,
            bar,
            resets: 0,
            resetting: None,
            fill_skipped: false,
        }
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// What it has been through.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { resets: self.resets, scrubs: self.scrubs.count() }
    }

    /// How long the next reset takes; `None`: it never returns.
    #[must_use]
    pub fn reset_takes(&self) -> Option<Duration> {
        let usual = match self.spec.fault {
            Some(Fault::HangReset) => return None,
            Some(Fault::SlowReset | Fault::RetryStatus) => 3000,
            _ => 20,
        };
        Some(Duration::from_millis(self.spec.reset_ms.unwrap_or(usual)))
    }

    /// `resets` are through. They leave the memory as it was, as real ones do.
    pub fn was_reset(&mut self, resets: u32) {
        if self.spec.fault == Some(Fault::NoReset) {
            return;
        }
        self.resets += resets;
        match self.spec.fault {
            Some(Fault::BarsLost) => self.damage = Some(Damage::BarsLost),
            _ => self.suffer(),
        }
    }

    /// Takes the damage that a reset of any kind does.
    fn suffer(&mut self) {
        match self.spec.fault {
            Some(Fault::DieAtReset) => self.damage = Some(Damage::Dead),
            Some(Fault::NarrowLink) => self.damage = Some(Damage::NarrowLink),
            Some(Fault::LogError) => self.damage = Some(Damage::ErrorLogged),
            Some(Fault::CountError) => self.damage = Some(Damage::ErrorCounted),
            _ => {}
        }
    }

    /// Bytes are written to config space.
    pub fn write_config(&mut self, at: usize, bytes: &[u8], now: Instant) -> Wrote {
        if self.resetting.is_some() || matches!(self.damage, Some(Damage::Deaf)) || self.is_dead() {
            return Wrote::Changed;
        }
        if self.config.write(at, bytes) {
            self.begin_reset(now);
            return Wrote::ResetBegun;
        }
        if self.config().get(at..at + bytes.len()) == Some(bytes) { Wrote::Taken } else { Wrote::Changed }
    }

    fn begin_reset(&mut self, now: Instant) {
        match self.spec.fault {
            Some(Fault::NoReset) => return,
            Some(Fault::LoseRestore) => self.damage = Some(Damage::Deaf),
            _ => self.suffer(),
        }
        self.config.reset();
        self.resetting = Some(self.reset_takes().map(|takes| now + takes));
    }

    /// Goes on to `now`: whether a reset by config space is over, which shows.
    pub fn advance(&mut self, now: Instant) -> bool {
        let is_over = self.resets_until().is_some_and(|end| end <= now);
        if is_over {
            self.resets += 1;
            self.resetting = None;
        }
        is_over
    }

    /// When a reset by config space will be over.
    #[must_use]
    pub fn resets_until(&self) -> Option<Instant> {
        self.resetting.flatten()
    }

    /// Whether it has stopped to take writes to config space.
    pub(super) fn is_deaf(&self) -> bool {
        self.damage == Some(Damage::Deaf) && self.resetting.is_none()
    }

    /// Where the next write session goes.
    #[must_use]
    pub fn target(&self) -> Target {
        match self.spec.fault {
            Some(Fault::DropWrites) => Target::Nowhere,
            Some(Fault::SkipFill) if !self.fill_skipped => Target::Nowhere,
            _ => Target::Memory,
        }
    }

    /// A session of writes to `target` begins.
    pub fn session_begins(&mut self, target: Target) {
        self.fill_skipped = target == Target::Nowhere;
        if target == Target::Memory {
            self.scrubs.begin();
        }
    }

    /// The memory holds `content`; `over`: the session of writes is.
    pub fn session_seen(&mut self, content: Vec<u8>, over: bool) {
        self.scrubs.look(content, over);
    }

    /// A tenant has left the memory with `content`.
    pub fn left(&mut self, content: Vec<u8>) {
        self.scrubs.start_over(content);
    }

    /// The same device with a driver bound, or none.
    pub fn bind(&mut self, driver: Option<String>) {
        self.spec.driver = driver;
    }

    /// The kernel gives its BAR another place.
    pub fn reassign(&mut self) {
        self.bar ^= 1 << 36;
        self.config.place(self.bar);
    }

    /// Gives it another fault, or none, which undoes what the last one did.
    pub fn set_fault(&mut self, fault: Option<Fault>) {
        self.spec.fault = fault;
        self.heal();
    }

    fn heal(&mut self) {
        (self.damage, self.resetting, self.fill_skipped) = (None, None, false);
        self.config = Space::healthy(&self.spec, self.bar);
    }

    /// Power off and on.
    pub fn power_cycle(&mut self, content: Vec<u8>) {
        self.heal();
        self.settings = Settings::default();
        self.scrubs.start_over(content);
    }

    /// What a read of all of config space answers.
    #[must_use]
    pub fn config(&self) -> [u8; CONFIG] {
        let answer = self.config.clone();
        match (self.resetting, self.spec.fault) {
            _ if self.is_dead() => [0xff; CONFIG],
            (Some(_), Some(Fault::RetryStatus)) => {
                let mut retry = [0xff; CONFIG];
                retry[..2].copy_from_slice(&[0x01, 0x00]);
                retry
            }
            (Some(_), _) => [0xff; CONFIG],
            _ if self.damage == Some(Damage::BarsLost) => answer.bars_lost().bytes(),
            _ if self.damage == Some(Damage::ErrorLogged) => answer.logged().bytes(),
            (None, Some(Fault::KeepPending)) => answer.pending().bytes(),
            (None, _) => answer.bytes(),
        }
    }

    /// Whether an access to its memory reaches it: it answers, and decodes the address that the kernel gave it.
    #[must_use]
    pub fn decodes(&self) -> bool {
        self.resetting.is_none() && !self.is_dead() && Space::is_decoded(&self.config(), self.bar)
    }

    /// Where its BAR 0 begins, in bytes of bus address space.
    pub(super) fn bar(&self) -> u64 {
        self.bar
    }

    /// Whether it reads all ones for good.
    pub(super) fn is_dead(&self) -> bool {
        self.spec.fault == Some(Fault::Dead) || self.damage == Some(Damage::Dead)
    }
}
