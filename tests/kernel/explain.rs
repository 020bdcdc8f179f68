//! Which functions of a real machine are ours, and what a daemon does that has none.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::checks::check;
use crate::function::{BOOT_DISK, CARD, DISK, Function, SHARED};
use crate::machine::Log;
use crate::node::{Node, PROGRAM, policy};

pub(crate) async fn run() {
    every_function_is_explained();
    without_a_policy_nothing_is_touched().await;
}

/// What is said of each function, and whether it is ours.
fn explain(policy: Option<&str>) -> BTreeMap<String, (bool, String)> {
    let mut command = Command::new(PROGRAM);
    command.args(["policy", "explain", "all", "-o", "json"]);
    if let Some(policy) = policy {
        fs::write("/tmp/policy.yaml", policy).unwrap();
        command.args(["--policy", "/tmp/policy.yaml"]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines.iter().map(|line| (text(&line["address"]), (line["ours"] == true, text(&line["why"])))).collect()
}

fn ours(told: &BTreeMap<String, (bool, String)>) -> Vec<&str> {
    told.iter().filter(|(_, (ours, _))| *ours).map(|(address, _)| address.as_str()).collect()
}

fn every_function_is_explained() {
    let all: Vec<_> = fs::read_dir("/sys/bus/pci/devices").unwrap().collect();
    let told = explain(None);
    check(
        "explain tells of every function of the machine",
        told.len() == all.len() && all.len() >= 14,
        &told,
    );
    check("explain: without a policy none is ours", ours(&told).is_empty(), &told);
    let one = Command::new(PROGRAM).args(["policy", "explain", DISK.0]).output().unwrap();
    let words = String::from_utf8_lossy(&one.stdout);
    check("explain names a function's ids", words.contains("1b36:0010 class 010802"), &words);

    // Bridges, storage, network and displays by their vendors: all that a node lives on, and one card.
    let vendors = ["8086", "1b36", "1af4", "1234"];
    let rules: Vec<_> = vendors.iter().map(|vendor| format!("match: {{vendor: \"{vendor}\"}}")).collect();
    let told = explain(Some(&policy(&rules.iter().map(String::as_str).collect::<Vec<_>>())));
    check("explain: a card that is no boot display is ours by its vendor", told[CARD.0].0, &told);
    for (function, what) in [
        ("0000:00:10.0", "a bridge"),
        ("0000:00:1f.0", "a bridge"),
        (BOOT_DISK.0, "storage"),
        (DISK.0, "storage"),
        ("0000:00:1f.2", "storage"),
        ("0000:00:03.0", "network"),
        ("0000:00:01.0", "the boot display"),
    ] {
        let (ours, why) = &told[function];
        let right = !ours && why.contains(&format!("but is {what}"));
        check(&format!("explain: {function} is {what}, and not ours"), right, why);
    }
    let told = explain(Some(&policy(&[&format!("match: {{address: \"{}\"}}", DISK.0)])));
    check("explain: an address names one function", ours(&told) == [DISK.0], &told);
    let told = explain(Some(&policy(&["match: {vendor: \"1b36\", device: \"0010\"}"])));
    check("explain: vendor and device name all of a model", ours(&told) == [BOOT_DISK.0, DISK.0], &told);
}

async fn without_a_policy_nothing_is_touched() {
    let log = Log::now();
    let functions = ["0000:00:10.0", "0000:00:12.0", CARD.0, SHARED.0, DISK.0, BOOT_DISK.0].map(Function);
    let before = functions.map(Function::config);
    let mut node = Node::start(None).await;
    node.give("stranger", DISK);
    let refused = node.prepare("stranger").await;
    let words = "is not ours on this node";
    check(
        "without a policy a claim is refused",
        matches!(&refused, Err(why) if why.contains(words)),
        &refused,
    );
    let status = node.status().await;
    check("without a policy there are no devices", status.ledger.devices.is_empty(), &status);
    check("real sysfs is not called simulated", !status.simulated, &status);
    check(
        "the log says why",
        node.log().contains("no policy file: no device of this node is ours"),
        node.log(),
    );
    let (ended, _) = node.stop().await;
    check("it ends with success", ended.success(), ended);
    check("config space is as it was", functions.map(Function::config) == before, "it is not");
    let written: Vec<_> = functions.iter().map(|function| log.writes(*function).len()).collect();
    check("QEMU has seen no write to config space", written == [0; 6], written);
}
