//! A policy that only observes: each device is looked at as a proof begins, and it is told what would follow.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Maintenance;
use crate::inventory::Known;
use crate::proof::verdict::{Stage, Verdict, of_look_for_holders, of_probe, probed};
use crate::types::{Deadline, StepName};
use crate::worker::Command;

/// Between two looks.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// What would be done to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Its name.
    pub device: String,
    /// When it was looked at.
    pub at: Timestamp,
    /// What a claim for it would lead to.
    pub would: String,
}

/// Looks at every device and tells what was seen.
pub(super) async fn look(maintenance: Arc<Maintenance>) {
    let known = maintenance.inventory.identified();
    let looks = known.iter().map(|known| async {
        let device = known.subject.address.device_name();
        Observation { device, at: Timestamp::now(), would: would(&maintenance, known).await }
    });
    let seen = join_all(looks).await;
    maintenance.observed.send_modify(|before| {
        for now in &seen {
            if before.iter().all(|then| (&then.device, &then.would) != (&now.device, &now.would)) {
                tracing::info!(device = %now.device, would = %now.would, "observed");
            }
        }
        *before = seen;
    });
}

async fn would(maintenance: &Maintenance, known: &Known) -> String {
    if let Some(why) = &known.unsupported {
        return format!("never be granted: {why}");
    }
    let subject = &known.subject;
    let lock = maintenance.bench.order(subject.address, None, Some(subject.expected.clone()));
    let run = async |step, command| {
        let deadline = Deadline::after(subject.deadline(step));
        maintenance.bench.run(&[lock.clone(), command], deadline).await
    };
    let probe = match probed(run(StepName::Probe, Command::Probe).await) {
        Ok(probe) => probe,
        Err(verdict) => return failed(&verdict),
    };
    let begins = of_probe(Stage::BeforeReset, &probe, None);
    if !begins.is_good() {
        return failed(&begins);
    }
    let holders = of_look_for_holders(&run(StepName::Holders, Command::Holders).await);
    if !holders.is_good() {
        return failed(&holders);
    }
    let method = &subject.rule.reset_method;
    let done = format!("be reset by {method}, and {} bytes of its memory overwritten", subject.memory);
    match of_probe(Stage::InUse, &probe, None).device {
        None => done,
        Some((reason, seen)) => {
            format!("{done}; it would be put in quarantine if {reason} stood then: {seen}")
        }
    }
}

fn failed(verdict: &Verdict) -> String {
    match verdict {
        Verdict { device: Some((reason, seen)), .. } => {
            format!("be put in quarantine: {reason} ({}): {seen}", reason.class())
        }
        Verdict { node: Some((fault, why)), .. } => {
            format!("be refused, this node is at fault, {fault}: {why}")
        }
        Verdict { claim, .. } => format!("be refused: {}", claim.as_deref().unwrap_or("it is not proved")),
    }
}
