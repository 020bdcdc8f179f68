//! The job of releasing a claim.

use std::sync::Arc;
use std::time::Duration;

use super::{Claims, PreparedDevice, Refusal};
use crate::cdi;
use crate::types::{ClaimRef, Deadline};

pub(super) struct Job {
    pub(super) claims: Arc<Claims>,
    pub(super) claim: ClaimRef,
}

impl Job {
    pub(super) async fn run(self) -> Result<Vec<PreparedDevice>, Refusal> {
        release(&self.claims, &self.claim).await;
        Ok(Vec::new())
    }
}

/// Takes a claim's devices back and waits for their cleaning, as long as the policy says: the scheduler frees a
/// device only after the kubelet's call, so it is then never offered a dirty one.
///
/// Nothing here fails: a file that cannot be removed is derived and rebuilt from records, a record that cannot be
/// moved is owed by the disk, and what cannot be cleaned is quarantined by those who try.
pub(super) async fn release(claims: &Claims, claim: &ClaimRef) {
    if let Err(error) = cdi::remove(&claims.cdi, &claim.uid) {
        tracing::error!(%claim, %error, "the claim's CDI file stays behind");
    }
    let released = claims.ledger.release(&claim.uid).await;
    // Nobody cleans where the policy only observes; it is done once it does not.
    let wait = if claims.policy.observes() { Duration::ZERO } else { claims.policy.release.wait };
    let deadline = Deadline::after(wait);
    let mut changes = claims.ledger.watch();
    let cleaned = async {
        while !released.unclean().is_empty() {
            if changes.changed().await.is_err() {
                break;
            }
        }
    };
    let clean = tokio::time::timeout_at(deadline.at().into(), cleaned).await.is_ok();
    tracing::info!(%claim, devices = released.devices().len(), clean, "released");
}
