//! A disk that takes nothing for a while: what is granted stays, what ends can end, nothing new begins, and when it
//! is well again the records say what is true.

use std::fs;

use super::node::{Node, Policy, claim, more, uid, view, write};

const FOLDERS: [&str; 4] = ["claims", "releasing", "devices", "quarantine"];

/// Each folder of records becomes a file: as root, too, nothing can be written into it.
fn break_disk(node: &Node) {
    for folder in FOLDERS {
        let path = node.path("state").join(folder);
        fs::rename(&path, path.with_extension("kept")).unwrap();
        write(&path, "");
    }
}

fn mend_disk(node: &Node) {
    for folder in FOLDERS {
        let path = node.path("state").join(folder);
        fs::remove_file(&path).unwrap();
        fs::rename(path.with_extension("kept"), path).unwrap();
    }
}

async fn nothing_owed(node: &Node) {
    node.until("what was owed is written", |status| status.ledger.unwritten == 0).await;
}

#[tokio::test]
async fn bad_input_a_state_folder_that_breaks_costs_new_claims_only() {
    let node = Node::with(3, Policy::default().release("wait", "200ms")).await;
    for (device, name) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(name).on(device));
    }
    node.give(&claim("d").on(1));
    let a = node.granted("a").await;
    node.granted("b").await;
    let before = [0, 1, 2].map(|device| node.counts(device));
    break_disk(&node);
    let answer = node.prepare("c").await;
    let expected = ["store: record claims/", "no device was touched"];
    assert!(expected.iter().all(|part| answer.error.contains(part)), "{answer:?}");
    assert_eq!((node.counts(2), node.cdi("c")), (before[2], None));
    assert_eq!(node.granted("a").await, a, "it needs no record to be written");
    node.unprepared("b").await;
    let waiting = node.preparing("d");
    let status = node.until("somebody is told", |status| status.ledger.unwritten > 0).await;
    assert_eq!(status.ledger.claims.len(), 1, "b is released, c is not leased");
    assert!(!waiting.is_finished(), "and its device is nobody's until it is clean");
    mend_disk(&node);
    nothing_owed(&node).await;
    node.is_granted("d", waiting.await.unwrap());
    assert_eq!(node.counts(1), more(before[1], 2, 2));
    node.granted("c").await;
    assert_eq!(node.granted("a").await, a);
    assert_eq!(node.records("claims").len(), 3);
}

/// What could not be written is made up for later, and must not undo what was written since.
#[tokio::test]
async fn disk_what_is_owed_never_overwrites_what_came_after_it() {
    let mut node = Node::of(1).await;
    node.give(&claim("a").on(0));
    break_disk(&node);
    assert!(node.prepare("a").await.error.contains("store"));
    mend_disk(&node);
    let answer = node.granted("a").await;
    nothing_owed(&node).await;
    let counts = node.counts(0);
    assert!(node.record("claims", &uid("a")).exists(), "a has the device");
    node.kill();
    node.start().await;
    assert_eq!(node.granted("a").await, answer);
    assert_eq!(node.counts(0), counts, "its pod was left alone");
}

/// Released while the disk is broken and prepared again at once when it is well: the release that is still owed is
/// the former one's.
#[tokio::test]
async fn disk_an_owed_release_does_not_release_the_next_grant() {
    let mut node = Node::with(1, Policy::default().release("wait", "100ms")).await;
    node.give(&claim("a").on(0));
    node.granted("a").await;
    break_disk(&node);
    node.unprepared("a").await;
    mend_disk(&node);
    let answer = node.granted("a").await;
    nothing_owed(&node).await;
    node.until("nothing is left of the former", |_| node.records("releasing").is_empty()).await;
    let (counts, token) = (node.counts(0), node.token(0).await);
    node.kill();
    node.start().await;
    assert_eq!(node.granted("a").await, answer);
    let status = node.status().await;
    assert_eq!((view(&status, 0).state.as_str(), view(&status, 0).token), ("granted", token));
    assert_eq!(node.counts(0), counts, "its pod was left alone");
}

/// Without its CDI file a container would get nothing, so a claim is not granted; one that is keeps its device.
#[tokio::test]
async fn bad_input_a_cdi_folder_that_breaks_rolls_the_grant_back() {
    let node = Node::of(2).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    let (a, cdi) = (node.granted("a").await, node.cdi("a"));
    let before = [node.counts(0), node.counts(1)];
    fs::remove_dir_all(node.path("cdi")).unwrap();
    write(&node.path("cdi"), "");
    for name in ["a", "b"] {
        let words = node.prepare(name).await.error;
        assert!(words.contains("CDI") && words.contains("--cdi must name a folder"), "{words}");
    }
    let status = node.until("b's device is clean again", |status| view(status, 1).schedulable).await;
    assert_eq!(status.ledger.claims.len(), 1);
    assert_eq!(view(&status, 0).state, "granted");
    assert_eq!([node.counts(0), node.counts(1)], [before[0], more(before[1], 2, 2)], "proved, and cleaned");
    assert!(!node.record("claims", &uid("b")).exists());
    fs::remove_file(node.path("cdi")).unwrap();
    assert_eq!((node.granted("a").await, node.cdi("a")), (a, cdi));
    node.granted("b").await;
}
