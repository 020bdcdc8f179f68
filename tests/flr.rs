//! The reset through config space, by the real worker on a simulated device: nothing lost, nothing left, whatever
//! goes wrong and whenever the worker is killed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "flr/faults.rs"]
mod faults;
#[path = "flr/kills.rs"]
mod kills;
#[path = "flr/leftovers.rs"]
mod leftovers;
#[path = "flr/node.rs"]
mod node;
#[path = "common/traced.rs"]
mod traced;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cleanslate::sim::{DeviceSpec, Fault, Folder};
use cleanslate::types::{CONFIG_FLR, Deadline, PciAddress, Roots};
use cleanslate::worker::{Bench, Code, Command, Outcome, Program, Report, ResetOrder, Worker};

const LONG: Duration = Duration::from_secs(20);

/// A twin with one device, and where its workers run.
struct Stage {
    folder: Folder,
    root: tempfile::TempDir,
    bench: Bench,
}

fn address() -> PciAddress {
    "0000:3b:00.0".parse().unwrap()
}

fn order(method: &str, ready: Duration) -> Command {
    let ready_ms = u64::try_from(ready.as_millis()).unwrap();
    Command::Reset(ResetOrder { method: method.to_owned(), ready_ms, restore_ms: 1000 })
}

impl Stage {
    fn with(fields: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let spec: DeviceSpec = format!("{},memory=4096{fields}", address()).parse().unwrap();
        let folder = Folder::create(&root.path().join("twin"), vec![spec]).unwrap();
        let run = root.path().join("run");
        fs::create_dir(&run).unwrap();
        let program = Program(env!("CARGO_BIN_EXE_cleanslate").into());
        let bench = Bench { program, roots: folder.roots(), run };
        Self { folder, root, bench }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.bench.roots.pci_device(address()).join(file)
    }

    fn config(&self) -> Vec<u8> {
        fs::read(self.path("config")).unwrap()
    }

    /// The kernel's settings that a reset changes for its time.
    fn settings(&self) -> [String; 3] {
        ["reset_method", "power/control", "d3cold_allowed"]
            .map(|name| fs::read_to_string(self.path(name)).unwrap().trim_end().to_owned())
    }

    fn journal(&self) -> PathBuf {
        self.bench.run.join(format!("{}.saved", address()))
    }

    fn resets(&self) -> u32 {
        self.folder.counts(address()).unwrap().resets
    }

    fn fault(&self, fault: Option<Fault>) {
        self.folder.set_fault(address(), fault).unwrap();
    }

    /// Takes the lock; what had to be repaired before.
    async fn lock(&self) -> (Worker, Outcome<Vec<String>>) {
        let mut worker = self.bench.start().unwrap();
        let lock = self.bench.order(address(), None, None);
        let outcome = worker.order(&lock, Deadline::after(LONG), |_, _| {}).await;
        let repairs = outcome.map(|report| match report {
            Report::Locked(repairs) => repairs,
            other => panic!("{other:?}"),
        });
        (worker, repairs)
    }

    /// What the next worker finds when it comes.
    async fn next_worker(&self) -> Outcome<Vec<String>> {
        let (worker, repairs) = self.lock().await;
        worker.end().await;
        repairs
    }

    async fn reset_by(&self, order: &Command, deadline: Duration) -> Outcome<Report> {
        let (mut worker, repairs) = self.lock().await;
        assert!(matches!(&repairs, Outcome::Done(repairs) if repairs.is_empty()), "{repairs:?}");
        let outcome = worker.order(order, Deadline::after(deadline), |_, _| {}).await;
        worker.end().await;
        outcome
    }

    async fn reset(&self) -> Outcome<Report> {
        self.reset_by(&order(CONFIG_FLR, Duration::from_secs(5)), LONG).await
    }
}

fn code<T: std::fmt::Debug>(outcome: &Outcome<T>) -> Code {
    match outcome {
        Outcome::Failed(failure) => failure.code,
        other => panic!("{other:?}"),
    }
}

fn repairs(outcome: &Outcome<Vec<String>>) -> &[String] {
    match outcome {
        Outcome::Done(repairs) => repairs,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_byte_and_every_setting_is_as_it_was() {
    let stage = Stage::with("");
    let (config, settings) = (stage.config(), stage.settings());
    assert_eq!(settings, ["flr bus", "auto", "1"]);
    for resets in 1..=10 {
        let outcome = stage.reset().await;
        assert!(
            matches!(&outcome, Outcome::Done(Report::WasReset(it)) if it.method == CONFIG_FLR),
            "{outcome:?}"
        );
        // The twin logs nothing in its status registers, so none of the exceptions is needed here.
        assert!(stage.config() == config, "4096 bytes");
        assert_eq!((stage.settings(), stage.resets()), (settings.clone(), resets));
        assert!(!stage.journal().exists());
    }
}

/// Immediate readiness is STATUS bit 0.
#[tokio::test]
async fn a_function_that_is_ready_at_once_is_not_waited_for() {
    let stage = Stage::with(",reset_ms=1,ready_at_once=1");
    let config = stage.config();
    let mut quickest = Duration::MAX;
    for resets in 1..=20 {
        let start = std::time::Instant::now();
        let outcome = stage.reset().await;
        quickest = quickest.min(start.elapsed());
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        assert!(stage.config() == config && stage.resets() == resets);
    }
    // Whatever else the machine does: with the silence no reset is as quick.
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}

/// What a person or another driver does between two steps.
#[tokio::test]
async fn it_is_refused_where_something_is_in_the_way_and_touches_nothing() {
    let stage = Stage::with("");
    let config = stage.config();
    let refused = async |wanted: Code| {
        let before = stage.config();
        let outcome = stage.reset().await;
        assert_eq!(code(&outcome), wanted, "{outcome:?}");
        assert!(stage.config() == before && !stage.journal().exists() && stage.resets() == 0);
        assert_eq!(stage.settings(), ["flr bus", "auto", "1"]);
    };
    poke(&stage, 0x167, &[0x80]);
    refused(Code::Unsupported).await;
    poke(&stage, 0x167, &[0x00]);
    poke(&stage, 0x1c8, &[0x11]);
    refused(Code::Unsupported).await;
    poke(&stage, 0x1c8, &[0x10]);
    assert!(stage.config() == config);

    let lockdown = stage.bench.roots.sys.join("kernel/security");
    fs::create_dir_all(&lockdown).unwrap();
    put(&lockdown.join("lockdown"), b"none [integrity] confidentiality\n");
    refused(Code::Permission).await;
    put(&lockdown.join("lockdown"), b"[none] integrity confidentiality\n");

    for driver in ["nvme", "vfio-pci"] {
        std::os::unix::fs::symlink(format!("../../../bus/pci/drivers/{driver}"), stage.path("driver"))
            .unwrap();
        refused(Code::Driver).await;
        fs::remove_file(stage.path("driver")).unwrap();
    }
    assert!(matches!(stage.reset().await, Outcome::Done(_)));
}

/// A journal that cannot be written is the node's fault, and then nothing is begun.
#[tokio::test]
async fn without_a_journal_there_is_no_reset() {
    let stage = Stage::with("");
    fs::create_dir(stage.journal().with_extension("draft")).unwrap();
    for method in [CONFIG_FLR, "flr"] {
        let outcome = stage.reset_by(&order(method, LONG), LONG).await;
        assert_eq!(code(&outcome), Code::Journal, "{outcome:?}");
    }
    assert_eq!((stage.resets(), stage.settings()), (0, ["flr bus", "auto", "1"].map(str::to_owned)));
}

fn put(path: &std::path::Path, content: &[u8]) {
    std::io::Write::write_all(&mut fs::File::create(path).unwrap(), content).unwrap();
}

/// Writes to the device's config space, as `setpci` does, and waits until it shows.
fn poke(stage: &Stage, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(stage.path("config")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
    // Returns once the twin has seen everything before it.
    stage.resets();
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.root.path().display())
    }
}

fn roots(stage: &Stage) -> Roots {
    stage.bench.roots.clone()
}
