//! C22: a process that has the device open is named, never killed, and its device is left alone.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cleanslate::sim::Fault;

use super::node::{Node, Policy, at, claim, more, name, view};

const CGROUP: &str = "0::/kubepods.slice/kubepods-pod4711.slice/cri-containerd-ab12.scope";

/// A real process, whose number the simulated holder has: a kill would find it.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("300").spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn c22_a_holder_is_named_and_neither_killed_nor_reset_under() {
    // By its BAR file, and by its device node.
    let mut node = Node::lay(&["", "driver=vfio-pci", ""], Policy::default());
    node.start().await;
    node.proved().await;
    let mut process = Process::start();
    let pid = process.0.id();
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.give(&claim("both").on(2).on(0));
    let before = [0, 1, 2].map(|device| node.counts(device));
    for (device, claims) in [(0, &["a", "both"][..]), (1, &["b"])] {
        node.twin.hold(at(device), pid, "python3.12", CGROUP).unwrap();
        if device == 1 {
            let fd = node.twin.roots().proc.join(format!("{pid}/fd/3"));
            std::fs::remove_file(&fd).unwrap();
            std::os::unix::fs::symlink(node.twin.roots().dev.join("vfio/2"), fd).unwrap();
        }
        for claimed in claims {
            let words = node.refused(claimed).await;
            for part in [&pid.to_string(), "python3.12", CGROUP, &name(device)] {
                assert!(words.contains(part), "no {part} in: {words}");
            }
        }
        assert_eq!(node.counts(device), before[device], "a tenant's device");
        assert!(node.device(device).await.quarantine.is_none(), "nothing is known against it");
        node.twin.let_go(pid).unwrap();
        node.granted(claims[0]).await;
        // Somebody had it open, so it may have been proved once more before the claim.
        let proofs = node.counts(device).resets - before[device].resets;
        assert_eq!(node.counts(device), more(before[device], proofs, proofs));
        assert!((1..=2).contains(&proofs));
    }
    assert!(process.is_alive());
}

#[tokio::test]
async fn c22_a_holder_that_lets_go_in_time_costs_nothing() {
    let node = Node::with(1, Policy::default().release("patience", "20s")).await;
    node.give(&claim("a").on(0));
    let before = node.counts(0);
    node.twin.hold(at(0), 4711, "python3", CGROUP).unwrap();
    let call = node.preparing("a");
    node.in_step(0, "holders").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!call.is_finished(), "it is waited for");
    assert_eq!(node.counts(0), before);
    node.twin.let_go(4711).unwrap();
    node.is_granted("a", call.await.unwrap());
    assert_eq!(node.counts(0), more(before, 1, 1));
}

/// The pod that just ended is slow to go: its unprepare ends, its device waits for it.
#[tokio::test]
async fn c22_a_holder_that_outlives_its_claim_keeps_the_device_from_others() {
    let policy = Policy::default().release("patience", "100ms").release("wait", "300ms");
    let node = Node::with(1, policy).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    node.granted("a").await;
    let before = node.counts(0);
    node.twin.hold(at(0), 4711, "python3", CGROUP).unwrap();
    let begun = Instant::now();
    node.unprepared("a").await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    node.until("it waits", |status| {
        let shown = view(status, 0);
        shown.state == "maintenance" && shown.detail.contains("tests/a") && !shown.schedulable
    })
    .await;
    let call = node.preparing("b");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!call.is_finished());
    assert_eq!(node.counts(0), before, "it was left alone");
    node.twin.let_go(4711).unwrap();
    node.is_granted("b", call.await.unwrap());
    assert_eq!(node.counts(0), more(before, 2, 2));
}

/// Nobody had the device when it was looked for holders, and somebody has when it is clean.
#[tokio::test]
async fn attack_a_holder_that_comes_during_the_proof_gets_no_neighbour() {
    let policy = Policy::default().release("patience", "100ms").release("wait", "200ms");
    let node = Node::with(1, policy).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(0));
    let comes_late = async || {
        node.in_step(0, "reset").await;
        node.twin.hold(at(0), 4711, "python3", CGROUP).unwrap();
        // Only now can the reset return, and the scrub begin.
        node.fault(0, None);
    };
    node.fault(0, Some(Fault::HangReset));
    let call = node.preparing("a");
    comes_late().await;
    let words = node.is_refused("a", call.await.unwrap()).await;
    assert!(words.contains("4711") && words.contains(CGROUP), "{words}");
    let shown = node.device(0).await;
    assert!(!shown.schedulable && shown.quarantine.is_none(), "nothing is known against it");
    node.twin.let_go(4711).unwrap();
    node.granted("a").await;

    // The same while it is cleaned after a claim: it is not clean then.
    node.fault(0, Some(Fault::HangReset));
    node.unprepared("a").await;
    comes_late().await;
    let call = node.preparing("b");
    node.until("the cleaning is tried again", |_| node.log().matches("process 4711").count() >= 3).await;
    let shown = node.device(0).await;
    assert!(shown.state == "maintenance" && !shown.schedulable && !call.is_finished(), "{shown:?}");
    node.twin.let_go(4711).unwrap();
    node.is_granted("b", call.await.unwrap());
}
