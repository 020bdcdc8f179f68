//! What a hostile look found: records that nobody writes, and calls that meet in the middle.

use serde_json::{Value, json};

use super::*;

fn identity() -> Identity {
    Identity::from_address(d0())
}

fn read(path: &Path) -> Value {
    serde_json::from_str(std::fs::read_to_string(path).unwrap().lines().next().unwrap()).unwrap()
}

fn forge(path: &Path, record: &Value) {
    let text = record.to_string();
    overwrite(path, format!("{text}\n{:08x}\n", crc32fast::hash(text.as_bytes())).as_bytes());
}

/// Neither a panic nor an epoch that was given before.
#[tokio::test]
async fn epochs_that_are_used_up_are_said_to_be() {
    let name = "pci-0000-3b-00-0.json";
    for last_term in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        {
            let (ledger, _) = open(folder.path(), BOOT).await;
            clean(&ledger).await;
        }
        let path = folder.path().join("devices").join(name);
        let mut record = read(&path);
        record["token"]["epoch"] = json!(u64::MAX);
        if last_term {
            record["token"]["term"] = json!(u64::MAX);
        }
        record["proof"] = Value::Null;
        forge(&path, &record);
        let (ledger, _) = open(folder.path(), BOOT).await;
        let spent = ledger.snapshot().devices[0].token;
        assert_eq!(spent.epoch, u64::MAX);
        for _ in 0..2 {
            let refused = ledger.lease(&claim("a"), &wanted()).await.unwrap_err().to_string();
            let expected = ["used up its epochs", &spent.to_string(), "store.json"];
            assert!(expected.iter().all(|part| refused.contains(part)), "{refused}");
            let chore = ledger.chores().remove(0);
            assert!(ledger.maintain(&chore).await.unwrap().is_none());
        }
        assert_eq!(ledger.snapshot().devices[0].token, spent);
        drop(ledger);
        if !last_term {
            std::fs::remove_file(folder.path().join("store.json")).unwrap();
            let (ledger, _) = open(folder.path(), BOOT).await;
            assert!(grant(&ledger, "a").await.devices[0].token > spent, "as the words say");
        }
    }
}

/// Of each kind: what stood under its own name may be missing now, so nothing is free for it.
#[tokio::test]
async fn a_record_under_another_name_restricts() {
    let renamed = [
        ("claims", "a", "b"),
        ("releasing", "", "b.0123456789ab"),
        ("quarantine", "pci-0000-3b-00-0", "pci-0000-5e-00-0"),
    ];
    for (kind, from, to) in renamed {
        let folder = tempfile::tempdir().unwrap();
        {
            let (ledger, _) = open(folder.path(), BOOT).await;
            grant(&ledger, "a").await;
            match kind {
                "releasing" => drop(ledger.release(&claim("a").reference.uid).await),
                "quarantine" => {
                    drop(ledger.release(&claim("a").reference.uid).await);
                    clean(&ledger).await;
                    ledger.quarantine(&identity(), Reason::ScrubVerify, String::new(), None).await.unwrap();
                }
                _ => {}
            }
        }
        let from =
            if from.is_empty() { names(folder.path(), kind)[0].clone() } else { format!("{from}.json") };
        let kinds = folder.path().join(kind);
        std::fs::rename(kinds.join(from), kinds.join(format!("{to}.json"))).unwrap();
        for _ in 0..2 {
            let (ledger, _) = open(folder.path(), BOOT).await;
            let refused = ledger.lease(&claim("b"), &wanted()).await.unwrap_err();
            let unknown = matches!(&refused, LeaseError::Quarantined { reason: Reason::UnknownOwner, .. });
            assert!(unknown, "{kind}: {refused}");
            assert!(ledger.chores().is_empty(), "{kind}: it is never wiped");
        }
    }
}

#[tokio::test]
async fn a_device_record_under_another_name_takes_a_new_term() {
    let folder = tempfile::tempdir().unwrap();
    let before = {
        let (ledger, _) = open(folder.path(), BOOT).await;
        clean(&ledger).await
    };
    let devices = folder.path().join("devices");
    std::fs::rename(devices.join("pci-0000-3b-00-0.json"), devices.join("pci-0000-5e-00-0.json")).unwrap();
    let (ledger, recovered) = open(folder.path(), BOOT).await;
    assert!(recovered.damaged[0].contains("about something else"), "{:?}", recovered.damaged);
    assert!(ledger.snapshot().devices.iter().all(|device| device.proof.is_none()));
    assert!(grant(&ledger, "a").await.devices[0].token > before);
}

/// The word of an operator who had not seen it yet.
#[tokio::test]
async fn a_quarantine_raised_during_a_lift_stands() {
    for worse in [Reason::FellOffBus, Reason::ScrubVerify] {
        let folder = tempfile::tempdir().unwrap();
        let (ledger, _) = open(folder.path(), BOOT).await;
        ledger.quarantine(&identity(), Reason::ScrubVerify, "first".to_owned(), None).await.unwrap();
        let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
        // Polled in this order: the end of the re-sanitization comes while the lift waits for the disk.
        let (lifted, ()) = tokio::join!(
            ledger.lift("0000:3b:00.0", "reseated"),
            ledger.finish(lease, Finish::Bad(worse, "second".to_owned())),
        );
        let words = lifted.unwrap_err().to_string();
        assert!(words.contains(worse.as_str()) && words.contains("stands"), "{words}");
        assert!(ledger.lease(&claim("a"), &wanted()).await.is_err());
        drop(ledger);
        let (ledger, _) = open(folder.path(), BOOT).await;
        let refused = ledger.lease(&claim("a"), &wanted()).await.unwrap_err();
        assert!(matches!(&refused, LeaseError::Quarantined { reason, .. } if *reason == worse), "{refused}");
        ledger.lift(identity().as_str(), "seen it now").await.unwrap();
        grant(&ledger, "a").await;
    }
}

/// Whichever comes first, the device has a proof or none, and nobody gets it without one.
#[tokio::test]
async fn a_lift_meets_a_resanitization_that_ends() {
    type End = fn(Token) -> Option<Evidence>;
    let ends: [End; 2] = [|token| Some(evidence(token)), |_| None];
    for end in ends {
        for lift_first in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let (ledger, _) = open(folder.path(), BOOT).await;
            ledger.quarantine(&identity(), Reason::ScrubVerify, String::new(), None).await.unwrap();
            let lease = ledger.maintain(&ledger.chores()[0]).await.unwrap().unwrap();
            let proof = end(lease.token());
            let is_proved = proof.is_some();
            let (lease, finish) = match proof {
                Some(evidence) => lease.seal(evidence).unwrap().give_up(),
                None => (lease, Finish::Unproved),
            };
            let (lift, finish) = (ledger.lift("0000:3b:00.0", "reseated"), ledger.finish(lease, finish));
            let lifted = if lift_first {
                tokio::join!(lift, finish).0
            } else {
                finish.await;
                lift.await
            };
            assert_eq!(lifted.is_ok(), lift_first || !is_proved);
            drop(ledger);
            let (ledger, _) = open(folder.path(), BOOT).await;
            let device = ledger.snapshot().devices.remove(0);
            assert_eq!((device.quarantine.is_some(), device.schedulable), (false, is_proved));
        }
    }
}

/// A disk that fails for a while keeps the damaged record where it is; by the time that it can be moved, its place may
/// be another's.
#[tokio::test]
async fn a_grant_in_the_place_of_a_damaged_record_stays() {
    let folder = tempfile::tempdir().unwrap();
    {
        let (ledger, _) = open(folder.path(), BOOT).await;
        grant(&ledger, "a").await;
    }
    overwrite(&folder.path().join("claims/a.json"), b"{}");
    let ledger = loop {
        match Ledger::open(folder.path(), BOOT.to_owned()).await {
            Ok((ledger, _)) => break ledger,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let quarantine = folder.path().join("quarantine");
    std::fs::remove_dir(&quarantine).unwrap();
    ledger.found(&identity(), d0()).await.unwrap_err();
    ledger.accounted().await;
    assert!(names(folder.path(), "damaged").is_empty(), "its quarantine is not on the disk");
    std::fs::create_dir(&quarantine).unwrap();
    ledger.settle().await.unwrap();
    ledger.lift("0000:3b:00.0", "looked").await.unwrap();
    let granted = grant(&ledger, "a").await;
    ledger.accounted().await;
    drop(ledger);
    let (ledger, recovered) = open(folder.path(), BOOT).await;
    assert_eq!(recovered.granted, [granted]);
    assert!(matches!(ledger.lease(&claim("b"), &wanted()).await.unwrap_err(), LeaseError::Held { .. }));
}

/// A card that was dead at the first start is known by its place; alive again, it says who it is.
#[tokio::test]
async fn a_quarantine_that_follows_its_card_is_not_lost_to_the_breaker() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    let places: Vec<_> = (0..2).map(|number| address(&format!("0000:5e:00.{number}"))).collect();
    for place in &places {
        let identity = Identity::from_address(*place);
        ledger.found(&identity, *place).await.unwrap();
        ledger.quarantine(&identity, Reason::FellOffBus, "dead".to_owned(), None).await.unwrap();
    }
    let before = ledger.snapshot().devices;
    let since = |devices: &[DeviceView]| -> Vec<_> {
        devices.iter().filter_map(|device| device.quarantine.clone()).map(|q| (q.reason, q.since)).collect()
    };
    let cards: Vec<_> = [7, 8].map(|serial| Identity::from_serial(0x1234, 0xc1ea, 0, serial)).into();
    for (card, place) in cards.iter().zip(&places) {
        ledger.found(card, *place).await.unwrap();
        assert!(!ledger.is_withheld(card));
    }
    assert_eq!(since(&ledger.snapshot().devices), since(&before));
    let expected: Vec<_> = cards.iter().map(|card| format!("{card}.json")).collect();
    assert_eq!(names(folder.path(), "quarantine"), expected);
    drop(ledger);
    let (ledger, _) = open(folder.path(), BOOT).await;
    assert_eq!(since(&ledger.snapshot().devices), since(&before));
}

/// What was seen since the proof stands against it.
#[tokio::test]
async fn a_device_that_the_breaker_spares_has_lost_its_proof() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = open(folder.path(), BOOT).await;
    clean(&ledger).await;
    for number in 0..2 {
        let place = address(&format!("0000:5e:00.{number}"));
        let identity = Identity::from_address(place);
        ledger.found(&identity, place).await.unwrap();
        ledger.quarantine(&identity, Reason::ProbeFailed, String::new(), None).await.unwrap();
    }
    assert!(ledger.snapshot().devices[0].schedulable);
    ledger.quarantine(&identity(), Reason::ProbeFailed, String::new(), None).await.unwrap();
    let device = ledger.snapshot().devices.remove(0);
    assert!(device.quarantine.is_none() && ledger.is_withheld(&identity()));
    assert!(!device.schedulable && device.proof.is_none(), "{device:?}");
    assert!(matches!(ledger.chores()[..], [Chore { cause: Cause::FirstProof, .. }, ..]));
}
