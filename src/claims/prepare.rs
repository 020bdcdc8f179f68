//! The job of preparing one allocation.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Claims, PreparedDevice, Refusal};
use crate::inventory::Known;
use crate::ledger::{Lease, LeaseError, Proved, Wanted};
use crate::proof::verdict::Verdict;
use crate::proof::{Patience, Unproved, prove};
use crate::types::{Claim, Deadline, PciAddress, Reason, Requirements};
use crate::worker::Worker;

pub(super) struct Job {
    pub(super) claims: Arc<Claims>,
    pub(super) claim: Claim,
    pub(super) deadline: Deadline,
    /// A worker that has been started already.
    pub(super) idle: Option<Worker>,
}

impl Job {
    pub(super) async fn run(mut self) -> Result<Vec<PreparedDevice>, Refusal> {
        let mut idle = self.idle.take();
        let Self { claims, claim, .. } = &self;
        let uid = &claim.reference.uid;
        if let Some(record) = claims.granted(claim) {
            return claims.answer(&record);
        }
        if let Some(record) = claims.ledger.claim(uid)
            && (!record.allocation.is_same(&claim.allocation)
                || !record.is_granted()
                || claims.ledger.must_go(uid))
        {
            // What this UID had before: another allocation, other cards, or work that ended in the middle.
            tracing::info!(claim = %claim.reference, "an earlier grant of this claim is released first");
            super::unprepare::release(claims, &claim.reference).await;
        }
        let devices = self.devices().await?;
        if let Some(record) = claims.ledger.claim(uid)
            && record.devices.iter().any(|had| devices.iter().all(|now| now.subject.identity != had.identity))
        {
            tracing::info!(claim = %claim.reference, "other cards are in its slots: the earlier grant is released first");
            super::unprepare::release(claims, &claim.reference).await;
        }
        let leases = self.lease(&devices).await?;
        let proofs =
            leases.into_iter().zip(&devices).map(|(lease, known)| self.prove(lease, known, idle.take()));
        let results = join_all(proofs).await;
        let proved = self.all_or_undo(results).await?;
        let record = match claims.ledger.commit(uid, proved).await {
            Ok(record) => record,
            Err((proved, error)) => {
                let ends = proved.into_iter().map(Proved::give_up).collect();
                claims.ledger.undo(uid, ends).await;
                return Err(Refusal(format!(
                    "store: {error}; the proof is given up, the next try makes it again"
                )));
            }
        };
        tracing::info!(claim = %claim.reference, grant = record.grant_id(), "granted");
        match claims.answer(&record) {
            Ok(answer) => Ok(answer),
            Err(refusal) => {
                drop(claims.ledger.release(uid).await);
                Err(refusal)
            }
        }
    }

    /// The claim's devices as this node knows them.
    async fn devices(&self) -> Result<Vec<Arc<Known>>, Refusal> {
        let mut devices = Vec::new();
        let asked = self.claim.allocation.devices.iter().zip(&self.claim.requirements);
        for (allocated, requirements) in asked {
            let found = self.claims.inventory.find(&allocated.device, self.deadline).await;
            let known = match found {
                Ok(known) => known,
                Err(error) => {
                    if let Some(address) = PciAddress::from_device_name(&allocated.device) {
                        self.claims.ledger.turned_away(address).await;
                    }
                    return Err(Refusal(error.to_string()));
                }
            };
            if let Some(why) = &known.unsupported {
                return Err(Refusal(format!("device {} is never granted as it is: {why}", allocated.device)));
            }
            let policy =
                Requirements { minimum_mode: known.subject.rule.minimum_mode, ..Requirements::default() };
            if let Some(gap) = requirements.join(policy).gap(known.subject.offer()) {
                return Err(Refusal(format!(
                    "device {} cannot be cleaned as asked: {gap}",
                    allocated.device
                )));
            }
            devices.push(known);
        }
        Ok(devices)
    }

    /// Leases all devices; one in maintenance is waited for as long as the call may take.
    async fn lease(&self, devices: &[Arc<Known>]) -> Result<Vec<Lease>, Refusal> {
        let wanted = self.claim.allocation.devices.iter().zip(devices).map(|(allocated, known)| Wanted {
            allocated: allocated.clone(),
            identity: known.subject.identity.clone(),
            address: known.subject.address,
        });
        let wanted: Vec<_> = wanted.collect();
        let (ledger, uid) = (&self.claims.ledger, &self.claim.reference.uid);
        let mut changes = ledger.watch();
        loop {
            changes.mark_unchanged();
            if self.claims.queue.is_stopping(uid) {
                return Err(Refusal("the claim was released while it waited for its devices".to_owned()));
            }
            match ledger.lease(&self.claim, &wanted).await {
                Ok(leases) => {
                    if self.claims.queue.is_stopping(uid) {
                        ledger.stop(uid);
                    }
                    return Ok(leases);
                }
                Err(busy @ LeaseError::Busy { .. }) => {
                    tracing::debug!(claim = %self.claim.reference, %busy, "waits");
                    let changed = tokio::time::timeout_at(self.deadline.at().into(), changes.changed()).await;
                    if changed.is_err() {
                        return Err(Refusal(format!("{busy}; it will be ready for a later try")));
                    }
                }
                // Once it is released, it is waited for like any other.
                Err(LeaseError::Held { holder, .. }) if self.claims.release_orphan(&holder).await => {}
                Err(error) => return Err(Refusal(error.to_string())),
            }
        }
    }

    async fn prove(
        &self,
        lease: Lease,
        known: &Known,
        idle: Option<Worker>,
    ) -> Result<Proved, Box<Unproved>> {
        let patience = Patience(self.claims.policy.release.patience);
        prove(lease, &known.subject, patience, &self.claims.bench, idle).await
    }

    /// All proofs, or none: what went bad is quarantined, what was proved is free.
    async fn all_or_undo(&self, results: Vec<Result<Proved, Box<Unproved>>>) -> Result<Vec<Proved>, Refusal> {
        if results.iter().all(Result::is_ok) {
            return Ok(results.into_iter().flatten().collect());
        }
        let mut ends = Vec::new();
        let mut failed = Vec::new();
        for result in results {
            match result {
                Ok(proved) => ends.push(proved.give_up()),
                Err(unproved) => {
                    let (lease, finish, verdict) = unproved.end();
                    if matches!(verdict.device, Some((Reason::IdentityChanged, _))) {
                        self.claims.inventory.forget(lease.address());
                    }
                    failed.push((lease.identity().clone(), lease.address(), verdict));
                    ends.push((lease, finish));
                }
            }
        }
        self.claims.ledger.undo(&self.claim.reference.uid, ends).await;
        let told = failed.iter().map(|(identity, address, verdict)| {
            let withheld = self.claims.ledger.is_withheld(identity);
            format!("device {}: {}", address.device_name(), words(verdict, withheld))
        });
        Err(Refusal(told.collect::<Vec<_>>().join("; ")))
    }
}

/// What happened and what happens next.
fn words(verdict: &Verdict, withheld: bool) -> String {
    let mut words = Vec::new();
    match &verdict.device {
        Some((reason, evidence)) if withheld => words.push(format!(
            "{evidence} ({reason}); too many devices of this node are in quarantine for that, so look for what they \
             share; this one stays refused until it is proved"
        )),
        Some((reason, evidence)) => {
            words.push(format!("{evidence}; it is in quarantine now: {reason} ({})", reason.class()));
        }
        None => {}
    }
    if let Some((fault, why)) = &verdict.node {
        words.push(format!("this node is at fault, {fault}: {why}"));
    }
    if let Some(why) = &verdict.claim {
        words.push(format!("{why}; it is tried again with the kubelet's next call"));
    }
    words.join("; ")
}
