//! A reset through the kernel, which knows the quirks, pinned to exactly one method.

use std::io;
use std::time::{Duration, Instant};

use super::config_space::ConfigSpace;
use super::sysfs::Function;

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

impl From<io::Error> for NotReset {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Resets a function by one method of the kernel's list, and leaves the list pinned to it.
///
/// Without the pin the kernel falls silently from one method to the next, up to a bus reset that takes siblings
/// along (`reference/hardware.md` 1.6).
///
/// # Errors
/// See [`NotReset`].
pub fn reset(function: &Function, method: &str) -> Result<(), NotReset> {
    let has = function.text("reset_method")?;
    if !has.split_whitespace().any(|word| word == method) {
        return Err(NotReset::NoMethod { has });
    }
    function.set("reset_method", method)?;
    let pinned = function.text("reset_method")?;
    if pinned != method {
        return Err(NotReset::NotPinned(pinned));
    }
    function.set("reset", "1")?;
    Ok(())
}

/// Waits until a function answers after its reset.
///
/// # Errors
/// [`NotReset::NotReady`] after `limit`; or it cannot be read.
pub fn ready(function: &Function, limit: Duration) -> Result<(), NotReset> {
    let start = Instant::now();
    while !ConfigSpace::is_ready(function)? {
        if start.elapsed() > limit {
            return Err(if ConfigSpace::is_lost(function)? { NotReset::Lost } else { NotReset::NotReady });
        }
        super::pause(Duration::from_millis(10));
    }
    Ok(())
}
