//! A whole daemon on devices that can hang so that no signal helps.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cleanslate::observe::status::Status;
use cleanslate::sim::Fault;

use super::node::{Node, Policy, at, claim, flock, is_locked, more, name, view};

/// Far less than the 45 s after which the kubelet gives up; a reset has less than one here.
const SOON: Duration = Duration::from_secs(15);

fn hasty() -> Policy {
    Policy::default().hasty(0, "800ms")
}

fn lock(node: &Node) -> std::path::PathBuf {
    node.path("run").join(format!("{}.lock", at(0)))
}

/// The worker that a quarantine speaks of, and the state in which `/proc` shows it.
async fn stuck(node: &Node) -> (u32, char) {
    let quarantine = node.device(0).await.quarantine.unwrap();
    assert_eq!(quarantine.reason.as_str(), "worker_stuck", "{quarantine:?}");
    let pid =
        quarantine.evidence.split_once("worker ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    (pid, stat.rsplit_once(") ").unwrap().1.chars().next().unwrap())
}

#[tokio::test]
async fn a_claim_is_prepared_and_leaves_every_byte_and_setting_as_it_was() {
    let node = Node::of(2).await;
    let file = |name: &str| fs::read(node.twin.roots().pci_device(at(0)).join(name)).unwrap();
    let before = ["config", "reset_method", "power/control", "d3cold_allowed"].map(file);
    let counts = node.counts(0);
    node.leave(0, b"a tenant's weights");
    node.give(&claim("a").on(0).on(1));
    node.granted("a").await;
    assert_eq!(node.counts(0), more(counts, 1, 1));
    assert!(node.twin.memory(at(0)).unwrap().iter().all(|byte| *byte == 0));
    assert!(["config", "reset_method", "power/control", "d3cold_allowed"].map(file) == before);
    node.unprepared("a").await;
}

/// Prepared while its reset hangs: answered in time, the worker in state D, nobody else delayed, the daemon ends and
/// starts again beside it.
async fn hung(policy: Policy) -> Node {
    let mut node = Node::with(2, policy).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.fault(0, Some(Fault::HangReset));
    let before = node.counts(0);
    let begun = Instant::now();
    let hanging = node.preparing("a");
    node.in_step(0, "reset").await;
    node.granted("b").await;
    assert!(!hanging.is_finished(), "b was done while a hung");
    let words = node.is_refused("a", hanging.await.unwrap()).await;
    assert!(words.contains("worker_stuck") && words.contains(&name(0)), "{words}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let (pid, state) = stuck(&node).await;
    println!("worker {pid} in state {state} after {:?}: {words}", begun.elapsed());
    assert_eq!((state, is_locked(&lock(&node))), ('D', true), "it keeps the lock");

    let begun = Instant::now();
    node.unprepared("a").await;
    node.unprepared("b").await;
    assert!(node.refused("a").await.contains("worker_stuck"));
    let took = node.stop().await;
    assert!(took < SOON && begun.elapsed() < SOON, "{took:?} {:?}", begun.elapsed());
    println!("SIGTERM to the end: {took:?}");
    assert_eq!(state_of(pid), Some('D'), "the worker outlives its daemon");
    node.start().await;
    let words = node.refused("a").await;
    assert!(words.contains("is held, by") && words.contains(&format!("process {pid} ")), "{words}");
    assert_eq!(stuck(&node).await, (pid, 'D'), "and the quarantine is still there");
    node.granted("b").await;
    assert_eq!(
        (node.counts(0), is_locked(&lock(&node))),
        (before, true),
        "nobody has touched the device since"
    );
    node
}

fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn is_usable(status: &Status) -> bool {
    view(status, 0).schedulable
}

#[tokio::test]
async fn a_device_whose_reset_hung_comes_back_by_a_verified_resanitization_once_it_is_let_go() {
    let node = hung(hasty().release("attempts", "2").release("retry", "1s")).await;
    // As long as it hangs, tries are none: the lock is held.
    node.until("it was tried", |_| node.log().contains("is held, by")).await;
    let quarantine = node.device(0).await.quarantine.unwrap();
    assert_eq!((quarantine.reason.as_str(), quarantine.attempts), ("worker_stuck", 0));

    let before = node.counts(0);
    node.fault(0, None);
    node.until("it is proved", is_usable).await;
    // What hung was carried out before.
    assert_eq!(node.counts(0), more(before, 2, 1));
    assert!(!node.path("run").join(format!("{}.saved", at(0))).exists(), "nothing is left to be put back");
    node.granted("a").await;
}

#[tokio::test]
async fn without_attempts_it_stays_in_quarantine_until_an_operators_word() {
    let mut node = hung(hasty()).await;
    let before = node.counts(0);
    node.fault(0, None);
    drop(flock(&node, 0));
    for _ in 0..2 {
        node.restart().await;
        let words = node.refused("a").await;
        assert!(words.contains("worker_stuck"), "{words}");
        assert_eq!(node.counts(0), more(before, 1, 0), "only what hung was carried out");
    }
    let released = node.cli(&["quarantine", "release", &at(0).to_string(), "--reason", "power cycled"]);
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    node.until("it is proved", is_usable).await;
    node.granted("a").await;
}

/// Somebody else's reset hangs, and whoever reads config space hangs with it.
#[tokio::test]
async fn a_read_of_config_space_that_hangs_costs_one_claim_too() {
    let policy = Policy::default().deadline("probe", "800ms").release("attempts", "2").release("retry", "1s");
    let node = Node::with(2, policy).await;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(1));
    node.fault(0, Some(Fault::HangReset));
    let reset = node.twin.roots().pci_device(at(0)).join("reset");
    let mut other: Child =
        Command::new("sh").args(["-c", "echo 1 >\"$1\"", "sh"]).arg(reset).spawn().unwrap();
    node.eventually("it hangs", || node.twin.writers(at(0)).unwrap() == 1).await;
    let begun = Instant::now();
    let hanging = node.preparing("a");
    node.granted("b").await;
    let words = node.is_refused("a", hanging.await.unwrap()).await;
    assert!(words.contains("worker_stuck") && words.contains("probe"), "{words}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(stuck(&node).await.1, 'D');

    node.fault(0, None);
    assert!(other.wait().unwrap().success());
    node.until("it is proved", is_usable).await;
    node.granted("a").await;
}
