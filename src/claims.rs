//! Claims: read, checked, prepared and released.
//!
//! ```text
//!   kubelet ─▶ fetch ─▶ queue (one job a claim) ─▶ prepare: lease ─▶ prove ─▶ commit ─▶ CDI ─▶ answer
//!                                               └▶ unprepare: CDI gone ─▶ release ─▶ (maintenance cleans)
//! ```

pub mod allocation;
pub mod fetch;
mod orphans;
pub mod parameters;
mod prepare;
mod queue;
mod unprepare;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allocation::Scope;
use fetch::ClaimSource;
pub use queue::Queue;

use crate::cdi;
use crate::inventory::Inventory;
use crate::ledger::{ClaimRecord, Ledger};
use crate::types::{ClaimRef, Deadline, Policy};
use crate::worker::Bench;

/// Every call of the kubelet is answered within this; it gives up at 45 s.
pub const ANSWER: Duration = Duration::from_secs(40);
/// How much earlier a job gives up waiting for a device: its words say what for.
const WORDS: Duration = Duration::from_secs(2);

/// What the kubelet's calls are about.
#[derive(Debug)]
pub struct Claims {
    /// The sole owner of device state.
    pub ledger: Arc<Ledger>,
    /// Which devices are ours.
    pub inventory: Arc<Inventory>,
    /// Where claims are read.
    pub source: ClaimSource,
    /// What is ours in a claim.
    pub scope: Scope,
    /// Where workers run.
    pub bench: Bench,
    /// Where CDI files are.
    pub cdi: PathBuf,
    /// How the node is run.
    pub policy: Arc<Policy>,
    /// Jobs under way.
    pub queue: Queue,
}

/// One device of a prepared claim, as the kubelet is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests of the claim that it satisfies, without their subrequest part.
    pub requests: Vec<String>,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// Names for the container runtime.
    pub cdi_ids: Vec<String>,
}

/// Why a claim was not prepared or not released; its text is what the kubelet shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Claims {
    /// Prepares a claim: every device of it proved under a lease of this very allocation, or the recorded answer
    /// where that is done already. Answers within [`ANSWER`]; the work goes on beyond it.
    ///
    /// # Errors
    /// When it is not prepared; nothing of it is left then but quarantines.
    pub async fn prepare(self: &Arc<Self>, reference: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        let deadline = Deadline::after(ANSWER);
        // Started beside the read of the claim, which costs as much; one that nobody needs ends with its orders.
        let idle = match self.ledger.claim(&reference.uid) {
            None => self.bench.start().ok(),
            Some(_) => None,
        };
        let claim =
            self.source.fetch(reference, &self.scope).await.map_err(|error| Refusal(error.to_string()))?;
        if let Some(record) = self.granted(&claim) {
            return self.answer(&record);
        }
        if self.policy.observes() {
            return Err(Refusal(
                "this node's policy only observes (mode: observe): no device is granted, reset or overwritten; \
                 `cleanslate status` says what would be done"
                    .to_owned(),
            ));
        }
        let uid = claim.reference.uid.clone();
        let key = queue::Key::Prepare(claim.allocation.clone());
        let job = prepare::Job { claims: Arc::clone(self), claim, deadline: deadline.earlier(WORDS), idle };
        self.queue.run(&uid, key, deadline, job.run(), || self.doing(&uid)).await
    }

    /// Releases a claim: its devices are taken back and cleaned, within the call if that is quick. A claim that is
    /// not known is released already.
    ///
    /// # Errors
    /// None that keeps a pod from ending; the type leaves room for a call that could not be understood.
    pub async fn unprepare(self: &Arc<Self>, reference: &ClaimRef) -> Result<(), Refusal> {
        let deadline = Deadline::after(ANSWER);
        let uid = reference.uid.clone();
        // In this order: a lease that is taken in between sees the first, one taken before it the second.
        self.queue.stop(&uid);
        self.ledger.stop(&uid);
        let job = unprepare::Job { claims: Arc::clone(self), claim: reference.clone() };
        let done =
            self.queue.run(&uid, queue::Key::Unprepare, deadline, job.run(), || self.doing(&uid)).await;
        if let Err(unfinished) = done {
            // It is stopped, and what it leaves is cleaned without anybody waiting: the pod may end.
            tracing::warn!(claim = %reference, %unfinished, "released before its preparing had ended");
        }
        Ok(())
    }

    /// The record of exactly this allocation, granted on this boot and not being released.
    fn granted(&self, claim: &crate::types::Claim) -> Option<ClaimRecord> {
        let record = self.ledger.claim(&claim.reference.uid)?;
        let same =
            record.is_granted_on(self.ledger.boot_id()) && record.allocation.is_same(&claim.allocation);
        let same = same && !self.ledger.must_go(&claim.reference.uid);
        same.then_some(record)
    }

    /// The answer of a granted record, its CDI file made sure of.
    fn answer(&self, record: &ClaimRecord) -> Result<Vec<PreparedDevice>, Refusal> {
        cdi::write(&self.cdi, &spec(record)).map_err(|error| Refusal(error.to_string()))?;
        let uid = &record.claim.uid;
        let device = |device: &crate::ledger::ClaimDevice| PreparedDevice {
            requests: vec![device.allocated.base_request().to_owned()],
            pool: device.allocated.pool.clone(),
            device: device.allocated.device.clone(),
            cdi_ids: vec![cdi::qualified_id(uid, &device.address.device_name())],
        };
        Ok(record.devices.iter().map(device).collect())
    }

    fn doing(&self, uid: &crate::types::ClaimUid) -> String {
        let devices = self.ledger.claim(uid).map(|record| record.devices).unwrap_or_default();
        let devices: Vec<_> = devices.into_iter().map(|device| device.identity).collect();
        self.ledger.doing(&devices)
    }

    /// Makes the CDI files what the records say: at start, before anybody can ask.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn rebuild_derived(&self, granted: &[ClaimRecord]) -> Result<(), cdi::CdiError> {
        for uid in cdi::list(&self.cdi)? {
            if granted.iter().all(|record| record.claim.uid != uid) {
                tracing::info!(claim = %uid, "CDI file without a grant removed");
                cdi::remove(&self.cdi, &uid)?;
            }
        }
        granted.iter().try_for_each(|record| cdi::write(&self.cdi, &spec(record)))
    }
}

fn spec(record: &ClaimRecord) -> cdi::Spec {
    let device = |device: &crate::ledger::ClaimDevice| cdi::SpecDevice {
        address: device.address,
        token: device.token,
        nodes: device.nodes.clone(),
    };
    cdi::Spec { claim: record.claim.uid.clone(), devices: record.devices.iter().map(device).collect() }
}
