//! Calls that meet: the same claim asked for twice at once, and released while it is prepared.

use std::time::{Duration, Instant};

use super::node::{Node, Policy, claim, claim_of, more, reference, uid, view};

/// Long enough to be met in, on a machine that does ten other things.
const SLOW: &str = "reset_ms=1000";

async fn slow_node() -> Node {
    let mut node = Node::lay(&[SLOW, SLOW, ""], Policy::default());
    node.start().await;
    node.proved().await;
    node
}

#[tokio::test]
async fn queue_calls_for_the_same_claim_share_one_job_and_one_answer() {
    let node = slow_node().await;
    node.give(&claim("a").on(0).on(1));
    let before = [node.counts(0), node.counts(1)];
    let first = node.preparing("a");
    node.in_step(0, "reset").await;
    let others = [node.preparing("a"), node.preparing("a")];
    let answer = node.is_granted("a", first.await.unwrap());
    for other in others {
        assert_eq!(node.is_granted("a", other.await.unwrap()), answer);
    }
    assert_eq!([node.counts(0), node.counts(1)], before.map(|before| more(before, 1, 1)));
}

/// The kubelet gives a call up, its successor gets what the first one began.
#[tokio::test]
async fn queue_a_call_that_breaks_off_stops_nothing() {
    let node = slow_node().await;
    node.give(&claim("a").on(0));
    let before = node.counts(0);
    let first = node.preparing("a");
    node.in_step(0, "reset").await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    node.granted("a").await;
    assert_eq!(node.counts(0), more(before, 1, 1));
}

#[tokio::test]
async fn queue_unprepare_ends_a_prepare_at_its_next_step() {
    let node = slow_node().await;
    node.give(&claim("a").on(0).on(1));
    let before = [node.counts(0), node.counts(1)];
    for _ in 0..2 {
        let call = node.preparing("a");
        node.in_step(0, "reset").await;
        node.in_step(1, "reset").await;
        let begun = Instant::now();
        node.unprepared("a").await;
        assert!(begun.elapsed() < Duration::from_secs(10));
        let words = node.is_refused("a", call.await.unwrap()).await;
        assert!(words.contains("released while it was being prepared"), "{words}");
        let status = node.proved().await;
        assert!(claim_of(&status, "a").is_none() && node.records("releasing").is_empty());
        assert!(!node.record("claims", &uid("a")).exists());
    }
    for device in 0..2 {
        // Each time one reset that was stopped before its scrub, and one proof that made it good.
        assert_eq!(node.counts(device), more(before[device], 4, 2));
    }
    node.give(&claim("b").on(0));
    node.granted("b").await;
}

/// It is not even begun: its device is still being cleaned of somebody else.
#[tokio::test]
async fn queue_unprepare_ends_a_prepare_that_waits() {
    let node = slow_node().await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    let before = node.counts(0);
    let (mut waiting, mut released) = (None, None);
    let script = async {
        node.in_step(0, "reset").await;
        waiting = Some(node.preparing("b"));
        node.eventually("b waits", || node.log().contains("\"message\":\"waits\"")).await;
        node.unprepared("b").await;
        released = Some(node.counts(0));
    };
    tokio::join!(node.unprepared("a"), script);
    node.is_refused("b", waiting.unwrap().await.unwrap()).await;
    node.proved().await;
    assert_eq!(node.counts(0), more(before, 1, 1), "b was never proved: {released:?}");
}

#[tokio::test]
async fn queue_a_prepare_during_its_own_unprepare_waits_and_is_proved_anew() {
    let node = slow_node().await;
    node.give(&claim("a").on(0));
    let first = node.granted("a").await;
    for _ in 0..2 {
        let (before, token) = (node.counts(0), node.token(0).await);
        let again = async {
            node.in_step(0, "reset").await;
            node.granted("a").await
        };
        let ((), answer) = tokio::join!(node.unprepared_only("a"), again);
        assert_eq!(answer, first);
        assert_eq!(node.counts(0), more(before, 2, 2), "cleaned, then proved");
        assert_eq!(node.token(0).await.epoch, token.epoch + 2);
    }
}

#[tokio::test]
async fn queue_another_allocation_waits_for_the_one_that_is_prepared() {
    let node = slow_node().await;
    node.give(&claim("a").on(0).allocated_at("2026-01-01T00:00:00Z"));
    let first = node.preparing("a");
    node.in_step(0, "reset").await;
    node.give(&claim("a").on(1).allocated_at("2026-01-02T00:00:00Z"));
    let before = node.counts(1);
    let second = node.granted("a").await;
    assert_eq!(first.await.unwrap().error, "", "it was what the claim said when it was asked for");
    assert_eq!(second[0].device_name, super::node::name(1));
    let status = node.status().await;
    assert!(view(&status, 0).schedulable, "cleaned of the first");
    assert_eq!(node.counts(1), more(before, 1, 1));
    assert_eq!(node.granted("a").await, second);
}

/// The claims of one call are answered together, so a slow one keeps its neighbours waiting, but no other call.
#[tokio::test]
async fn queue_claims_of_one_call_are_worked_on_side_by_side() {
    let node = slow_node().await;
    let names = ["a", "b", "c"];
    for (device, name) in names.iter().enumerate() {
        node.give(&claim(name).on(device));
    }
    let begun = Instant::now();
    let answers = node.call(names.map(reference).to_vec()).await.unwrap();
    let took = begun.elapsed();
    let status = node.status().await;
    let each: u64 = names
        .iter()
        .map(|name| {
            let receipt = claim_of(&status, name).unwrap().record.devices[0].receipt.clone().unwrap();
            receipt.steps.iter().map(|step| step.ms).sum::<u64>()
        })
        .sum();
    assert!(answers.iter().all(|answer| answer.error.is_empty()), "{answers:?}");
    assert!(took < Duration::from_millis(each), "{took:?} for what takes {each} ms one by one");
    for name in names {
        node.unprepared(name).await;
    }
}
