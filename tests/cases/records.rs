//! Records that contradict each other, belong elsewhere, or are gone: they restrict and never free.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::node::{Node, Policy, claim, more, name, uid, view, write};

fn read(path: &Path) -> Value {
    serde_json::from_str(fs::read_to_string(path).unwrap().lines().next().unwrap()).unwrap()
}

/// As the daemon would have written it.
fn forge(path: &Path, record: &Value) {
    let text = record.to_string();
    write(path, &format!("{text}\n{:08x}\n", crc32fast::hash(text.as_bytes())));
}

#[tokio::test]
async fn attack_two_grants_of_one_device_make_it_nobodys_and_it_is_never_wiped() {
    const DATA: &[u8] = b"what a pod is working on";
    let policy = Policy::default().release("attempts", "3").release("retry", "1s");
    let mut node = Node::with(3, policy).await;
    for (device, claimed) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
        node.granted(claimed).await;
    }
    node.give(&claim("d").on(0));
    node.give(&claim("e").on(1));
    let c = node.granted("c").await;
    (0..3).for_each(|device| node.leave(device, DATA));
    let before = [0, 1, 2].map(|device| node.counts(device));
    node.kill();
    // b says that it has a's device, too, under the same lease.
    let path = node.record("claims", &uid("b"));
    let (a, mut b) = (read(&node.record("claims", &uid("a"))), read(&path));
    b["devices"].as_array_mut().unwrap().push(a["devices"][0].clone());
    forge(&path, &b);
    node.start().await;
    for again in [false, true] {
        if again {
            node.restart().await;
        }
        for refused in ["d", "e"] {
            let words = node.refused(refused).await;
            assert!(words.contains("unknown_owner") && words.contains("contradicts"), "{words}");
        }
        let status = node.status().await;
        assert!(status.ledger.damaged.iter().any(|it| it.contains(&uid("b"))) || again);
        assert_eq!(node.records("damaged"), [format!("claims.{}.json", uid("b"))]);
        for ended in ["a", "b"] {
            node.unprepared(ended).await;
        }
        assert_eq!(node.granted("c").await, c, "nobody contradicts it");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!([0, 1, 2].map(|device| node.counts(device)), before);
        assert!((0..3).all(|device| node.holds(device, DATA)), "a pod may be working on it");
    }
    for device in 0..2 {
        let released = node.cli(&["quarantine", "release", &name(device), "--reason", "no pod has it"]);
        assert_eq!(released.status.code(), Some(0), "{released:?}");
    }
    node.granted("d").await;
    node.granted("e").await;
    assert!(!node.holds(0, DATA) && !node.holds(1, DATA));
}

#[tokio::test]
async fn attack_a_record_under_another_name_is_damage() {
    let mut node = Node::of(2).await;
    for (device, claimed) in ["a", "b"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    node.give(&claim("c").on(0));
    node.granted("a").await;
    let before = [node.counts(0), node.counts(1)];
    node.kill();
    fs::rename(node.record("claims", &uid("a")), node.record("claims", &uid("z"))).unwrap();
    node.start().await;
    for refused in ["a", "b", "c"] {
        let words = node.refused(refused).await;
        assert!(words.contains("unknown_owner") && words.contains(&uid("z")), "{words}");
    }
    assert_eq!(node.records("damaged"), [format!("claims.{}.json", uid("z"))]);
    assert_eq!([node.counts(0), node.counts(1)], before);
}

/// One device of two went bad in the pod's hands: when the other is clean, nothing of the claim is left on the disk,
/// and the epochs that it had are not given again.
#[tokio::test]
async fn attack_the_epoch_of_a_quarantined_device_outlives_its_claim() {
    let mut node = Node::of(2).await;
    node.give(&claim("a").on(0).on(1));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    node.fault(0, Some(cleanslate::sim::Fault::Dead));
    node.restart().await;
    node.until("it is found dead", |status| view(status, 0).quarantine.is_some()).await;
    let token = node.token(0).await;
    node.unprepared("a").await;
    node.until("nothing is left of it", |_| node.records("releasing").is_empty()).await;
    node.kill();
    node.fault(0, None);
    node.start().await;
    assert_eq!(node.token(0).await, token);
    assert!(node.cli(&["quarantine", "release", &name(0), "--reason", "reseated"]).status.success());
    node.granted("b").await;
    assert!(node.token(0).await > token);
}

/// Which is no reason to keep a pod from ending, nor to hand its device on as it is.
#[tokio::test]
async fn attack_a_claim_record_that_vanished_costs_nothing_but_itself() {
    let mut node = Node::of(1).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    let (before, token) = (node.counts(0), node.token(0).await);
    node.leave(0, b"of a");
    fs::remove_file(node.record("claims", &uid("a"))).unwrap();
    node.unprepared("a").await;
    assert_eq!(node.counts(0), more(before, 1, 1), "cleaned within the call");
    assert!(!node.holds(0, b"of a"));
    assert_eq!(node.status().await.ledger.unwritten, 0, "nothing is owed for ever");
    node.granted("b").await;
    assert!(node.token(0).await > token);
    node.unprepared("b").await;
    let token = node.token(0).await;
    node.restart().await;
    node.granted("b").await;
    assert!(node.token(0).await > token);
}

/// Quarantines cannot be written at a start, for procfs takes no files, whoever writes. What they are for must not be
/// forgotten before they can.
#[tokio::test]
async fn attack_a_full_disk_and_a_damaged_record_free_nothing() {
    let mut node = Node::of(2).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.granted("a").await;
    let before = [node.counts(0), node.counts(1)];
    node.kill();
    let (record, damage) = (node.record("claims", &uid("a")), "{}");
    write(&record, damage);
    let quarantine = node.path("state/quarantine");
    let kept = quarantine.with_extension("kept");
    fs::rename(&quarantine, &kept).unwrap();
    symlink("/proc/sys", &quarantine).unwrap();
    for _ in 0..2 {
        node.start().await;
        for refused in ["a", "b"] {
            assert!(node.prepare(refused).await.error.contains("unknown_owner"));
        }
        node.until("it is owed", |status| status.ledger.unwritten > 0).await;
        assert_eq!(fs::read_to_string(&record).unwrap(), damage, "it stands until its quarantines do");
        assert!(node.records("damaged").is_empty());
        node.kill();
    }
    fs::remove_file(&quarantine).unwrap();
    fs::rename(&kept, &quarantine).unwrap();
    for _ in 0..2 {
        node.start().await;
        for refused in ["a", "b"] {
            assert!(node.refused(refused).await.contains("unknown_owner"));
        }
        assert_eq!((node.records("quarantine").len(), node.records("damaged").len()), (2, 1));
        assert!(view(&node.status().await, 1).quarantine.is_some());
        node.kill();
    }
    assert_eq!([node.counts(0), node.counts(1)], before, "nobody's device was touched");
}

/// The highest epoch that there is: no lease can have a higher one, and nobody tries without a pause.
#[tokio::test]
async fn attack_an_epoch_that_cannot_rise_refuses_its_device_and_no_other() {
    let mut node = Node::of(2).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    let record = node.record("devices", node.device(0).await.identity.as_str());
    let before = node.counts(0);
    node.stop().await;
    let mut forged = read(&record);
    forged["token"]["epoch"] = u64::MAX.into();
    forged["proof"] = Value::Null;
    forge(&record, &forged);
    let begun = Instant::now();
    node.start().await;
    for _ in 0..2 {
        let words = node.refused("a").await;
        assert!(words.contains("used up its epochs") && words.contains(&u64::MAX.to_string()), "{words}");
        node.granted("b").await;
        node.unprepared("b").await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    assert_eq!((node.counts(0), node.token(0).await.epoch), (before, u64::MAX));
    let log = node.log();
    let tries = log.matches("maintenance cannot begin").count() as u64;
    assert!(tries >= 1 && tries <= 2 + begun.elapsed().as_secs() / 4, "{tries} tries:\n{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Fields are only added, so a record of the next version is one of ours; what we do not know of it is kept.
#[tokio::test]
async fn records_of_a_newer_version_are_read_and_nothing_of_them_is_lost() {
    let mut node = Node::of(3).await;
    for (device, claimed) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    let answer = node.granted("a").await;
    node.fault(2, Some(cleanslate::sim::Fault::DropWrites));
    node.refused("c").await;
    node.fault(2, None);
    let token = node.token(1).await;
    node.stop().await;
    let identity = |device| node.identity(device);
    let paths = [
        node.record("claims", &uid("a")),
        node.record("devices", &identity(1)),
        node.record("quarantine", &identity(2)),
        node.path("state/store.json"),
    ];
    for path in &paths {
        let mut record = read(path);
        record["fromNewer"] = serde_json::json!({"kept": true});
        forge(path, &record);
    }
    node.start().await;
    assert_eq!(node.granted("a").await, answer);
    node.granted("b").await;
    node.unprepared("b").await;
    assert!(node.token(1).await > token);
    assert!(node.refused("c").await.contains("scrub_verify"));
    assert!(node.status().await.ledger.damaged.is_empty());
    let is_kept = || paths.iter().all(|path| read(path)["fromNewer"]["kept"] == true);
    node.eventually("all of it is kept", is_kept).await;
    node.restart().await;
    assert_eq!(node.granted("a").await, answer);
}
