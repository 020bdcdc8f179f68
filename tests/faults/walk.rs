//! The steps of a proof by a real worker, one after the other whatever they say, so that what a later one would have
//! seen without an earlier one is seen.

use std::fs;
use std::time::{Duration, Instant};

use cleanslate::proof::verdict::{self, Verdict};
use cleanslate::sim::{DeviceSpec, Fault};
use cleanslate::types::{Baseline, Deadline, Fact, PciAddress, Probe, Scrub, ScrubPass, StepName};
use cleanslate::worker::{Bench, Code, Command, Outcome, Program, Report, ResetOrder, Worker};

use super::cases::Case;
use crate::Mount;

pub(super) const LONG: Duration = Duration::from_secs(30);
/// Four chunks.
pub(super) const MEMORY: u64 = 4 << 20;

/// What contributes a fact to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Config space that reads all ones, in whatever step.
    Answers,
    /// The reset's deadline.
    ResetReturns,
    /// How the reset ended.
    ResetSays(Code),
    Bars,
    Transactions,
    Uncorrectable,
    Counters,
    Link,
    /// The words of the first pass, and its planted errors.
    Pattern,
    /// Those of the second.
    Zero,
    /// The planted errors of the second are gone.
    Mended,
}

/// What every step of a proof has seen.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    steps: Vec<(StepName, verdict::Stage, Outcome<Report>)>,
    baseline: Baseline,
}

impl Evidence {
    /// What the first step leads to that finds something, as in a proof.
    pub(super) fn verdict(&self) -> Verdict {
        for (step, stage, outcome) in &self.steps {
            let verdict = match outcome {
                Outcome::Done(Report::Probed(probe, _)) => {
                    verdict::of_probe(*stage, probe, Some(&self.baseline))
                }
                Outcome::Done(Report::Held(holders)) => verdict::of_holders(holders),
                Outcome::Done(Report::Scrubbed(scrub)) => verdict::of_scrub(scrub),
                other => verdict::of_end(*step, other),
            };
            if !verdict.is_good() {
                return verdict;
            }
        }
        Verdict::default()
    }

    /// Takes out what a check has contributed.
    pub(super) fn forget(&mut self, check: Check) {
        self.steps.retain(|(step, _, outcome)| !match (check, outcome) {
            (Check::Answers, Outcome::Failed(failure)) => failure.code == Code::Lost,
            (Check::ResetSays(code), Outcome::Failed(failure)) => {
                *step == StepName::Reset && failure.code == code
            }
            (Check::ResetReturns, Outcome::TimedOut | Outcome::Stuck { .. }) => *step == StepName::Reset,
            _ => false,
        });
        let counts = self.baseline.counts.clone();
        for (_, _, outcome) in &mut self.steps {
            match outcome {
                Outcome::Done(Report::Probed(Probe { bars, .. }, _)) if check == Check::Bars => {
                    *bars = Fact::Good;
                }
                Outcome::Done(Report::Probed(Probe { transactions, .. }, _))
                    if check == Check::Transactions =>
                {
                    *transactions = Fact::Good;
                }
                Outcome::Done(Report::Probed(Probe { uncorrectable, .. }, _))
                    if check == Check::Uncorrectable =>
                {
                    *uncorrectable = Fact::Good;
                }
                Outcome::Done(Report::Probed(Probe { counts: now, .. }, _)) if check == Check::Counters => {
                    (now.fatal, now.nonfatal) = (counts.fatal, counts.nonfatal);
                }
                Outcome::Done(Report::Probed(Probe { counts: now, .. }, _)) if check == Check::Link => {
                    now.width = counts.width;
                }
                Outcome::Done(Report::Scrubbed(scrub)) => forget_in_scrub(scrub, check),
                _ => {}
            }
        }
    }
}

fn forget_in_scrub(scrub: &mut Scrub, check: Check) {
    let flawless =
        ScrubPass { words_visited: scrub.size / 8, canaries_found: scrub.chunks, ..ScrubPass::default() };
    match check {
        Check::Pattern => scrub.pattern = flawless,
        Check::Zero => scrub.zero = flawless,
        Check::Mended => scrub.canaries_left = 0,
        _ => {}
    }
}

/// A device that was healthy a moment ago, and where its workers run.
pub(super) struct Stage {
    pub(super) mount: Mount,
    pub(super) bench: Bench,
    baseline: Baseline,
    /// How long a reset may take, and a device until it answers.
    limits: [Duration; 2],
    _root: tempfile::TempDir,
}

pub(super) fn address() -> PciAddress {
    "0000:3b:00.0".parse().unwrap()
}

impl Stage {
    pub(super) async fn set() -> Self {
        Self::with("").await
    }

    pub(super) async fn with(fields: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let spec: DeviceSpec = format!("{},memory={MEMORY}{fields}", address()).parse().unwrap();
        let mount = Mount::create(&root.path().join("twin"), vec![spec]).unwrap();
        let run = root.path().join("run");
        fs::create_dir(&run).unwrap();
        let program = Program(env!("CARGO_BIN_EXE_cleanslate").into());
        let bench = Bench { program, roots: mount.roots(), run };
        let mut worker = lock(&bench).await;
        let outcome = worker.order(&Command::Probe, Deadline::after(LONG), |_, _| {}).await;
        worker.end().await;
        let Outcome::Done(Report::Probed(probe, _)) = outcome else { panic!("{outcome:?}") };
        let (boot_id, at) = (String::new(), jiff::Timestamp::now());
        let baseline = Baseline { boot_id, at, counts: probe.counts };
        let limits = [Duration::from_millis(1500), Duration::from_millis(300)];
        Self { mount, bench, baseline, limits, _root: root }
    }

    /// The same, with all the time there is.
    pub(super) fn patient(self) -> Self {
        Self { limits: [LONG; 2], ..self }
    }

    pub(super) async fn walk(&self, case: &Case) -> Evidence {
        self.steps(Some(case.fault), case.method).await
    }

    /// All steps of a proof on a device that has just got a fault.
    pub(super) async fn steps(&self, fault: Option<Fault>, method: &str) -> Evidence {
        self.mount.set_fault(address(), fault).unwrap();
        let [limit, ready] = self.limits;
        let ready_ms = u64::try_from(ready.as_millis()).unwrap();
        let reset = Command::Reset(ResetOrder { method: method.to_owned(), ready_ms, restore_ms: 5000 });
        let orders = [
            (StepName::Probe, Command::Probe, LONG),
            (StepName::Holders, Command::Holders, LONG),
            (StepName::Reset, reset, limit),
            (StepName::Probe, Command::Probe, LONG),
            (StepName::Scrub, Command::Scrub(vec![0]), LONG),
            (StepName::Holders, Command::Holders, LONG),
            (StepName::Probe, Command::Probe, LONG),
        ];
        let (mut worker, mut steps) = (lock(&self.bench).await, Vec::new());
        let mut stage = verdict::Stage::BeforeReset;
        for (step, order, limit) in orders {
            let outcome = worker.order(&order, Deadline::after(limit), |_, _| {}).await;
            if matches!(outcome, Outcome::TimedOut | Outcome::Stuck { .. }) {
                // Whoever had waited would go on once the hang is over.
                self.mount.set_fault(address(), None).unwrap();
                worker.end().await;
                worker = lock(&self.bench).await;
            }
            if step == StepName::Reset && matches!(fault, Some(Fault::SlowReset | Fault::RetryStatus)) {
                // It answers once nobody waits any more.
                tokio::time::sleep(Duration::from_millis(3000)).await;
            }
            steps.push((step, stage, outcome));
            if step == StepName::Reset {
                stage = verdict::Stage::AfterReset;
            }
        }
        worker.end().await;
        Evidence { steps, baseline: self.baseline.clone() }
    }
}

/// A worker that has the device, once the one before it lets go.
async fn lock(bench: &Bench) -> Worker {
    let begun = Instant::now();
    loop {
        let mut worker = bench.start().unwrap();
        let order = bench.order(address(), None, None);
        match worker.order(&order, Deadline::after(LONG), |_, _| {}).await {
            Outcome::Done(_) => return worker,
            outcome => assert!(begun.elapsed() < LONG, "{outcome:?}"),
        }
        worker.end().await;
    }
}
