//! The right way: each function here has its like in the files that fail.

use std::path::PathBuf;
use std::sync::Arc;

use cleanslate::ledger::{Evidence, Lease, Ledger, Proved, Wanted};
use cleanslate::types::{Claim, ClaimUid, Receipt, StepName, Token};

async fn grant(ledger: &Ledger, uid: &ClaimUid, lease: Lease, evidence: Evidence) {
    let Ok(proved) = lease.seal(evidence) else { return };
    let _ = ledger.commit(uid, vec![proved]).await;
}

fn prove(lease: Lease, evidence: Evidence, _: Receipt, _: Vec<PathBuf>) -> Option<Proved> {
    lease.seal(evidence).ok()
}

async fn lease(ledger: &Arc<Ledger>, claim: &Claim, wanted: Wanted, _: Token) -> Option<Lease> {
    ledger.lease(claim, &[wanted]).await.ok()?.pop()
}

fn use_then_seal(lease: Lease, evidence: Evidence) -> Option<Proved> {
    lease.begins(StepName::Scrub);
    let proved = lease.seal(evidence);
    proved.ok()
}

fn pass_on(lease: Lease, evidence: Evidence) -> Option<Proved> {
    let mine: Lease = lease;
    mine.seal(evidence).ok()
}

fn one(proved: Proved) -> Vec<Proved> {
    vec![proved]
}

fn read(text: &str) -> Option<Receipt> {
    serde_json::from_str(text).ok()
}

pub(crate) fn main() {
    let _ = (grant, prove, lease, use_then_seal, pass_on, one, read);
}
