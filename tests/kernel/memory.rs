//! Whole proofs through the kernel's own resets, with the memory of a real BAR mapped, and looked at from outside.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::checks::{check, until};
use crate::function::{DISK, EDU, Function, SHARED};
use crate::machine::{Log, MEMORY, Memory, devmem, load};
use crate::node::{Node, policy};

/// Controller registers of an NVMe device: persistent memory region control.
const MEMORY_CONTROL: u64 = 0xe04;

pub(crate) async fn run() {
    disk_memory_on();
    // Before anything of ours has run.
    let lists = [DISK, SHARED].map(|function| function.text("reset_method"));
    let rules = [rule(DISK, "4", "flr"), rule(SHARED, "2", "bus"), rule(EDU, "0", "flr")];
    let node = Node::start(Some(policy(&rules.each_ref().map(String::as_str)))).await;
    through(&node, DISK, "disk", "flr").await;
    through(&node, SHARED, "shared", "bus").await;
    let now = [DISK, SHARED].map(|function| function.text("reset_method"));
    check("the kernel's lists are as they were", now == lists && lists == ["flr bus", "bus"], (&lists, &now));
    driven(&node).await;
    let refused = node.status().await.refused;
    let is_named = |why: &str| why.starts_with("unsupported_mode") && why.contains("no prefetchable memory");
    let edu: Vec<_> = refused.iter().filter(|refused| refused.device == EDU.device()).collect();
    check(
        "a device without memory in its BAR is never granted",
        edu.len() == 1 && is_named(&edu[0].why),
        &refused,
    );
}

/// A rule that names one function, and a BAR as its whole memory.
pub(crate) fn rule(function: Function, bar: &str, reset: &str) -> String {
    let id = |attribute| function.text(attribute).trim_start_matches("0x").to_owned();
    format!(
        "{{match: {{vendor: \"{}\", device: \"{}\", address: \"{}\"}}, scrub: {{bars: [{bar}]}}, reset: {reset}, \
         deadlines: {{inspect: 10s, probe: 10s, holders: 10s, scrub: 60s}}}}",
        id("vendor"),
        id("device"),
        function.0
    )
}

/// The disk's memory answers once its control register says so, over resets too.
pub(crate) fn disk_memory_on() {
    DISK.set("enable", "1");
    devmem(DISK.bar(0) + MEMORY_CONTROL, 32, 1);
    DISK.set("enable", "0");
}

/// One claim's life on a device.
async fn through(node: &Node, function: Function, name: &str, method: &str) {
    let memory = Memory::of(name);
    node.proved(function).await;
    let named = |what: &str| format!("{name} by {method}: {what}");
    memory.leave_secret();
    check(
        &named("a tenant's secret is in its memory"),
        memory.has_secret() && memory.left() > 1000,
        memory.left(),
    );

    let (log, methods) = (Log::now(), function.text("reset_method"));
    let watch = Watch::start(function);
    node.give(name, function);
    let granted = node.prepare(name).await;
    let seen = watch.end();
    check(&named("granted"), granted.is_ok(), (&granted, node.device(function).await));
    check(&named("the secret is gone, all is zero, seen from outside"), memory.left() == 0, memory.left());
    let pinned = [methods.as_str(), method, &methods];
    let pinned = if methods == method { &pinned[..1] } else { &pinned };
    check(&named("the kernel's list was pinned to it, and put back"), seen == pinned, &seen);
    if method == "flr" {
        check(&named("QEMU has seen one reset"), log.resets(function) == 1, log.writes(function));
    }
    let receipt = node.receipt(name).await;
    let whole = receipt.as_ref().is_some_and(|receipt| {
        receipt.reset == method
            && (receipt.bytes_total, receipt.bytes_written, receipt.bytes_verified)
                == (MEMORY, 2 * MEMORY, 2 * MEMORY)
    });
    check(&named("the receipt speaks of all its memory"), whole, &receipt);
    if let Some(receipt) = receipt {
        let times = receipt.steps.iter().map(|step| format!("{} {} ms", step.step, step.ms));
        println!("    {name}: {}", times.collect::<Vec<_>>().join(", "));
    }

    memory.leave_secret();
    node.unprepare(name).await;
    node.proved(function).await;
    check(&named("it is clean again after its release"), memory.left() == 0, memory.left());
}

/// Under a driver of the kernel a device is not touched.
async fn driven(node: &Node) {
    load("nvme");
    fs::write("/sys/bus/pci/drivers/nvme/bind", DISK.0).unwrap();
    let log = Log::now();
    let refused = node.prepare("disk").await;
    let named = matches!(&refused, Err(why) if why.contains("driver nvme is bound"));
    check("a device under a driver of the kernel is refused", named, &refused);
    check("and not reset", log.resets(DISK) == 0, log.writes(DISK));
    // The driver sets up its queues beside `bind`; it cannot let go before.
    until("the driver is ready", || (DISK.text("nvme/nvme0/state") == "live").then_some(()));
    DISK.set("driver/unbind", DISK.0);
    disk_memory_on();
    let granted = node.prepare("disk").await;
    check("it is granted once it is unbound", granted.is_ok(), &granted);
    node.unprepare("disk").await;
    node.proved(DISK).await;
}

/// Looks at `reset_method` all the time.
struct Watch {
    stop: Arc<AtomicBool>,
    seen: std::thread::JoinHandle<Vec<String>>,
}

impl Watch {
    fn start(function: Function) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let seen = std::thread::spawn(move || {
            let mut seen = vec![function.text("reset_method")];
            while !stopped.load(Ordering::Relaxed) {
                let now = function.text("reset_method");
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        Self { stop, seen }
    }

    /// The lists that there were, in order.
    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.join().unwrap()
    }
}
