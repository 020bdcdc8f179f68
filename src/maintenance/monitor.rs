//! Looking at devices that pods have: never more than reading their config space and counters.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;

use super::Maintenance;
use crate::inventory::Known;
use crate::proof::verdict::{Stage, Verdict, of_probe, probed};
use crate::types::{Baseline, Deadline, Identity, Reason, StepName};
use crate::worker::Command;

/// Between two looks at a device in use.
const INTERVAL: Duration = Duration::from_secs(10);

/// When devices in use are looked at.
#[derive(Debug)]
pub(super) struct Monitor {
    running: Arc<Mutex<BTreeSet<Identity>>>,
    next: Instant,
}

impl Default for Monitor {
    fn default() -> Self {
        Self { running: Arc::default(), next: Instant::now() }
    }
}

impl Monitor {
    /// Starts a look at every granted device, if it is time; one that is still being looked at is left alone.
    pub(super) fn go_round(&mut self, maintenance: &Arc<Maintenance>, tasks: &TaskTracker) {
        let granted = maintenance.ledger.granted();
        let unseen = |identity: &Identity| !maintenance.ledger.is_checked(identity);
        let due = self.next <= Instant::now();
        if due {
            self.next = Instant::now() + INTERVAL;
        }
        let known = maintenance.inventory.usable();
        for (identity, baseline) in granted.into_iter().filter(|(identity, _)| due || unseen(identity)) {
            let Some(known) = known.iter().find(|known| known.subject.identity == identity) else { continue };
            if !lock(&self.running).insert(identity.clone()) {
                continue;
            }
            let (maintenance, known) = (Arc::clone(maintenance), Arc::clone(known));
            let running = Arc::clone(&self.running);
            tasks.spawn(async move {
                look(&maintenance, &known, baseline.as_ref()).await;
                lock(&running).remove(&identity);
            });
        }
    }
}

async fn look(maintenance: &Maintenance, known: &Known, baseline: Option<&Baseline>) {
    let subject = &known.subject;
    let orders =
        [maintenance.bench.order(subject.address, None, Some(subject.expected.clone())), Command::Probe];
    let outcome = maintenance.bench.run(&orders, Deadline::after(subject.deadline(StepName::Probe))).await;
    let verdict =
        probed(outcome).map_or_else(|failed| failed, |probe| of_probe(Stage::InUse, &probe, baseline));
    match verdict {
        Verdict { device: Some((reason, evidence)), .. } => {
            tracing::error!(device = %subject.address, %reason, %evidence, "a device in use went bad");
            if reason == Reason::IdentityChanged {
                maintenance.inventory.forget(subject.address);
            }
            // What cannot be written is owed; memory is right meanwhile.
            let _ = maintenance.ledger.quarantine(&subject.identity, reason, evidence, None).await;
        }
        verdict if verdict.is_good() => maintenance.ledger.checked(&subject.identity),
        verdict => {
            tracing::warn!(device = %subject.address, ?verdict, "a device in use could not be looked at");
        }
    }
}

fn lock(running: &Mutex<BTreeSet<Identity>>) -> std::sync::MutexGuard<'_, BTreeSet<Identity>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
