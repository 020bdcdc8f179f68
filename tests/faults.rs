//! Each fault of the twin is found, and by which check, on a folder: `faults/body.rs`, which `tests/fuse` runs too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "faults/body.rs"]
mod body;

use cleanslate::sim::Folder as Mount;

/// Memory answers whatever the device does, and a killed writer dies.
const IS_FUSE: bool = false;
