//! The command line: what operators and the DaemonSet call.

mod demo;
mod policy;
mod quarantine;
mod run;
mod status;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::steps;

/// Exit code for a command line that cannot be right, as clap's own.
const USAGE: u8 = 2;
/// Exit code where no daemon answers.
const NO_DAEMON: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed; standard error says what and what would be right
  2  the command line is wrong
  3  no daemon answers on this node";

/// A Kubernetes DRA driver that hands out a PCIe accelerator only after it has just proved it: probed, reset, its
/// memory overwritten and read back, under a fenced lease.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the driver on a node, as the DaemonSet does
    Run(Box<run::RunArgs>),
    /// Show a simulated node at work, without root, cluster or network
    Demo(demo::DemoArgs),
    /// Show this node's devices, claims and proofs
    Status(status::StatusArgs),
    /// List devices in quarantine, or release one
    Quarantine(quarantine::QuarantineArgs),
    /// Check a policy file, or explain what it makes of this node's devices
    Policy(policy::PolicyArgs),
    /// Do what can hang, for a daemon that survives it (started by the daemon only)
    #[command(hide = true)]
    Worker,
}

/// Where the daemon of this node is.
#[derive(Clone, Debug, Args)]
struct DaemonArgs {
    /// The daemon's run folder, which holds its control socket
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/cleanslate",
        env = "CLEANSLATE_RUN",
        global = true
    )]
    run: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For scripts; fields are only added
    Json,
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Quarantine(args) => quarantine::run(args),
        Command::Policy(args) => policy::run(args),
        // An error here is the end of the parent's pipe, which is how an orphan ends.
        Command::Worker => match steps::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}

/// Prints what was asked for. That somebody has read enough of it (`| head`) is no failure.
fn say(text: impl Display) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(format!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn fail(error: impl Display) -> ExitCode {
    eprintln!("cleanslate: {error}");
    ExitCode::FAILURE
}
