//! What follows from what was seen: one pure table. A verdict has three parts that are joined one by one, so that
//! a fault of the node never hides a device's, and never blames one.

use crate::types::{Fact, Fault, HolderProcess, Probe, Reason, Scrub, StepName};
use crate::worker::{Code, Failure, Outcome};

/// What follows. All three empty: nothing is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The claim cannot have the device now, though nothing is known against either.
    pub claim: Option<String>,
    /// The device goes to quarantine.
    pub device: Option<(Reason, String)>,
    /// The node or our deployment on it is at fault.
    pub node: Option<(Fault, String)>,
}

/// When a probe was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What a reset may cure is no reason yet.
    BeforeReset,
    /// Nothing may be pending any more.
    AfterReset,
}

impl Verdict {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        *self == Self::default()
    }

    /// Both, part by part; of two reasons the worse.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let worse = |a: Option<(Reason, String)>, b: Option<(Reason, String)>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
            (a, b) => a.or(b),
        };
        Self {
            claim: self.claim.or(other.claim),
            device: worse(self.device, other.device),
            node: self.node.or(other.node),
        }
    }

    /// The claim is refused.
    #[must_use]
    pub fn refuse(why: impl Into<String>) -> Self {
        Self { claim: Some(why.into()), ..Self::default() }
    }

    fn bad(reason: Reason, evidence: impl Into<String>) -> Self {
        Self { device: Some((reason, evidence.into())), ..Self::default() }
    }

    fn fault(fault: Fault, why: impl Into<String>) -> Self {
        Self { node: Some((fault, why.into())), ..Self::default() }
    }
}

/// What follows from a step that did not succeed.
#[must_use]
pub fn of_end<T>(step: StepName, outcome: &Outcome<T>) -> Verdict {
    let name = step.as_str();
    match outcome {
        Outcome::Done(_) => Verdict::default(),
        Outcome::Failed(failure) => of_failure(step, failure),
        Outcome::Stuck { pid, wchan } => Verdict::bad(
            Reason::WorkerStuck,
            format!(
                "{name}: worker {pid} overran its deadline and survives SIGKILL in {wchan:?}; it keeps the device's lock"
            ),
        ),
        Outcome::TimedOut => {
            let evidence = format!("{name} did not return within its deadline");
            match step {
                StepName::Reset => Verdict::bad(Reason::ResetTimeout, evidence),
                StepName::Scrub => Verdict::bad(Reason::ScrubTimeout, evidence),
                StepName::Inspect | StepName::Probe => Verdict::bad(Reason::ProbeTimeout, evidence),
                // It reads /proc, not the device.
                StepName::Holders => Verdict::fault(Fault::Worker, evidence),
            }
        }
        Outcome::Crashed(why) => {
            let evidence = format!("{name}: the worker died: {why}");
            match step {
                StepName::Reset => Verdict::bad(Reason::ResetFailed, evidence),
                StepName::Scrub => Verdict::bad(Reason::ScrubFailed, evidence),
                StepName::Inspect | StepName::Probe | StepName::Holders => {
                    Verdict::fault(Fault::Worker, evidence)
                }
            }
        }
    }
}

fn of_failure(step: StepName, failure: &Failure) -> Verdict {
    let errno = failure.errno.map_or_else(String::new, |errno| format!(" (errno {errno})"));
    let text = format!("{}: {}{errno}", step.as_str(), failure.text);
    match (failure.code, step) {
        (Code::Locked | Code::Driver | Code::NoMemory | Code::Gone, _) => Verdict::refuse(text),
        (Code::Lost, _) => Verdict::bad(Reason::FellOffBus, text),
        (Code::ReadOnly, _) => Verdict::fault(
            Fault::ReadOnlySysfs,
            format!("{text}; the container must be privileged and mount /sys writable"),
        ),
        (Code::Permission, _) => Verdict::fault(
            Fault::Permission,
            format!(
                "{text}; run as root with hostPID, CAP_SYS_ADMIN and CAP_SYS_PTRACE, and see kernel lockdown"
            ),
        ),
        (Code::Protocol, _) => Verdict::fault(Fault::Worker, text),
        (Code::NoMethod | Code::NotReady, _) | (Code::Io, StepName::Reset) => {
            Verdict::bad(Reason::ResetFailed, text)
        }
        (Code::Io, StepName::Scrub) => Verdict::bad(Reason::ScrubFailed, text),
        (Code::Io, StepName::Probe | StepName::Inspect) => Verdict::bad(Reason::ProbeFailed, text),
        (Code::Io, StepName::Holders) => Verdict::fault(Fault::Worker, text),
    }
}

/// What follows from a probe.
#[must_use]
pub fn of_probe(stage: Stage, probe: &Probe) -> Verdict {
    let Probe { present, identity, bars, transactions } = probe;
    let judge = |fact: &Fact, reason| match fact {
        Fact::Good | Fact::Absent => Verdict::default(),
        Fact::Bad(seen) => Verdict::bad(reason, seen),
        Fact::Unreadable(why) => Verdict::bad(Reason::ProbeFailed, why),
    };
    let always = judge(present, Reason::ProbeFailed).join(judge(identity, Reason::IdentityChanged));
    match stage {
        Stage::BeforeReset => always,
        Stage::AfterReset => {
            always.join(judge(bars, Reason::ConfigLost)).join(judge(transactions, Reason::ResetIneffective))
        }
    }
}

/// What follows from processes that have the device open: never a kill.
#[must_use]
pub fn of_holders(holders: &[HolderProcess]) -> Verdict {
    if holders.is_empty() {
        return Verdict::default();
    }
    let named = holders.iter().map(|holder| {
        let HolderProcess { pid, comm, cgroup, path } = holder;
        format!("process {pid} ({comm}, cgroup {cgroup}) has {path} open")
    });
    Verdict::refuse(format!("held: {}", named.collect::<Vec<_>>().join("; ")))
}

/// What follows from a scrub.
#[must_use]
pub fn of_scrub(scrub: &Scrub) -> Verdict {
    scrub.gap().map_or_else(Verdict::default, |gap| Verdict::bad(Reason::ScrubVerify, gap))
}

#[cfg(test)]
mod tests;
