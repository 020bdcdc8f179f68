//! The parent's side of worker processes: every step that can hang runs in one, so that a hang costs the device
//! and never the daemon.

mod bench;
mod lock;
mod outcome;
mod process;
mod protocol;

pub use bench::Bench;
pub use lock::{LockError, lock};
pub use outcome::Outcome;
pub use process::{Program, Worker};
pub use protocol::{Code, Command, Expected, Failure, Line, Order, Report, ResetOrder, Seen};
