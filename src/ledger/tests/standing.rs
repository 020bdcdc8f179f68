//! What the scheduler is told of a device: whether it lacks a proof, and where a quarantine was raised.

use serde_json::json;

use super::*;

fn unverified(ledger: &Ledger) -> Option<Unverified> {
    ledger.snapshot().devices[0].unverified
}

fn raised(ledger: &Ledger) -> Option<Raised> {
    ledger.snapshot().devices[0].quarantine.as_ref().map(|quarantine| quarantine.raised)
}

fn identity() -> Identity {
    Identity::from_address(d0())
}

/// Proved, leased, granted, released, cleaned, granted anew: nothing of it is for the scheduler.
#[tokio::test]
async fn a_normal_claims_life_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(unverified(&ledger), Some(Unverified::FirstProof));
    clean(&ledger).await;
    for uid in ["a", "b"] {
        assert_eq!(unverified(&ledger), None, "proved");
        let claim = claim(uid);
        let lease = ledger.lease(&claim, &wanted()).await.unwrap().remove(0);
        assert_eq!(unverified(&ledger), None, "being prepared");
        let evidence = evidence(lease.token());
        let proved = lease.seal(evidence).unwrap();
        ledger.commit(&claim.reference.uid, vec![proved]).await.map_err(|(_, error)| error).unwrap();
        assert_eq!(unverified(&ledger), None, "granted");
        let released = ledger.release(&claim.reference.uid).await;
        assert_eq!(unverified(&ledger), None, "a call waits for its cleaning");
        let chore = ledger.chores().remove(0);
        let lease = ledger.maintain(&chore).await.unwrap().unwrap();
        assert_eq!(unverified(&ledger), None, "in cleaning");
        let evidence = super::evidence(lease.token());
        let (lease, finish) = lease.seal(evidence).unwrap().give_up();
        ledger.finish(lease, finish).await;
        assert!(released.unclean().is_empty());
    }
    assert_eq!(unverified(&ledger), None);
}

#[tokio::test]
async fn a_cleaning_that_outlives_the_call_shows() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    grant(&ledger, "a").await;
    let released = ledger.release(&claim("a").reference.uid).await;
    assert_eq!((unverified(&ledger), released.unclean().len()), (None, 1));
    drop(released);
    assert_eq!(unverified(&ledger), Some(Unverified::Release));
    drop(ledger);
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(unverified(&ledger), Some(Unverified::Release), "nobody waits for it after a restart");
    clean(&ledger).await;
    assert_eq!(unverified(&ledger), None);
}

/// Its pod tries again every minute; the slice must not change twice each time.
#[tokio::test]
async fn a_device_without_a_proof_stays_so_while_prepares_fail() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    for _ in 0..2 {
        let lease = ledger.lease(&claim("a"), &wanted()).await.unwrap().remove(0);
        assert_eq!(unverified(&ledger), Some(Unverified::FirstProof));
        ledger.undo(&claim("a").reference.uid, vec![(lease, Finish::Unproved)]).await;
        assert_eq!(unverified(&ledger), Some(Unverified::FirstProof));
    }
    grant(&ledger, "a").await;
    assert_eq!(unverified(&ledger), None);
}

#[tokio::test]
async fn a_quarantine_raised_in_a_prepare_is_so_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let lease = ledger.lease(&claim("a"), &wanted()).await.unwrap().remove(0);
    let bad = Finish::Bad(Reason::ResetTimeout, "hung".to_owned());
    ledger.undo(&claim("a").reference.uid, vec![(lease, bad)]).await;
    assert_eq!(raised(&ledger), Some(Raised::Prepare));
    ledger.quarantine(&identity(), Reason::FellOffBus, String::new(), None).await.unwrap();
    let quarantine = ledger.snapshot().devices[0].quarantine.clone().unwrap();
    assert_eq!((quarantine.reason, quarantine.raised), (Reason::FellOffBus, Raised::Prepare));
    drop(ledger);
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(raised(&ledger), Some(Raised::Prepare), "durable");
    ledger.lift(identity().as_str(), "person").await.unwrap();
    ledger.quarantine(&identity(), Reason::Operator, String::new(), None).await.unwrap();
    assert_eq!(raised(&ledger), Some(Raised::Elsewhere), "another quarantine");
}

#[tokio::test]
async fn a_pod_that_meets_a_quarantine_must_go_elsewhere_unless_another_runs_there() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    grant(&ledger, "a").await;
    ledger.quarantine(&identity(), Reason::LinkDegraded, String::new(), None).await.unwrap();
    ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert_eq!(raised(&ledger), Some(Raised::Elsewhere), "a pod runs on it");
    drop(ledger.release(&claim("a").reference.uid).await);
    assert_eq!(raised(&ledger), Some(Raised::Elsewhere));
    ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert_eq!(raised(&ledger), Some(Raised::Prepare));
    drop(ledger);
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(raised(&ledger), Some(Raised::Prepare), "durable");
}

/// A prepare that finds its device in maintenance waits for a change; its own try must not be one.
#[tokio::test]
async fn a_refused_lease_wakes_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    grant(&ledger, "a").await;
    drop(ledger.release(&claim("a").reference.uid).await);
    let changes = ledger.watch();
    assert!(matches!(ledger.lease(&claim("b"), &wanted()).await, Err(LeaseError::Busy { .. })));
    assert!(!changes.has_changed().unwrap());
}

#[test]
fn records_of_other_versions_are_read() {
    let old = json!({
        "identity": "x", "address": "0000:3b:00.0", "reason": "operator", "evidence": "", "token": null,
        "since": "2026-12-01T00:00:00Z",
    });
    let mut newer = old.clone();
    newer["raised"] = json!("in_a_way_that_we_do_not_know");
    for record in [old, newer] {
        let quarantine: Quarantine = serde_json::from_value(record).unwrap();
        assert_eq!(quarantine.raised, Raised::Elsewhere);
    }
}

/// Errors that were counted before it are what a re-sanitization cures; a link that was wider is not.
#[tokio::test]
async fn what_was_counted_before_a_quarantine_is_not_held_against_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let proof = |lease: Lease| {
        let mut evidence = evidence(lease.token());
        evidence.last.counts = Counts { width: Some(8), ..Counts::default() };
        lease.seal(evidence).unwrap().give_up()
    };
    let now = Counts { nonfatal: 1, width: Some(4), ..Counts::default() };
    let counts = |lease: &Lease| lease.baseline_after(&now).map(|baseline| baseline.counts);
    grant(&ledger, "a").await;
    drop(ledger.release(&claim("a").reference.uid).await);
    let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
    let (lease, finish) = proof(lease);
    ledger.finish(lease, finish).await;

    let lease = ledger.lease(&claim("b"), &wanted()).await.unwrap().remove(0);
    assert_eq!(counts(&lease), Some(Counts { width: Some(8), ..Counts::default() }), "a claim's proof");
    let bad = Finish::Bad(Reason::AerUncorrectable, "1 uncorrectable error".to_owned());
    ledger.undo(&claim("b").reference.uid, vec![(lease, bad)]).await;

    let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
    assert_eq!(counts(&lease), Some(Counts { width: Some(8), ..now.clone() }), "a cure");
    ledger.finish(lease, Finish::Bad(Reason::LinkDegraded, "narrow".to_owned())).await;

    ledger.lift(identity().as_str(), "it is meant to be narrow").await.unwrap();
    let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
    assert_eq!(counts(&lease), None, "an operator's word");
    let (lease, finish) = proof(lease);
    ledger.finish(lease, finish).await;
}
