//! A real kernel with real PCI, emulated by QEMU: our binary meets real sysfs, config space, AER, mapped BARs and
//! processes in state D; only the device models are simulated. `tests/run kernel` installs what it needs;
//! `cargo test --test kernel` runs it once that is there and `cleanslate` is built for release.
//!
//! This program is both sides: outside it boots the machine and counts, inside it tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: what fails ends the test, and waiting blocks nobody"
)]

mod aer;
mod checks;
mod explain;
mod flr;
mod function;
mod kills;
mod machine;
mod memory;
mod node;
mod outside;
mod removal;
mod stuck;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("guest") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(inside());
        return ExitCode::SUCCESS;
    }
    outside::run()
}

async fn inside() {
    let machine = machine::Machine::new();
    checks::scenario("policy", explain::run(&machine)).await;
    checks::scenario("memory", memory::run(&machine)).await;
    checks::scenario("flr", flr::run(&machine)).await;
    checks::scenario("kills", kills::run(&machine)).await;
    checks::scenario("aer", aer::run(&machine)).await;
    checks::scenario("removal", removal::run(&machine)).await;
    checks::scenario("stuck", stuck::run(&machine)).await;
    checks::end();
}
