//! Records damaged by hand or by a disk: the daemon starts, what may be in use is in quarantine, what is known to be
//! whole goes on.

use std::fs;

use super::node::{Node, claim, name, uid, view, write};

/// What can become of a file.
fn damages(text: &str) -> Vec<String> {
    let flipped: String = text
        .chars()
        .scan(false, |done, c| {
            let flip = !*done && c.is_ascii_digit();
            *done |= flip;
            Some(if flip { if c == '9' { '8' } else { '9' } } else { c })
        })
        .collect();
    let half = text[..text.len() / 2].to_owned();
    vec![String::new(), "{}".to_owned(), half, flipped]
}

/// Claims `a` and `b` are granted; device 2 is free.
async fn two_claims() -> Node {
    let node = Node::of(3).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.give(&claim("c").on(2));
    node.granted("a").await;
    node.granted("b").await;
    node
}

#[tokio::test]
async fn bad_input_a_damaged_claim_record_quarantines_what_it_may_have_had() {
    let text = {
        let node = two_claims().await;
        fs::read_to_string(node.record("claims", &uid("a"))).unwrap()
    };
    for damaged in damages(&text) {
        let mut node = two_claims().await;
        let b = node.granted("b").await;
        let (cdi, counts) = (node.cdi("b"), [0, 1, 2].map(|device| node.counts(device)));
        node.kill();
        write(&node.record("claims", &uid("a")), &damaged);
        node.start().await;
        assert_eq!((node.granted("b").await, node.cdi("b")), (b, cdi), "b goes on");
        for refused in ["a", "c"] {
            let words = node.refused(refused).await;
            assert!(words.contains("unknown_owner"), "it may be anybody's: {words}");
        }
        let status = node.until("it is kept for a person", |_| !node.records("damaged").is_empty()).await;
        let kept = fs::read_to_string(node.record("damaged", &format!("claims.{}", uid("a")))).unwrap();
        assert_eq!(kept, damaged);
        assert!(status.ledger.damaged.iter().any(|it| it.contains(&uid("a"))), "{:?}", status.ledger.damaged);
        assert_eq!([0, 1, 2].map(|device| node.counts(device)), counts, "nobody's device was touched");
        node.unprepared("a").await;
        node.unprepared("never-heard-of").await;
        node.restart().await;
        assert!(node.refused("a").await.contains("unknown_owner"), "that is durable");
        for device in [0, 2] {
            let released = node.cli(&["quarantine", "release", &name(device), "--reason", "looked"]);
            assert_eq!(released.status.code(), Some(0), "{released:?}");
        }
        node.granted("a").await;
        node.granted("c").await;
        node.granted("b").await;
    }
}

#[tokio::test]
async fn bad_input_a_damaged_device_record_loses_no_epoch() {
    let mut node = two_claims().await;
    let identity = node.device(2).await.identity;
    let record = node.record("devices", identity.as_str());
    for damaged in damages(&fs::read_to_string(&record).unwrap()) {
        let token = node.token(2).await;
        node.kill();
        write(&record, &damaged);
        node.start().await;
        node.granted("a").await;
        node.granted("c").await;
        assert!(node.token(2).await > token, "no token is given twice");
        node.unprepared("c").await;
    }
}

#[tokio::test]
async fn bad_input_a_damaged_quarantine_record_is_a_quarantine_still() {
    let mut node = two_claims().await;
    node.fault(2, Some(cleanslate::sim::Fault::DropWrites));
    assert!(node.refused("c").await.contains("scrub_verify"));
    node.fault(2, None);
    let identity = node.device(2).await.identity;
    let record = node.record("quarantine", identity.as_str());
    let counts = node.counts(2);
    for damaged in damages(&fs::read_to_string(&record).unwrap()) {
        node.kill();
        write(&record, &damaged);
        node.start().await;
        assert!(node.refused("c").await.contains("quarantine"));
        node.granted("a").await;
        node.restart().await;
        assert!(node.refused("c").await.contains("quarantine"));
        assert!(record.exists(), "it is durable");
    }
    assert_eq!(node.counts(2), counts);
}

#[tokio::test]
async fn bad_input_a_damaged_record_of_the_store_takes_a_higher_term() {
    let mut node = two_claims().await;
    let store = node.path("state/store.json");
    let b = node.granted("b").await;
    for damaged in damages(&fs::read_to_string(&store).unwrap()) {
        let before = node.token(2).await;
        node.kill();
        write(&store, &damaged);
        node.start().await;
        assert_eq!(node.granted("b").await, b);
        node.granted("c").await;
        let status = node.status().await;
        assert!(view(&status, 2).token.term > before.term && view(&status, 2).token > before);
        node.unprepared("c").await;
    }
}
