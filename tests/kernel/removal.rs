//! A device that is taken out while it is proved.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

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
    let remove = || SHARED.set("remove", "1");
    during_a_scrub(&node, "removed through sysfs", remove, || SHARED.plug()).await;
    let unplug = || {
        machine.monitor("device_del shared");
        until("the slot is empty", || (!SHARED.exists()).then_some(()));
        until("QEMU has taken it out", || {
            (!machine.monitor("info qtree").contains("id \"shared\"")).then_some(())
        });
    };
    let plug = || {
        machine.monitor("device_add ivshmem-plain,id=shared,bus=port2,memdev=shared");
        until("it is found again", || SHARED.exists().then_some(()));
    };
    during_a_scrub(&node, "unplugged", unplug, plug).await;
}

async fn during_a_scrub(node: &Node, what: &str, out: impl FnOnce(), back: impl FnOnce()) {
    let named = |words: &str| format!("{what} during a scrub: {words}");
    let memory = Memory::of("shared");
    memory.leave_secret();
    let call = node.preparing("removed");
    let worker = until("its memory is mapped", || {
        let worker = node.worker(SHARED)?;
        let maps = fs::read_to_string(format!("/proc/{worker}/maps")).ok()?;
        maps.contains("/0000:02:00.0/resource2").then_some(worker)
    });
    kill(worker, Signal::SIGSTOP).unwrap();
    out();
    kill(worker, Signal::SIGCONT).unwrap();
    let refused = node.answered("removed", call.await.unwrap().unwrap());
    println!("    {refused:?}");
    check(&named("refused"), refused.is_err(), &refused);
    let device = node.device(SHARED).await;
    check(&named("in quarantine"), device.as_ref().is_some_and(|it| it.quarantine.is_some()), &device);
    let other = node.prepare("other").await;
    check(&named("another device is granted"), other.is_ok(), &other);
    node.unprepare("other").await;
    let refused = node.prepare("removed").await;
    check(&named("refused while it is gone"), refused.is_err(), &refused);

    back();
    // Not before the daemon has seen it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.release(SHARED);
    let granted = node.prepare("removed").await;
    check(
        &named("granted when it is back and released"),
        granted.is_ok(),
        (&granted, node.device(SHARED).await),
    );
    check(&named("then its memory is clean"), memory.left() == 0, memory.left());
    node.unprepare("removed").await;
    node.proved(SHARED).await;
}
