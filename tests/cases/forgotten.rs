//! C28: grants that the kubelet will never release.

use std::fs;

use super::node::{Node, at, claim, claim_of, flock, more, name, write};

const TENANT: &[u8] = b"what the forgotten pod left";

fn forget(node: &Node, claim: &str) {
    fs::remove_file(node.path(&format!("claims/{claim}.json"))).unwrap();
}

/// Granted to `a`, used by it, and forgotten by the kubelet.
async fn used_by_a(node: &Node) {
    node.give(&claim("a").on(0));
    node.granted("a").await;
    node.leave(0, TENANT);
}

#[tokio::test]
async fn c28_a_forgotten_claim_gives_its_device_to_the_next() {
    let node = Node::of(2).await;
    used_by_a(&node).await;
    node.give(&claim("neighbour").on(1));
    node.granted("neighbour").await;
    let (granted, neighbour) = (node.counts(0), (node.counts(1), node.cdi("neighbour")));
    let token = node.token(0).await;
    node.give(&claim("b").on(0));
    let words = node.refused("b").await;
    assert!(words.contains("tests/a"), "it is still a claim: {words}");

    forget(&node, "a");
    node.granted("b").await;
    assert_eq!(node.counts(0), more(granted, 2, 2), "one cleaning after a, one proof for b");
    assert!(!node.holds(0, TENANT) && node.cdi("a").is_none() && node.cdi("b").is_some());
    assert!(node.token(0).await.epoch == token.epoch + 2);
    let status = node.status().await;
    assert!(claim_of(&status, "a").is_none() && claim_of(&status, "b").is_some());
    assert_eq!(node.records("claims").len(), 2);
    assert_eq!((node.counts(1), node.cdi("neighbour")), neighbour);
    // The kubelet finds out after all: nothing is taken from b.
    node.unprepared_only("a").await;
    assert_eq!(node.counts(0), more(granted, 2, 2));
    assert!(node.cdi("b").is_some());
}

#[tokio::test]
async fn c28_a_claim_allocated_elsewhere_behind_the_kubelets_back_loses_its_device() {
    let node = Node::of(2).await;
    used_by_a(&node).await;
    node.give(&claim("b").on(0));
    for elsewhere in [
        claim("a").on(1).allocated_at("2026-12-01T09:00:00Z"),
        claim("a").on(0).for_node("another-node"),
        claim("a"),
        claim("a").with_uid("another-uid").on(0),
    ] {
        node.give(&elsewhere);
        node.granted("b").await;
        assert!(node.cdi("a").is_none());
        node.unprepared("b").await;
        used_by_a(&node).await;
    }
}

#[tokio::test]
async fn c28_a_start_finds_what_was_forgotten_before_it() {
    let mut node = Node::of(1).await;
    used_by_a(&node).await;
    let granted = node.counts(0);
    forget(&node, "a");
    node.restart().await;
    node.until("a is released", |status| claim_of(status, "a").is_none()).await;
    node.proved().await;
    assert_eq!(node.counts(0), more(granted, 1, 1));
    assert!(!node.holds(0, TENANT) && node.cdi("a").is_none());
}

/// What cannot be told is no orphan: who has it open, or whether the claim is gone.
#[tokio::test]
async fn c28_who_may_still_use_it_keeps_it() {
    let mut node = Node::of(1).await;
    used_by_a(&node).await;
    let (granted, cdi) = (node.counts(0), node.cdi("a"));
    node.give(&claim("b").on(0));
    let keeps = async |node: &Node, why: &str| {
        let words = node.refused("b").await;
        assert!(words.contains(&format!("device {} is granted to claim tests/a", name(0))), "{why}: {words}");
        assert_eq!((node.counts(0), node.cdi("a")), (granted, cdi.clone()), "{why}");
        assert!(node.holds(0, TENANT), "{why}");
    };
    forget(&node, "a");
    node.twin.hold(at(0), 4711, "python3.12", "0::/pod").unwrap();
    keeps(&node, "somebody has it open").await;
    assert!(node.log().contains("python3.12"));
    node.restart().await;
    keeps(&node, "also after a restart").await;
    node.twin.let_go(4711).unwrap();
    write(&node.path("claims/a.json"), "{ half a claim");
    keeps(&node, "its file cannot be read").await;
    forget(&node, "a");
    std::os::unix::fs::symlink("nowhere", node.path("claims/a.json")).unwrap();
    keeps(&node, "its file is moved while it is looked for").await;
    let lock = flock(&node, 0);
    forget(&node, "a");
    keeps(&node, "another worker may be at it").await;
    drop(lock);
    node.granted("b").await;
}

/// Servers of two versions answer in turn while a control plane is upgraded, and the older one knows no timestamp.
#[tokio::test]
async fn c28_a_timestamp_that_an_older_server_does_not_show_costs_nobody_the_device() {
    let node = Node::of(1).await;
    let (allocated, again) = ("2026-12-01T09:00:00Z", "2026-12-01T09:30:00Z");
    node.give(&claim("a").on(0).allocated_at(allocated));
    node.granted("a").await;
    node.leave(0, TENANT);
    node.give(&claim("b").on(0));
    node.give(&claim("a").on(0));
    let words = node.refused("b").await;
    assert!(words.contains("is granted to claim tests/a"), "{words}");
    assert!(node.holds(0, TENANT) && node.cdi("a").is_some());
    // Nor does it cost the claim what it has: the kubelet asks again after a restart.
    let counts = node.counts(0);
    node.granted("a").await;
    assert!(node.counts(0) == counts && node.holds(0, TENANT));
    // That it was allocated anew is said by another timestamp.
    node.give(&claim("a").on(0).allocated_at(again));
    node.granted("b").await;
    assert!(!node.holds(0, TENANT) && node.cdi("a").is_none());
}
