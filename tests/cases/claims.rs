//! C4, C13, C26, C27, C29 and claims of several devices: whose a device is, and what becomes of it in between.

use std::time::Duration;

use cleanslate::sim::Fault;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::node::{DRIVER, Node, Policy, claim, claim_of, more, name, reference, view};

const TENANT: &[u8] = b"the pattern that tenant a wrote";

/// A claim that another driver has a part in: its devices and its parameters are not ours to read.
#[tokio::test]
async fn c13_a_claim_of_several_drivers() {
    let node = Node::of(2).await;
    let foreign =
        json!({"source": "FromClaim", "opaque": {"driver": "nic.example", "parameters": [1, "junk"]}});
    let ours = |requests: &[&str], parameters: &Value| {
        let mut all = json!({"apiVersion": "cleanslate.dev/v1alpha1", "kind": "SanitizationParameters"});
        all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        json!({"source": "FromClaim", "requests": requests, "opaque": {"driver": DRIVER, "parameters": all}})
    };
    let claim = |general: &Value, specific: &Value| {
        let claim = claim("c").named("eth1").but("driver", json!("nic.example")).but("pool", json!("nics"));
        let claim = claim.on(0).but("request", json!("acc/big"));
        claim
            .configured(foreign.clone())
            .configured(ours(&["acc"], general))
            .configured(ours(&["acc/big"], specific))
    };
    let (strong, weak) = (json!({"minimumMode": "device_verified"}), json!({"minimumMode": "copy_verified"}));

    node.give(&claim(&strong, &weak));
    let devices = node.granted("c").await;
    let [device] = &devices[..] else { panic!("only ours: {devices:?}") };
    assert_eq!(
        (device.device_name.as_str(), &device.request_names[..]),
        (&*name(0), &["acc".to_owned()][..])
    );
    node.unprepared("c").await;

    node.give(&claim(&weak, &strong));
    let words = node.refused("c").await;
    assert!(words.contains("device_verified"), "the more specific entry counts: {words}");
    node.unprepared("c").await;

    node.give(&claim(&weak, &json!({"minimumMode": "copy_verified", "minimumMod": 1})));
    let words = node.refused("c").await;
    assert!(words.contains("minimumMod") && words.contains("config[2]"), "{words}");
}

/// The order that the scheduler of a force-deleted pod makes, a fifth as slow.
#[tokio::test]
async fn c04_force_delete_order() {
    let node = Node::of(1).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    let start = Instant::now();
    let moment = |ms: u64| sleep_until(start + Duration::from_millis(ms / 5));
    node.granted("a").await;
    let epoch = node.token(0).await.epoch;
    let granted = node.counts(0);
    node.leave(0, TENANT);

    moment(420).await;
    let words = node.refused("b").await;
    assert!(words.contains("tests/a") && words.contains(&name(0)), "{words}");
    assert_eq!(node.counts(0), granted, "a refusal touches nothing");
    assert!(node.holds(0, TENANT));

    moment(2470).await;
    node.unprepared("a").await;
    assert_eq!(node.counts(0), more(granted, 1, 1), "cleaned after the release, within the call");
    assert!(!node.holds(0, TENANT));

    moment(3000).await;
    node.granted("b").await;
    assert_eq!(node.counts(0), more(granted, 2, 2), "and once more under its own lease");
    assert!(!node.holds(0, TENANT));
    assert!(node.token(0).await.epoch > epoch);
}

/// B comes while the device is being cleaned of A, and while A still holds it once more.
#[tokio::test]
async fn c04_a_prepare_during_the_cleaning_waits_for_it() {
    let mut node = Node::lay(&["reset_ms=300"], Policy::default());
    node.start().await;
    node.proved().await;
    for (before, after) in [("a", "b"), ("b", "c"), ("c", "d")] {
        node.give(&claim(before).on(0));
        node.give(&claim(after).on(0));
        node.granted(before).await;
        let token = node.token(0).await;
        node.leave(0, TENANT);
        let granted = node.counts(0);
        let next = async {
            node.in_step(0, "reset").await;
            node.prepare(after).await
        };
        let ((), answer) = tokio::join!(node.unprepared(before), next);
        node.is_granted(after, answer);
        assert_eq!(node.counts(0), more(granted, 2, 2));
        assert_eq!(node.token(0).await.epoch, token.epoch + 2);
        assert!(!node.holds(0, TENANT));
        node.unprepared(after).await;
    }
}

/// A claim's devices are had all together or not at all.
#[tokio::test]
async fn several_devices_all_or_none() {
    for hanging in 0..3 {
        let node = Node::with(3, Policy::default().hasty(hanging, "700ms")).await;
        node.fault(hanging, Some(Fault::HangReset));
        node.give(&claim("all").on(0).on(1).on(2));
        let before = [0, 1, 2].map(|device| node.counts(device));
        let words = node.refused("all").await;
        assert!(words.contains(crate::HUNG) && words.contains(&name(hanging)), "{words}");
        let status = node.status().await;
        for device in 0..3 {
            let shown = view(&status, device);
            assert_eq!(shown.state, "free", "{hanging}: {device}");
            if device == hanging {
                assert_eq!(shown.quarantine.as_ref().unwrap().reason.as_str(), crate::HUNG);
            } else {
                assert!(shown.schedulable, "its proof is as good as any");
                assert_eq!(node.counts(device), more(before[device], 1, 1));
                node.give(&claim(&format!("one-{device}")).on(device));
                node.granted(&format!("one-{device}")).await;
            }
        }
    }
}

#[tokio::test]
async fn several_devices_one_held_by_another_claim_costs_all_and_touches_none() {
    let node = Node::of(3).await;
    node.give(&claim("owner").on(1));
    node.granted("owner").await;
    let before = [0, 1, 2].map(|device| node.counts(device));
    node.give(&claim("all").on(0).on(1).on(2));
    let words = node.refused("all").await;
    assert!(words.contains("tests/owner") && words.contains(&name(1)), "{words}");
    assert_eq!([0, 1, 2].map(|device| node.counts(device)), before);
    node.give(&claim("rest").on(2).on(0));
    let answer = node.call(vec![reference("rest"), reference("all")]).await.unwrap();
    assert_eq!(answer[0].devices.len(), 2, "{answer:?}");
    assert!(answer[1].error.contains("granted to") || answer[1].error.contains("being prepared for"));
    node.unprepared("owner").await;
    node.unprepared("rest").await;
    assert_eq!(node.granted("all").await.len(), 3);
    let status = node.status().await;
    let record = &claim_of(&status, "all").unwrap().record;
    assert!(record.devices.iter().all(|device| device.receipt.is_some()), "a proof each");
}
