//! A worker in state D: the kernel's own reset of a dead device, begun by somebody else, keeps whoever reads its config
//! space, and no signal ends that.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use cleanslate::types::Reason;

use crate::checks::{becomes, check, until};
use crate::function::{DISK, SHARED};
use crate::memory::{disk_memory_on, rule};
use crate::node::{Node, policy};

pub(crate) async fn run() {
    disk_memory_on();
    let hasty = rule(DISK, "4", "flr").replace("probe: 10s", "probe: 2s");
    let mut node = Node::start(Some(policy(&[&hasty, &rule(SHARED, "2", "bus")]))).await;
    node.proved(DISK).await;
    node.proved(SHARED).await;
    node.give("stuck", DISK);
    node.give("other", SHARED);
    DISK.set("reset_method", "flr");
    DISK.fall_off_the_bus();
    let mut reset = Command::new("sh")
        .args(["-c", &format!("echo 1 >{}", DISK.path("reset").display())])
        .spawn()
        .unwrap();
    until("the kernel's reset hangs", || is_blocked(reset.id()).then_some(()));

    let begun = Instant::now();
    let refused = node.prepare("stuck").await;
    let took = begun.elapsed();
    println!("    {took:?}: {refused:?}");
    check("state D: refused", refused.is_err(), &refused);
    check("state D: within its bound", took < Duration::from_secs(20), took);
    let worker = node.worker(DISK);
    let blocked = worker.is_some_and(|worker| is_blocked(worker.as_raw().try_into().unwrap()));
    check("state D: its worker is in state D, after SIGKILL", blocked, worker);
    let device = node.device(DISK).await;
    let quarantine = device.as_ref().and_then(|device| device.quarantine.as_ref());
    let named =
        quarantine.is_some_and(|it| it.reason == Reason::WorkerStuck && it.evidence.contains("pci_wait_cfg"));
    check("state D: in quarantine, with where the kernel keeps it", named, &device);
    let other = node.prepare("other").await;
    check("state D: another device is granted meanwhile", other.is_ok(), &other);
    node.unprepare("other").await;

    let still = worker.is_some_and(|worker| is_blocked(worker.as_raw().try_into().unwrap()));
    let (ended, took) = node.stop().await;
    check(
        "state D: SIGTERM ends the daemon",
        still && ended.success() && took < Duration::from_secs(20),
        (still, ended, took),
    );
    node.up().await;
    let device = node.until("found", DISK, |device| device.quarantine.is_some()).await;
    let refused = node.prepare("stuck").await;
    check("state D: refused after a restart", refused.is_err(), (&refused, device));
    let other = node.prepare("other").await;
    check("state D: another device is granted after a restart", other.is_ok(), &other);

    DISK.come_back();
    until("the kernel's reset ends", || reset.try_wait().unwrap());
    becomes("state D: the worker goes when the kernel lets it", || node.worker(DISK) != worker);
    // The kernel saved what a dead device reads, and wrote that back.
    node.release(DISK);
    let refused = settled(&node).await;
    let lost = matches!(&refused, Err(why) if why.contains("config_lost"));
    check("state D: not granted with what that reset left", lost, &refused);
    DISK.set("remove", "1");
    DISK.plug();
    disk_memory_on();
    node.release(DISK);
    let granted = settled(&node).await;
    check("state D: granted when it is plugged anew", granted.is_ok(), &granted);
}

/// The daemon looks for devices that it could not read every 2 s.
async fn settled(node: &Node) -> Result<(), String> {
    let mut answer = node.prepare("stuck").await;
    for _ in 0..10 {
        if !matches!(&answer, Err(why) if why.contains("worker_stuck")) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        answer = node.prepare("stuck").await;
    }
    answer
}

fn is_blocked(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tD"))
}
