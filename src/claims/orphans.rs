//! Grants that nobody will ever release: a kubelet that lost its state does not unprepare, and one that is not told of
//! a claim's new allocation keeps the old one. What the API server says decides, once nobody has the device open.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Claims;
use crate::ledger::ClaimRecord;
use crate::proof::verdict::{Verdict, of_look_for_holders};
use crate::types::{ClaimRef, ClaimUid, Deadline, PciAddress, StepName};
use crate::worker::Command;

/// Between two looks at all grants.
const EVERY: Duration = Duration::from_secs(600);

impl Claims {
    /// Releases every orphan, at the start and every ten minutes, until `stop`.
    pub async fn watch_orphans(self: Arc<Self>, stop: CancellationToken) {
        let mut rounds = tokio::time::interval(EVERY);
        while stop.run_until_cancelled(rounds.tick()).await.is_some() {
            for claim in self.ledger.claims() {
                if stop.is_cancelled() {
                    return;
                }
                self.release_orphan(&claim).await;
            }
        }
    }

    /// Releases a granted claim that has lost its allocation and whose devices nobody has open. Returns whether it is
    /// released. What cannot be told, of the claim or of a device, keeps the grant.
    pub(super) async fn release_orphan(self: &Arc<Self>, claim: &ClaimRef) -> bool {
        let Some(record) = self.granted_record(&claim.uid).filter(|_| !self.policy.observes()) else {
            return false;
        };
        if self.source.still_has(&record.claim, &record.allocation, &self.scope).await {
            return false;
        }
        for device in &record.devices {
            let verdict = self.look_for_holders(device.address).await;
            if !verdict.is_good() {
                tracing::warn!(%claim, device = %device.address, ?verdict, "the claim has lost its allocation; its grant stays");
                return false;
            }
        }
        // Meanwhile it may have been released, and granted anew.
        if self.granted_record(&claim.uid).is_none_or(|now| !now.allocation.is_same(&record.allocation)) {
            return false;
        }
        tracing::warn!(%claim, "the claim has lost its allocation and nobody uses its devices: they are taken back");
        self.unprepare(claim).await.is_ok()
    }

    fn granted_record(&self, uid: &ClaimUid) -> Option<ClaimRecord> {
        self.ledger.claim(uid).filter(ClaimRecord::is_granted)
    }

    async fn look_for_holders(&self, address: PciAddress) -> Verdict {
        let orders = [self.bench.order(address, None, None), Command::Holders];
        let deadline = Deadline::after(StepName::Holders.default_deadline());
        of_look_for_holders(&self.bench.run(&orders, deadline).await)
    }
}
