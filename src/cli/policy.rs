//! `cleanslate policy`: what a policy file would do, told without a daemon and without touching a device.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::quarantine::print_json;
use super::{Output, fail, say};
use crate::config;
use crate::inventory::names;
use crate::types::{Deadline, Decision, Ids, PciAddress, Place, Policy, Roots};
use crate::worker::{Bench, Command as Order, Outcome, Report, Seen};

const EXAMPLES: &str = "\
Examples:
  cleanslate policy check /etc/cleanslate/policy.yaml
  cleanslate policy explain 0000:3b:00.0 --policy policy.yaml
  cleanslate policy explain all --policy policy.yaml -o json | jq '.[] | select(.ours)'

Both read only: the policy file, and attributes of sysfs that the kernel caches.";

/// How long the list of functions may take.
const SCAN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a policy file and say what is wrong with it
    Check {
        /// The policy file
        file: PathBuf,
    },
    /// Say why a device of this node is ours or not
    Explain {
        /// Its PCI address, or `all`
        address: String,
        /// The policy file; without one no device is ours
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// sysfs
        #[arg(long, value_name = "DIR", default_value = "/sys")]
        sys: PathBuf,
        /// How to print
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

pub(super) fn run(args: PolicyArgs) -> ExitCode {
    match args.command {
        Command::Check { file } => match config::load(&file) {
            Ok(policy) => {
                let rules = if policy.devices.len() == 1 { "rule" } else { "rules" };
                say(format!("{}: {} {rules}, nothing wrong", file.display(), policy.devices.len()))
            }
            Err(error) => fail(error),
        },
        Command::Explain { address, policy, sys, output } => {
            match explain(&address, policy.as_deref(), sys) {
                Ok(lines) if output == Output::Json => print_json(&lines),
                Ok(lines) => {
                    let text =
                        |line: &serde_json::Value, field| line[field].as_str().unwrap_or_default().to_owned();
                    let line = |line| {
                        format!("{}: {}\n  {}", text(line, "address"), text(line, "why"), text(line, "where"))
                    };
                    say(lines.iter().map(line).collect::<Vec<_>>().join("\n"))
                }
                Err(error) => fail(error),
            }
        }
    }
}

fn explain(
    wanted: &str,
    policy: Option<&std::path::Path>,
    sys: PathBuf,
) -> Result<Vec<serde_json::Value>, String> {
    let address = match wanted {
        "all" => None,
        address => Some(address.parse::<PciAddress>().map_err(|error| format!("{error}, or all"))?),
    };
    let policy = match policy {
        Some(path) => config::load(path).map_err(|error| error.to_string())?,
        None => Policy::default(),
    };
    let roots = Roots { sys, ..Roots::default() };
    let seen = match ask(Order::Scan(roots.clone()))? {
        Report::Scanned(seen) => seen,
        other => return Err(format!("sysfs cannot be read: {other:?}")),
    };
    let wanted: Vec<_> =
        seen.iter().filter(|seen| address.is_none_or(|address| address == seen.address)).collect();
    if let (Some(address), []) = (address, wanted.as_slice()) {
        return Err(format!("{address}: there is no such PCI function on this node"));
    }
    let places = match ask(Order::Locate(roots, wanted.iter().map(|seen| seen.address).collect()))? {
        Report::Located(places) => places,
        other => return Err(format!("sysfs cannot be read: {other:?}")),
    };
    Ok(wanted.into_iter().zip(places).map(|(seen, place)| line(&policy, seen, place)).collect())
}

/// What a worker says that touches no device.
fn ask(order: Order) -> Result<Report, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    match runtime.block_on(Bench::default().run(&[order], Deadline::after(SCAN))) {
        Outcome::Done(report) => Ok(report),
        Outcome::Failed(failure) => Err(format!("sysfs cannot be read: {}", failure.text)),
        other => Err(format!("sysfs cannot be read: {other:?}")),
    }
}

fn line(policy: &Policy, seen: &Seen, place: Result<Place, String>) -> serde_json::Value {
    let (ours, why) = match &seen.ids {
        Ok(ids) => words(policy, seen.address, ids),
        Err(why) => (false, format!("not ours: its ids cannot be read: {why}")),
    };
    let told = place.as_ref().map_or_else(|why| format!("where it is cannot be read: {why}"), whereabouts);
    json!({
        "address": seen.address, "ours": ours, "why": why, "ids": seen.ids.as_ref().ok(),
        "place": place.ok(), "where": told,
    })
}

/// `driver nvme, NUMA node 1, root port 0000:00:06.0 of pci0000:00, IOMMU group 9, /dev/nvme0 (242:0)`
fn whereabouts(place: &Place) -> String {
    let mut parts =
        vec![place.driver.as_ref().map_or("no driver".to_owned(), |name| format!("driver {name}"))];
    parts.extend(place.virtual_of.map(|of| format!("virtual function {} of {}", of.number, of.parent)));
    parts.extend(place.numa_node.map(|node| format!("NUMA node {node}")));
    parts.push(match (&place.root_port, &place.pcie_root) {
        (Some(port), Some(root)) => format!("root port {port} of {root}"),
        (None, Some(root)) => format!("on the root bus of {root}"),
        (Some(port), None) => format!("root port {port}"),
        (None, None) => "below no root complex".to_owned(),
    });
    let group = place.iommu_group.map_or("no IOMMU group".to_owned(), |group| format!("IOMMU group {group}"));
    parts.push(group);
    parts.extend(place.nodes.iter().map(|node| match &node.number {
        Some(number) => format!("{} ({number})", node.path.display()),
        None => node.path.display().to_string(),
    }));
    parts.extend(place.nodes_unreadable.clone());
    parts.join(", ")
}

fn words(policy: &Policy, address: PciAddress, ids: &Ids) -> (bool, String) {
    let names = [names::vendor(ids.vendor), names::product(ids.vendor, ids.device)];
    let name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let name = if name.is_empty() { "no known model".to_owned() } else { name };
    let what = format!("{:04x}:{:04x} class {:06x} ({name})", ids.vendor, ids.device, ids.class);
    match policy.decide(address, ids) {
        Decision::Ours(rule) => (true, format!("ours: {what} matches devices[{rule}]")),
        Decision::Protected(rule, protected) => (
            false,
            format!(
                "not ours: {what} matches devices[{rule}], but is {protected}: a rule must name its address, or its vendor and device"
            ),
        ),
        Decision::Foreign(mismatches) if mismatches.is_empty() => {
            (false, format!("not ours: {what}; the policy has no rules"))
        }
        Decision::Foreign(mismatches) => {
            let rules =
                mismatches.iter().enumerate().map(|(rule, field)| format!("devices[{rule}] by its {field}"));
            (false, format!("not ours: {what} differs from {}", rules.collect::<Vec<_>>().join(", ")))
        }
    }
}
