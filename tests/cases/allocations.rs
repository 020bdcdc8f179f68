//! C26, C27, C29: a claim that was meant for somebody else, or has become another one.

use cleanslate::sim::Fault;
use serde_json::{Value, json};

use super::node::{Node, claim, more, name, view};

const TENANT: &[u8] = b"the pattern that the tenant wrote";

#[tokio::test]
async fn c26_another_nodes_claim_touches_nothing() {
    let node = Node::of(2).await;
    let before = [node.counts(0), node.counts(1)];
    let cases = [
        (claim("pool").on(0).but("pool", json!("node-2")), ["\"node-2\"", "pool \"node-1\""]),
        (claim("node").on(0).for_node("node-2"), ["node-2", "names this node"]),
        (claim("both").on(0).but("pool", json!("node-2")).for_node("node-2"), ["node-2", "names this node"]),
        // One device of ours does not make the claim ours.
        (claim("half").on(0).on(1).but("pool", json!("node-2")), [&name(1), "pool \"node-1\""]),
    ];
    for (case, expected) in &cases {
        node.give(case);
        let words = node.refused(case.name()).await;
        assert!(expected.iter().all(|expected| words.contains(expected)), "{words}");
    }
    assert_eq!([node.counts(0), node.counts(1)], before);
    node.give(&claim("ours").on(0).for_node("node-1"));
    node.granted("ours").await;
}

/// The claim keeps its UID and is allocated anew: on another device, on the same one, on more and on fewer.
#[tokio::test]
async fn c27_another_allocation_is_released_first_and_proved_anew() {
    let node = Node::of(3).await;
    let allocations: [&[usize]; 5] = [&[0], &[1], &[1], &[1, 2], &[0]];
    for (number, devices) in allocations.iter().enumerate() {
        let file = claim("far").allocated_at(&format!("2026-01-0{}T00:00:00Z", number + 1));
        node.give(&devices.iter().fold(file, |file, device| file.on(*device)));
        let before = [0, 1, 2].map(|device| node.counts(device));
        let answer = node.granted("far").await;
        let told: Vec<_> = answer.iter().map(|device| device.device_name.clone()).collect();
        assert_eq!(told, devices.iter().map(|device| name(*device)).collect::<Vec<_>>());
        let former = number.checked_sub(1).map_or(&[][..], |former| allocations[former]);
        for device in 0..3 {
            let proofs = u32::from(former.contains(&device)) + u32::from(devices.contains(&device));
            assert_eq!(node.counts(device), more(before[device], proofs, proofs), "{number}: {device}");
        }
        assert_eq!(node.granted("far").await, answer, "and from then on it is the answer");
        assert_eq!(node.records("claims").len(), 1);
    }
}

#[tokio::test]
async fn c27_the_old_grant_is_clean_before_the_new_one_is_begun() {
    let node = Node::of(2).await;
    node.give(&claim("far").on(0).allocated_at("2026-01-01T00:00:00Z"));
    node.granted("far").await;
    node.leave(0, TENANT);
    let before = node.counts(0);
    node.fault(1, Some(Fault::HangReset));
    node.give(&claim("far").on(1).allocated_at("2026-01-02T00:00:00Z"));
    let call = node.preparing("far");
    let status = node.in_step(1, "reset").await;
    assert_eq!(node.counts(0), more(before, 1, 1));
    assert!(view(&status, 0).schedulable && !node.holds(0, TENANT));
    assert_eq!(node.cdi("far"), None, "the old file is gone");
    node.fault(1, None);
    node.is_granted("far", call.await.unwrap());
}

#[tokio::test]
async fn c29_admin_access_and_shares_are_refused_and_the_grant_stays() {
    let node = Node::of(2).await;
    node.give(&claim("owner").on(0));
    let answer = node.granted("owner").await;
    node.leave(0, TENANT);
    let (counts, cdi) = ([node.counts(0), node.counts(1)], node.cdi("owner"));
    let fields: [(&str, Value); 3] = [
        ("adminAccess", json!(true)),
        ("shareID", json!("0b5e4a3c-1111-4222-8333-444455556666")),
        ("consumedCapacity", json!({"memory": "1Gi"})),
    ];
    for (field, value) in &fields {
        // On the granted device, on a free one, and on a free one beside a whole one.
        let cases = [claim("x").on(0), claim("x").on(1), claim("x").on(1).on(0)];
        for case in cases {
            node.give(&case.but(field, value.clone()));
            let words = node.refused("x").await;
            assert!(words.contains(field) && words.contains("pci-"), "{words}");
        }
    }
    assert_eq!([node.counts(0), node.counts(1)], counts);
    assert!(node.holds(0, TENANT), "a tenant's memory");
    assert_eq!((node.granted("owner").await, node.cdi("owner")), (answer, cdi));
}
