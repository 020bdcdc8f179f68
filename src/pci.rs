//! What the kernel shows of PCI functions, read and written through [`crate::types::Roots`].
//!
//! Everything here may block on a sick device, so only worker processes call it.

pub mod aer;
pub mod bar;
mod capability;
pub mod config_space;
pub mod driver;
pub mod flr;
pub mod link;
pub mod place;
pub mod reset;
pub mod saved;
pub mod sysfs;

/// Waits in a worker, which has nothing else to do.
#[allow(clippy::disallowed_methods, reason = "a worker process has one thread and no runtime")]
fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
