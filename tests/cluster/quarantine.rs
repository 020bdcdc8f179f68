//! A device that cannot be proved.

use crate::node::node;
use crate::tenant::{REFUSED, Tenant};
use crate::twin::ADDRESS;

#[test]
fn a_device_whose_reset_hangs_is_quarantined_until_an_operator_releases_it() {
    let node = node();
    let tenant = Tenant::new(&node, "hang");
    node.twin.fault("hang-reset");
    tenant.pod("pod");
    let event = tenant.event("pod", REFUSED, 60);
    println!("  {event}");
    assert!(event.contains("reset_timeout"), "{event}");
    assert!(node.cleanslate("quarantine list").contains("reset_timeout"));

    node.restart_plugin();
    assert!(node.cleanslate("quarantine list").contains("reset_timeout"), "it outlives the daemon");
    // It may have been evicted already.
    tenant.kubectl("delete pod pod --ignore-not-found --timeout=60s");

    node.twin.fault("none");
    node.cleanslate(&format!("quarantine release {ADDRESS} --reason tested"));
    tenant.pod("next");
    tenant.running("next", 120);
}
