//! From the node's side: a policy that wants this reset, the inventory, the ledger, the proof.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cleanslate::inventory::Inventory;
use cleanslate::ledger::{Cause, DeviceView, Ledger};
use cleanslate::proof::{Patience, prove};
use cleanslate::types::{CONFIG_FLR, DeviceRule, MatchRule, Mode, Policy, Reason, ScrubRule, StepName};
use cleanslate::worker::{Code, Outcome};

use super::leftovers::killed;
use super::{LONG, Stage, code, order, poke};

/// What a proof notes of every twin: nothing of a reset.
const NOTES: [&str; 1] = ["aer judged from config space"];

/// A node that has just started on this stage.
struct Node {
    ledger: Arc<Ledger>,
    inventory: Inventory,
}

impl Node {
    async fn start(stage: &Stage) -> Self {
        let rule = DeviceRule {
            matches: MatchRule { vendor: Some(0x1234), device: Some(0xc1ea), ..MatchRule::default() },
            scrub: Some(ScrubRule::Bars(vec![0])),
            reset_method: CONFIG_FLR.to_owned(),
            minimum_mode: Mode::CopyVerified,
            deadlines: [(StepName::Ready, Duration::from_millis(400))].into(),
        };
        let policy = Arc::new(Policy { devices: vec![rule], ..Policy::default() });
        let boot = std::fs::read_to_string(stage.bench.roots.boot_id()).unwrap();
        let state = stage.root.path().join("state");
        let (ledger, _) = Ledger::open(&state, boot.trim().to_owned()).await.unwrap();
        let inventory = Inventory::new(stage.bench.clone(), policy, Arc::clone(&ledger));
        inventory.rescan().await;
        Self { ledger, inventory }
    }

    fn device(&self) -> DeviceView {
        self.ledger.snapshot().devices.remove(0)
    }

    /// Does what maintenance would do next; what its receipt or its verdict says.
    async fn maintain(&self, stage: &Stage, cause: &Cause) -> Result<Vec<String>, String> {
        let chore = self.ledger.chores().remove(0);
        assert_eq!(chore.cause, *cause);
        let lease = self.ledger.maintain(&chore).await.unwrap().unwrap();
        let known = self.inventory.usable().remove(0);
        match prove(lease, &known.subject, Patience(Duration::ZERO), &stage.bench, None).await {
            Ok(proved) => {
                let (lease, finish) = proved.give_up();
                let cleanslate::ledger::Finish::Clean(receipt) = &finish else { panic!("{finish:?}") };
                assert_eq!(receipt.reset, CONFIG_FLR);
                let notes = receipt.notes.clone();
                self.ledger.finish(lease, finish).await;
                Ok(notes)
            }
            Err(unproved) => {
                let (lease, finish, verdict) = unproved.end();
                self.ledger.finish(lease, finish).await;
                Err(format!("{verdict:?}"))
            }
        }
    }
}

#[tokio::test]
async fn a_device_is_proved_with_a_reset_of_our_own() {
    let stage = Stage::with("");
    let config = stage.config();
    let node = Node::start(&stage).await;
    assert_eq!(node.inventory.refused(), []);
    assert_eq!(node.maintain(&stage, &Cause::FirstProof).await.unwrap(), NOTES);
    assert!(node.device().schedulable);
    let counts = stage.mount.counts(super::address()).unwrap();
    assert_eq!((counts.resets, counts.scrubs), (1, 1));
    assert!(stage.config() == config);
}

/// Killed between reset and restore, and not answering when the daemon starts: in quarantine, until it answers and
/// a whole proof has been made.
#[tokio::test]
async fn what_cannot_be_restored_is_quarantined_and_comes_back_once_it_can() {
    let stage = Stage::with(",fault=hang-reset");
    let outcome = stage.reset_by(&order(CONFIG_FLR, Duration::from_millis(100)), LONG).await;
    assert_eq!(code(&outcome), Code::NotReady);

    let node = Node::start(&stage).await;
    let quarantine = node.device().quarantine.unwrap();
    assert_eq!(quarantine.reason, Reason::ConfigLost, "{quarantine:?}");
    assert!(quarantine.evidence.contains("a reset was not finished"), "{quarantine:?}");

    // It answers again, and nobody has restored it.
    stage.fault(None);
    poke(&stage, 0x68, &[0x1f, 0xa8]);
    while stage.resets() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.inventory.rescan().await;
    // Looking who is there has repaired it already, before anything else was done.
    assert!(!stage.journal().exists());
    let notes = node.maintain(&stage, &Cause::Resanitization).await.unwrap();
    assert_eq!(notes, NOTES);
    let device = node.device();
    assert!(device.schedulable && device.quarantine.is_none(), "{device:?}");
}

/// The same, found by a proof.
#[tokio::test]
async fn what_a_proof_repairs_stands_in_its_receipt() {
    let stage = Stage::with("");
    let config = stage.config();
    let node = Node::start(&stage).await;
    killed(&stage, true);
    let notes = node.maintain(&stage, &Cause::FirstProof).await.unwrap();
    assert!(notes[0].contains("20 registers of config space restored"), "{notes:?}");
    assert!(stage.config() == config && stage.resets() == 2);
}

/// Facts that a policy cannot change: the device is ours, and never handed out as it is.
#[tokio::test]
async fn what_we_would_not_restore_is_not_supported() {
    let stage = Stage::with("");
    poke(&stage, 0x167, &[0x80]);
    let node = Node::start(&stage).await;
    assert!(node.inventory.usable().is_empty());
    let [(_, why)] = &node.inventory.refused()[..] else { panic!("one device") };
    assert_eq!(why, "unsupported_mode: no reset through its config space: address translation (ATS) is on");
    assert_eq!(stage.resets(), 0);
}

/// A scrub that takes its time says how far it is.
#[tokio::test]
async fn progress_is_seen_while_it_goes_on() {
    let stage = Stage::with(",memory=67108864");
    let node = Arc::new(Node::start(&stage).await);
    let proof = async { node.maintain(&stage, &Cause::FirstProof).await.unwrap() };
    let look = async {
        let start = Instant::now();
        loop {
            let detail = node.device().detail;
            if let Some((_, rest)) = detail.split_once("scrub ")
                && rest.contains(" of 64 MiB for ")
            {
                return detail;
            }
            assert!(start.elapsed() < LONG, "never: {detail}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (_, seen) = tokio::join!(proof, look);
    println!("{seen}");
    let identity = node.device().identity;
    assert_eq!(node.ledger.doing(&[identity]), "waiting for its turn");
}

/// A node's fault is nobody's quarantine.
#[tokio::test]
async fn lockdown_is_the_nodes_fault() {
    let stage = Stage::with("");
    let security = stage.bench.roots.sys.join("kernel/security");
    std::fs::create_dir_all(&security).unwrap();
    super::put(&security.join("lockdown"), b"none [integrity] confidentiality\n");
    let node = Node::start(&stage).await;
    let verdict = node.maintain(&stage, &Cause::FirstProof).await.unwrap_err();
    assert!(verdict.contains("Permission") && verdict.contains("lockdown (integrity)"), "{verdict}");
    assert!(node.device().quarantine.is_none());
    assert!(matches!(stage.next_worker().await, Outcome::Done(_)));
}

/// Nobody knows any more what to restore, and what the reset took shows.
#[tokio::test]
async fn a_run_folder_that_is_wiped_between_reset_and_restore_costs_the_device() {
    let stage = Stage::with("");
    let node = Node::start(&stage).await;
    killed(&stage, true);
    std::fs::remove_file(stage.journal()).unwrap();
    let words = node.maintain(&stage, &Cause::FirstProof).await.unwrap_err();
    let device = node.device();
    assert_eq!(device.quarantine.map(|quarantine| quarantine.reason), Some(Reason::ConfigLost), "{words}");
    // Tried again, it is no better.
    node.maintain(&stage, &Cause::Resanitization).await.unwrap_err();
    assert!(node.device().quarantine.is_some());
}
