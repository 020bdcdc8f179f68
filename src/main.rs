//! The `cleanslate` binary; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cleanslate::cli::main()
}
