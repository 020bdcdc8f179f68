//! C11: a reset that never returns costs its claim and its device, and nobody else anything.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use cleanslate::sim::Fault;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::node::{Node, Policy, at, claim, flock, is_locked, more, name, view};

/// The kubelet gives up after 45 s; here a step has less than one.
const SOON: Duration = Duration::from_secs(10);

fn hasty(devices: &[usize]) -> Policy {
    devices.iter().fold(Policy::default(), |policy, device| policy.hasty(*device, "800ms"))
}

#[tokio::test]
async fn c11_a_hanging_reset_costs_one_claim_and_delays_no_other() {
    // By the twin's hang, and by a FIFO that nobody reads.
    for by_fifo in [false, true] {
        let mut node = Node::with(2, hasty(&[0])).await;
        if by_fifo {
            let reset = node.twin.roots().pci_device(at(0)).join("reset");
            fs::remove_file(&reset).unwrap();
            mkfifo(&reset, Mode::S_IRWXU).unwrap();
        } else {
            node.fault(0, Some(Fault::HangReset));
        }
        node.give(&claim("a").on(0));
        node.give(&claim("b").on(1));
        let before = node.counts(0);
        let begun = Instant::now();
        let hanging = node.preparing("a");
        node.in_step(0, "reset").await;
        node.granted("b").await;
        assert!(!hanging.is_finished(), "b was done while a hung");
        let words = node.is_refused("a", hanging.await.unwrap()).await;
        assert!(words.contains("reset_timeout") && words.contains(&name(0)), "{words}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(node.counts(0), before);

        // What comes of the blocked write later changes nothing.
        let (token, quarantine) = (node.token(0).await, node.device(0).await.quarantine.unwrap());
        if !by_fifo {
            node.fault(0, None);
        }
        let begun = Instant::now();
        node.unprepared("a").await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        node.restart().await;
        let now = node.device(0).await;
        let still = now.quarantine.unwrap();
        assert_eq!((now.token, still.since), (token, quarantine.since));
        assert!(node.refused("a").await.contains("reset_timeout"));
    }
}

#[tokio::test]
async fn c11_two_devices_hang_at_once_and_each_costs_its_own_claim() {
    let node = Node::with(4, hasty(&[0, 1])).await;
    for (device, claimed) in ["a", "b", "c"].iter().enumerate() {
        node.give(&claim(claimed).on(device));
    }
    node.fault(0, Some(Fault::HangReset));
    node.fault(1, Some(Fault::HangReset));
    let begun = Instant::now();
    let hanging = [node.preparing("a"), node.preparing("b")];
    node.in_step(0, "reset").await;
    node.in_step(1, "reset").await;
    node.granted("c").await;
    assert!(hanging.iter().all(|call| !call.is_finished()));
    for (device, call) in hanging.into_iter().enumerate() {
        let words = node.is_refused(["a", "b"][device], call.await.unwrap()).await;
        assert!(words.contains("reset_timeout") && words.contains(&name(device)), "{words}");
    }
    assert!(begun.elapsed() < SOON, "side by side, not one after the other");
    let status = node.status().await;
    let bad: Vec<_> = (0..4).filter(|device| view(&status, *device).quarantine.is_some()).collect();
    assert_eq!(bad, [0, 1], "nobody else is blamed");
}

/// The cleaning after a release hangs: the pod may end all the same.
#[tokio::test]
async fn c11_unprepare_does_not_hang_with_its_device() {
    let node = Node::with(2, hasty(&[0]).release("wait", "200ms")).await;
    node.give(&claim("a").on(0).on(1));
    node.granted("a").await;
    node.fault(0, Some(Fault::HangReset));
    let begun = Instant::now();
    node.unprepared("a").await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let status = node.until("it is found out", |status| view(status, 0).quarantine.is_some()).await;
    assert_eq!(view(&status, 0).quarantine.as_ref().unwrap().reason.as_str(), "reset_timeout");
    node.until("the other is clean", |status| view(status, 1).schedulable).await;
}

#[tokio::test]
async fn c11_sigterm_ends_the_daemon_while_a_reset_hangs() {
    // In a claim's call, which is answered first; and where nobody waits for an answer, however long it may take.
    let mut node = Node::with(2, hasty(&[0])).await;
    node.give(&claim("a").on(0));
    node.fault(0, Some(Fault::HangReset));
    let hanging = node.preparing("a");
    node.in_step(0, "reset").await;
    assert!(node.stop().await < SOON);
    assert!(hanging.await.unwrap().error.contains("reset_timeout"), "it was told to the kubelet");

    node.fault(1, Some(Fault::HangReset));
    node.policy = Policy::default().deadline("reset", "60s");
    node.power_cycle();
    node.start().await;
    node.in_step(1, "reset").await;
    let took = node.stop().await;
    assert!(took < SOON, "{took:?}");
    let lock = node.path("run").join(format!("{}.lock", at(1)));
    assert!(is_locked(&lock), "its worker is still at it, and nobody else may");

    node.start().await;
    node.give(&claim("b").on(1));
    let words = node.refused("b").await;
    assert!(words.contains(&lock.display().to_string()), "{words}");
    assert!(node.refused("a").await.contains("reset_timeout"), "it was written before the end");
    node.fault(1, None);
    node.eventually("the worker ends by itself", || !is_locked(&lock)).await;
    node.granted("b").await;
}

#[tokio::test]
async fn c11_a_lock_in_foreign_hands_refuses_its_device_and_disturbs_no_other() {
    let node = Node::of(3).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.give(&claim("both").on(2).on(0));
    let lock: File = flock(&node, 0);
    let before = [0, 1, 2].map(|device| node.counts(device));
    let (refused, granted) = tokio::join!(node.prepare("a"), node.prepare("b"));
    node.is_granted("b", granted);
    let path = node.path("run").join(format!("{}.lock", at(0))).display().to_string();
    for words in [node.is_refused("a", refused).await, node.refused("both").await, node.refused("a").await] {
        assert!(words.contains(&path) && words.contains("is held"), "{words}");
    }
    assert_eq!(node.counts(0), before[0], "it was not touched");
    let status = node.status().await;
    assert!(status.ledger.devices.iter().all(|device| device.quarantine.is_none()), "nobody is blamed");
    drop(lock);
    node.granted("both").await;
    assert_eq!(node.counts(1), more(before[1], 1, 1));
}
