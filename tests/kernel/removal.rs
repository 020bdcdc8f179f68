//! A device that is taken out while it is proved.

use std::fs;
use std::time::Duration;

use cleanslate::types::Reason;
use cleanslate::wire::dra::NodePrepareResourceResponse;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use crate::checks::{check, until};
use crate::function::{DISK, SHARED};
use crate::machine::{Machine, Memory};
use crate::memory::{disk_memory_on, rule};
use crate::node::{Node, policy};

pub(crate) async fn run(machine: &Machine) {
    disk_memory_on();
    let rules = [rule(SHARED, "2", "bus"), rule(DISK, "4", "flr")];
    let node = Node::start(Some(policy(&rules.each_ref().map(String::as_str)))).await;
    node.proved(SHARED).await;
    node.proved(DISK).await;
    node.give("removed", SHARED);
    node.give("other", DISK);

    // Taken out in good order it is no bad device: it is proved anew once it is back.
    let what = "removed by a person";
    during_a_scrub(&node, what, || SHARED.set("remove", "1")).await;
    SHARED.plug();
    back(&node, what).await;

    // The link breaks: what is sent to it is lost, and all ones are read.
    let what = "fallen off the bus";
    during_a_scrub(&node, what, || SHARED.fall_off_the_bus()).await;
    quarantined(&node, what, Reason::FellOffBus).await;
    SHARED.come_back();
    node.release(SHARED);
    back(&node, what).await;

    // Pulled out of its slot, memory and all.
    let what = "unplugged";
    let unplug = || {
        machine.monitor("device_del shared");
        let is_there = || SHARED.exists() || machine.monitor("info qtree").contains("id \"shared\"");
        until("the slot is empty", || (!is_there()).then_some(()));
    };
    during_a_scrub(&node, what, unplug).await;
    quarantined(&node, what, Reason::ScrubVerify).await;
    // Over the same file: QEMU does not take an object of memory twice.
    machine.monitor("object_add memory-backend-file,id=again,size=16M,mem-path=host/shared.mem,share=on");
    machine.monitor("device_add ivshmem-plain,id=shared,bus=port2,memdev=again");
    until("it is found again", || SHARED.exists().then_some(()));
    node.release(SHARED);
    back(&node, what).await;
}

async fn during_a_scrub(node: &Node, what: &str, out: impl FnOnce()) {
    let named = |words: &str| format!("{what} during a scrub: {words}");
    let (call, worker) = in_a_scrub(node).await;
    kill(worker, Signal::SIGSTOP).unwrap();
    out();
    kill(worker, Signal::SIGCONT).unwrap();
    let refused = node.answered("removed", call.await.unwrap().unwrap());
    println!("    {refused:?}");
    check(&named("refused"), refused.is_err(), &refused);
    let other = node.prepare("other").await;
    check(&named("another device is granted"), other.is_ok(), &other);
    node.unprepare("other").await;
    let refused = node.prepare("removed").await;
    check(&named("refused as long as it is gone"), refused.is_err(), &refused);
}

/// A prepare whose worker has just mapped the memory.
async fn in_a_scrub(node: &Node) -> (JoinHandle<Option<NodePrepareResourceResponse>>, Pid) {
    for _ in 0..10 {
        Memory::of("shared").leave_secret();
        let call = node.preparing("removed");
        while !call.is_finished() {
            let worker = node.worker(SHARED);
            let maps = worker.and_then(|worker| fs::read_to_string(format!("/proc/{worker}/maps")).ok());
            match worker.zip(maps) {
                Some((worker, maps)) if maps.contains("/0000:02:00.0/resource2") => return (call, worker),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        // A busy machine was looking elsewhere.
        node.answered("removed", call.await.unwrap().unwrap()).unwrap();
        node.unprepare("removed").await;
        node.proved(SHARED).await;
    }
    panic!("no scrub was met");
}

async fn quarantined(node: &Node, what: &str, reason: Reason) {
    let device = node.device(SHARED).await;
    let quarantine = device.as_ref().and_then(|device| device.quarantine.as_ref()).map(|it| it.reason);
    check(&format!("{what} during a scrub: in quarantine, {reason}"), quarantine == Some(reason), &device);
}

async fn back(node: &Node, what: &str) {
    let granted = node.prepare("removed").await;
    let left = Memory::of("shared").left();
    check(&format!("{what}: back, granted, and clean"), granted.is_ok() && left == 0, (&granted, left));
    node.unprepare("removed").await;
    node.proved(SHARED).await;
}
