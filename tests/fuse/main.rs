//! Twins behind a file system of our own, which can do what a folder cannot: answer each access, refuse it, or leave
//! it waiting in the kernel. Started by `tests/run fuse`, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::needless_range_loop, reason = "devices go by their number")]

#[path = "../cases/faults.rs"]
mod broken;
#[path = "../cases/claims.rs"]
mod claims;
mod daemon;
mod errors;
#[path = "../faults/body.rs"]
mod faults;
#[path = "../flr/body.rs"]
mod flr;
mod hangs;
#[path = "../cases/holders.rs"]
mod holders;
mod mount;
#[path = "../common/node.rs"]
#[allow(dead_code, unused_imports, reason = "the cases that run here need a part of it")]
mod node;
mod sysfs;
#[path = "../common/traced.rs"]
mod traced;
#[path = "../twin/body.rs"]
mod twin;

use mount::Fuse as Mount;

const IS_FUSE: bool = true;
/// A worker that is killed in its reset stays.
const HUNG: &str = "worker_stuck";
