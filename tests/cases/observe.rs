//! A policy that only observes: what would be done is told, and nothing is.

use cleanslate::sim::Fault;

use super::node::{Node, Policy, at, claim, claim_of, name};

fn observing() -> Policy {
    let text = Policy::default().text();
    Policy::of(&text.replace("kind: NodePolicy\n", "kind: NodePolicy\nmode: observe\n"))
}

#[tokio::test]
async fn observe_says_what_would_be_done_and_touches_nothing() {
    let mut node = Node::lay(&["", "", "", "vendor=10de,device=2330"], observing());
    node.fault(1, Some(Fault::Dead));
    node.twin.hold(at(2), 4711, "python3.12", "0::/pod").unwrap();
    let before = [0, 1, 2].map(|device| node.counts(device));
    node.start().await;
    let status = node.until("all are looked at", |status| status.observed.len() == 2).await;
    let would = |device: usize| {
        let seen = status.observed.iter().find(|seen| seen.device == name(device));
        seen.map(|seen| seen.would.as_str()).unwrap_or_default().to_owned()
    };
    assert!(would(0).starts_with("be reset by flr, and "), "{}", would(0));
    assert!(would(2).contains("be refused: held: process 4711 (python3.12"), "{}", would(2));
    let told = String::from_utf8(node.cli(&["status"]).stdout).unwrap();
    for words in ["the policy only observes", "would be reset by flr", "python3.12", &name(1)] {
        assert!(told.contains(words), "{words}: {told}");
    }

    node.give(&claim("a").on(0));
    let words = node.refused("a").await;
    assert!(words.contains("this node's policy only observes (mode: observe)"), "{words}");
    node.unprepared("a").await;
    assert_eq!([0, 1, 2].map(|device| node.counts(device)), before);
    assert!(node.device(0).await.proof.is_none());
}

/// What was granted before goes on, can end at once, and is cleaned as soon as the policy allows.
#[tokio::test]
async fn observe_leaves_grants_alone_and_lets_pods_end() {
    let mut node = Node::of(2).await;
    for (device, claimed) in ["kept", "ended"].into_iter().enumerate() {
        node.give(&claim(claimed).on(device));
        node.granted(claimed).await;
        node.leave(device, b"a tenant's data");
    }
    let answer = node.granted("kept").await;
    let (before, cdi) = ([0, 1].map(|device| node.counts(device)), node.cdi("kept"));
    node.policy = observing();
    node.restart().await;
    node.until("it observes", |status| status.observed.len() == 2).await;
    assert_eq!((node.granted("kept").await, node.cdi("kept")), (answer, cdi), "the recorded answer");
    let begun = std::time::Instant::now();
    node.unprepared_only("ended").await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(node.cdi("ended").is_none());
    std::fs::remove_file(node.path("claims/kept.json")).unwrap();
    node.restart().await;
    node.until("it observes", |status| status.observed.len() == 2).await;
    assert!(claim_of(&node.status().await, "kept").is_some(), "an orphan is left alone too");
    assert_eq!([0, 1].map(|device| node.counts(device)), before);
    assert!(node.holds(1, b"a tenant's data"));

    node.policy = Policy::default();
    node.restart().await;
    node.proved().await;
    assert!(!node.holds(0, b"a tenant's data") && !node.holds(1, b"a tenant's data"));
}
