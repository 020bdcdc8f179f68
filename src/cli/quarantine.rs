//! `cleanslate quarantine`, and how the commands ask the daemon.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use super::{DaemonArgs, NO_DAEMON, Output, fail, say};
use crate::ledger::QuarantineView;
use crate::observe::control::{self, Answer, ControlError, Request};
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
        #[arg(long, value_name = "TEXT", value_parser = words)]
        reason: String,
    },
}

pub(super) fn run(args: QuarantineArgs) -> ExitCode {
    match args.command {
        Command::List => list(&args.daemon),
        Command::Release { device, reason } => {
            let request = Request::QuarantineRelease { device: device.clone(), reason };
            match ask(&args.daemon, &request) {
                Ok(ended) if args.daemon.output == Output::Json => {
                    print_json(&json!({"device": device, "ended": ended}))
                }
                Ok(_) => say(format!("{device} is released; it is proved again before any claim gets it")),
                Err(code) => code,
            }
        }
    }
}

/// A reason is all that is left of a decision, so it has to say something.
fn words(text: &str) -> Result<String, String> {
    let words = text.trim();
    if words.is_empty() {
        return Err("it is empty: expected a few words that the device's record keeps, for example \
                    'card reseated'"
            .to_owned());
    }
    Ok(words.to_owned())
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
    let mut lines = Vec::new();
    for device in &devices {
        let Some(quarantine) = &device.quarantine else { continue };
        let QuarantineView { reason, class, evidence, since, attempts, .. } = quarantine;
        let token = quarantine.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        lines.push(format!("{} {reason} ({class}) since {since}", device.name));
        lines.push(format!("  {evidence}"));
        lines.push(format!("  under token {token}, re-sanitizations tried: {attempts}"));
    }
    if devices.is_empty() {
        lines.push("no device is in quarantine".to_owned());
    }
    say(lines.join("\n"))
}

/// The daemon's status, or the exit code of a command that cannot have it.
pub(super) fn status(daemon: &DaemonArgs) -> Result<Status, ExitCode> {
    let value = ask(daemon, &Request::Status)?;
    serde_json::from_value(value)
        .map_err(|error| fail(format!("the daemon's status is not understood: {error}")))
}

pub(super) fn print_json(value: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(text),
        Err(error) => fail(error),
    }
}

fn ask(daemon: &DaemonArgs, request: &Request) -> Result<serde_json::Value, ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    match runtime.block_on(control::call(&daemon.run, request)) {
        Ok(Answer::Done(value)) => Ok(value),
        Ok(Answer::Refused(why)) => Err(fail(why)),
        Err(error) => {
            let code = code(&error);
            fail(error);
            Err(code)
        }
    }
}

/// One that may not be asked, or answers what makes no sense, is there.
fn code(error: &ControlError) -> ExitCode {
    match error {
        ControlError::NoDaemon(_) | ControlError::TimedOut { .. } => ExitCode::from(NO_DAEMON),
        ControlError::NotAllowed(_) | ControlError::Io { .. } | ControlError::Garbled { .. } => {
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_that_does_not_answer_is_none() {
        let path = std::path::PathBuf::new;
        let errors = [
            (ControlError::NoDaemon(path()), ExitCode::from(NO_DAEMON)),
            (ControlError::TimedOut { path: path() }, ExitCode::from(NO_DAEMON)),
            (ControlError::NotAllowed(path()), ExitCode::FAILURE),
        ];
        for (error, expected) in errors {
            assert_eq!(code(&error), expected, "{error}");
        }
    }
}
