//! The plugin and the kubelet find each other.

use serde_json::Value;

use crate::node::node;
use crate::tenant::DEVICE;

#[test]
fn plugin_registers_with_the_real_kubelet() {
    let node = node();
    let version = node.kubectl("get node node1 -o jsonpath={.status.nodeInfo.kubeletVersion}");
    println!("  kubelet {version}");
    assert_eq!(version, "v1.37.2");
    let line = node.registrations().pop().expect("the node is up only once the plugin is registered");
    println!("  kubelet log: {line}");
    assert!(line.contains("chosenService=\"v1.DRAPlugin\""), "{line}");
}

#[test]
fn status_answers_beside_the_daemon() {
    let node = node();
    let status: Value = serde_json::from_str(&node.cleanslate("status -o json")).expect("status prints JSON");
    assert_eq!(status["node"], "node1");
    assert_eq!(status["simulated"], true, "the devices are a twin's");
    assert_eq!(status["devices"][0]["name"], DEVICE);
}
