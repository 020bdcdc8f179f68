//! Devices, claims, quarantines and restarts, and what of them a slice shows.

use cleanslate::sim::Fault;
use cleanslate::sim::api::{Features, Kind};
use serde_json::json;

use crate::node::{DRIVER, FIRST, NODE, Node, POLICY, SECOND, devices, until, write};

const SLICE: &str = "node-a-cleanslate.dev-00";
const UNVERIFIED: &str = "cleanslate.dev/unverified=first_proof:NoSchedule";

/// The node's slice, once both devices have been proved.
async fn proved(devices: &[&str]) -> Node {
    let node = Node::start(devices, POLICY);
    for device in devices {
        node.stands(device.split(',').next().unwrap(), &[]).await;
    }
    node
}

#[tokio::test]
async fn the_first_slice_says_what_is_proved_and_all_that_is_known() {
    let node = proved(&["0000:3b:00.0,reset_ms=600", "0000:5e:00.0,driver=vfio-pci,reset_ms=600"]).await;
    let first = &node.api.past(Kind::Slices, SLICE)[0];
    let names = ["pci-0000-3b-00-0", "pci-0000-5e-00-0"].map(str::to_owned);
    let unverified = names.map(|name| (name, vec![UNVERIFIED.to_owned()]));
    assert_eq!(devices(first), unverified, "nothing is offered before its first proof");
    let slice = &node.slices()[0];
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": NODE, "controller": true,
        "uid": node.api.list(Kind::Nodes)[0]["metadata"]["uid"]}]);
    assert_eq!(slice["metadata"]["ownerReferences"], owner);
    let spec = &slice["spec"];
    assert_eq!((&spec["driver"], &spec["nodeName"]), (&json!(DRIVER), &json!(NODE)));
    assert_eq!(spec["pool"], json!({"name": NODE, "generation": 1, "resourceSliceCount": 1}));
    let keys: Vec<_> = spec.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["devices", "driver", "nodeName", "pool"], "nothing else is ever set");
    assert_eq!(
        spec["devices"][1],
        json!({
            "name": "pci-0000-5e-00-0",
            "attributes": {
                "resource.kubernetes.io/pciBusID": {"string": "0000:5e:00.0"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                "cleanslate.dev/vendor": {"string": "1234"},
                "cleanslate.dev/device": {"string": "c1ea"},
                "cleanslate.dev/driver": {"string": "vfio-pci"},
                "cleanslate.dev/simulated": {"bool": true},
            },
            "capacity": {"cleanslate.dev/memory": {"value": "64Ki"}},
        })
    );
    let view = node.published("in step", |view| view.failing().is_none()).await;
    assert_eq!((view.slices, view.devices, view.generation), (1, 2, 1));
}

#[tokio::test]
async fn a_normal_claims_life_writes_nothing() {
    let node = proved(&[FIRST, SECOND]).await;
    let kubelet = node.kubelet().await;
    let (before, version) = (node.writes().len(), node.slices());
    for round in 0..3 {
        for (claim, device) in [("a", FIRST), ("b", SECOND)] {
            assert_eq!(node.prepare(&kubelet, &format!("{claim}{round}"), device).await, "");
        }
        for claim in ["a", "b"] {
            node.unprepare(&kubelet, &format!("{claim}{round}")).await;
        }
    }
    node.published("the last look is over", |view| view.failing().is_none()).await;
    assert_eq!((node.writes().len(), node.slices()), (before, version));
    assert_eq!(
        node.twin.counts(FIRST.parse().unwrap()).unwrap().resets,
        7,
        "six proofs and cleanings, a first one"
    );
}

#[tokio::test]
async fn a_cleaning_that_the_call_did_not_wait_for_is_shown_until_it_is_done() {
    let policy =
        POLICY.replace("release: {", "release: {wait: 100ms, ").replace("reset: 1500ms", "reset: 30s");
    let node = Node::start(&["0000:3b:00.0,reset_ms=1000"], &policy);
    node.stands(FIRST, &[]).await;
    let kubelet = node.kubelet().await;
    assert_eq!(node.prepare(&kubelet, "a", FIRST).await, "");
    let before = node.writes().len();
    node.unprepare(&kubelet, "a").await;
    node.stands(FIRST, &["cleanslate.dev/unverified=release:NoSchedule"]).await;
    node.stands(FIRST, &[]).await;
    assert_eq!(node.writes().len(), before + 2);
}

#[tokio::test]
async fn a_device_that_hangs_in_a_prepare_sends_its_pod_away() {
    let node = proved(&[FIRST, SECOND]).await;
    let kubelet = node.kubelet().await;
    node.twin.set_fault(FIRST.parse().unwrap(), Some(Fault::HangReset)).unwrap();
    let error = node.prepare(&kubelet, "a", FIRST).await;
    assert!(error.contains("reset_timeout"), "{error}");
    node.stands(FIRST, &["cleanslate.dev/quarantined=reset_timeout:NoExecute"]).await;
    node.stands(SECOND, &[]).await;
    let since = node.slices()[0]["spec"]["devices"][0]["taints"][0]["timeAdded"].clone();
    assert!(since.is_string());

    // Another change of the slice leaves the time as it is.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    node.twin.set_fault(SECOND.parse().unwrap(), Some(Fault::HangReset)).unwrap();
    node.prepare(&kubelet, "b", SECOND).await;
    node.stands(SECOND, &["cleanslate.dev/quarantined=reset_timeout:NoExecute"]).await;
    let taint = |device: usize| node.slices()[0]["spec"]["devices"][device]["taints"][0]["timeAdded"].clone();
    assert_eq!(taint(0), since);
    assert_ne!(taint(1), since);
}

#[tokio::test]
async fn a_device_that_hangs_with_nobody_waiting_disturbs_no_pod_until_one_meets_it() {
    let node = Node::start(&["0000:3b:00.0,fault=hang-reset"], POLICY);
    node.stands(FIRST, &["cleanslate.dev/quarantined=reset_timeout:NoSchedule"]).await;
    let kubelet = node.kubelet().await;
    let error = node.prepare(&kubelet, "a", FIRST).await;
    assert!(error.contains("quarantine"), "{error}");
    node.stands(FIRST, &["cleanslate.dev/quarantined=reset_timeout:NoExecute"]).await;
}

#[tokio::test]
async fn a_device_that_does_not_even_say_who_it_is_sends_its_pod_away_too() {
    let node = Node::start(&["0000:3b:00.0,fault=dead"], POLICY);
    node.stands(FIRST, &["cleanslate.dev/quarantined=fell_off_bus:NoSchedule"]).await;
    let kubelet = node.kubelet().await;
    let error = node.prepare(&kubelet, "a", FIRST).await;
    assert!(error.contains("fell_off_bus"), "{error}");
    node.stands(FIRST, &["cleanslate.dev/quarantined=fell_off_bus:NoExecute"]).await;
}

/// C2: whoever lost the slices, the first ones that come back show what is known.
#[tokio::test]
async fn the_first_slice_after_a_restart_shows_the_quarantines() {
    let mut node = Node::start(&["0000:3b:00.0,fault=hang-reset", SECOND], POLICY);
    let hung = "cleanslate.dev/quarantined=reset_timeout:NoSchedule";
    node.stands(FIRST, &[hung]).await;
    node.stands(SECOND, &[]).await;
    node.stop_daemon().await;
    assert_eq!(node.slices().len(), 1, "slices outlive the daemon");
    for dead in [false, true] {
        node.api.delete(Kind::Slices, SLICE).unwrap();
        let before = node.api.past(Kind::Slices, SLICE).len();
        if dead {
            // Now it does not even say who it is.
            node.twin.set_fault(FIRST.parse().unwrap(), Some(Fault::Dead)).unwrap();
        }
        node.start_daemon();
        let (slice, _) =
            until("a slice", 20, || node.api.past(Kind::Slices, SLICE).get(before).cloned()).await;
        let taint = if dead { "cleanslate.dev/quarantined=fell_off_bus:NoSchedule" } else { hung };
        let expected = [("pci-0000-3b-00-0", vec![taint.to_owned()]), ("pci-0000-5e-00-0", Vec::new())];
        assert_eq!(
            devices(&slice),
            expected.map(|(name, taints)| (name.to_owned(), taints)),
            "{}",
            node.log()
        );
        node.stop_daemon().await;
    }
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut node = proved(&[FIRST, SECOND]).await;
    let kubelet = node.kubelet().await;
    assert_eq!(node.prepare(&kubelet, "a", FIRST).await, "");
    let (before, version) = (node.writes().len(), node.slices());
    for _ in 0..2 {
        node.stop_daemon().await;
        node.start_daemon();
        node.published("the new instance has looked", |view| view.last_success.is_some()).await;
    }
    assert_eq!((node.writes().len(), node.slices()), (before, version));
}

#[tokio::test]
async fn many_devices_are_several_slices_of_one_pool() {
    let specs: Vec<_> = (0..130).map(|n| format!("0000:{:02x}:{:02x}.0", 0x10 + n / 32, n % 32)).collect();
    let specs: Vec<_> = specs.iter().map(String::as_str).collect();
    let policy = POLICY.replace("firstProofWithin: 0s", "firstProofWithin: 10m");
    let node = Node::start(&specs, &policy);
    until("three slices", 60, || (node.slices().len() == 3).then_some(())).await;
    node.published("in step", |view| (view.slices, view.devices) == (3, 130)).await;
    let counts =
        |slices: &[serde_json::Value]| slices.iter().map(|slice| devices(slice).len()).collect::<Vec<_>>();
    assert_eq!(counts(&node.slices()), [64, 64, 2]);
    let order: Vec<_> = node.offered().into_iter().map(|(name, _)| name).collect();
    assert!(order.is_sorted() && order.len() == 130);
    for slice in node.slices() {
        let pool = json!({"name": NODE, "generation": 1, "resourceSliceCount": 3});
        assert_eq!(slice["spec"]["pool"], pool);
    }

    let before = node.writes().len();
    node.api.delete(Kind::Slices, "node-a-cleanslate.dev-01").unwrap();
    let ((), took) = until("it is back", 2, || (node.slices().len() == 3).then_some(())).await;
    println!("  the middle slice was back after {} ms", took.as_millis());
    assert_eq!(counts(&node.slices()), [64, 64, 2]);
    assert_eq!(node.writes().len(), before + 1, "the others, and the generation, stay");
}

#[tokio::test]
async fn without_a_policy_the_pool_is_empty() {
    let mut node = Node::new(&[FIRST], POLICY);
    let kubeconfig = node.path("kubeconfig");
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()], false);
    node.published("in step", |view| view.last_success.is_some()).await;
    let slices = node.slices();
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0]["spec"]["pool"], json!({"name": NODE, "generation": 1, "resourceSliceCount": 1}));
    assert!(slices[0]["spec"]["devices"].is_null(), "{}", slices[0]);
}

#[tokio::test]
async fn a_policy_that_only_observes_publishes_an_empty_pool() {
    let node = Node::start(&[FIRST], &POLICY.replace("devices:", "mode: observe\ndevices:"));
    until("it is looked at", 30, || node.log().contains("observed").then_some(())).await;
    node.published("in step", |view| view.last_success.is_some()).await;
    assert_eq!((node.slices().len(), node.offered()), (1, Vec::new()));
}

#[tokio::test]
async fn a_device_that_is_never_granted_as_it_is_stands_nowhere() {
    let policy = POLICY.replace("scrub: {bars: [0]}", "scrub: {library: nvidia}");
    let node = Node::start(&[FIRST], &policy);
    node.published("in step", |view| view.last_success.is_some()).await;
    assert_eq!(node.offered(), []);
    assert_eq!(node.status().await.unwrap().refused.len(), 1);
}

#[tokio::test]
async fn without_an_api_server_nothing_is_published_and_it_says_so() {
    let mut node = Node::new(&[FIRST], POLICY);
    let claims = node.path("claims");
    std::fs::create_dir(&claims).unwrap();
    node.start_with(&["--claims", claims.to_str().unwrap()], true);
    let kubelet = node.kubelet().await;
    assert_eq!(kubelet.info.name, DRIVER);
    assert!(node.status().await.unwrap().publish.is_none());
    assert!(node.log().contains("no slice is published"), "{}", node.log());
    assert_eq!(node.api.calls(), []);
}

#[tokio::test]
async fn a_degraded_device_is_marked_where_the_server_knows_how() {
    for knows in [true, false] {
        let mut node = Node::new(&[FIRST], POLICY);
        node.api.set_features(Features { effect_none: knows, ..Features::default() });
        node.start_daemon();
        node.stands(FIRST, &[]).await;
        let kubelet = node.kubelet().await;
        let errors = node.twin.roots().pci_device(FIRST.parse().unwrap()).join("aer_dev_correctable");
        write(&errors, "TOTAL_ERR_COR 50\n");
        assert_eq!(node.prepare(&kubelet, "a", FIRST).await, "");
        let refused = || node.api.calls().iter().filter(|call| call.code == 422).count();
        if knows {
            node.stands(FIRST, &["cleanslate.dev/degraded:None"]).await;
            assert_eq!(refused(), 0);
            continue;
        }
        until("an older server refuses what it does not know", 20, || (refused() == 1).then_some(())).await;
        node.unprepare(&kubelet, "a").await;
        write(&errors, "TOTAL_ERR_COR 100\n");
        assert_eq!(node.prepare(&kubelet, "b", FIRST).await, "");
        node.published("in step", |view| view.failing().is_none()).await;
        node.stands(FIRST, &[]).await;
        assert_eq!(refused(), 1, "asked once");
        assert!(node.status().await.unwrap().ledger.devices[0].degraded.is_some());
    }
}
