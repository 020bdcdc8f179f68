//! C7, C8, C16: the same claim again, on another boot and on the same one.

use cleanslate::sim::Fault;
use cleanslate::types::Token;

use super::node::{Node, Policy, claim, more, view};

/// Three devices, the second of which brings device nodes; claim `a` has the first, `two` the others.
pub(super) async fn node() -> Node {
    let mut node = Node::lay(&["", "driver=vfio-pci", ""], Policy::default());
    node.start().await;
    node.proved().await;
    node.give(&claim("a").on(0));
    node.give(&claim("two").on(2).on(1));
    node
}

pub(super) const CLAIMS: [(&str, &[usize]); 2] = [("a", &[0]), ("two", &[2, 1])];

#[tokio::test]
async fn c07_after_a_reboot_a_claim_is_proved_anew_and_gets_the_same_devices() {
    let mut node = node().await;
    let mut answers = Vec::new();
    for (name, _) in CLAIMS {
        answers.push(node.granted(name).await);
    }
    for boots in [1, 2] {
        let tokens = [node.token(0).await, node.token(1).await, node.token(2).await];
        let (before, old) = ([0, 1, 2].map(|device| node.counts(device)), node.cdi("two").unwrap());
        // Twice without anybody asking is as good as once.
        for _ in 0..boots {
            node.reboot().await;
        }
        for (device, name) in [(0, "a"), (1, "two"), (2, "two")] {
            let other = format!("other-{device}");
            node.give(&claim(&other).on(device));
            let words = node.refused(&other).await;
            assert!(words.contains(&format!("tests/{name}")), "it is nobody else's: {words}");
        }
        assert_eq!([0, 1, 2].map(|device| node.counts(device)), before, "nobody has asked yet");
        assert!(node.cdi("a").is_none() && node.cdi("two").is_none(), "no file before its proof");
        for ((name, devices), answer) in CLAIMS.iter().zip(&answers) {
            // `granted` finds the CDI file at the moment of the reply.
            assert_eq!(node.granted(name).await, *answer);
            for device in *devices {
                assert_eq!(node.counts(*device), more(before[*device], 1, 1), "a whole proof");
                let expected = Token { epoch: tokens[*device].epoch + 1, ..tokens[*device] };
                assert_eq!(node.token(*device).await, expected);
                let cdi = String::from_utf8(node.cdi(name).unwrap()).unwrap();
                assert!(cdi.contains(&format!(",{expected}")), "{cdi}");
            }
        }
        assert_ne!(node.cdi("two").unwrap(), old, "the token is another");
    }
}

#[tokio::test]
async fn c07_what_is_not_prepared_again_is_cleaned_at_its_release() {
    let mut node = node().await;
    node.granted("two").await;
    node.reboot().await;
    let before = [node.counts(1), node.counts(2)];
    node.unprepared("two").await;
    assert_eq!([node.counts(1), node.counts(2)], before.map(|before| more(before, 1, 1)));
    node.give(&claim("next").on(1).on(2));
    node.granted("next").await;
}

#[tokio::test]
async fn c07_a_device_that_does_not_come_back_costs_its_claim_and_goes_to_quarantine() {
    let mut node = Node::with(2, Policy::default().hasty(0, "700ms")).await;
    node.give(&claim("a").on(0).on(1));
    node.granted("a").await;
    node.power_cycle();
    node.fault(0, Some(Fault::HangReset));
    node.start().await;
    assert!(node.refused("a").await.contains("reset_timeout"));
    assert!(node.refused("a").await.contains("quarantine"));
    node.unprepared("a").await;
    node.give(&claim("b").on(1));
    node.granted("b").await;
}

/// As C3, with the power gone instead of the process.
#[tokio::test]
async fn c07_power_lost_while_preparing_is_cleaned_up_after() {
    let mut node = Node::of(1).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.fault(0, Some(Fault::HangReset));
    let call = node.preparing("a");
    let status = node.in_step(0, "reset").await;
    call.abort();
    node.power_cycle();
    node.fault(0, None);
    let before = node.counts(0);
    node.start().await;
    node.granted("b").await;
    assert_eq!(node.counts(0), more(before, 2, 2));
    assert_eq!(node.token(0).await.epoch, view(&status, 0).token.epoch + 2);
}
