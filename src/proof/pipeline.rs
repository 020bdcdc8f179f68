//! The one order in which a device is proved, under one lease and by one worker:
//!
//! ```text
//!   lock ─▶ probe ─▶ holders ─▶ reset ─▶ probe ─▶ scrub ─▶ holders ─▶ probe ─▶ seal
//! ```
//!
//! The reset comes before the scrub, since a reset may drop what a cache had not written yet; a probe follows
//! both, since a reset that returned is not a healthy device.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Subject;
use super::verdict::{Stage, Verdict, of_end, of_holders, of_probe, of_scrub, unexpected};
use crate::ledger::{Evidence, Finish, Lease, Proved};
use crate::types::{Baseline, Deadline, Fact, Probe, Receipt, Reset, Scrub, StepName, StepTime};
use crate::worker::{Bench, Command, Outcome, Report, ResetOrder, Worker};

/// Time between two looks for processes that are about to let go.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Only a vendor's library reaches these.
const NEVER_COVERED: [&str; 4] = ["on-chip memory", "ecc", "temperature", "nvlink"];

/// How long holders are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

/// The device was not proved; its lease comes back with what follows.
#[derive(Debug)]
pub struct Unproved {
    /// The lease.
    pub lease: Lease,
    /// What follows.
    pub verdict: Verdict,
}

impl Unproved {
    /// How the work on the device ends, and what is told of it.
    #[must_use]
    pub fn end(self) -> (Lease, Finish, Verdict) {
        let finish = match &self.verdict.device {
            Some((reason, evidence)) => Finish::Bad(*reason, evidence.clone()),
            None => Finish::Unproved,
        };
        (self.lease, finish, self.verdict)
    }
}

/// Proves a device under a lease.
///
/// # Errors
/// Anything that is not a proof.
pub async fn prove(
    lease: Lease,
    subject: &Subject,
    patience: Patience,
    bench: &Bench,
    idle: Option<Worker>,
) -> Result<Proved, Box<Unproved>> {
    let started = match idle {
        Some(worker) => Ok(worker),
        None => bench.start(),
    };
    let worker = match started {
        Ok(worker) => worker,
        Err(error) => {
            let crashed = Outcome::<()>::Crashed(format!("cannot start a worker: {error}"));
            return Err(Box::new(Unproved { lease, verdict: of_end(StepName::Probe, &crashed) }));
        }
    };
    let mut run = Run {
        lease: &lease,
        subject,
        worker,
        steps: Vec::new(),
        baseline: None,
        degraded: None,
        repairs: Vec::new(),
    };
    let result = run.steps(patience, bench).await;
    let Run { worker, .. } = run;
    // Not before the worker is gone, or given up with the lock in its hand, may anybody else touch the device.
    worker.end().await;
    match result {
        Err(verdict) => Err(Box::new(Unproved { lease, verdict })),
        Ok(evidence) => lease.seal(evidence).map_err(|unsealed| {
            let verdict = Verdict::refuse(unsealed.to_string());
            Box::new(Unproved { lease: unsealed.lease, verdict })
        }),
    }
}

struct Run<'a> {
    lease: &'a Lease,
    subject: &'a Subject,
    worker: Worker,
    steps: Vec<StepTime>,
    /// What probes after the first are held against.
    baseline: Option<Baseline>,
    degraded: Option<String>,
    /// What an earlier worker had left half done.
    repairs: Vec<String>,
}

impl Run<'_> {
    async fn steps(&mut self, patience: Patience, bench: &Bench) -> Result<Evidence, Verdict> {
        let token = self.lease.token();
        let order = bench.order(self.lease.address(), Some(token), Some(self.subject.expected.clone()));
        match self.step(StepName::Inspect, &order).await? {
            Report::Locked(repairs) => self.repairs = repairs,
            other => return Err(unexpected(StepName::Inspect, &other)),
        }
        self.probe(Stage::BeforeReset).await?;
        self.nobody_holds(patience).await?;
        let reset = self.reset().await?;
        let (after_reset, _) = self.probe(Stage::AfterReset).await?;
        let scrub = self.scrub().await?;
        // Who came since would share the device with its next tenant.
        self.nobody_holds(Patience(Duration::ZERO)).await?;
        let (last, nodes) = self.probe(Stage::AfterReset).await?;
        let receipt = self.receipt(&reset, &scrub, &last);
        Ok(Evidence { token, after_reset, reset, scrub, last, receipt, nodes })
    }

    async fn probe(&mut self, stage: Stage) -> Result<(Probe, Vec<PathBuf>), Verdict> {
        match self.step(StepName::Probe, &Command::Probe).await? {
            Report::Probed(probe, nodes) => {
                if stage == Stage::BeforeReset {
                    self.baseline = self.lease.baseline_after(&probe.counts);
                }
                let verdict = of_probe(stage, &probe, self.baseline.as_ref());
                self.degraded = self.degraded.take().or_else(|| verdict.degraded.clone());
                good(verdict).map(|()| (probe, nodes))
            }
            other => Err(unexpected(StepName::Probe, &other)),
        }
    }

    async fn nobody_holds(&mut self, patience: Patience) -> Result<(), Verdict> {
        let patience = Deadline::after(patience.0);
        loop {
            let holders = match self.step(StepName::Holders, &Command::Holders).await? {
                Report::Held(holders) => holders,
                other => return Err(unexpected(StepName::Holders, &other)),
            };
            let verdict = of_holders(&holders);
            if verdict.is_good() || patience.left().is_zero() {
                return good(verdict);
            }
            tokio::time::sleep(LOOK_AGAIN.min(patience.left())).await;
        }
    }

    async fn reset(&mut self) -> Result<Reset, Verdict> {
        let rule = &self.subject.rule;
        let ms = |step| u64::try_from(rule.deadline(step).as_millis()).unwrap_or(u64::MAX);
        let order = ResetOrder {
            method: rule.reset_method.clone(),
            ready_ms: ms(StepName::Ready),
            restore_ms: ms(StepName::Restore),
        };
        match self.step(StepName::Reset, &Command::Reset(order)).await? {
            Report::WasReset(reset) => Ok(reset),
            other => Err(unexpected(StepName::Reset, &other)),
        }
    }

    async fn scrub(&mut self) -> Result<Scrub, Verdict> {
        match self.step(StepName::Scrub, &Command::Scrub(self.subject.bars.clone())).await? {
            // A BAR that was made smaller (resourceN_resize) shows a part of what a tenant had.
            Report::Scrubbed(scrub) if scrub.size != self.subject.memory => Err(Verdict::refuse(format!(
                "scrub: its BARs {:?} have {} bytes and had {} when it was inspected; give them that size again",
                self.subject.bars, scrub.size, self.subject.memory
            ))),
            Report::Scrubbed(scrub) => good(of_scrub(&scrub)).map(|()| scrub),
            other => Err(unexpected(StepName::Scrub, &other)),
        }
    }

    /// Orders one step under its own deadline. Work that nobody wants any more ends before it.
    async fn step(&mut self, step: StepName, command: &Command) -> Result<Report, Verdict> {
        if self.lease.is_stopped() {
            return Err(Verdict::refuse("the claim was released while it was being prepared"));
        }
        self.lease.begins(step);
        let start = Instant::now();
        let deadline = Deadline::after(self.subject.deadline(step));
        let lease = self.lease;
        let outcome = self.worker.order(command, deadline, |done, of| lease.goes_on(done, of)).await;
        let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(device = %self.lease.address(), token = %self.lease.token(), step = step.as_str(), ms, "step");
        self.steps.push(StepTime { step: step.as_str().to_owned(), ms });
        let verdict = of_end(step, &outcome);
        match outcome {
            Outcome::Done(report) => Ok(report),
            _ => Err(verdict),
        }
    }

    fn receipt(&self, reset: &Reset, scrub: &Scrub, last: &Probe) -> Receipt {
        Receipt {
            address: self.lease.address(),
            token: self.lease.token(),
            at: jiff::Timestamp::now(),
            reset: reset.method.clone(),
            mode: self.subject.offer().mode,
            bytes_total: scrub.size,
            bytes_written: scrub.bytes_written,
            bytes_verified: 8 * (scrub.pattern.words_visited + scrub.zero.words_visited),
            not_covered: not_covered(last),
            notes: self.repairs.iter().chain(&last.notes).cloned().collect(),
            degraded: self.degraded.clone(),
            steps: self.steps.clone(),
            digest: String::new(),
        }
    }
}

/// What the proof says nothing about: what this version cannot look at, and what the device does not have.
fn not_covered(last: &Probe) -> Vec<String> {
    let absent = [
        ("bars", &last.bars),
        ("transactions", &last.transactions),
        ("link", &last.link),
        ("aer", &last.uncorrectable),
    ];
    let absent = absent.into_iter().filter(|(_, fact)| **fact == Fact::Absent).map(|(name, _)| name);
    NEVER_COVERED.into_iter().chain(absent).map(str::to_owned).collect()
}

fn good(verdict: Verdict) -> Result<(), Verdict> {
    if verdict.is_good() { Ok(()) } else { Err(verdict) }
}

#[cfg(test)]
mod tests;
