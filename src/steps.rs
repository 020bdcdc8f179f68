//! The child's side: a process that does what can hang, one step at a time, and says what it saw.

mod holders;
mod inspect;
mod probe;
mod repair;
mod reset;
pub mod scrub;

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::unistd::alarm;

use crate::pci::config_space::Unread;
use crate::pci::sysfs::{self, Function};
use crate::worker::{Code, Command, Failure, Line, LockError, Order, Report, lock};

/// How many seconds after our parent's deadline we end ourselves: its kill tells it more.
const ALARM_AFTER: u32 = 2;

/// A worker's whole life: orders on standard input, reports on what was standard output.
///
/// # Errors
/// The parent is gone. That is how an orphan ends.
pub fn serve() -> io::Result<()> {
    let mut reports = take_stdout()?;
    let mut held: Option<Held> = None;
    for line in io::stdin().lock().lines() {
        let report = match serde_json::from_str(&line?) {
            Ok(Line { seconds, command }) => {
                // The signal's default action ends us; in state D it does so as soon as the kernel lets go.
                alarm::set(seconds);
                obey(command, &mut held, &mut reports).unwrap_or_else(Report::Failed)
            }
            Err(error) => {
                Report::Failed(Failure { code: Code::Protocol, errno: None, text: error.to_string() })
            }
        };
        alarm::cancel();
        say(&mut reports, &report)?;
    }
    Ok(())
}

/// The device that this process may touch, with its lock.
struct Held {
    order: Order,
    function: Function,
    _lock: File,
}

fn obey(command: Command, held: &mut Option<Held>, reports: &mut File) -> Result<Report, Failure> {
    match command {
        Command::Scan(roots) => return inspect::scan(&roots).map(Report::Scanned),
        Command::Locate(roots, addresses) => {
            return Ok(Report::Located(inspect::locate(&roots, &addresses)));
        }
        Command::Lock(order) => {
            let lock = lock(&order.run, order.address, order.token).map_err(|error| Failure {
                code: if matches!(error, LockError::Held { .. }) { Code::Locked } else { Code::Io },
                errno: None,
                text: error.to_string(),
            })?;
            let function = Function::at(&order.roots, order.address);
            let repairs = repair::repair(&order, &function, &mut marks(reports))?;
            *held = Some(Held { order, function, _lock: lock });
            return Ok(Report::Locked(repairs));
        }
        _ => {}
    }
    let unlocked = || Failure { code: Code::Protocol, errno: None, text: "no device is locked".to_owned() };
    let Held { order, function, .. } = held.as_ref().ok_or_else(unlocked)?;
    let gone = || {
        let text = format!("{} is no longer in sysfs", order.address);
        Failure { code: Code::Gone, errno: None, text }
    };
    if !function.exists() {
        return Err(gone());
    }
    // What vanishes while it is read shows anything, and nothing of it counts.
    let read = |report| if function.exists() { report } else { Err(gone()) };
    match command {
        Command::Inspect => read(inspect::inspect(order, function).map(Report::Inspected)),
        Command::Probe => {
            read(probe::probe(order, function).map(|(probe, nodes)| Report::Probed(probe, nodes)))
        }
        Command::Holders => holders::holders(&order.roots, order.address, function).map(Report::Held),
        Command::Reset(wanted) => {
            reset::reset(order, function, &wanted, &mut marks(reports)).map(Report::WasReset)
        }
        Command::Scrub(bars) => {
            let progress = |done, of| say(reports, &Report::Progress(done, of));
            scrub::bars(&order.roots, function, &bars, progress).map(Report::Scrubbed)
        }
        Command::Scan(_) | Command::Locate(..) | Command::Lock(_) => Err(unlocked()),
    }
}

/// Says where this process must not be killed, and gives its own alarm that much time.
fn marks(reports: &mut File) -> impl FnMut(Option<Duration>) -> io::Result<()> {
    let mut left = None;
    move |section| match section {
        Some(limit) => {
            say(reports, &Report::Marked(u64::try_from(limit.as_millis()).map_err(io::Error::other)?))?;
            let seconds = u32::try_from(limit.as_secs()).map_err(io::Error::other)?;
            left = alarm::set(seconds + ALARM_AFTER).map(|left| (Instant::now(), left));
            Ok(())
        }
        None => {
            if let Some((then, left)) = left.take() {
                let passed = u32::try_from(then.elapsed().as_secs()).map_err(io::Error::other)?;
                alarm::set(left.saturating_sub(passed).max(1));
            }
            say(reports, &Report::Unmarked)
        }
    }
}

fn say(reports: &mut File, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    reports.write_all(&line)
}

/// Keeps standard output for reports alone: vendor libraries print there, so it becomes standard error for them.
fn take_stdout() -> io::Result<File> {
    let reports = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(io::stderr()).map_err(io::Error::from)?;
    Ok(File::from(reports))
}

fn failure(code: Code, error: &io::Error) -> Failure {
    let errno = sysfs::errno(error);
    let code = match errno {
        Some(libc::EROFS) => Code::ReadOnly,
        Some(libc::EPERM | libc::EACCES) => Code::Permission,
        Some(libc::ENODEV) => Code::Gone,
        _ => code,
    };
    Failure { code, errno, text: error.to_string() }
}

fn unread(unread: &Unread) -> Failure {
    match unread {
        Unread::Lost => {
            let text = "configuration space reads all ones".to_owned();
            Failure { code: Code::Lost, errno: None, text }
        }
        Unread::Short(bytes) => {
            let text = format!("only {bytes} bytes of configuration space: CAP_SYS_ADMIN is missing");
            Failure { code: Code::Permission, errno: None, text }
        }
        Unread::Io(error) => failure(Code::Io, error),
    }
}
