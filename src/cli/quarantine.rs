//! `cleanslate quarantine`, and how the commands ask the daemon.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{DaemonArgs, NO_DAEMON, Output, fail};
use crate::observe::control::{self, Answer, Request};
use crate::observe::status::Status;

const EXAMPLES: &str = "\
Examples:
  cleanslate quarantine list
  cleanslate quarantine release 0000:3b:00.0 --reason 'reseated the card, ticket 4711'

A released device has no proof: it is proved again before any claim gets it, and goes back to quarantine \
if it cannot be.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct QuarantineArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the devices that are not handed out, and why
    #[command(after_help = EXAMPLES)]
    List,
    /// End a device's quarantine on your word
    #[command(after_help = EXAMPLES)]
    Release {
        /// Its address, name or identity, as `status` shows them
        device: String,
        /// Why it may go back to work; kept in the device's record
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

pub(super) fn run(args: QuarantineArgs) -> ExitCode {
    match args.command {
        Command::List => list(&args.daemon),
        Command::Release { device, reason } => {
            let request = Request::QuarantineRelease { device: device.clone(), reason };
            match ask(&args.daemon, &request) {
                Ok(_) => {
                    println!("{device} is released; it is proved again before any claim gets it");
                    ExitCode::SUCCESS
                }
                Err(code) => code,
            }
        }
    }
}

fn list(daemon: &DaemonArgs) -> ExitCode {
    let status = match status(daemon) {
        Ok(status) => status,
        Err(code) => return code,
    };
    let devices: Vec<_> =
        status.ledger.devices.into_iter().filter(|device| device.quarantine.is_some()).collect();
    if daemon.output == Output::Json {
        return print_json(&devices);
    }
    for device in &devices {
        let Some(quarantine) = &device.quarantine else { continue };
        let token = quarantine.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        println!("{} {} ({}) since {}", device.name, quarantine.reason, quarantine.class, quarantine.since);
        println!("  {}", quarantine.evidence);
        println!("  under token {token}, re-sanitizations tried: {}", quarantine.attempts);
    }
    if devices.is_empty() {
        println!("no device is in quarantine");
    }
    ExitCode::SUCCESS
}

/// The daemon's status, or the exit code of a command that cannot have it.
pub(super) fn status(daemon: &DaemonArgs) -> Result<Status, ExitCode> {
    let value = ask(daemon, &Request::Status)?;
    serde_json::from_value(value)
        .map_err(|error| fail(format!("the daemon's status is not understood: {error}")))
}

pub(super) fn print_json(value: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error),
    }
}

fn ask(daemon: &DaemonArgs, request: &Request) -> Result<serde_json::Value, ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    match runtime.block_on(control::call(&daemon.run, request)) {
        Ok(Answer::Done(value)) => Ok(value),
        Ok(Answer::Refused(why)) => Err(fail(why)),
        Err(error) => {
            fail(error);
            Err(ExitCode::from(NO_DAEMON))
        }
    }
}
