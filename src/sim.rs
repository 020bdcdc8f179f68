//! Twins: devices that are not there. A twin is a pure model (`model`) behind a thin mount; the mount here is a
//! folder that looks like `/sys`, `/dev` and `/proc`, served by inotify and a FIFO, without root. Daemon, workers
//! and commands run against it unchanged, given its [`Roots`](crate::types::Roots).
//!
//! What a folder cannot do, so that no test here means anything about it:
//!
//! * **Errors of a write.** A plain file takes whatever is written: `EINVAL` for another value than `1`, `ENOTTY`,
//!   `EROFS`, `EBUSY` never come. A device that goes away during a reset gives its writer `EPIPE`, not `ENODEV`.
//! * **Read-back of a write that a device acts upon.** The files hold what was written last. A write to `config`
//!   changes no state (a function level reset by config write goes unseen), and the twin rewrites the whole file
//!   when the device changes. Attributes are to be written with truncation, which sysfs ignores.
//! * **A reset that waits for the write.** It begins when `reset` is opened, and is carried out even if nothing is
//!   written. Who opens it at the same instant shares one reset; a second write to the same open file returns at
//!   once.
//! * **State D.** A writer blocked in `reset` dies at once when killed, also where a real one would hold its locks
//!   until the kernel lets go. A `config` or memory read never blocks.
//! * **A dead device's memory.** It still answers; only config space and link attributes show all ones.
//! * **Mapped memory.** A session of writes is seen when its file is closed; write-combining, ordering and the
//!   speed of a BAR are those of a page cache.
//! * **What comes between two sessions.** A memory fault that changes from session to session changes after the
//!   close, a moment late for a daemon that opens again at once.

mod config;
mod folder;
mod model;
mod scrubs;
mod spec;

pub use folder::Folder;
pub use model::Counts;
pub use spec::{DeviceSpec, Fault, SpecError};
