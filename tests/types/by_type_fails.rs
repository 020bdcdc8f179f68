use std::sync::Arc;

use cleanslate::ledger::{Evidence, Lease, Ledger, Proved, Wanted};
use cleanslate::types::{Claim, ClaimUid, Token};

async fn grant_a_lease(ledger: &Ledger, uid: &ClaimUid, lease: Lease) {
    let _ = ledger.commit(uid, vec![lease]).await;
}

async fn grant_evidence(ledger: &Ledger, uid: &ClaimUid, evidence: Evidence) {
    let _ = ledger.commit(uid, vec![evidence]).await;
}

async fn lease_by_hand(ledger: &Arc<Ledger>, _: &Claim, wanted: Wanted, token: Token) -> Option<Lease> {
    Some(Lease::new(Arc::clone(ledger), wanted.identity, wanted.address, token))
}

fn copy_a_lease(lease: Lease, evidence: Evidence) -> Option<Proved> {
    let mine: Lease = lease.clone();
    mine.seal(evidence).ok()
}

fn copy_a_proof(proved: Proved) -> Vec<Proved> {
    vec![proved.clone(), proved]
}

fn read_a_proof(text: &str) -> Option<Proved> {
    serde_json::from_str(text).ok()
}

fn read_a_lease(text: &str) -> Option<Lease> {
    serde_json::from_str(text).ok()
}

fn main() {}
