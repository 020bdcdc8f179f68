//! The ledger over a real state folder: epochs, recovery, damage.

mod attacks;
mod damage;
mod severity;
mod standing;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::types::{
    AllocatedDevice, Allocation, Claim, Counts, Fact, Mode, Probe, Receipt, Requirements, Reset, Scrub,
    ScrubPass,
};

const BOOT: &str = "boot-x";

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn d0() -> PciAddress {
    address("0000:3b:00.0")
}

fn claim(uid: &str) -> Claim {
    let uid: ClaimUid = uid.to_owned().try_into().unwrap();
    let reference = ClaimRef { namespace: "ns".to_owned(), name: uid.to_string(), uid };
    Claim {
        reference,
        allocation: Allocation { timestamp: None, devices: vec![allocated()] },
        requirements: vec![Requirements::default()],
    }
}

fn allocated() -> AllocatedDevice {
    AllocatedDevice { request: "acc".to_owned(), pool: "node".to_owned(), device: d0().device_name() }
}

fn wanted() -> Vec<Wanted> {
    vec![Wanted { allocated: allocated(), identity: Identity::from_address(d0()), address: d0() }]
}

/// The writer thread lets go of the lock a moment after its ledger is gone.
async fn open(folder: &Path, boot: &str) -> (Arc<Ledger>, Recovered) {
    loop {
        match Ledger::open(folder, boot.to_owned()).await {
            Err(LedgerError::Store(StoreError::InUse(_))) => tokio::task::yield_now().await,
            other => {
                let (ledger, recovered) = other.unwrap();
                ledger.found(&Identity::from_address(d0()), d0()).await.unwrap();
                ledger.accounted().await;
                return (ledger, recovered);
            }
        }
    }
}

fn evidence(token: Token) -> Evidence {
    let probe = Probe {
        present: Fact::Good,
        identity: Fact::Good,
        bars: Fact::Good,
        transactions: Fact::Good,
        link: Fact::Good,
        uncorrectable: Fact::Good,
        counters: Fact::Good,
        counts: Counts::default(),
        notes: Vec::new(),
    };
    let pass = ScrubPass { words_visited: 512, canaries_found: 1, errors: 0, first_error: None };
    Evidence {
        token,
        after_reset: probe.clone(),
        reset: Reset { method: "flr".to_owned() },
        scrub: Scrub {
            size: 4096,
            bytes_written: 8192,
            chunks: 1,
            pattern: pass.clone(),
            zero: pass,
            canaries_left: 0,
        },
        last: probe,
        receipt: Receipt {
            address: d0(),
            token,
            at: jiff::Timestamp::now(),
            reset: "flr".to_owned(),
            mode: Mode::CopyVerified,
            bytes_total: 4096,
            bytes_written: 8192,
            bytes_verified: 8192,
            not_covered: Vec::new(),
            notes: Vec::new(),
            degraded: None,
            steps: Vec::new(),
            digest: String::new(),
        },
        nodes: Vec::new(),
    }
}

async fn grant(ledger: &Arc<Ledger>, uid: &str) -> ClaimRecord {
    let claim = claim(uid);
    let lease = ledger.lease(&claim, &wanted()).await.unwrap().remove(0);
    let evidence = evidence(lease.token());
    let proved = lease.seal(evidence).unwrap();
    ledger.commit(&claim.reference.uid, vec![proved]).await.map_err(|(_, error)| error).unwrap()
}

async fn clean(ledger: &Arc<Ledger>) -> Token {
    let chore = ledger.chores().remove(0);
    let lease = ledger.maintain(&chore).await.unwrap().unwrap();
    let token = lease.token();
    let (lease, finish) = lease.seal(evidence(token)).unwrap().give_up();
    ledger.finish(lease, finish).await;
    token
}

fn names(folder: &Path, kind: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(kind)).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn epochs_rise_over_grants_releases_restarts_and_reboots() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = None;
    for boot in ["boot-x", "boot-x", "boot-y"] {
        let (ledger, _) = open(folder.path(), boot).await;
        for uid in ["a", "b"] {
            let granted = grant(&ledger, uid).await.devices[0].token;
            assert!(last < Some(granted), "{last:?} then {granted}");
            drop(ledger.release(&claim(uid).reference.uid).await);
            last = Some(clean(&ledger).await);
            assert!(Some(granted) < last);
        }
    }
    assert!(names(folder.path(), "claims").is_empty() && names(folder.path(), "releasing").is_empty());
}

#[tokio::test]
async fn one_holder_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let a = grant(&ledger, "a").await;
    let refused = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert!(
        matches!(&refused, LeaseError::Held { holder, .. } if holder.to_string().contains("ns/a")),
        "{refused}"
    );
    drop(ledger.release(&a.claim.uid).await);
    let busy = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert!(matches!(&busy, LeaseError::Busy { cause, .. } if cause.contains("ns/a")), "dirty: {busy}");
    clean(&ledger).await;
    let b = grant(&ledger, "b").await;
    assert!(b.devices[0].token > a.devices[0].token);
}

/// C3 without the hardware: what was being prepared waits for cleaning under an epoch of its own.
#[tokio::test]
async fn a_crash_while_preparing_leads_to_cleaning() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let lease = ledger.lease(&claim("a"), &wanted()).await.unwrap().remove(0);
    let crashed_under = lease.token();
    // As after SIGKILL: no drop, no undo; only the disk is left.
    std::mem::forget(lease);
    let copy = tempfile::tempdir().unwrap();
    copy_records(folder.path(), copy.path());
    let (ledger, recovered) = open(copy.path(), BOOT).await;
    assert!(recovered.granted.is_empty() && ledger.claim(&claim("a").reference.uid).is_none());
    let busy = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert!(matches!(&busy, LeaseError::Busy { cause, .. } if cause.contains("ns/a")), "{busy}");
    let maintenance = clean(&ledger).await;
    let b = grant(&ledger, "b").await.devices[0].token;
    assert!(crashed_under < maintenance && maintenance < b, "{crashed_under} {maintenance} {b}");
}

fn copy_records(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_records(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// C7: the claim keeps its device over a reboot, nobody else gets it, and it is proved again.
#[tokio::test]
async fn a_reboot_asks_for_another_proof_and_gives_the_device_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let before = {
        let (ledger, _) = open(folder.path(), "boot-x").await;
        grant(&ledger, "a").await.devices[0].token
    };
    let (ledger, recovered) = open(folder.path(), "boot-y").await;
    assert!(recovered.granted.is_empty(), "no derived file is rebuilt for a grant of another boot");
    let refused = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
    assert!(matches!(refused, LeaseError::Held { .. }), "{refused}");
    let again = grant(&ledger, "a").await;
    assert_eq!(again.boot_id, "boot-y");
    assert!(again.devices[0].token > before);
}

#[tokio::test]
async fn a_quarantine_outlives_everything_and_only_gets_worse() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_address(d0());
    {
        let (ledger, _) = open(folder.path(), BOOT).await;
        ledger.quarantine(&identity, Reason::ResetTimeout, "hung".to_owned(), None).await.unwrap();
        ledger.quarantine(&identity, Reason::Operator, "mild".to_owned(), None).await.unwrap();
        ledger.quarantine(&identity, Reason::FellOffBus, "gone".to_owned(), None).await.unwrap();
    }
    for boot in ["boot-x", "boot-y"] {
        let (ledger, _) = open(folder.path(), boot).await;
        let refused = ledger.lease(&claim("a"), &wanted()).await.unwrap_err();
        assert!(matches!(&refused, LeaseError::Quarantined { reason: Reason::FellOffBus, .. }), "{refused}");
    }
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert!(ledger.lift("0000:99:00.0", "no").await.is_err());
    ledger.lift("0000:3b:00.0", "card reseated").await.unwrap();
    assert!(ledger.lift("0000:3b:00.0", "twice").await.is_err());
    assert!(names(folder.path(), "quarantine").is_empty());
    let kept = std::fs::read_to_string(folder.path().join("devices/pci-0000-3b-00-0.json")).unwrap();
    assert!(kept.contains("card reseated") && kept.contains("fell_off_bus"), "{kept}");
    assert_eq!(ledger.chores()[0].cause, Cause::FirstProof, "it is proved before anybody gets it");
}

#[tokio::test]
async fn a_verified_resanitization_ends_a_quarantine_and_a_failed_one_counts() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_address(d0());
    let (ledger, _) = open(folder.path(), BOOT).await;
    ledger.quarantine(&identity, Reason::ResetTimeout, "hung".to_owned(), None).await.unwrap();
    let chore = ledger.chores().remove(0);
    assert_eq!((&chore.cause, chore.attempts), (&Cause::Resanitization, 0));
    let lease = ledger.maintain(&chore).await.unwrap().unwrap();
    ledger.finish(lease, Finish::Bad(Reason::ResetTimeout, "hung again".to_owned())).await;
    assert_eq!(ledger.chores()[0].attempts, 1);
    let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
    ledger.finish(lease, Finish::Unproved).await;
    assert_eq!(ledger.chores()[0].attempts, 1, "a fault of the node is no attempt");
    clean(&ledger).await;
    assert!(names(folder.path(), "quarantine").is_empty() && ledger.chores().is_empty());
    for reason in [Reason::Operator, Reason::UnknownOwner, Reason::IdentityChanged] {
        ledger.quarantine(&identity, reason, String::new(), None).await.unwrap();
        assert!(ledger.chores().is_empty(), "{reason} waits for a person");
        ledger.lift(identity.as_str(), "person").await.unwrap();
    }
}

#[tokio::test]
async fn a_quarantined_device_of_a_claim_is_free_after_its_release_and_stays_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let a = grant(&ledger, "a").await;
    let identity = Identity::from_address(d0());
    ledger.quarantine(&identity, Reason::FellOffBus, String::new(), None).await.unwrap();
    assert_eq!(ledger.snapshot().devices[0].state, "granted", "its pod may go on");
    assert!(ledger.release(&a.claim.uid).await.devices().is_empty(), "there is nothing to wait for");
    assert_eq!(ledger.snapshot().devices[0].state, "free");
    assert!(ledger.lease(&claim("b"), &wanted()).await.is_err());
}

#[tokio::test]
async fn evidence_of_another_lease_or_with_a_gap_is_no_proof() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let mut lease = ledger.lease(&claim("a"), &wanted()).await.unwrap().remove(0);
    let stale = Token { epoch: lease.token().epoch - 1, ..lease.token() };
    let bad: [fn(&mut Evidence); 6] = [
        |e| e.scrub.pattern.canaries_found = 0,
        |e| e.scrub.zero.words_visited -= 1,
        |e| e.scrub.canaries_left = 1,
        |e| e.scrub.bytes_written -= 8,
        |e| e.after_reset.bars = Fact::Unreadable("no".to_owned()),
        |e| e.last.identity = Fact::Bad("another".to_owned()),
    ];
    let cases = bad.iter().map(|break_it| {
        let mut evidence = evidence(lease.token());
        break_it(&mut evidence);
        evidence
    });
    let cases: Vec<_> = cases.chain([evidence(stale)]).collect();
    for case in cases {
        let unsealed = lease.seal(case.clone()).expect_err(&format!("{case:?}"));
        lease = unsealed.lease;
    }
    ledger.undo(&claim("a").reference.uid, vec![(lease, Finish::Unproved)]).await;
}

#[tokio::test]
async fn a_dropped_lease_leaves_a_device_that_waits_for_cleaning() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    drop(ledger.lease(&claim("a"), &wanted()).await.unwrap());
    assert!(matches!(ledger.chores()[0].cause, Cause::AfterCrash(_)));
    assert!(matches!(ledger.lease(&claim("b"), &wanted()).await.unwrap_err(), LeaseError::Busy { .. }));
}

fn overwrite(path: &Path, bytes: &[u8]) {
    std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), bytes).unwrap();
}
