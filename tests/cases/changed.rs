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

/// What a tenant left in the part that no BAR shows any more would be the next one's to find.
#[tokio::test]
async fn memory_that_shrank_under_a_grant_is_not_taken_for_the_whole() {
    let node = Node::with(1, Policy::default().release("wait", "1s")).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    node.leave(0, b"low");
    let resource = node.twin.roots().pci_device(at(0)).join("resource");
    let before = std::fs::read_to_string(&resource).unwrap();
    let bar = before.lines().next().unwrap();
    let end =
        u64::from_str_radix(bar.split_whitespace().nth(1).unwrap().trim_start_matches("0x"), 16).unwrap();
    write(&resource, &before.replace(&format!("{end:016x}"), &format!("{:016x}", end - 32768)));
    node.unprepared("a").await;
    node.eventually("it is told", || node.log().contains("have 32768 bytes and had 65536")).await;
    let device = node.device(0).await;
    assert!(!device.schedulable && device.quarantine.is_none() && node.cdi("b").is_none(), "{device:?}");
    write(&resource, &before);
    node.granted("b").await;
}
