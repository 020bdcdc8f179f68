//! What a worker and the verdict make of the kernel's errors.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use cleanslate::proof::verdict::{Verdict, of_end};
use cleanslate::sim::{DeviceSpec, Fault};
use cleanslate::types::{CONFIG_FLR, Deadline, Fault as NodeFault, Reason, StepName};
use cleanslate::worker::{Bench, Code, Command, Outcome, Program, Report, ResetOrder, Worker};

use crate::Mount;
use crate::twin::address;

const LONG: Duration = Duration::from_secs(20);

struct Stage {
    mount: Mount,
    bench: Bench,
    _root: tempfile::TempDir,
}

impl Stage {
    fn behind(mount: impl FnOnce(&std::path::Path, Vec<DeviceSpec>) -> std::io::Result<Mount>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mount = mount(&root.path().join("twin"), vec![DeviceSpec::new(address())]).unwrap();
        let run = root.path().join("run");
        fs::create_dir(&run).unwrap();
        let program = Program(env!("CARGO_BIN_EXE_cleanslate").into());
        let bench = Bench { program, roots: mount.roots(), run };
        Self { mount, bench, _root: root }
    }

    async fn worker(&self) -> Worker {
        let mut worker = self.bench.start().unwrap();
        let lock = self.bench.order(address(), None, None);
        let outcome = worker.order(&lock, Deadline::after(LONG), |_, _| {}).await;
        assert!(matches!(outcome, Outcome::Done(Report::Locked(_))), "{outcome:?}");
        worker
    }

    /// How a reset fails, and what follows.
    async fn reset(&self, method: &str) -> (Code, Verdict) {
        let mut worker = self.worker().await;
        let order = ResetOrder { method: method.to_owned(), ready_ms: 5000, restore_ms: 1000 };
        let outcome = worker.order(&Command::Reset(order), Deadline::after(LONG), |_, _| {}).await;
        worker.end().await;
        let Outcome::Failed(failure) = &outcome else { panic!("{outcome:?}") };
        println!("{method}: {failure:?}");
        (failure.code, of_end(StepName::Reset, &outcome))
    }
}

#[tokio::test]
async fn a_mount_that_is_read_only_is_the_nodes_fault() {
    let stage = Stage::behind(Mount::read_only);
    for method in ["flr", CONFIG_FLR] {
        let (code, verdict) = stage.reset(method).await;
        assert_eq!(code, Code::ReadOnly);
        assert!(matches!(verdict.node, Some((NodeFault::ReadOnlySysfs, _))), "{verdict:?}");
        assert_eq!(verdict.device, None, "nobody blames the device");
    }
    assert_eq!(stage.mount.counts(address()).unwrap().resets, 0);
}

/// It is pulled out in the middle of its reset.
#[tokio::test]
async fn a_device_that_goes_away_in_its_reset_is_gone_and_not_broken() {
    let stage = Stage::behind(Mount::create);
    stage.mount.set_fault(address(), Some(Fault::HangReset)).unwrap();
    let pull = async {
        let begun = Instant::now();
        while stage.mount.writers(address()).unwrap() == 0 {
            assert!(begun.elapsed() < LONG, "no reset");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stage.mount.remove(address()).unwrap();
    };
    let ((code, verdict), ()) = tokio::join!(stage.reset("flr"), pull);
    assert_eq!(code, Code::Gone);
    assert!(verdict.claim.is_some() && verdict.device.is_none(), "{verdict:?}");
}

#[tokio::test]
async fn a_device_without_a_method_or_in_use_has_failed_its_reset() {
    let stage = Stage::behind(Mount::create);
    let methods = stage.mount.roots().pci_device(address()).join("reset_method");
    let set =
        |text: &[u8]| fs::OpenOptions::new().write(true).open(&methods).unwrap().write_all(text).unwrap();
    set(b"\n");
    let (code, verdict) = stage.reset("flr").await;
    assert_eq!(code, Code::NoMethod);
    assert!(matches!(verdict.device, Some((Reason::ResetFailed, _))), "{verdict:?}");
    set(b"default");
    stage.mount.set_fault(address(), Some(Fault::Busy)).unwrap();
    let (code, verdict) = stage.reset("flr").await;
    assert_eq!(code, Code::Io);
    let (reason, evidence) = verdict.device.unwrap();
    assert!(reason == Reason::ResetFailed && evidence.contains("os error 16"), "{evidence}");
    assert_eq!(fs::read_to_string(&methods).unwrap(), "flr bus\n", "the pin is taken off again");
    stage.mount.set_fault(address(), None).unwrap();
    stage.worker().await.end().await;
}
