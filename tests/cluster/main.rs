//! A real Kubernetes node: API server, scheduler, kubelet, containerd, runc and our image are real, the hardware is
//! a twin. `tests/run cluster` installs what it needs; `cargo test --test cluster -- --nocapture --test-threads=1`
//! runs it once that is there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: what fails ends the test, and waiting blocks nobody"
)]

mod node;
mod tenant;
mod twin;

mod claims;
mod health;
mod quarantine;
mod refusals;
mod registration;
mod slices;
