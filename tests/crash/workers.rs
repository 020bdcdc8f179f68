//! A prepare whose worker is killed, at each of its system calls in turn: it is undone, and costs at most its device.

use std::fs;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::census::children;
use super::node::{Node, PATIENCE, Policy, at as place, claim, flock, name};
use super::stage::{LEFTOVER, Stage, quiet_or_dead};
use super::strace::Tracer;

/// The daemon's only worker.
async fn worker(node: &Node) -> Pid {
    let (daemon, begun) = (node.daemon().pid().to_string(), Instant::now());
    loop {
        if let Some(pid) = children(&daemon).first() {
            return Pid::from_raw(*pid);
        }
        assert!(begun.elapsed() < PATIENCE, "no worker comes\n{}", node.told());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

/// How many such calls a worker makes from its first order to its last report.
pub(crate) async fn at_every(call: &'static str) -> u32 {
    let mut stage = Stage::with(3, Policy::default()).await;
    let mut when = 1;
    loop {
        let (a, b) = (format!("a-{when}"), format!("b-{when}"));
        let node = &mut stage.node;
        node.give(&claim(&a).on(0));
        node.give(&claim(&b).on(0));
        node.leave(0, LEFTOVER);
        assert!(!quiet_or_dead(node).await);
        let token = node.token(0).await;
        // It waits for the lock, so that no call of its work is missed.
        let lock = flock(node, 0);
        let preparing = node.preparing(&a);
        let tracer = Tracer::attach(&[worker(node).await], call, "signal=SIGKILL", &when.to_string());
        drop(lock);
        let answer = preparing.await.unwrap();
        drop(tracer);
        let at = format!("{call} {when}: {}", answer.error);
        if answer.error.contains("is held") {
            // It waits for half a second; this machine was slower.
            continue;
        }
        if answer.error.is_empty() {
            node.is_granted(&a, answer);
            assert!(!node.holds(0, LEFTOVER), "{at}");
            node.unprepared(&a).await;
            stage.is_sound(&at).await;
            return when - 1;
        }
        let words = node.is_refused(&a, answer).await;
        assert!(words.contains("the worker died"), "{at}");
        if let Some(quarantine) = node.device(0).await.quarantine {
            assert!(words.contains(quarantine.reason.as_str()), "{at}");
            let word = ["quarantine", "release", &name(0), "--reason", "a worker was killed"];
            assert!(node.cli(&word).status.success(), "{at}");
        }
        let before = node.counts(0);
        node.granted(&b).await;
        assert!(!node.holds(0, LEFTOVER), "{at}");
        let now = node.counts(0);
        assert!(now.resets > before.resets && now.scrubs > before.scrubs, "{at}: {before:?} {now:?}");
        assert!(node.token(0).await > token, "{at}");
        let settings = node.twin.roots().pci_device(place(0)).join("reset_method");
        let text = fs::read_to_string(settings).unwrap();
        assert_eq!(text.trim_end(), "flr bus", "{at}: the pin is off again");
        node.unprepared(&b).await;
        assert!(!quiet_or_dead(node).await);
        stage.is_sound(&at).await;
        when += 1;
    }
}

/// Killed before it had anything to say.
#[tokio::test]
async fn killed_before_its_first_report_a_worker_costs_its_call_alone() {
    let node = Node::of(1).await;
    node.give(&claim("a").on(0));
    let before = node.counts(0);
    let lock = flock(&node, 0);
    let preparing = node.preparing("a");
    kill(worker(&node).await, Signal::SIGKILL).unwrap();
    let answer = preparing.await.unwrap();
    drop(lock);
    let words = node.is_refused("a", answer).await;
    assert!(words.contains("the worker died"), "{words}");
    assert_eq!(node.counts(0), before);
    assert!(node.device(0).await.quarantine.is_none(), "it had not touched the device");
    node.granted("a").await;
}
