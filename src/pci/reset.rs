//! A reset through the kernel, which knows the quirks, pinned to exactly one method.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::config_space::ConfigSpace;
use super::sysfs::Function;

/// How long a function may take to answer after its reset (PCIe 6.6.2 asks for 100 ms; cards take seconds).
const READY: Duration = Duration::from_secs(5);

/// Why a function was not reset.
#[derive(Debug)]
pub enum NotReset {
    /// The kernel has no such method for it.
    NoMethod {
        /// What it has.
        has: String,
    },
    /// The list of methods could not be pinned to this one.
    NotPinned(String),
    /// The kernel refused or failed.
    Io(io::Error),
    /// It returned, and the function still says that it is not ready.
    NotReady,
    /// It returned, and nothing answers any more.
    Lost,
}

/// Resets a function by one method of the kernel's list and waits until it answers.
///
/// Without the pin the kernel falls silently from one method to the next, up to a bus reset that takes siblings
/// along (`reference/hardware.md` 1.6).
///
/// # Errors
/// See [`NotReset`].
pub fn reset(function: &Function, method: &str) -> Result<(), NotReset> {
    let list = function.text("reset_method").map_err(NotReset::Io)?;
    if !list.split_whitespace().any(|word| word == method) {
        return Err(NotReset::NoMethod { has: list });
    }
    write(function, "reset_method", method).map_err(NotReset::Io)?;
    let pinned = function.text("reset_method").map_err(NotReset::Io)?;
    let result = if pinned == method {
        write(function, "reset", "1").map_err(NotReset::Io)
    } else {
        Err(NotReset::NotPinned(pinned))
    };
    let restored = write(function, "reset_method", &list);
    result?;
    restored.map_err(NotReset::Io)?;
    let start = Instant::now();
    while !ConfigSpace::is_ready(function).map_err(NotReset::Io)? {
        if start.elapsed() > READY {
            let lost = ConfigSpace::is_lost(function).map_err(NotReset::Io)?;
            return Err(if lost { NotReset::Lost } else { NotReset::NotReady });
        }
        super::pause(Duration::from_millis(10));
    }
    Ok(())
}

fn write(function: &Function, attribute: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(function.path(attribute))?.write_all(text.as_bytes())
}
