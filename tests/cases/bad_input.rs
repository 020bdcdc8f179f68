//! Claims that cannot be prepared: each gets a clear error of its own, and nobody else is disturbed.

use serde_json::json;

use super::node::{ClaimFile, NODE, Node, Policy, at, claim, claim_of, more, name, view, write};

#[tokio::test]
async fn bad_input_each_claim_is_refused_for_what_is_wrong_with_it() {
    // Device 2 is on this node and not ours.
    let mut node = Node::lay(&["", "", "vendor=5555"], Policy::default());
    node.start().await;
    node.proved().await;
    node.give(&claim("neighbour").on(1));
    let neighbour = node.granted("neighbour").await;
    let (cdi, counts) = (node.cdi("neighbour"), [0, 1, 2].map(|device| node.counts(device)));

    let not_ours = |device: &str| [format!("{device} is not ours on this node"), "policy".to_owned()];
    let cases: [(ClaimFile, [String; 2]); 12] = [
        (claim("x").with_uid("another-uid").on(0), ["was replaced", "another-uid"].map(str::to_owned)),
        (claim("x"), ["is not allocated", "status.allocation"].map(str::to_owned)),
        (claim("x").on(0).but("pool", json!("node-2")), ["node-2", NODE].map(str::to_owned)),
        (claim("x").on(0).but("pool", json!("")), ["pool \"\"", NODE].map(str::to_owned)),
        (
            claim("x").on(0).but("driver", json!("gpu.example.com")),
            ["gpu.example.com", "cleanslate.dev"].map(str::to_owned),
        ),
        (claim("x").named("pci-0000-99-00-0"), not_ours("pci-0000-99-00-0")),
        (claim("x").named("gpu-7"), not_ours("gpu-7")),
        (claim("x").on(2), not_ours(&name(2))),
        (claim("x").on(0).named("gpu-7"), not_ours("gpu-7")),
        (claim("x").on(0).on(0), ["allocated twice", "\"r0\" and \"r1\""].map(str::to_owned)),
        (claim("x").on(0).but("adminAccess", json!(true)), ["adminAccess", &name(0)].map(str::to_owned)),
        (
            claim("x").on(0).but("shareID", json!("0b5e4a3c-1111-4222-8333-444455556666")),
            ["shareID", &name(0)].map(str::to_owned),
        ),
    ];
    for (case, expected) in &cases {
        node.give(case);
        let words = node.refused("x").await;
        assert!(expected.iter().all(|part| words.contains(part)), "{expected:?}: {words}");
        node.unprepared("x").await;
    }
    for damage in ["", "{", "kind: ResourceClaim\nmetadata: [", "\0\0"] {
        write(&node.path("claims/x.json"), damage);
        let words = node.refused("x").await;
        assert!(words.contains("tests/x") && words.contains("x.json"), "{damage:?}: {words}");
    }
    std::fs::remove_file(node.path("claims/x.json")).unwrap();
    let words = node.refused("x").await;
    assert!(words.contains("tests/x") && words.contains("not found"), "{words}");

    let rpc = "\"rpc\":\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"";
    let caller = format!("\"pid\":{}", std::process::id());
    let told = |line: &str| ["claim refused", rpc, &caller].iter().all(|word| line.contains(word));
    assert!(node.log().lines().any(told), "the log says which call it was and who called: {}", node.log());

    assert_eq!((node.granted("neighbour").await, node.cdi("neighbour")), (neighbour, cdi));
    assert_eq!([0, 1, 2].map(|device| node.counts(device)), counts, "nothing was touched");
    assert_eq!(node.records("claims").len(), 1);
    node.give(&claim("x").on(0));
    node.granted("x").await;
}

#[tokio::test]
async fn bad_input_a_device_that_is_gone_costs_its_own_claim() {
    let node = Node::with(3, Policy::default().release("wait", "200ms")).await;
    node.give(&claim("free").on(0));
    node.give(&claim("used").on(1));
    node.give(&claim("other").on(2));
    node.granted("used").await;
    node.twin.remove(at(0)).unwrap();
    node.twin.remove(at(1)).unwrap();
    for _ in 0..2 {
        let words = node.refused("free").await;
        assert!(words.contains(&name(0)) || words.contains(&at(0).to_string()), "{words}");
        node.granted("other").await;
    }
    let devices = node.status().await.ledger.devices;
    assert!(devices.iter().all(|device| device.quarantine.is_none()), "{devices:?}");
    // A pod can end whatever became of its device; nobody gets what was not cleaned.
    node.unprepared("used").await;
    node.give(&claim("next").on(1));
    node.give(&claim("pair").on(1).on(2));
    node.unprepared("other").await;
    let call = node.preparing("next");
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    if call.is_finished() {
        node.is_refused("next", call.await.unwrap()).await;
    }
    node.granted("other").await;
}

#[tokio::test]
async fn bad_input_a_replaced_device_costs_one_claim_and_its_successor_is_proved() {
    let node = Node::of(2).await;
    node.give(&claim("a").on(0));
    node.give(&claim("other").on(1));
    let old = node.device(0).await.identity;
    let other = node.granted("other").await;
    node.twin.replace(at(0), 0xfeed_0000_0000_0001).unwrap();
    let before = node.counts(0);
    let words = node.refused("a").await;
    assert!(words.contains("identity_changed") && words.contains("feed000000000001"), "{words}");
    assert_eq!(node.counts(0), before, "the stranger was not touched");

    node.granted("a").await;
    let status = node.status().await;
    let record = &claim_of(&status, "a").unwrap().record;
    assert!(record.devices[0].identity != old && record.devices[0].receipt.is_some());
    assert!(node.counts(0).resets > before.resets && node.counts(0).resets == node.counts(0).scrubs);
    let gone = status.ledger.devices.iter().find(|device| device.identity == old).unwrap();
    assert_eq!(gone.quarantine.as_ref().unwrap().reason.as_str(), "identity_changed");
    assert_eq!(node.granted("other").await, other);

    // The word of an operator is about the card that is in quarantine, whichever name is used.
    let released = node.cli(&["quarantine", "release", &at(0).to_string(), "--reason", "it is in the bin"]);
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    let devices = node.status().await.ledger.devices;
    assert!(devices.iter().all(|device| device.quarantine.is_none()), "{devices:?}");
}

/// Swapped under a grant: the pod may end, and what is cleaned for the next one is the card that is there.
#[tokio::test]
async fn bad_input_a_device_replaced_under_its_claim_is_found_out_at_release() {
    let node = Node::of(1).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    node.twin.replace(at(0), 0xfeed_0000_0000_0002).unwrap();
    let before = node.counts(0);
    node.unprepared("a").await;
    let status = node.status().await;
    assert!(status.ledger.devices.iter().any(|device| {
        device.quarantine.as_ref().is_some_and(|it| it.reason.as_str() == "identity_changed")
    }));
    node.granted("b").await;
    assert!(node.counts(0).resets > before.resets);
}

/// Real GPUs wait for their scrubber: refused by name and left alone, whatever the policy says of them.
#[tokio::test]
async fn bad_input_an_h100_is_refused_and_never_reset() {
    let h100 = "vendor=10de,device=2330,class=030200";
    let twin = "- match: {vendor: \"1234\", device: \"c1ea\"}\n  scrub: {bars: [0]}\n";
    let rules = [
        ("match: {vendor: 10de, device: 2330}\n  scrub: {bars: [0]}", "unsupported_mode"),
        ("match: {vendor: 10de, device: 2330, class: \"030200\"}\n  scrub: {bars: [0]}", "unsupported_mode"),
        ("match: {vendor: 10de}\n  scrub: {library: nvidia}", "unsupported_mode"),
        ("match: {class: \"030200\"}\n  scrub: {library: nvidia}", "unsupported_mode"),
        ("match: {vendor: 10de}", "no way to scrub"),
    ];
    for (rule, expected) in rules {
        let text = format!(
            "apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\ndevices:\n- {rule}\n{twin}\
             release: {{firstProofWithin: 0s, retry: 50ms}}\n"
        );
        let mut node = Node::lay(&[h100, ""], Policy::of(&text));
        node.start().await;
        node.until("the other device is proved", |status| {
            status.ledger.devices.iter().any(|device| device.address == at(1) && device.schedulable)
        })
        .await;
        node.give(&claim("a").on(0));
        node.give(&claim("b").on(1));
        node.give(&claim("both").on(1).on(0));
        for claimed in ["a", "both", "a"] {
            let words = node.refused(claimed).await;
            assert!(words.contains(expected) && words.contains(&name(0)), "{words}");
        }
        let status = node.status().await;
        assert!(
            status.refused.iter().any(|refused| refused.device == name(0) && refused.why.contains(expected))
        );
        assert!(!view(&status, 0).schedulable);
        let released = node.cli(&["quarantine", "release", &name(0), "--reason", "hope"]);
        assert_eq!(released.status.code(), Some(1), "it is in no quarantine that could be lifted");
        let before = node.counts(1);
        node.granted("b").await;
        assert_eq!(node.counts(1), more(before, 1, 1));
        let left_alone = node.counts(0);
        assert_eq!((left_alone.resets, left_alone.scrubs), (0, 0), "{rule}");
    }
}
