//! `cleanslate demo`: a simulated node at work, told line by line. Every line is checked against what happened;
//! the first that does not hold is named and ends the story with exit code 1.

mod stage;
mod story;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::fail;
use super::run::signalled;

const EXAMPLES: &str = "\
Examples:
  cleanslate demo
  cleanslate demo --twin drop-writes    # a device that loses writes: the story breaks where that is found out

Real: this binary as daemon, its worker processes, its sockets, records and CDI files, and a client that calls them \
as the kubelet does. Simulated: the devices (files and a FIFO that look like /sys, /dev, /proc), the kubelet, and the \
API server (HTTP on loopback), which has the claims and gets the ResourceSlice.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DemoArgs {
    /// How the simulated devices behave; with any but `honest` the story must break
    #[arg(long, value_enum, default_value_t)]
    twin: Twin,
    /// Also show the daemon's log
    #[arg(long)]
    log: bool,
}

/// How the simulated devices behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Twin {
    /// As they should, but for the one that hangs when the story wants it
    #[default]
    Honest,
    /// What is written to their memory is lost
    DropWrites,
    /// The first pass over their memory is lost, the second lands
    SkipFill,
    /// The one whose reset should hang does not
    NoHang,
}

pub(super) fn run(args: &DemoArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(error),
    };
    match runtime.block_on(show(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Broken(line)) => {
            say(format!("✗ BROKEN: {line}"));
            ExitCode::FAILURE
        }
        Err(End::Stopped(signal)) => {
            fail(format!("{signal}: the story is not told to its end; its daemon and its folder are gone"))
        }
    }
}

/// How a story ends before its end.
enum End {
    /// At a line that does not hold.
    Broken(String),
    /// By a signal.
    Stopped(&'static str),
}

async fn show(args: &DemoArgs) -> Result<(), End> {
    let mut stopped = std::pin::pin!(signalled());
    // The signal comes first, so that none is missed from here on, and none that also ends our daemon looks like a
    // line that does not hold.
    let mut stage = tokio::select! {
        biased;
        signal = &mut stopped => return Err(End::Stopped(signal)),
        stage = stage::Stage::set(args.log) => stage.map_err(End::Broken)?,
    };
    let told = tokio::select! {
        biased;
        signal = &mut stopped => Err(End::Stopped(signal)),
        told = story::tell(&mut stage, args.twin) => told.map_err(End::Broken),
    };
    stage.strike().await;
    told
}

/// Tells a line. That nobody reads on (`| head`) ends no check: the exit code still says whether all of it held.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
