//! Twins: devices that are not there. A twin is a pure model (`model`) behind a thin mount; the mount here is a
//! folder that looks like `/sys`, `/dev` and `/proc`, served by inotify and a FIFO, without root. Daemon, workers
//! and commands run against it unchanged, given its [`Roots`](crate::types::Roots).
//!
//! What a folder cannot do, so that no test here means anything about it:
//!
//! * **Errors of a write.** A plain file takes whatever is written: `EINVAL` for another value than `1`, `ENOTTY`,
//!   `EROFS`, `EBUSY` never come. A device that goes away during a reset gives its writer `EPIPE`, not `ENODEV`.
//! * **Read-back of a write that a device acts upon.** The files hold what was written last until the twin has seen
//!   it: bits of `config` that cannot be written, and the one that initiates a reset, read back as written for a
//!   moment (usually under a millisecond). Two writes that leave what was there are none. Attributes are to be
//!   written with truncation, which sysfs ignores.
//! * **A reset that waits for the write.** It begins when `reset` is opened, and is carried out even if nothing is
//!   written. Who opens it at the same instant may share one reset; a second write to the same open file returns at
//!   once. While it goes on, config space answers as before.
//! * **State D.** A writer blocked in `reset` dies at once when killed, also where a real one would hold its locks
//!   until the kernel lets go. A read of `config` or memory never blocks.
//! * **A dead device's memory.** It still answers; only config space and link attributes show all ones.
//! * **Sessions of writes.** Only what is opened as `resource0_wc` is one, and one follows the other. Mapped memory is
//!   looked at when its file is closed; ordering, write-combining and speed are those of a page cache.
//! * **A fault that changes between two sessions.** `skip-fill` changes over while a session goes on; one that is
//!   over before the twin has noticed it takes the next with it.
//! * **Processes.** They have no more of `/proc` than `comm`, `cgroup` and `fd`.

pub mod api;
mod attributes;
mod config;
mod folder;
pub mod kubelet;
mod layout;
mod memory;
mod model;
mod scrubs;
mod spec;

pub use attributes::Stored;
pub use folder::Folder;
pub use layout::{Layout, Links};
pub use memory::Memory;
pub use model::{Counts, Device, Target, Wrote};
pub use spec::{DeviceSpec, Fault, SpecError};
