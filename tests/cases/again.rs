//! C8, C16: the same claim again on the same boot.

use std::fs;

use cleanslate::sim::Fault;
use futures_util::future::join_all;

use super::node::{at, claim_of, more, reference, view};
use super::reboot::{CLAIMS, node};

/// Whatever became of the CDI files, and of the devices' health, on the same boot the answer is the recorded one.
#[tokio::test]
async fn c08_a_wiped_cdi_file_comes_back_byte_for_byte() {
    let mut node = node().await;
    for (name, devices) in CLAIMS {
        node.granted(name).await;
        node.twin.hold(at(devices[0]), 4711, "python3", "0::/kubepods/pod-a").unwrap();
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
