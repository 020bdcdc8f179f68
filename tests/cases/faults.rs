//! C24, C30 and devices that break in a reset: each is found out, costs its claim, and is named for what it is.

use cleanslate::sim::Fault;

use super::node::{Node, Policy, claim, more, name, view};

/// Nothing else looks like it: neither a path, nor a number, nor a word of ours.
const SECRET: &[u8] = b"Xq7#weights-of-a-tenant#7qX";

async fn broken(node: &Node, device: usize, reason: &str, fault: Fault) -> String {
    let claimed = format!("on-{device}");
    node.fault(device, Some(fault));
    node.give(&claim(&claimed).on(device));
    let words = node.refused(&claimed).await;
    assert!(words.contains(reason) && words.contains(&name(device)), "{words}");
    let status = node.status().await;
    let shown = view(&status, device);
    assert_eq!(shown.quarantine.as_ref().unwrap().reason.as_str(), reason);
    assert_eq!(shown.state, "free");
    assert!(node.record("quarantine", shown.identity.as_str()).exists());
    let counts = node.counts(device);
    assert!(node.refused(&claimed).await.contains(reason), "and from then on");
    assert_eq!(node.counts(device), counts, "nobody touches it any more");
    words
}

/// The offset of what was found, as it stands in some words.
fn offset(words: &str) -> u64 {
    let digits = words.split("offset 0x").nth(1).unwrap();
    let digits: String = digits.chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).unwrap()
}

#[tokio::test]
async fn c24_lost_writes_are_found_at_an_offset_and_the_content_is_never_told() {
    let node = Node::of(2).await;
    let before = node.counts(0);
    node.leave(0, SECRET);
    let words = broken(&node, 0, "scrub_verify", Fault::DropWrites).await;
    assert!(offset(&words) < 65536 && offset(&words).is_multiple_of(8), "{words}");
    assert!(node.holds(0, SECRET), "the writes were lost indeed");
    assert_eq!(node.counts(0), more(before, 1, 0), "reset, and not scrubbed");
    let log = node.log();
    assert!(log.contains(&format!("offset {:#x}", offset(&words))), "the offset stands in the log");
    let status = serde_json::to_string(&node.status().await).unwrap();
    let little = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    for word in SECRET.chunks_exact(8) {
        let text = String::from_utf8(word.to_vec()).unwrap();
        let hex: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
        for shape in [text, hex, format!("{:x}", little(word)), little(word).to_string()] {
            assert!([&log, &words, &status].iter().all(|told| !told.contains(&shape)), "{shape} was told");
        }
    }
    node.give(&claim("other").on(1));
    node.granted("other").await;
}

/// Zeros are what the last pass leaves, and still no sign that it ran.
#[tokio::test]
async fn c24_a_memory_that_was_zero_before_is_no_proof_either() {
    let node = Node::of(1).await;
    let words = broken(&node, 0, "scrub_verify", Fault::DropWrites).await;
    assert!(words.contains("read back wrong"), "{words}");
}

#[tokio::test]
async fn c30_a_fill_that_reports_success_and_did_nothing_is_no_proof() {
    // Two chunks and a half, and less than one.
    let mut node = Node::lay(&["memory=2621440", "memory=4096"], Policy::default());
    node.start().await;
    node.proved().await;
    for device in 0..2 {
        let before = node.counts(device);
        broken(&node, device, "scrub_verify", Fault::SkipFill).await;
        assert_eq!(node.counts(device), more(before, 1, 0));
    }
}

/// The cleaning after a release is a proof like any other.
#[tokio::test]
async fn c30_a_cleaning_that_did_nothing_is_found_out_at_release() {
    let node = Node::of(2).await;
    for (device, fault) in [Fault::SkipFill, Fault::DropWrites].into_iter().enumerate() {
        let claimed = format!("a-{device}");
        node.give(&claim(&claimed).on(device));
        node.give(&claim("next").on(device));
        node.granted(&claimed).await;
        node.leave(device, SECRET);
        node.fault(device, Some(fault));
        node.unprepared(&claimed).await;
        assert_eq!(node.device(device).await.quarantine.unwrap().reason.as_str(), "scrub_verify");
        assert!(node.refused("next").await.contains("scrub_verify"));
    }
}

#[tokio::test]
async fn a_device_that_breaks_in_its_reset_is_named_for_how() {
    let node = Node::of(3).await;
    let before = [0, 1, 2].map(|device| node.counts(device));
    let (lost, died, dead) = tokio::join!(
        broken(&node, 0, "config_lost", Fault::BarsLost),
        broken(&node, 1, "fell_off_bus", Fault::DieAtReset),
        broken(&node, 2, "fell_off_bus", Fault::Dead),
    );
    assert!(lost.contains("BAR0") && lost.contains("needs_reset"), "{lost}");
    assert!(died.contains("needs_power_cycle") && dead.contains("needs_power_cycle"), "{died} {dead}");
    assert_eq!(node.counts(0), more(before[0], 1, 0), "nothing is written to a device without BARs");
    assert_eq!(node.counts(1), more(before[1], 1, 0));
    assert_eq!(node.counts(2), before[2], "a dead device is never reset");
}

/// It was dead before we ever saw it alive.
#[tokio::test]
async fn a_device_found_dead_at_the_start_is_never_reset() {
    let mut node = Node::lay(&["fault=dead", ""], Policy::default());
    node.start().await;
    let dead = |status: &_| {
        view(status, 0).quarantine.as_ref().is_some_and(|it| it.reason.as_str() == "fell_off_bus")
    };
    node.until("it is in quarantine", |status: &cleanslate::observe::status::Status| {
        status.ledger.devices.len() == 2 && dead(status)
    })
    .await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    assert!(node.refused("a").await.contains("fell_off_bus"));
    node.granted("b").await;
    assert_eq!(node.counts(0).resets, 0);
}
