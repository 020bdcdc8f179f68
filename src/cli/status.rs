//! `cleanslate status`.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};

use super::{DaemonArgs, Output};
use crate::ledger::{DeviceView, Withheld};
use crate::maintenance::Observation;
use crate::observe::status::Status;
use crate::publish::{Failure, PublishView};
use crate::types::NodeMode;

const EXAMPLES: &str = "\
Examples:
  cleanslate status
  cleanslate status -o json | jq -r '.devices[] | select(.quarantine) | .name'
  crictl exec $(crictl ps -q --name cleanslate) cleanslate status";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn run(args: &StatusArgs) -> ExitCode {
    let status = match super::quarantine::status(&args.daemon) {
        Ok(status) => status,
        Err(code) => return code,
    };
    match args.daemon.output {
        Output::Json => super::quarantine::print_json(&status),
        Output::Table => super::say(page(&status).join("\n")),
    }
}

fn page(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let Status { version, node, driver, registration, .. } = status;
    lines.push(format!("node {node}, driver {driver}, version {version}, kubelet: {registration}"));
    if status.simulated {
        lines.push("SIMULATED: --sys is no sysfs, these devices are a twin's".to_owned());
    }
    if status.mode == NodeMode::Observe {
        lines
            .push("the policy only observes: nothing is granted, reset, overwritten or published".to_owned());
        let would = |seen: &Observation| format!("  {} would {}", seen.device, seen.would);
        lines.extend(status.observed.iter().map(would));
    }
    lines.push(published(status.publish.as_ref()));
    if let Some(why) = &status.nothing_ours {
        lines.push(format!("no device of this node is ours: {why}"));
    }
    lines.push(devices(&status.ledger.devices).to_string());
    for claim in &status.ledger.claims {
        let record = &claim.record;
        lines.push(format!(
            "claim {}: {}",
            record.claim,
            claim.grant.as_deref().map_or("being prepared", |_| "granted")
        ));
        for device in &record.devices {
            let nodes = match device.nodes.as_slice() {
                [] => "no device nodes: no driver is bound".to_owned(),
                nodes => nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(" "),
            };
            lines.push(format!("  {} token {} ({nodes})", device.allocated.device, device.token));
            if let Some(receipt) = &device.receipt {
                let steps = receipt.steps.iter().map(|step| format!("{} {} ms", step.step, step.ms));
                lines.push(format!("    proved {}: {}", receipt.at, steps.collect::<Vec<_>>().join(", ")));
                lines.push(format!(
                    "    reset {}, {} bytes written, {} read back, receipt {}; says nothing of: {}",
                    receipt.reset,
                    receipt.bytes_written,
                    receipt.bytes_verified,
                    receipt.digest.get(..12).unwrap_or(&receipt.digest),
                    receipt.not_covered.join(", ")
                ));
            }
        }
    }
    for device in &status.ledger.devices {
        if let Some(Withheld { reason, evidence, at, alike }) = &device.withheld {
            lines.push(format!(
                "breaker: {} failed at {at} and is not put in quarantine, as {alike} devices are for {reason}: look for \
                 what they share; it is refused until it is proved: {evidence}",
                device.name
            ));
        }
    }
    for refused in &status.refused {
        lines.push(format!("never granted as it is: {}: {}", refused.device, refused.why));
    }
    for damaged in &status.ledger.damaged {
        lines.push(format!("damaged record, kept below damaged/: {damaged}"));
    }
    if status.ledger.unwritten > 0 {
        lines.push(format!(
            "{} records could not be written yet: see the state folder's disk",
            status.ledger.unwritten
        ));
    }
    lines
}

fn published(publish: Option<&PublishView>) -> String {
    let Some(publish) = publish else { return "slices: none, claims are read from files".to_owned() };
    let PublishView { slices, devices, generation, last_success, left_out, .. } = publish;
    let mut words = match last_success {
        None => "slices: nothing is published yet".to_owned(),
        Some(at) => {
            format!("slices: {slices}, with {devices} devices, generation {generation}, right at {at}")
        }
    };
    if let Some(Failure { at, error }) = publish.failing() {
        words = format!("{words}\nslices NOT as they should be, {at}: {error}");
    }
    if !left_out.is_empty() {
        words = format!("{words}\nin no slice, since this API server drops taints: {}", left_out.join(", "));
    }
    words
}

fn devices(devices: &[DeviceView]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["DEVICE", "STATE", "TOKEN", "PROVED", "QUARANTINE", "DETAIL"]);
    for device in devices {
        let proof = device.proof.as_ref().map_or_else(|| "-".to_owned(), |proof| proof.at.to_string());
        let quarantine = device.quarantine.as_ref();
        let reason = quarantine.map_or_else(|| "-".to_owned(), |q| format!("{} ({})", q.reason, q.class));
        let detail = quarantine.map_or(&device.detail, |quarantine| &quarantine.evidence);
        table.add_row([&device.name, &device.state, &device.token.to_string(), &proof, &reason, detail]);
    }
    table
}
