//! Records that are damaged, newer than we are, or contradict each other.

use serde_json::json;

use super::*;

/// C6 in part: whatever is damaged, the ledger opens, and what a damaged claim may have had is nobody's to give.
#[tokio::test]
async fn damaged_records_restrict_and_are_kept_aside() {
    let good = tempfile::tempdir().unwrap();
    {
        let (ledger, _) = open(good.path(), BOOT).await;
        grant(&ledger, "a").await;
    }
    let bytes = std::fs::read(good.path().join("claims/a.json")).unwrap();
    let mut damages: Vec<Vec<u8>> = (0..bytes.len()).step_by(64).map(|cut| bytes[..cut].to_vec()).collect();
    damages.push(b"{}\n".to_vec());
    damages.push(bytes.iter().map(|b| if *b == b'3' { b'4' } else { *b }).collect());
    for damage in damages {
        let folder = tempfile::tempdir().unwrap();
        copy_records(good.path(), folder.path());
        overwrite(&folder.path().join("claims/a.json"), &damage);
        let (ledger, recovered) = open(folder.path(), BOOT).await;
        assert_eq!(recovered.damaged.len(), 1);
        let refused = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
        assert!(
            matches!(&refused, LeaseError::Quarantined { reason: Reason::UnknownOwner, .. }),
            "{refused}"
        );
        assert_eq!(names(folder.path(), "damaged"), ["claims.a.json"]);
        let left = ledger.release(&claim("a").reference.uid).await.devices().len();
        assert_eq!(left, 0, "unprepare is always possible");
        drop(ledger);
        let (ledger, _) = open(folder.path(), BOOT).await;
        assert!(ledger.lease(&claim("b"), &wanted()).await.is_err(), "the quarantine is durable");
    }
}

#[tokio::test]
async fn a_damaged_device_record_takes_a_new_term() {
    let folder = tempfile::tempdir().unwrap();
    let before = {
        let (ledger, _) = open(folder.path(), BOOT).await;
        clean(&ledger).await
    };
    overwrite(&folder.path().join("devices/pci-0000-3b-00-0.json"), b"");
    let (ledger, _) = open(folder.path(), BOOT).await;
    let after = grant(&ledger, "a").await.devices[0].token;
    assert!(after.term > before.term, "{before} then {after}: the epoch was lost, so the term is new");
}

#[tokio::test]
async fn a_damaged_quarantine_record_is_a_quarantine() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_address(d0());
    {
        let (ledger, _) = open(folder.path(), BOOT).await;
        ledger.quarantine(&identity, Reason::ScrubVerify, String::new(), None).await.unwrap();
    }
    overwrite(&folder.path().join("quarantine/pci-0000-3b-00-0.json"), b"x");
    for _ in 0..2 {
        let (ledger, _) = open(folder.path(), BOOT).await;
        let refused = ledger.lease(&claim("a"), &wanted()).await.unwrap_err();
        assert!(matches!(refused, LeaseError::Quarantined { .. }), "{refused}");
    }
}

#[tokio::test]
async fn a_record_of_a_newer_version_keeps_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let record = {
        let (ledger, _) = open(folder.path(), BOOT).await;
        grant(&ledger, "a").await
    };
    let mut value = serde_json::to_value(&record).unwrap();
    value["fromTheFuture"] = json!({"kept": true});
    let text = value.to_string();
    let line = format!("{text}\n{:08x}\n", crc32fast::hash(text.as_bytes()));
    overwrite(&folder.path().join("claims/a.json"), line.as_bytes());
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(ledger.claim(&record.claim.uid).unwrap().other["fromTheFuture"], json!({"kept": true}));
}

/// Two records that name one device: the later lease counts, the earlier claim gets no answer from its record.
#[tokio::test]
async fn the_later_of_two_claim_records_counts() {
    let folder = tempfile::tempdir().unwrap();
    {
        let (ledger, _) = open(folder.path(), BOOT).await;
        let a = grant(&ledger, "a").await;
        let stale = std::fs::read(folder.path().join("claims/a.json")).unwrap();
        drop(ledger.release(&a.claim.uid).await);
        clean(&ledger).await;
        grant(&ledger, "b").await;
        overwrite(&folder.path().join("claims/a.json"), &stale);
    }
    let (ledger, recovered) = open(folder.path(), BOOT).await;
    assert!(ledger.claim(&claim("a").reference.uid).is_none());
    assert_eq!(recovered.granted.len(), 1);
    assert_eq!(recovered.granted[0].claim.name, "b");
}
