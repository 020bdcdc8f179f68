//! C7, C8, C16: the same claim again, on another boot and on the same one.

use std::fs;

use cleanslate::sim::Fault;
use cleanslate::types::Token;
use futures_util::future::join_all;

use super::node::{Node, Policy, claim, claim_of, more, reference, view};

/// Three devices, the second of which brings device nodes; claim `a` has the first, `two` the others.
async fn node() -> Node {
    let mut node = Node::lay(&["", "driver=vfio-pci", ""], Policy::default());
    node.start().await;
    node.proved().await;
    node.give(&claim("a").on(0));
    node.give(&claim("two").on(2).on(1));
    node
}

const CLAIMS: [(&str, &[usize]); 2] = [("a", &[0]), ("two", &[2, 1])];

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

/// Whatever became of the CDI files, and of the devices' health, on the same boot the answer is the recorded one.
#[tokio::test]
async fn c08_a_wiped_cdi_file_comes_back_byte_for_byte() {
    let mut node = node().await;
    for (name, devices) in CLAIMS {
        node.granted(name).await;
        node.twin.hold(super::node::at(devices[0]), 4711, "python3", "0::/kubepods/pod-a").unwrap();
        let (answer, cdi) = (node.granted(name).await, node.cdi(name).unwrap());
        let counts = [0, 1, 2].map(|device| node.counts(device));
        for how in ["one file", "the folder", "restart", "kill"] {
            fs::remove_file(node.cdi_path(name)).unwrap();
            match how {
                "one file" => {}
                "the folder" => fs::remove_dir_all(node.path("cdi")).unwrap(),
                "restart" => node.restart().await,
                _ => {
                    node.kill();
                    node.start().await;
                }
            }
            let rebuilt = ["restart", "kill"].contains(&how);
            assert_eq!(node.cdi(name).is_some(), rebuilt, "a start needs nobody to ask");
            assert_eq!(node.granted(name).await, answer, "{how}");
            assert_eq!(node.cdi(name).unwrap(), cdi, "{how}");
            assert_eq!([0, 1, 2].map(|device| node.counts(device)), counts, "{how}");
        }
        node.twin.let_go(4711).unwrap();
    }
    let nodes = String::from_utf8(node.cdi("two").unwrap()).unwrap();
    assert!(nodes.contains("/dev/vfio/"), "{nodes}");
}

#[tokio::test]
async fn c08_a_quarantine_of_the_granted_device_does_not_refuse_the_replay() {
    let mut node = node().await;
    node.granted("two").await;
    let (answer, cdi) = (node.granted("two").await, node.cdi("two").unwrap());
    let counts = [node.counts(1), node.counts(2)];
    node.fault(1, Some(Fault::Dead));
    node.restart().await;
    let sick = |status: &_| view(status, 1).quarantine.as_ref().is_some_and(is_lost);
    let status = node.until("it is found dead", sick).await;
    assert_eq!(view(&status, 1).state, "granted", "both");
    fs::remove_file(node.cdi_path("two")).unwrap();
    assert_eq!(node.granted("two").await, answer);
    assert_eq!(node.cdi("two").unwrap(), cdi);
    assert_eq!([node.counts(1), node.counts(2)], counts);
    // Its pod may end; the healthy one is cleaned, the dead one is left alone.
    node.unprepared("two").await;
    assert_eq!([node.counts(1), node.counts(2)], [counts[0], more(counts[1], 1, 1)]);
    assert!(node.refused("two").await.contains("fell_off_bus"));
}

fn is_lost(quarantine: &cleanslate::ledger::QuarantineView) -> bool {
    quarantine.reason.as_str() == "fell_off_bus"
}

#[tokio::test]
async fn c16_the_same_claim_again_is_the_same_answer() {
    let mut node = node().await;
    let first = [node.granted("a").await, node.granted("two").await];
    let counts = [0, 1, 2].map(|device| node.counts(device));
    for restarts in 0..3 {
        match restarts {
            0 => {}
            1 => node.restart().await,
            _ => {
                node.kill();
                node.start().await;
            }
        }
        // The sandbox is made again; a second pod joins; both at once; one pod with both claims.
        for _ in 0..3 {
            assert_eq!([node.granted("a").await, node.granted("two").await], first);
        }
        let (a, two, again) = tokio::join!(node.granted("a"), node.granted("two"), node.granted("a"));
        assert_eq!([a.clone(), two, again], [first[0].clone(), first[1].clone(), a]);
        for names in [["a", "two"], ["two", "a"]] {
            let answers = node.call(names.map(reference).to_vec()).await.unwrap();
            for (name, answer) in names.iter().zip(answers) {
                let expected = &first[usize::from(*name == "two")];
                assert_eq!((answer.error.as_str(), &answer.devices), ("", expected));
            }
        }
        assert_eq!([0, 1, 2].map(|device| node.counts(device)), counts, "{restarts}");
        let status = node.status().await;
        assert_eq!(status.ledger.claims.len(), 2);
        assert!(CLAIMS.iter().all(|(name, devices)| {
            claim_of(&status, name).unwrap().record.devices.len() == devices.len()
        }));
    }
    join_all(CLAIMS.map(|(name, _)| node.unprepared(name))).await;
    join_all(CLAIMS.map(|(name, _)| node.unprepared(name))).await;
    let cleaned = [0, 1, 2].map(|device| node.counts(device));
    assert_eq!(cleaned, counts.map(|counts| more(counts, 1, 1)), "released twice, cleaned once");
}
