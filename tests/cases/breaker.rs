//! Many devices of a node that fail alike: the first few go into quarantine, the others are refused and come back by
//! themselves.

use cleanslate::sim::Fault;
use cleanslate::types::Reason;

use super::node::{Node, Policy, claim, name, view};

#[tokio::test]
async fn the_breaker_stops_quarantines_past_a_share_of_the_node() {
    let most = 2;
    let policy = Policy::default().release("retry", "1s");
    let mut node = Node::with(4, policy).await;
    for device in 0..=most {
        node.fault(device, Some(Fault::DropWrites));
        node.give(&claim(&format!("c{device}")).on(device));
    }
    for device in 0..most {
        let words = node.refused(&format!("c{device}")).await;
        assert!(words.contains("it is in quarantine now: scrub_verify"), "{words}");
    }
    let last = format!("c{most}");
    let words = node.refused(&last).await;
    assert!(
        words.contains("(scrub_verify); too many devices of this node are in quarantine for that"),
        "{words}"
    );
    let status = node.status().await;
    let device = view(&status, most);
    assert!(device.quarantine.is_none() && device.proof.is_none(), "{device:?}");
    let withheld = device.withheld.as_ref().unwrap();
    assert_eq!((withheld.reason, withheld.alike), (Reason::ScrubVerify, most));
    let told = String::from_utf8(node.cli(&["status"]).stdout).unwrap();
    assert!(told.contains(&format!("breaker: {} failed at", name(most))), "{told}");
    assert_eq!(node.records("quarantine").len(), most);
    assert!(node.refused(&last).await.contains("scrub_verify"), "it is refused for as long as it fails");

    // Another reason has its own count, and what is about ownership none.
    node.fault(most, Some(Fault::BarsLost));
    let words = node.refused(&last).await;
    assert!(words.contains("it is in quarantine now: config_lost"), "{words}");

    // What passes by itself needs nobody.
    node.fault(most - 1, None);
    let lifted = node.cli(&["quarantine", "release", &name(most - 1), "--reason", "tested"]);
    assert!(lifted.status.success());
    node.granted(&format!("c{}", most - 1)).await;
    node.restart().await;
    assert_eq!(node.records("quarantine").len(), most, "each was kept");
}

#[tokio::test]
async fn a_device_that_the_breaker_spared_comes_back_by_itself() {
    let node = Node::with(3, Policy::default().release("retry", "1s")).await;
    for device in 0..3 {
        node.fault(device, Some(Fault::DropWrites));
        node.give(&claim(&format!("c{device}")).on(device));
        node.refused(&format!("c{device}")).await;
    }
    assert!(node.device(2).await.withheld.is_some());
    node.fault(2, None);
    node.until("it is proved", |status| view(status, 2).proof.is_some()).await;
    assert!(node.device(2).await.withheld.is_none());
    node.granted("c2").await;
}
