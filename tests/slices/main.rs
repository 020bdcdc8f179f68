//! What the scheduler sees: the real daemon's slices, as a simulated API server has them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod life;
mod machines;
mod node;
mod server;
