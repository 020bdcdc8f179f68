use cleanslate::ledger::{Evidence, Lease, Ledger, Proved};
use cleanslate::types::{ClaimUid, StepName};

async fn grant_twice(ledger: &Ledger, uid: &ClaimUid, lease: Lease, evidence: Evidence) {
    let Ok(proved) = lease.seal(evidence) else { return };
    let _ = ledger.commit(uid, vec![proved]).await;
    let _ = ledger.commit(uid, vec![proved]).await;
}

fn seal_then_use(lease: Lease, evidence: Evidence) -> Option<Proved> {
    let proved = lease.seal(evidence);
    lease.begins(StepName::Scrub);
    proved.ok()
}

fn seal_twice(lease: Lease, evidence: Evidence) -> Vec<Proved> {
    let first = lease.seal(evidence.clone());
    let second = lease.seal(evidence);
    [first, second].into_iter().flatten().collect()
}

fn take_the_lease_of_a_proof(proved: &Proved, evidence: Evidence) -> Option<Proved> {
    let lease = *proved.lease();
    lease.seal(evidence).ok()
}

fn main() {}
