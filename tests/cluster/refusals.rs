//! Claims that reach us and are none of ours to prepare.

use serde_json::json;

use crate::node::node;
use crate::tenant::{DEVICE, REFUSED, Tenant};

#[test]
fn claim_of_another_nodes_pool_is_refused() {
    let node = node();
    let before = node.twin.counts();
    let tenant = Tenant::new(&node, "wrong-node");
    tenant.claim("far", false);
    // What the scheduler writes for a pod on node2, whose card sits at the same address.
    let node2 = json!({"key": "metadata.name", "operator": "In", "values": ["node2"]});
    let device = json!({"request": "npu", "driver": "cleanslate.dev", "pool": "node2", "device": DEVICE});
    let allocation = json!({
        "devices": {"results": [device]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node2]}]},
    });
    let status = json!({"status": {"allocation": allocation}});
    tenant.kubectl(&format!("patch resourceclaim far --subresource=status --type=merge --patch={status}"));

    // A pod with a nodeName passes the scheduler by, and nobody but us looks at the pool.
    let claim = json!({"resourceClaimName": "far"});
    tenant.pod_with("stray", &claim, &json!({"nodeName": "node1"}));
    let event = tenant.event("stray", REFUSED, 60);
    println!("  {event}");
    assert!(event.contains("node2"), "{event}");
    assert_eq!(tenant.phase("stray"), "Pending");
    println!("  the twin's counts: {before:?}, then {:?}", node.twin.counts());
    assert_eq!(node.twin.counts(), before, "nothing was touched");
}

#[test]
fn admin_access_to_a_granted_device_is_refused() {
    let node = node();
    let tenant = Tenant::new(&node, "admin");
    tenant.pod("owner");
    let token = tenant.running("owner", 60);
    let granted = node.twin.counts();

    tenant.claim("look", true);
    tenant.pod_with("looker", &json!({"resourceClaimName": "look"}), &json!({}));
    let event = tenant.event("looker", REFUSED, 60);
    println!("  {event}");
    assert!(event.contains("adminAccess"), "{event}");
    assert_eq!(node.twin.counts(), granted, "nothing was touched");
    assert_eq!(tenant.running("owner", 5), token);
}
