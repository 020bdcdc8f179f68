//! Each fault of the twin is found; and without the check that finds it, it passes. So the check is what finds it.

mod cases;
mod scrubs;
mod walk;

use std::collections::BTreeSet;

use cleanslate::sim::Fault;

use cases::{CASES, Case};
use walk::{Check, Evidence, Stage};

impl Case {
    fn is_here(&self) -> bool {
        crate::IS_FUSE || !self.fault.needs_fuse()
    }

    /// All checks that find it on this mount.
    fn checks(&self) -> Vec<Check> {
        let on_fuse: &[Check] = if crate::IS_FUSE { self.also_on_fuse } else { &[] };
        self.found_by.iter().chain(on_fuse).copied().collect()
    }

    fn judge(&self, evidence: &Evidence) {
        let Self { fault, method, .. } = self;
        let (verdict, checks) = (evidence.verdict(), self.checks());
        let reason = verdict.device.as_ref().map(|(reason, _)| *reason);
        println!("{fault:?} by {method}: {checks:?} → {verdict:?}");
        let wanted = if crate::IS_FUSE { self.reason_on_fuse.or(self.reason) } else { self.reason };
        assert_eq!(reason, wanted, "{fault:?} by {method}: {evidence:#?}");

        // Nothing else finds it …
        let mut none = evidence.clone();
        checks.iter().chain(self.by_chance).for_each(|check| none.forget(*check));
        let left = none.verdict();
        assert!(left.is_good(), "{fault:?} by {method} without {checks:?}: {left:?}");
        // … and each of these would alone.
        for check in &checks {
            let mut alone = evidence.clone();
            let others = checks.iter().filter(|other| *other != check).chain(self.by_chance);
            others.for_each(|other| alone.forget(*other));
            assert!(!alone.verdict().is_good(), "{fault:?} by {method}: not by {check:?}: {evidence:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_found_and_by_its_check_alone() {
    let cases: Vec<_> = CASES.iter().filter(|case| case.is_here()).collect();
    // A few at a time: half of them wait for a deadline.
    for some in cases.chunks(4) {
        let runs =
            some.iter().map(|case| tokio::spawn(async { case.judge(&Stage::set().await.walk(case).await) }));
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
    }
}

#[test]
fn no_fault_is_without_its_case() {
    let name = |fault| format!("{fault:?}");
    let cases: BTreeSet<_> = CASES.iter().map(|case| name(case.fault)).collect();
    assert_eq!(cases, Fault::all().map(name).collect());
}

/// The evidence itself is no fault: a healthy device passes, by both resets.
#[tokio::test]
async fn a_healthy_device_passes() {
    for method in ["flr", "config_flr"] {
        let evidence = Stage::set().await.steps(None, method).await;
        assert!(evidence.verdict().is_good(), "{method}: {evidence:#?}");
    }
}

/// A deadline is a check too: the same device, waited for longer.
#[tokio::test]
async fn late_is_found_by_the_deadline_alone() {
    for method in ["flr", "config_flr"] {
        let stage = Stage::with(",reset_ms=900").await;
        let evidence = stage.patient().steps(Some(Fault::SlowReset), method).await;
        assert!(evidence.verdict().is_good(), "{method}: {evidence:#?}");
    }
}

/// What no check finds: the kernel restores what a reset takes, so one that did nothing looks like one that did. Memory
/// is overwritten all the same.
#[tokio::test]
async fn a_reset_of_the_kernels_that_did_nothing_is_not_found() {
    let stage = Stage::set().await;
    let secret = b"a tenant's weights";
    stage.mount.leave(walk::address(), 0, secret).unwrap();
    let evidence = stage.steps(Some(Fault::NoReset), "flr").await;
    assert!(evidence.verdict().is_good(), "{evidence:#?}");
    let counts = stage.mount.counts(walk::address()).unwrap();
    assert_eq!((counts.resets, counts.scrubs), (0, 1));
    assert!(stage.mount.memory(walk::address()).unwrap().iter().all(|byte| *byte == 0));
}
