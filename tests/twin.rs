//! The folder twin is what other tests trust; here it is tested itself. What both mounts must do is in `twin/body.rs`,
//! which `tests/fuse` runs too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "twin/body.rs"]
mod body;
#[path = "twin/folder.rs"]
mod folder;

use cleanslate::sim::Folder as Mount;
