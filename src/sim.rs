//! Twins: devices that are not there. A twin is a pure model ([`Device`], [`Memory`]) behind a thin mount, in a tree
//! that looks like `/sys`, `/dev` and `/proc` ([`Layout`]). Daemon, workers and commands run against it unchanged, given
//! its [`Roots`](crate::types::Roots). There are two mounts, and what both must do is one text of tests:
//!
//! * [`Folder`], here: plain files served by inotify and a FIFO, without root; for `cargo test` and the demo.
//! * `tests/fuse`: a file system where the devices' folders are, as root. Every access is the model's to answer.
//!
//! What a folder cannot do, so that no test on one means anything about it:
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
//! * **Memory that nobody decodes.** It still answers when the device is dead, in its reset, or has lost its BARs; only
//!   config space and link attributes show it. Faults of single places in memory cannot be had
//!   ([`Fault::needs_fuse`]).
//! * **Sessions of writes.** Only what is opened as `resource0_wc` is one, and one follows the other. Mapped memory is
//!   looked at when its file is closed; ordering, write-combining and speed are those of a page cache.
//! * **A fault that changes between two sessions.** `skip-fill` changes over while a session goes on; one that is
//!   over before the twin has noticed it takes the next with it.
//!
//! What the other mount cannot do either:
//!
//! * **State D from the first moment.** Who waits for an answer sleeps interruptibly (`S`) until somebody is killed
//!   there; then he is in `D` (`request_wait_answer`) until he is answered, and whoever comes to that mount later is in
//!   `D` at once. A kill in the microseconds before the request is taken up ends it.
//! * **Opening `reset` with truncation while somebody writes to it.** It waits (`D`) where sysfs lets it through: the
//!   kernel holds the file's lock over a write.
//! * **Mapped memory.** `resource0` is read and written, which real BAR files do not allow, and cannot be mapped.
//! * **What depends on who asks.** Config space is 4096 bytes for everybody, not 64 without `CAP_SYS_ADMIN`; there is no
//!   lockdown but the one that a test writes to `kernel/security`.
//! * **A reset of a dead device.** It returns as one of a healthy device does; the kernel waits for 70 s, then answers
//!   `ENOTTY`. Resets do not see who has the device open, but for [`Fault::Busy`].
//!
//! And on both: processes have no more of `/proc` than `comm`, `cgroup` and `fd`; there is no port above a device; a
//! driver is a link that no probe or unbind ever ran for; memory is as large in RAM as the device says.

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
