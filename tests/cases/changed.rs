//! What changes at a device while a claim has it.

use super::node::{Node, Policy, at, claim, more, write};

/// Others use them: a reset of the physical function would take their devices away.
#[tokio::test]
async fn virtual_functions_that_came_under_a_grant_are_not_reset_away() {
    // The call of the kubelet waits so long for a cleaning that cannot be.
    let node = Node::with(1, Policy::default().release("wait", "1s")).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    let enabled = node.twin.roots().pci_device(at(0)).join("sriov_numvfs");
    write(&enabled, "2\n");
    let granted = node.counts(0);
    node.unprepared("a").await;
    let refused = node.preparing("b");
    node.until("it waits", |status| status.ledger.devices[0].detail.contains("tests/a")).await;
    assert_eq!(node.counts(0), granted, "{}", node.log());
    assert!(node.log().contains("it has 2 virtual functions enabled (sriov_numvfs)"));

    write(&enabled, "0\n");
    let answer = refused.await.unwrap();
    node.is_granted("b", answer);
    assert_eq!(node.counts(0), more(granted, 2, 2), "one cleaning after a, one proof for b");
}
