//! Twins behind a file system of our own, which can do what a folder cannot: answer each access, refuse it, or leave
//! it waiting in the kernel. Started by `tests/run fuse`, as root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../faults/body.rs"]
mod faults;
#[path = "../flr/body.rs"]
mod flr;
mod mount;
mod sysfs;
#[path = "../twin/body.rs"]
mod twin;

use mount::Fuse as Mount;

const NEEDS_STRACE: bool = true;
const IS_FUSE: bool = true;
