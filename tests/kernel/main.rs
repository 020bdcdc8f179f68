//! A real kernel with real PCI, emulated by QEMU: our binary meets real sysfs, config space, AER, mapped BARs and
//! processes in state D; only the device models are simulated. `tests/run kernel` installs what it needs;
//! `cargo test --test kernel` runs it once that is there and `cleanslate` is built for release, `cargo test --test kernel aer` one scenario.
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
mod claims;
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

use function::{CARD, DISK, Function, SHARED};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let (first, second) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    if first == "guest" {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(inside(&second));
        return ExitCode::SUCCESS;
    }
    outside::run(&first)
}

/// Runs all scenarios, or the one of this name.
async fn inside(only: &str) {
    let machine = machine::Machine::new();
    for name in ["policy", "memory", "flr", "kills", "aer", "removal", "stuck"] {
        if !only.is_empty() && only != name {
            continue;
        }
        // What broke off before may have left them so.
        [CARD, SHARED, DISK].into_iter().for_each(Function::come_back);
        let checks = async {
            match name {
                "policy" => explain::run().await,
                "memory" => memory::run().await,
                "flr" => flr::run(&machine).await,
                "kills" => kills::run().await,
                "aer" => aer::run(&machine).await,
                "removal" => removal::run(&machine).await,
                _ => stuck::run().await,
            }
        };
        checks::scenario(name, checks).await;
    }
    checks::end();
}
