//! Errors that the bus reports, sent by QEMU through the root port into the kernel.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use cleanslate::types::Reason;

use crate::checks::{check, until};
use crate::function::CARD;
use crate::machine::{Machine, load};
use crate::memory::rule;
use crate::node::{Node, policy};

/// Device Control: report correctable, non-fatal, fatal errors and unsupported requests.
const REPORT: u16 = 0b1111;

pub(crate) async fn run(machine: &Machine) {
    report_errors();
    let mut node = Node::start(Some(policy(&[&rule(CARD, "0", "flr")]))).await;
    node.proved(CARD).await;
    node.give("errors", CARD);
    let granted = node.prepare("errors").await;
    check("without errors: granted", granted.is_ok(), &granted);
    node.unprepare("errors").await;
    uncorrectable(&node, machine).await;
    in_use(&mut node, machine).await;
    fatal(&mut node, machine).await;
    correctable(&node).await;
}

/// As a driver does.
fn report_errors() {
    let control = CARD.express() + 8;
    let value = CARD.word(control).unwrap() | REPORT;
    CARD.write(control, &value.to_le_bytes());
}

fn total(attribute: &str) -> u64 {
    let text = CARD.text(attribute);
    let line = text.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// One error, seen by the kernel.
fn inject(machine: &Machine, error: &str, attribute: &str) {
    let before = total(attribute);
    let said = machine.monitor(&format!("pcie_aer_inject_error card {error}"));
    assert!(said.starts_with("OK"), "{said}");
    until("the kernel counts it", || (total(attribute) > before).then_some(()));
}

/// QEMU logs correctable errors in the device and sends no message, so these come from the kernel's own injector.
/// It answers for the device's error registers from then on: hence they come last.
async fn correctable(node: &Node) {
    load("aer_inject");
    until("the module is ready", || Path::new("/dev/aer_inject").exists().then_some(()));
    for _ in 0..12 {
        let before = total("aer_dev_correctable");
        // Bus, device, function, padding; uncorrectable, correctable: a receiver error; header log, domain.
        let mut error = [0; 32];
        (error[0], error[8]) = (1, 1);
        let mut inject = File::options().write(true).open("/dev/aer_inject").unwrap();
        assert_eq!(inject.write(&error).unwrap(), error.len());
        until("the kernel counts it", || (total("aer_dev_correctable") > before).then_some(()));
    }
    let granted = node.prepare("errors").await;
    check("correctable errors: granted", granted.is_ok(), &granted);
    let receipt = node.receipt("errors").await;
    let words = receipt.and_then(|receipt| receipt.degraded).unwrap_or_default();
    check(
        "correctable errors: the receipt says degraded",
        words.starts_with("12 correctable errors since"),
        &words,
    );
    let device = node.device(CARD).await;
    let degraded =
        device.as_ref().is_some_and(|device| device.degraded.is_some() && device.quarantine.is_none());
    check("correctable errors: the device is degraded, not in quarantine", degraded, &device);
    node.unprepare("errors").await;
}

async fn uncorrectable(node: &Node, machine: &Machine) {
    node.proved(CARD).await;
    inject(machine, "COMP_TIME 1 2 3 4", "aer_dev_nonfatal");
    refused(node, "an uncorrectable error", Reason::AerUncorrectable).await;
    node.release(CARD);
    let granted = node.prepare("errors").await;
    check(
        "an uncorrectable error: granted after an operator ended the quarantine",
        granted.is_ok(),
        &granted,
    );
    node.unprepare("errors").await;
}

async fn in_use(node: &mut Node, machine: &Machine) {
    node.proved(CARD).await;
    let granted = node.prepare("errors").await;
    check("in use: granted", granted.is_ok(), &granted);
    inject(machine, "POISON_TLP 1 2 3 4", "aer_dev_nonfatal");
    let device = node.until("it is seen", CARD, |device| device.quarantine.is_some()).await;
    let reason = device.quarantine.as_ref().map(|quarantine| quarantine.reason);
    check("in use: an uncorrectable error is found", reason == Some(Reason::AerUncorrectable), &device);
    node.unprepare("errors").await;
    node.restart_with("attempts: 0", "attempts: 1, retry: 1s").await;
    let device = node.until("tried again", CARD, |device| device.quarantine.is_none()).await;
    check("in use: a whole proof ends that quarantine", device.schedulable, &device);
    node.restart_with("attempts: 1, retry: 1s", "attempts: 0").await;
}

/// The kernel resets the link and does not bring the device back: its BARs are gone.
async fn fatal(node: &mut Node, machine: &Machine) {
    node.until("cleaned", CARD, |device| device.state == "free").await;
    let said = machine.monitor("pcie_aer_inject_error card MALF_TLP 1 2 3 4");
    assert!(said.starts_with("OK"), "{said}");
    until("the kernel gives up", || (CARD.word(4).unwrap() == 0).then_some(()));
    let refused = node.prepare("errors").await;
    let device = node.device(CARD).await;
    let quarantine = device.as_ref().and_then(|device| device.quarantine.as_ref()).map(|it| it.reason);
    println!("    {quarantine:?}: {refused:?}");
    check("a fatal error: refused", refused.is_err(), &device);
    let bad = [Reason::AerFatal, Reason::ConfigLost];
    check("a fatal error: in quarantine", quarantine.is_some_and(|reason| bad.contains(&reason)), &device);
    CARD.set("remove", "1");
    CARD.plug();
    node.kill();
    node.up().await;
    node.until("found", CARD, |device| device.quarantine.is_some()).await;
    check("a fatal error: the quarantine outlives a restart", true, ());
    node.release(CARD);
    let granted = node.prepare("errors").await;
    check("a fatal error: granted when it is plugged anew and released", granted.is_ok(), &granted);
    node.unprepare("errors").await;
    node.proved(CARD).await;
}

async fn refused(node: &Node, what: &str, reason: Reason) {
    let refused = node.prepare("errors").await;
    let device = node.device(CARD).await;
    let quarantine = device.as_ref().and_then(|device| device.quarantine.as_ref()).map(|it| it.reason);
    check(&format!("{what}: refused"), refused.is_err(), &device);
    check(&format!("{what}: in quarantine, {reason}"), quarantine == Some(reason), &device);
}
