//! Cards that are replaced, moved, dead or not to be told apart: what stands against a card stays with it, and what a
//! claim has is one card, not a slot. As `../shared/CASES.md` C32 has it, and what a hostile look at it found.

use cleanslate::observe::status::Status;
use cleanslate::sim::Fault;
use cleanslate::types::{Identity, Reason};

use super::node::{Node, Policy, at, claim, claim_of, more, name};

/// Before and behind every other in the order of identities.
const SERIALS: [u64; 2] = [1, u64::MAX - 1];

fn card(serial: u64) -> Identity {
    Identity::from_serial(0x1234, 0xc1ea, 0, serial)
}

fn serial(card: &Identity) -> u64 {
    u64::from_str_radix(card.as_str().rsplit('-').next().unwrap(), 16).unwrap()
}

/// Puts this card into the slot.
fn plug(node: &Node, device: usize, card: &Identity) {
    node.twin.replace(at(device), serial(card)).unwrap();
}

fn reason(status: &Status, card: &Identity) -> Option<Reason> {
    let device = status.ledger.devices.iter().find(|device| device.identity == *card)?;
    device.quarantine.as_ref().map(|quarantine| quarantine.reason)
}

fn is_ready(status: &Status, card: &Identity) -> bool {
    status.ledger.devices.iter().any(|device| device.identity == *card && device.schedulable)
}

/// A claim for a device that nobody knows makes the daemon look anew.
async fn look(node: &Node) -> Status {
    node.give(&claim("nobody").named("gpu-7"));
    node.refused("nobody").await;
    node.status().await
}

/// The card that a claim has.
async fn granted_card(node: &Node, name: &str) -> Identity {
    node.granted(name).await;
    claim_of(&node.status().await, name).unwrap().record.devices[0].identity.clone()
}

#[tokio::test]
async fn attack_another_card_under_a_grant_is_nobodys_until_the_claim_ends() {
    for restarts in [false, true] {
        let mut node = Node::of(2).await;
        node.give(&claim("a").on(0));
        node.give(&claim("b").on(0));
        node.give(&claim("other").on(1));
        let (old, new) = (granted_card(&node, "a").await, card(SERIALS[0]));
        let other = node.granted("other").await;
        plug(&node, 0, &new);
        if restarts {
            node.restart().await;
        }
        let changed = |status: &Status| reason(status, &old) == Some(Reason::IdentityChanged);
        // Where it does not look anew, a look at devices in use finds it.
        node.until("it is found out", changed).await;
        let record = node.record("quarantine", old.as_str());
        node.eventually("that is on the disk", || record.exists()).await;
        for _ in 0..2 {
            let words = node.refused("b").await;
            assert!(words.contains("another card") && words.contains("tests/a"), "{words}");
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        }
        let untouched = node.counts(0);
        assert_eq!((untouched.resets, untouched.scrubs), (0, 0), "a pod may have its nodes");
        node.unprepared("a").await;
        assert_eq!(granted_card(&node, "b").await, new);
        assert!(node.counts(0).resets > 0);
        node.restart().await;
        assert!(changed(&node.status().await), "that is durable");
        assert_eq!(node.granted("other").await, other);
    }
}

/// Its container would get the nodes of a card that nobody has proved.
#[tokio::test]
async fn attack_a_recorded_answer_is_not_given_for_another_card() {
    for looks in [false, true] {
        let node = Node::of(1).await;
        node.give(&claim("a").on(0));
        node.give(&claim("b").on(0));
        let (old, new) = (granted_card(&node, "a").await, card(SERIALS[1]));
        plug(&node, 0, &new);
        if looks {
            // What is worse about the new card hides nothing of its being another one.
            node.fault(0, Some(Fault::LogError));
        }
        node.until("it is found out", |status| reason(status, &old).is_some()).await;
        node.fault(0, None);
        if looks {
            let status = look(&node).await;
            assert!(status.ledger.devices.iter().any(|device| device.identity == new));
        }
        assert_eq!(granted_card(&node, "a").await, new);
        assert!(node.counts(0).resets > 0 && node.counts(0).scrubs > 0, "proved");
        assert!(node.refused("b").await.contains("tests/a"));
        node.unprepared("a").await;
        node.granted("b").await;
    }
}

#[tokio::test]
async fn attack_a_dead_cards_quarantine_is_neither_its_predecessors_nor_its_neighbours() {
    for successor in SERIALS.map(card) {
        let mut node = Node::of(2).await;
        node.give(&claim("a").on(0));
        node.give(&claim("b").on(1));
        let [first, neighbour] = [node.device(0).await.identity, node.device(1).await.identity];
        plug(&node, 0, &successor);
        look(&node).await;
        node.until("the successor is proved", |status| is_ready(status, &successor)).await;
        node.fault(0, Some(Fault::Dead));
        for restarts in [false, true] {
            if restarts {
                node.restart().await;
            }
            let status = look(&node).await;
            let reasons = [&successor, &first, &neighbour].map(|card| reason(&status, card));
            assert_eq!(reasons, [Some(Reason::FellOffBus), None, None], "restarted: {restarts}");
            assert!(node.refused("a").await.contains("fell_off_bus"));
        }
        node.granted("b").await;
        plug(&node, 0, &first);
        look(&node).await;
        assert_eq!(granted_card(&node, "a").await, first);
        assert_eq!(node.records("quarantine"), [format!("{successor}.json")]);
    }
}

#[tokio::test]
async fn c32_a_quarantine_stays_with_its_card_over_slots_and_restarts() {
    let mut node = Node::of(2).await;
    for (device, claimed) in ["a", "b"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    let [bad, good] = [node.device(0).await.identity, node.device(1).await.identity];
    node.fault(0, Some(Fault::DropWrites));
    assert!(node.refused("a").await.contains("scrub_verify"));
    // Another one in the slot.
    let new = card(SERIALS[0]);
    plug(&node, 0, &new);
    look(&node).await;
    assert_eq!(granted_card(&node, "a").await, new);
    assert!(node.counts(0).resets > 0 && node.counts(0).scrubs > 0, "proved");
    node.unprepared("a").await;
    // The bad one in another slot.
    plug(&node, 1, &bad);
    assert_eq!(reason(&look(&node).await, &bad), Some(Reason::ScrubVerify));
    assert!(node.refused("b").await.contains("scrub_verify"));
    node.granted("a").await;
    node.unprepared("a").await;
    // And back, while nobody looks.
    node.stop().await;
    plug(&node, 1, &good);
    plug(&node, 0, &bad);
    node.start().await;
    assert_eq!(granted_card(&node, "b").await, good);
    assert!(node.refused("a").await.contains("scrub_verify"));
    let reasons = [&bad, &good, &new].map(|card| node.record("quarantine", card.as_str()).exists());
    assert_eq!(reasons, [true, false, false]);
}

#[tokio::test]
async fn attack_cards_that_change_places_at_a_reboot_need_a_proof_of_their_own() {
    const LEFTOVER: &[u8] = b"of before the reboot";
    let mut node = Node::of(3).await;
    for (device, claimed) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    let [x, y, z] =
        [granted_card(&node, "a").await, granted_card(&node, "b").await, granted_card(&node, "c").await];
    let tokens = [node.token(0).await, node.token(1).await];
    node.power_cycle();
    plug(&node, 0, &y);
    plug(&node, 1, &x);
    plug(&node, 2, &card(SERIALS[0]));
    (0..3).for_each(|device| node.leave(device, LEFTOVER));
    node.start().await;
    let words = node.refused("a").await;
    assert!(words.contains("tests/b"), "the card in its slot is b's until b is asked: {words}");
    assert_eq!(granted_card(&node, "b").await, x);
    assert_eq!(granted_card(&node, "a").await, y);
    assert_eq!(granted_card(&node, "c").await, card(SERIALS[0]));
    let status = node.status().await;
    for (claimed, device, old) in [("a", 0, tokens[1]), ("b", 1, tokens[0])] {
        let granted = &claim_of(&status, claimed).unwrap().record.devices[0];
        assert!(granted.address == at(device) && granted.token > old && granted.receipt.is_some());
    }
    for device in 0..3 {
        assert!(node.counts(device).resets > 0 && !node.holds(device, LEFTOVER), "{}", name(device));
    }
    let reasons = [&x, &y, &z].map(|card| reason(&status, card));
    assert_eq!(reasons, [None; 3], "no pod of an earlier boot can have another's nodes");
    let pulled = status.ledger.devices.iter().find(|device| device.identity == z).unwrap();
    assert_eq!(pulled.state, "free", "nobody waits for what is not there");
}

#[tokio::test]
async fn attack_two_cards_with_one_serial_number_are_not_used_and_disturb_nobody() {
    let mut node = Node::lay(&["serial=5e", "serial=5e", ""], Policy::default());
    node.start().await;
    for (device, claimed) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    node.granted("c").await;
    for (device, claimed) in ["a", "b", "a"].iter().enumerate() {
        let words = node.refused(claimed).await;
        let expected = ["serial number is not unique", &at(0).to_string(), &at(1).to_string()];
        assert!(expected.iter().all(|part| words.contains(part)), "{device}: {words}");
    }
    let status = node.status().await;
    let refused: Vec<_> = status.refused.iter().map(|refused| refused.device.clone()).collect();
    assert_eq!(refused, [name(0), name(1)]);
    let counts = [node.counts(0), node.counts(1)];
    assert!(counts.iter().all(|counts| counts.resets == 0 && counts.scrubs == 0), "{counts:?}");
    // Told apart, both are as good as any; nobody has to ask or to restart anything.
    plug(&node, 1, &card(SERIALS[0]));
    node.until("both are proved", |status| is_ready(status, &card(0x5e)) && is_ready(status, &card(1))).await;
    node.granted("a").await;
    node.granted("b").await;
}

/// The next look without need is a minute away.
#[tokio::test]
async fn attack_a_device_that_could_not_be_read_comes_back_by_itself() {
    let policy = Policy::default().release("attempts", "3").release("retry", "1s");
    let mut node = Node::lay(&["fault=dead", ""], policy);
    node.start().await;
    node.until("it is in quarantine", |status| {
        status.ledger.devices.iter().any(|device| device.address == at(0) && device.quarantine.is_some())
    })
    .await;
    let nameless = node.record("quarantine", &name(0));
    node.eventually("it has not said who it is", || nameless.exists()).await;
    node.fault(0, None);
    let status = node.proved().await;
    assert_eq!(status.ledger.devices.len(), 2, "the nameless one was this very card");
    assert_eq!(node.counts(0), more(Default::default(), 1, 1));
    node.eventually("nothing stands against it", || node.records("quarantine").is_empty()).await;
}
