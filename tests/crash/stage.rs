//! A node on which things stand that no crash may touch, and what must hold after every start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use cleanslate::observe::status::Status;
use cleanslate::sim::{Counts, Fault};
use cleanslate::types::Token;
use cleanslate::wire::dra::Device;
use nix::unistd::Pid;
use serde_json::Value;

use super::node::{DRIVER, Node, PATIENCE, Policy, at, claim, is_locked, uid, view};

/// Granted throughout.
pub(crate) const BYSTANDER: usize = 1;
/// In quarantine throughout.
pub(crate) const SICK: usize = 2;
/// Nothing else looks like it.
pub(crate) const LEFTOVER: &[u8] = b"what the dead claim had in memory";

pub(crate) struct Stage {
    pub(crate) node: Node,
    answer: Vec<Device>,
    counts: [Counts; 2],
    since: jiff::Timestamp,
}

impl Stage {
    /// Devices 0 and 3 to `devices` are free and proved.
    pub(crate) async fn with(devices: usize, policy: Policy) -> Self {
        let node = Node::with_fields(&vec!["reset_ms=1,memory=8192"; devices.max(3)], policy).await;
        node.give(&claim("bystander").on(BYSTANDER));
        node.give(&claim("sick").on(SICK));
        let answer = node.granted("bystander").await;
        node.fault(SICK, Some(Fault::DropWrites));
        node.refused("sick").await;
        node.fault(SICK, None);
        let since = node.device(SICK).await.quarantine.unwrap().since;
        let counts = [BYSTANDER, SICK].map(|device| node.counts(device));
        Self { node, answer, counts, since }
    }

    /// What holds after any start: one holder a device, derived files are those of the grants, and what has nothing
    /// to do with the crash is as it was.
    pub(crate) async fn is_sound(&self, at: &str) {
        let Self { node, .. } = self;
        let status = node.status().await;
        let (grants, files) = (grants(node), cdi_files(node));
        let wanted: BTreeSet<_> = grants.keys().map(|uid| format!("{DRIVER}-claim-{uid}.json")).collect();
        assert_eq!(files, wanted, "{at}: CDI files are those of the grants");
        let mut held = BTreeSet::new();
        for (uid, devices) in &grants {
            let text =
                fs::read_to_string(node.path("cdi").join(format!("{DRIVER}-claim-{uid}.json"))).unwrap();
            for device in devices {
                let (identity, token) = (device["identity"].as_str().unwrap(), token_in(device));
                assert!(held.insert(identity), "{at}: {identity} is granted twice");
                assert_eq!(device["receipt"]["token"], device["token"], "{at}: proved under another lease");
                assert!(text.contains(&format!(",{token}")), "{at}: {text}");
                let shown = status.ledger.devices.iter().find(|view| view.identity.as_str() == identity);
                assert!(
                    shown.is_some_and(|view| view.state == "granted" && view.token == token),
                    "{at}: {shown:?}"
                );
            }
        }
        assert_eq!(node.granted("bystander").await, self.answer, "{at}");
        assert_eq!([BYSTANDER, SICK].map(|device| node.counts(device)), self.counts, "{at}: left alone");
        let still = view(&status, SICK).quarantine.as_ref().map(|quarantine| quarantine.since);
        assert_eq!(still, Some(self.since), "{at}: a quarantine outlives everything");
        assert!(node.prepare("sick").await.error.contains("scrub_verify"), "{at}");
        // What is being written just now is gone in a moment.
        node.eventually(&format!("{at}: no drafts"), || drafts(node).is_empty()).await;
    }
}

/// The granted records on the disk, with their devices.
pub(crate) fn grants(node: &Node) -> BTreeMap<String, Vec<Value>> {
    let mut grants = BTreeMap::new();
    for name in node.records("claims") {
        let record = read(node, "claims", name.trim_end_matches(".json")).unwrap();
        if record["phase"] == "granted" {
            let uid = record["claim"]["uid"].as_str().unwrap().to_owned();
            grants.insert(uid, record["devices"].as_array().unwrap().clone());
        }
    }
    grants
}

fn cdi_files(node: &Node) -> BTreeSet<String> {
    let entries = fs::read_dir(node.path("cdi")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What an interrupted write leaves.
fn drafts(node: &Node) -> Vec<String> {
    let folders = ["claims", "releasing", "devices", "quarantine", "damaged"];
    let mut names: Vec<_> = folders.iter().flat_map(|folder| node.records(folder)).collect();
    names.retain(|name| !name.ends_with(".json"));
    names
}

/// A record on the disk, if it is whole.
pub(crate) fn read(node: &Node, folder: &str, name: &str) -> Option<Value> {
    let text = fs::read_to_string(node.record(folder, name)).ok()?;
    serde_json::from_str(text.lines().next()?).ok()
}

fn token_in(record: &Value) -> Token {
    serde_json::from_value(record["token"].clone()).unwrap()
}

/// The highest token of a device on the disk.
pub(crate) fn token_on_disk(node: &Node, identity: &str) -> Option<Token> {
    let mut tokens = Vec::new();
    for folder in ["claims", "releasing"] {
        for name in node.records(folder) {
            let record = read(node, folder, name.trim_end_matches(".json")).unwrap_or_default();
            let devices = record["devices"].as_array().cloned().unwrap_or_default();
            tokens.extend(devices.iter().filter(|device| device["identity"] == identity).map(token_in));
        }
    }
    tokens.extend(read(node, "devices", identity).as_ref().map(token_in));
    tokens.into_iter().max()
}

/// The token under which a worker was last at the device, as that worker itself says; one that only looks has none.
pub(crate) fn token_used(node: &Node, device: usize) -> Option<Token> {
    let text = fs::read_to_string(node.path("run").join(format!("{}.lock", at(device)))).ok()?;
    let (term, epoch) = text.trim_end().split_once("under token ")?.1.split_once('.')?;
    Some(Token { term: term.parse().unwrap(), epoch: epoch.parse().unwrap() })
}

/// The claim's record as the killed daemon left it.
pub(crate) fn claim_record(node: &Node, name: &str) -> Option<Value> {
    read(node, "claims", &uid(name))
}

/// Waits until nothing is left to do and nothing to be written, or the daemon is dead; whether it is.
pub(crate) async fn quiet_or_dead(node: &mut Node) -> bool {
    done_or_dead(node, |_| true).await
}

/// The same, once this is done, too.
pub(crate) async fn done_or_dead(node: &mut Node, done: impl Fn(&Node) -> bool) -> bool {
    let (begun, mut idle) = (Instant::now(), 0);
    // What is done in memory may not have come to the writer thread yet.
    while idle < 20 {
        let Some(status) = node.status_or_dead().await else { return true };
        let is_quiet = is_quiet(node, &status) && node.records("releasing").is_empty() && done(node);
        idle = if is_quiet && is_writer_asleep(node) { idle + 1 } else { 0 };
        assert!(begun.elapsed() < PATIENCE, "never quiet: {}", node.told());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.is_dead()
}

/// Whether nothing is left to do, and the disk says what the daemon says.
fn is_quiet(node: &Node, status: &Status) -> bool {
    let devices = &status.ledger.devices;
    let is_settled = |view: &cleanslate::ledger::DeviceView| match view.state.as_str() {
        "free" if view.proof.is_some() => {
            let record = read(node, "devices", view.identity.as_str()).unwrap_or_default();
            record["proof"]["digest"].as_str() == view.proof.as_ref().map(|proof| proof.digest.as_str())
        }
        "free" => view.quarantine.is_some(),
        "granted" => true,
        _ => false,
    };
    !devices.is_empty() && devices.iter().all(is_settled) && status.ledger.unwritten == 0
}

fn is_writer_asleep(node: &Node) -> bool {
    let threads = node.daemon().threads("store", false);
    let is_asleep = |thread: &Pid| {
        let path = format!("/proc/{}/task/{thread}/stat", node.daemon().pid());
        fs::read_to_string(path).is_ok_and(|stat| stat.contains(") S "))
    };
    !threads.is_empty() && threads.iter().all(is_asleep)
}

/// Waits until no worker of a dead daemon is at the device any more.
pub(crate) async fn unlocked(node: &Node, device: usize) {
    let lock = node.path("run").join(format!("{}.lock", at(device)));
    node.eventually("the orphan lets go", || !is_locked(&lock)).await;
}
