//! A device's lock: held by whoever may still touch it, over SIGKILL, restarts and D state.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::types::{PciAddress, Token};

const A_MOMENT: Duration = Duration::from_millis(500);

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error(
        "the lock {path} is held, by {holder}: an earlier worker still runs, or another driver has the device"
    )]
    Held {
        /// The lock file.
        path: String,
        /// What its holder wrote there.
        holder: String,
    },
    /// The file cannot be used.
    #[error("lock {path}: {source}")]
    Io {
        /// The lock file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes the lock `<run>/<address>.lock`; the kernel lets it go when the last descriptor of it is gone.
///
/// # Errors
/// It is held, or the file cannot be used.
pub fn lock(run: &Path, address: PciAddress, token: Option<Token>) -> Result<File, LockError> {
    let path = run.join(format!("{address}.lock"));
    let label = path.display().to_string();
    let failed = |source| LockError::Io { path: label.clone(), source };
    let mut file = File::options().create(true).append(true).read(true).open(&path).map_err(failed)?;
    let start = Instant::now();
    let taken = loop {
        match file.try_lock() {
            // Somebody who only looks at the device is gone in a moment.
            Err(TryLockError::WouldBlock) if start.elapsed() < A_MOMENT => pause(),
            taken => break taken,
        }
    };
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default().trim_end().to_owned();
            return Err(LockError::Held { path: label, holder });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    let token = token.map_or_else(String::new, |token| format!(" under token {token}"));
    file.set_len(0).map_err(failed)?;
    writeln!(file, "process {}{token}", std::process::id()).map_err(failed)?;
    Ok(file)
}

#[allow(clippy::disallowed_methods, reason = "a worker process has one thread and no runtime")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}
