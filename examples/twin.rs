//! Serves simulated devices from a folder, for daemons and scripts in other processes.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use clap::Parser;
use cleanslate::sim::{DeviceSpec, Folder};
use cleanslate::types::PciAddress;

const COMMANDS: &str = "\
Commands on standard input, one a line, each answered `ok` or `error: …`:
  fault ADDRESS NAME|none         hang-reset, dead, die-at-reset, bars-lost, drop-writes, skip-fill,
                                  slow-reset, retry-status, lose-restore, no-reset, keep-pending,
                                  narrow-link, log-error, count-error
  leave ADDRESS OFFSET TEXT       write into the memory, as a tenant does
  hold ADDRESS PID COMM [CGROUP]  start a fake process with the memory open
  let-go PID                      end it
  reboot                          new boot id, no processes, noise in the memory
  remove ADDRESS                  pull the card out
  replace ADDRESS SERIAL          put another card in (serial in hexadecimal)
  counts ADDRESS                  answer `ok {\"resets\":N,\"scrubs\":N}`, up to this moment

At the end of input it goes on serving until it is killed.";

/// Serves simulated devices from a folder that looks like /sys, /dev and /proc; DIR/counts.json says what they have
/// been through.
#[derive(Debug, Parser)]
#[command(name = "twin", after_help = COMMANDS)]
struct Arguments {
    /// Where to lay the tree out; holds none yet
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Devices, such as 0000:3b:00.0,memory=1048576,fault=hang-reset; further fields: vendor, device, class, serial
    /// (hexadecimal), driver, reset_ms, ready_at_once
    #[arg(long = "device", value_name = "SPEC", num_args = 1.., required = true)]
    devices: Vec<DeviceSpec>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { root, devices } = Arguments::parse();
    let folder = Folder::create(&root, devices)?;
    let mut out = io::stdout();
    say(&mut out, "twin ready")?;
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match obey(&folder, &line) {
            Ok(answer) => say(&mut out, &answer)?,
            Err(error) => say(&mut out, &format!("error: {error}"))?,
        }
    }
    loop {
        std::thread::park();
    }
}

fn say(out: &mut impl Write, line: &str) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}

fn obey(folder: &Folder, line: &str) -> Result<String, Box<dyn std::error::Error>> {
    let address = |text: &str| text.parse::<PciAddress>();
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        ["fault", at, "none"] => folder.set_fault(address(at)?, None)?,
        ["fault", at, name] => folder.set_fault(address(at)?, Some(name.parse()?))?,
        ["leave", at, offset, _, ..] => {
            folder.leave(address(at)?, offset.parse()?, after(line, 3).as_bytes())?;
        }
        ["hold", at, pid, comm] => folder.hold(address(at)?, pid.parse()?, comm, "0::/")?,
        ["hold", at, pid, comm, cgroup] => folder.hold(address(at)?, pid.parse()?, comm, cgroup)?,
        ["let-go", pid] => folder.let_go(pid.parse()?)?,
        ["reboot"] => folder.reboot()?,
        ["remove", at] => folder.remove(address(at)?)?,
        ["replace", at, serial] => folder.replace(address(at)?, u64::from_str_radix(serial, 16)?)?,
        ["counts", at] => return Ok(format!("ok {}", serde_json::to_string(&folder.counts(address(at)?)?)?)),
        _ => return Err(format!("no such command: {line:?}; see --help").into()),
    }
    Ok("ok".into())
}

/// What follows the first `words` words of a line, spaces and all.
fn after(line: &str, words: usize) -> &str {
    (0..words).fold(line.trim_start(), |rest, _| {
        rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start())
    })
}
