//! What the scheduler and the eviction controller make of our slices.

use serde_json::{Value, json};

use crate::node::{Node, devices, node, until};
use crate::tenant::{DEVICE, Tenant};
use crate::twin::ADDRESS;

const OTHER_DEVICE: &str = "pci-0000-5e-00-0";
const QUARANTINED: &str = "cleanslate.dev/quarantined=reset_timeout:NoExecute";

#[test]
fn a_claims_life_changes_no_slice() {
    let node = node();
    let before = node.slices();
    assert_eq!(before.len(), 1);
    let spec = &before[0]["spec"];
    assert_eq!(
        spec["devices"][0]["attributes"]["resource.kubernetes.io/pcieRoot"],
        json!({"string": "pci0000:00"})
    );
    assert_eq!(spec["devices"][0]["attributes"]["cleanslate.dev/simulated"], json!({"bool": true}));
    assert_eq!(spec["pool"]["resourceSliceCount"], 1);
    assert_eq!(before[0]["metadata"]["ownerReferences"][0]["name"], "node1");
    let tenant = Tenant::new(&node, "life");
    tenant.pod("pod");
    tenant.running("pod", 60);
    tenant.kubectl("delete pod pod --timeout=60s");
    assert_eq!(node.slices(), before);
}

#[test]
fn slices_deleted_by_hand_are_back_within_two_seconds() {
    let node = node();
    let before = node.devices();
    for _ in 0..3 {
        node.kubectl("delete resourceslices --all");
        until("the slices are back", 2, || (node.devices() == before).then_some(()));
    }
}

#[test]
fn an_evicted_pod_runs_on_the_other_device_and_whoever_loses_slices_finds_the_quarantine() {
    let node = node();
    node.twin.fault("hang-reset");
    let tenant = Tenant::new(&node, "evicted");
    let start = std::time::Instant::now();
    tenant.deployment("server");
    let pod = until("a pod of the Deployment is Running", 60, || {
        let pods = list(&tenant, "pods");
        pods.into_iter().find(|pod| pod["status"]["phase"] == "Running" && gone(pod).is_none())
    });
    println!("  Running {:.1} s after the Deployment was made", start.elapsed().as_secs_f32());
    let claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].clone();
    let claims = list(&tenant, "resourceclaims");
    let claim = claims.iter().find(|object| object["metadata"]["name"] == claim).expect("the pod's claim");
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], OTHER_DEVICE);
    let expected = [(DEVICE, vec![QUARANTINED.to_owned()]), (OTHER_DEVICE, Vec::new())];
    let expected = expected.map(|(name, taints)| (name.to_owned(), taints));
    assert_eq!(node.devices(), expected);
    let events = node.kubectl("get events --namespace evicted -o json");
    println!("  evicted by: {}", events.matches("device-taint-eviction").count());

    // C2: the kubelet wipes all slices when it starts, and after our end; none comes back without the quarantine.
    let watch = node.watch_slices();
    node.restart_kubelet();
    until("the slices are as before", 30, || (node.devices() == expected).then_some(()));
    node.without_plugin(|| {
        node.kubectl("delete resourceslices --all");
    });
    until("the slices are as before", 30, || (node.devices() == expected).then_some(()));
    let seen = watch.events();
    drop(watch);
    let words: Vec<_> =
        seen.iter().map(|(what, slice)| (what, &slice["metadata"]["resourceVersion"])).collect();
    println!("  seen: {words:?}");
    let made = seen.iter().filter(|(what, _)| what.contains("ADDED")).count();
    assert!(made >= 1, "the slices were gone");
    for (_, slice) in &seen {
        assert_eq!(devices(slice)[0], expected[0], "{slice}");
    }
    assert_eq!(list(&tenant, "pods").len(), 1, "who runs on the other device runs on");

    node.twin.fault("none");
    node.cleanslate(&format!("quarantine release {ADDRESS} --reason tested"));
    until("the device is offered again", 60, || {
        node.devices().iter().all(|(_, t)| t.is_empty()).then_some(())
    });
}

fn list(tenant: &Tenant, kind: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&tenant.kubectl(&format!("get {kind} -o json"))).expect("JSON");
    list["items"].as_array().expect("a list").clone()
}

fn gone(object: &Value) -> Option<&str> {
    object["metadata"]["deletionTimestamp"].as_str()
}

impl Node {
    /// Takes the plugin off the node, and lets it come back.
    fn without_plugin(&self, meanwhile: impl FnOnce()) {
        let registered = self.registrations().len();
        let select = |value: &Value| {
            let patch = json!({"spec": {"template": {"spec": {"nodeSelector": value}}}});
            self.kubectl(&format!(
                "--namespace cleanslate patch daemonset cleanslate --type=merge --patch={patch}"
            ));
        };
        select(&json!({"nowhere": "yes"}));
        self.kubectl("--namespace cleanslate wait --for=delete pod --selector=app=cleanslate --timeout=90s");
        meanwhile();
        select(&Value::Null);
        until("the plugin is registered again", 60, || {
            (self.registrations().len() > registered).then_some(())
        });
    }
}
