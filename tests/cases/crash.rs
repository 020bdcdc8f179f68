//! C3: whatever the daemon was doing when it was killed, the next claim gets a device that was cleaned after it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cleanslate::sim::Fault;
use futures_util::future::join_all;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use super::node::{Killer, Node, Policy, at, claim, is_locked, more, uid};

const LEFTOVER: &[u8] = b"what the dead claim had in memory";

/// The claim's record as the killed daemon left it.
fn record(node: &Node, name: &str) -> Option<Value> {
    let text = fs::read_to_string(node.record("claims", &uid(name))).ok()?;
    serde_json::from_str(text.lines().next().unwrap()).ok()
}

/// Puts a FIFO in the place of a file; who opens it waits.
fn block(path: &Path) -> PathBuf {
    let kept = path.with_extension("kept");
    fs::rename(path, &kept).unwrap();
    mkfifo(path, Mode::S_IRWXU).unwrap();
    kept
}

/// Puts the file back, and lets those go that wait.
fn unblock(path: &Path, kept: &Path) {
    let fifo = path.with_extension("fifo");
    fs::rename(path, &fifo).unwrap();
    fs::rename(kept, path).unwrap();
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(fifo).unwrap();
}

pub(super) async fn unlocked(node: &Node, device: usize) {
    let lock = node.path("run").join(format!("{}.lock", at(device)));
    node.eventually("the orphan lets go", || !is_locked(&lock)).await;
}

#[tokio::test]
async fn c03_killed_in_every_step() {
    // A scrub that can be met; the others are held up.
    let mut node = Node::lay(&["", "", "", "memory=33554432"], Policy::default());
    node.start().await;
    node.proved().await;
    let steps = ["probe", "holders", "reset", "scrub"];
    let config = node.twin.roots().pci_device(at(0)).join("config");
    let comm = node.twin.roots().proc.join("4711/comm");
    let kept = [block(&config), {
        node.twin.hold(at(1), 4711, "python", "0::/pod").unwrap();
        block(&comm)
    }];
    node.fault(2, Some(Fault::HangReset));
    for (device, step) in steps.iter().enumerate() {
        node.give(&claim(&format!("a-{device}")).on(device));
        node.give(&claim(&format!("b-{device}")).on(device));
        let call = node.preparing(&format!("a-{device}"));
        node.in_step(device, step).await;
        call.abort();
    }
    node.kill();
    let epochs = (0..steps.len()).map(|device| {
        let record = record(&node, &format!("a-{device}")).unwrap();
        assert_eq!(record["phase"], "preparing", "{record}");
        record["devices"][0]["token"]["epoch"].as_u64().unwrap()
    });
    let epochs: Vec<_> = epochs.collect();
    unblock(&config, &kept[0]);
    unblock(&comm, &kept[1]);
    node.twin.let_go(4711).unwrap();
    node.fault(2, None);
    for device in 0..steps.len() {
        unlocked(&node, device).await;
        node.leave(device, LEFTOVER);
    }
    let before: Vec<_> = (0..steps.len()).map(|device| node.counts(device)).collect();
    node.start().await;
    // One call each, right after the start.
    let names: Vec<_> = (0..steps.len()).map(|device| format!("b-{device}")).collect();
    join_all(names.iter().map(|name| node.granted(name))).await;
    for (device, step) in steps.iter().enumerate() {
        assert_eq!(node.counts(device), more(before[device], 2, 2), "{step}: cleaned, then proved");
        let token = node.token(device).await;
        assert_eq!(token.epoch, epochs[device] + 2, "{step}: a maintenance lease, then b's");
        assert!(!node.holds(device, LEFTOVER), "{step}");
    }
    assert_eq!(node.records("claims").len(), steps.len());
    node.eventually("no record is left behind", || node.records("releasing").is_empty()).await;
}

/// The change at which it dies is a file made, renamed or removed below the state folder; with `Preparing` written
/// and nothing done yet, with `Granted` written and no CDI file, in the middle of a release, …
#[tokio::test]
async fn c03_killed_at_every_change_on_the_disk() {
    let mut node = Node::of(1).await;
    let device = node.record("devices", node.device(0).await.identity.as_str());
    let has_proof = || fs::read_to_string(&device).is_ok_and(|record| record.contains("digest"));
    node.eventually("the first proof is written", has_proof).await;
    let mut phases = Vec::new();
    for change in 1.. {
        let (a, b) = (format!("a-{change}"), format!("b-{change}"));
        node.give(&claim(&a).on(0));
        node.give(&claim(&b).on(0));
        node.settled_or_dead().await;
        let mut killer = Killer::aim(&node.path("state"), node.daemon().pid(), change);
        node.used_by(&a, &mut killer).await;
        node.settled_or_dead().await;
        let seen = killer.seen();
        if seen.len() < change {
            assert!(change > 8, "a prepare and a release are more changes than {seen:?}");
            break;
        }
        node.kill();
        unlocked(&node, 0).await;
        node.leave(0, LEFTOVER);
        let before = node.counts(0);
        let (left, releasing) = (record(&node, &a), node.records("releasing").len());
        let phase = left.as_ref().map(|record| record["phase"].as_str().unwrap().to_owned());
        let epoch = left.map_or(0, |record| record["devices"][0]["token"]["epoch"].as_u64().unwrap());
        node.start().await;
        let granted = phase.as_deref() == Some("granted");
        if granted {
            assert!(node.refused(&b).await.contains(&a), "it is a's until a is released");
            assert_eq!(node.counts(0), before);
            node.unprepared(&a).await;
        }
        node.granted(&b).await;
        assert!(node.token(0).await.epoch > epoch);
        assert!(!node.holds(0, LEFTOVER), "{seen:?}");
        let cleanings = if phase.is_some() || releasing > 0 { 2 } else { 1 };
        assert_eq!(node.counts(0), more(before, cleanings, cleanings), "{phase:?} after {seen:?}");
        node.unprepared(&b).await;
        phases.push(phase);
    }
    for phase in [None, Some("preparing"), Some("granted")] {
        assert!(phases.iter().any(|seen| seen.as_deref() == phase), "{phase:?} was never met: {phases:?}");
    }
}
