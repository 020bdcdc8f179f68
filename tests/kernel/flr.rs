//! A reset of our own through real config space, and a daemon that dies in the middle of one.

use std::time::Duration;

use cleanslate::types::{CONFIG_FLR, Reason};
use nix::sys::signal::{Signal, kill};

use crate::checks::{becomes, check, until};
use crate::function::{CARD, DISK, Function};
use crate::machine::{Log, Machine, devmem};
use crate::memory::{disk_memory_on, rule};
use crate::node::{Node, policy};

const COMMAND: u64 = 0x04;
/// Bytes of the card's memory.
const CARD_MEMORY: u64 = 8 << 20;

pub(crate) async fn run(machine: &Machine) {
    disk_memory_on();
    let rules = [rule(CARD, "0", CONFIG_FLR), rule(DISK, "4", CONFIG_FLR)];
    let mut node = Node::start(Some(policy(&rules.each_ref().map(String::as_str)))).await;
    for (function, name) in [(CARD, "card"), (DISK, "disk")] {
        whole(&node, function, name).await;
    }
    the_cards_memory(&node, machine).await;
    // Before the reset is written, or in the silence after it.
    let mut changed = 0;
    for after in [0, 20, 50] {
        changed += u32::from(interrupted(&mut node, CARD, Duration::from_millis(after)).await);
    }
    check("killed: the device was not as it had been, twice at least", changed >= 2, changed);
    lost(&mut node, DISK).await;
}

async fn whole(node: &Node, function: Function, name: &str) {
    node.proved(function).await;
    let named = |what: &str| format!("{name} by {CONFIG_FLR}: {what}");
    let (before, methods, log) = (function.config(), function.text("reset_method"), Log::now());
    node.give(name, function);
    let granted = node.prepare(name).await;
    check(&named("granted"), granted.is_ok(), (&granted, node.device(function).await));
    let after = function.config();
    check(
        &named("4096 bytes are as they were"),
        before.len() == 4096 && before == after,
        other(&before, &after),
    );
    check(&named("QEMU has seen one reset"), log.resets(function) == 1, log.writes(function));
    // Had the reset taken nothing, nothing would have been written back.
    let back = log.writes(function).iter().skip_while(|(_, value)| value & 1 << 15 == 0).count();
    check(&named("it took registers, which were written back"), back > 3, back);
    check(&named("the kernel's list is as it was"), function.text("reset_method") == methods, &methods);
    let reset = node.receipt(name).await.map(|receipt| receipt.reset);
    check(&named("the receipt names it"), reset.as_deref() == Some(CONFIG_FLR), &reset);
    node.unprepare(name).await;
    node.proved(function).await;
}

/// Bytes that differ, with their places.
fn other(before: &[u8], after: &[u8]) -> Vec<String> {
    let other = before.iter().zip(after).enumerate().filter(|(_, (was, is))| was != is);
    other.map(|(at, (was, is))| format!("{at:#x}: {was:#x} {is:#x}")).collect()
}

async fn the_cards_memory(node: &Node, machine: &Machine) {
    let bar = CARD.bar(0);
    for at in [0, 4096, CARD_MEMORY / 2, CARD_MEMORY - 8] {
        devmem(bar + at, 64, 0x7465_7263_6573_2041);
    }
    let left = machine.dump(bar, CARD_MEMORY).left();
    check("card: a tenant's words are in its memory", left == 32, left);
    node.give("words", CARD);
    let granted = node.prepare("words").await;
    let left = machine.dump(bar, CARD_MEMORY).left();
    check("card: granted with all of it zero, seen by QEMU", granted.is_ok() && left == 0, (&granted, left));
    node.unprepare("words").await;
    node.proved(CARD).await;
}

/// Kills daemon and worker at once, so long after the device has been changed; what the device was before.
async fn killed(node: &mut Node, function: Function, after: Duration) -> Vec<u8> {
    node.proved(function).await;
    let before = function.config();
    let command = function.word(COMMAND).unwrap();
    node.give("interrupted", function);
    let call = node.preparing("interrupted");
    until("its reset begins", || (function.word(COMMAND).unwrap() != command).then_some(()));
    std::thread::sleep(after);
    let worker = node.worker(function).expect("a worker has the lock");
    kill(worker, Signal::SIGKILL).unwrap();
    node.kill();
    assert!(call.await.unwrap().is_none(), "an answer from a dead daemon");
    before
}

/// Whether the kill left the device changed.
async fn interrupted(node: &mut Node, function: Function, after: Duration) -> bool {
    let before = killed(node, function, after).await;
    let named = |what: &str| format!("killed {} ms into a reset: {what}", after.as_millis());
    let changed = function.config() != before;
    node.up().await;
    let device = node
        .until("settled", function, |device| {
            device.state == "free" && (device.schedulable || device.quarantine.is_some())
        })
        .await;
    let now = function.config();
    check(&named("the restarted daemon has restored it"), now == before, (&device, other(&before, &now)));
    let granted = node.prepare("interrupted").await;
    check(
        &named("granted after a whole proof"),
        granted.is_ok() && function.config() == before,
        (&granted, device),
    );
    node.unprepare("interrupted").await;
    changed
}

/// Between save and restore the device goes, too.
async fn lost(node: &mut Node, function: Function) {
    let before = killed(node, function, Duration::from_millis(40)).await;
    function.fall_off_the_bus();
    node.up().await;
    let device = node.until("quarantined", function, |device| device.quarantine.is_some()).await;
    let reason = device.quarantine.as_ref().map(|quarantine| quarantine.reason);
    check(
        "what cannot be restored is in quarantine: config_lost",
        reason == Some(Reason::ConfigLost),
        &device,
    );
    let refused = node.prepare("interrupted").await;
    check("config_lost: refused", refused.is_err(), &refused);
    function.come_back();
    becomes("once it answers it is restored by itself", || function.config() == before);
    let refused = node.prepare("interrupted").await;
    check("config_lost: refused until an operator ends it", refused.is_err(), &refused);
    node.release(function);
    let granted = node.prepare("interrupted").await;
    check("config_lost: granted after that", granted.is_ok() && function.config() == before, &granted);
    node.unprepare("interrupted").await;
}
