//! An API server that loses, refuses, drops or changes things.

use std::time::Duration;

use cleanslate::sim::Fault;
use cleanslate::sim::api::{Features, Kind, Verb};
use serde_json::json;

use crate::node::{FIRST, NODE, Node, POLICY, SECOND, devices, until};

const SLICE: &str = "node-a-cleanslate.dev-00";
const HUNG: &str = "cleanslate.dev/quarantined=reset_timeout:NoExecute";

async fn proved() -> Node {
    let node = Node::start(&[FIRST, SECOND], POLICY);
    node.stands(FIRST, &[]).await;
    node.stands(SECOND, &[]).await;
    node
}

/// The content of the only slice.
fn spec(node: &Node) -> Option<serde_json::Value> {
    node.slices().first().map(|slice| slice["spec"].clone())
}

#[tokio::test]
async fn a_slice_that_is_deleted_is_back_within_two_seconds() {
    let node = proved().await;
    let before = spec(&node);
    for _ in 0..5 {
        node.api.delete(Kind::Slices, SLICE).unwrap();
        let ((), took) = until("it is back", 2, || (spec(&node) == before).then_some(())).await;
        println!("  back after {} ms", took.as_millis());
    }
}

#[tokio::test]
async fn what_somebody_else_writes_is_put_right() {
    let node = proved().await;
    let before = spec(&node);
    let mut slice = node.slices().remove(0);
    slice["spec"]["skipNodeOperations"] = json!(["*"]);
    slice["spec"]["devices"][0]["allowMultipleAllocations"] = json!(true);
    slice["metadata"]["labels"] = json!({"somebody": "else"});
    node.api.put(Kind::Slices, &slice).unwrap();
    until("what it was", 5, || (spec(&node) == before).then_some(())).await;
    assert_eq!(node.slices()[0]["metadata"]["labels"]["somebody"], "else", "what is no content stays");

    // One of an older version of us, or of nobody.
    let stray = json!({
        "metadata": {"name": "node1-cleanslate"},
        "spec": {"driver": "cleanslate.dev", "nodeName": NODE, "devices": [{"name": "pci-0000-3b-00-0"}],
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1}},
    });
    let written = node.writes().len();
    node.api.put(Kind::Slices, &stray).unwrap();
    until("it is gone", 5, || (node.slices().len() == 1).then_some(())).await;
    assert_eq!((spec(&node), node.writes().len()), (before, written + 1), "one delete");

    // Those of other nodes and drivers are none of ours.
    for (name, field, value) in
        [("other-node", "nodeName", "node-b"), ("other-driver", "driver", "example.com")]
    {
        let mut other = stray.clone();
        other["metadata"]["name"] = json!(name);
        other["spec"][field] = json!(value);
        node.api.put(Kind::Slices, &other).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(node.slices().len(), 3);
}

/// 1.34 and 1.35: a device whose taint is dropped would be given to somebody.
#[tokio::test]
async fn where_taints_are_dropped_the_device_leaves_the_slice_and_never_stood_there_without() {
    let mut node = Node::new(&["0000:3b:00.0,reset_ms=600", "0000:5e:00.0,reset_ms=600"], POLICY);
    node.api.set_features(Features { taints: false, effect_none: false });
    node.start_daemon();
    node.stands(FIRST, &[]).await;
    node.stands(SECOND, &[]).await;
    let first = &node.api.past(Kind::Slices, SLICE)[0];
    assert_eq!(devices(first), [], "none was proved then");

    let kubelet = node.kubelet().await;
    node.twin.set_fault(FIRST.parse().unwrap(), Some(Fault::HangReset)).unwrap();
    node.prepare(&kubelet, "a", FIRST).await;
    let view = node.published("left out", |view| view.left_out == ["pci-0000-3b-00-0"]).await;
    assert_eq!((view.devices, view.failing()), (1, None));
    let seen = node.api.past(Kind::Slices, SLICE).len();
    assert_eq!(node.offered(), [("pci-0000-5e-00-0".to_owned(), Vec::new())]);

    // The server is upgraded; the next change finds that out.
    node.api.set_features(Features::default());
    node.twin.set_fault(SECOND.parse().unwrap(), Some(Fault::HangReset)).unwrap();
    node.prepare(&kubelet, "b", SECOND).await;
    node.stands(FIRST, &[HUNG]).await;
    node.stands(SECOND, &[HUNG]).await;
    let view = node.published("nothing left out", |view| view.left_out.is_empty()).await;
    assert_eq!(view.failing(), None);
    for later in &node.api.past(Kind::Slices, SLICE)[seen..] {
        assert!(devices(later).iter().all(|(name, taints)| name.contains("5e") || !taints.is_empty()));
    }
}

#[tokio::test]
async fn every_refusal_is_tried_again_shown_and_told_once() {
    let mut node = Node::new(&[FIRST], &POLICY.replace("firstProofWithin: 0s", "firstProofWithin: 10m"));
    node.api.refuse(Verb::Create, &[403, 403, 429, 500, 422, 409]);
    node.start_daemon();
    for words in ["Forbidden (code 403)", "TooManyRequests (code 429)", "InternalError (code 500)"] {
        let shown = |view: &cleanslate::publish::PublishView| {
            view.last_error.as_ref().is_some_and(|failure| failure.error.contains(words))
        };
        let view = node.published(words, shown).await;
        assert_eq!(view.last_success, None);
    }
    let view = node.published("it got through", |view| view.last_success.is_some()).await;
    assert_eq!((view.failing(), node.slices().len(), node.api.refusals_left()), (None, 1, 0));
    assert_eq!(node.writes().len(), 1);
    let told = |words: &str| node.log().lines().filter(|line| line.contains(words)).count();
    for code in [403, 429, 500, 422] {
        assert_eq!(told(&format!("(code {code})")), 1, "{code}: {}", node.log());
    }
    assert_eq!(told("has what it should again"), 1);
}

#[tokio::test]
async fn refused_updates_and_conflicts_get_through_in_the_end() {
    let node = proved().await;
    let kubelet = node.kubelet().await;
    node.api.refuse(Verb::Update, &[409, 500, 403, 422, 409]);
    node.twin.set_fault(FIRST.parse().unwrap(), Some(Fault::HangReset)).unwrap();
    node.prepare(&kubelet, "a", FIRST).await;
    node.stands(FIRST, &[HUNG]).await;
    assert_eq!(node.api.refusals_left(), 0);
}

#[tokio::test]
async fn a_server_that_was_away_finds_what_it_should_have() {
    let mut node = Node::new(&[FIRST], POLICY);
    node.api.set_down(true);
    node.start_daemon();
    node.published("it says so", |view| view.failing().is_some()).await;
    node.api.set_down(false);
    node.stands(FIRST, &[]).await;

    // Its memory is gone with the slice, so the watch cannot go on from where it was.
    node.api.set_down(true);
    node.api.delete(Kind::Slices, SLICE).unwrap();
    node.api.compact();
    node.published("it says so", |view| view.failing().is_some()).await;
    node.api.set_down(false);
    let ((), took) = until("it is back", 30, || (node.slices().len() == 1).then_some(())).await;
    println!("  back {} ms after the server", took.as_millis());
    node.published("in step", |view| view.failing().is_none()).await;
    node.api.delete(Kind::Slices, SLICE).unwrap();
    until("the watch goes on", 2, || (node.slices().len() == 1).then_some(())).await;
}

#[tokio::test]
async fn slices_wait_for_their_owner_and_follow_it() {
    let mut node = Node::new(&[FIRST], POLICY);
    node.api.delete(Kind::Nodes, NODE).unwrap();
    node.start_daemon();
    let view = node.published("it says so", |view| view.failing().is_some()).await;
    let error = &view.last_error.as_ref().unwrap().error;
    assert!(error.contains("has no Node node-a") && error.contains("--node-name"), "{error}");
    assert_eq!(node.slices(), Vec::<serde_json::Value>::new());
    let owner = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    node.api.put(Kind::Nodes, &owner).unwrap();
    node.stands(FIRST, &[]).await;

    // The node's object is another now: the garbage collector takes the slice, and the next has another owner.
    node.api.delete(Kind::Nodes, NODE).unwrap();
    let uid = node.api.put(Kind::Nodes, &owner).unwrap()["metadata"]["uid"].clone();
    node.api.delete(Kind::Slices, SLICE).unwrap();
    until("the slice of the new owner", 2, || {
        node.slices().first().filter(|slice| slice["metadata"]["ownerReferences"][0]["uid"] == uid).map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_told() {
    let mut node = Node::new(&[FIRST], POLICY);
    let squatter = json!({
        "metadata": {"name": SLICE},
        "spec": {"driver": "example.com", "nodeName": "node-b",
            "pool": {"name": "node-b", "generation": 1, "resourceSliceCount": 1}},
    });
    node.api.put(Kind::Slices, &squatter).unwrap();
    node.start_daemon();
    let view = node.published("it says so", |view| view.failing().is_some()).await;
    let error = &view.last_error.as_ref().unwrap().error;
    assert!(error.contains("in our way") && error.contains("example.com"), "{error}");
    node.api.delete(Kind::Slices, SLICE).unwrap();
    node.stands(FIRST, &[]).await;
}
