//! The cases of issue 3 and of `../shared/CASES.md` that need no cluster: the real binary as daemon on a simulated
//! node, called as the kubelet calls it. What is counted is counted by the twins.
//!
//! A test is found by its name: `c03_…` is about case C3, `bad_input_…` about "Bad input", and so on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::needless_range_loop, reason = "devices go by their number")]

#[allow(dead_code, unused_imports, reason = "tests/crash has a use for the rest of it")]
#[path = "../common/node.rs"]
mod node;

mod again;
mod allocations;
mod bad_input;
mod breaker;
mod cards;
mod changed;
mod claims;
mod commands;
mod crash;
mod damage;
mod demo;
mod disk;
mod faults;
mod forgotten;
mod hang;
mod holders;
mod observe;
mod policies;
mod quarantine;
mod queue;
mod reboot;
mod records;
mod starts;
mod unfinished;

use cleanslate::sim::Folder as Mount;

/// How a reset that hangs is called where the killed worker dies.
const HUNG: &str = "reset_timeout";
