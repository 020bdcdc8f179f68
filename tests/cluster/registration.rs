//! The plugin and the kubelet find each other.

use crate::node::node;

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
