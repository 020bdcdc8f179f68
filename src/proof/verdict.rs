//! What follows from what was seen: one pure table. A verdict has parts that are joined one by one, so that
//! a fault of the node never hides a device's, and never blames one.

use crate::types::{Baseline, Counts, Fact, Fault, HolderProcess, Probe, Reason, Scrub, StepName};
use crate::worker::{Code, Failure, Outcome, Report};

/// What follows. All empty: nothing is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The claim cannot have the device now, though nothing is known against either.
    pub claim: Option<String>,
    /// The device goes to quarantine.
    pub device: Option<(Reason, String)>,
    /// The node or our deployment on it is at fault.
    pub node: Option<(Fault, String)>,
    /// Worth telling, and no reason to refuse the device.
    pub degraded: Option<String>,
}

/// When a probe was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What a reset may cure is no reason yet.
    BeforeReset,
    /// Nothing may be pending any more.
    AfterReset,
    /// A pod is using it: what its work changes is no fault.
    InUse,
}

impl Verdict {
    /// Whether nothing stands against handing the device out.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.claim.is_none() && self.device.is_none() && self.node.is_none()
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
            degraded: self.degraded.or(other.degraded),
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
                StepName::Reset | StepName::Ready | StepName::Restore => {
                    Verdict::bad(Reason::ResetTimeout, evidence)
                }
                StepName::Scrub => Verdict::bad(Reason::ScrubTimeout, evidence),
                StepName::Inspect | StepName::Probe => Verdict::bad(Reason::ProbeTimeout, evidence),
                // It reads /proc, not the device.
                StepName::Holders => Verdict::fault(Fault::Worker, evidence),
            }
        }
        Outcome::Crashed(why) => {
            let evidence = format!("{name}: the worker died: {why}");
            match step {
                StepName::Reset | StepName::Ready | StepName::Restore => {
                    Verdict::bad(Reason::ResetFailed, evidence)
                }
                StepName::Scrub => Verdict::bad(Reason::ScrubFailed, evidence),
                StepName::Inspect | StepName::Probe | StepName::Holders => {
                    Verdict::fault(Fault::Worker, evidence)
                }
            }
        }
    }
}

/// What a look outside a proof saw of a device.
///
/// # Errors
/// It saw nothing; what follows from that.
pub fn probed(outcome: Outcome<Report>) -> Result<Probe, Verdict> {
    match outcome {
        Outcome::Done(Report::Probed(probe, _)) => Ok(probe),
        other => Err(of_other(StepName::Probe, &other)),
    }
}

/// What follows from a look for holders outside a proof.
#[must_use]
pub fn of_look_for_holders(outcome: &Outcome<Report>) -> Verdict {
    match outcome {
        Outcome::Done(Report::Held(holders)) => of_holders(holders),
        other => of_other(StepName::Holders, other),
    }
}

fn of_other(step: StepName, outcome: &Outcome<Report>) -> Verdict {
    match outcome {
        Outcome::Done(report) => unexpected(step, report),
        other => of_end(step, other),
    }
}

/// A report of another step says nothing of this one: it is no success.
pub(super) fn unexpected(step: StepName, report: &Report) -> Verdict {
    of_end::<()>(step, &Outcome::Crashed(format!("it answered with {report:?}")))
}

fn of_failure(step: StepName, failure: &Failure) -> Verdict {
    // The system's own words say it already.
    let errno = failure.errno.filter(|_| !failure.text.contains("(os error"));
    let errno = errno.map_or_else(String::new, |errno| format!(" (errno {errno})"));
    let text = format!("{}: {}{errno}", step.as_str(), failure.text);
    match (failure.code, step) {
        (Code::Locked | Code::Driver | Code::NoMemory | Code::Gone, _) => Verdict::refuse(text),
        (Code::Unsupported, _) => Verdict::refuse(format!("unsupported_mode: {text}")),
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
        (Code::Journal, _) => Verdict::fault(Fault::Store, text),
        (Code::ConfigLost, _) => Verdict::bad(Reason::ConfigLost, text),
        (Code::Ineffective, _) => Verdict::bad(Reason::ResetIneffective, text),
        (Code::NoMethod | Code::NotReady | Code::Pending, _)
        | (Code::Io, StepName::Reset | StepName::Ready | StepName::Restore) => {
            Verdict::bad(Reason::ResetFailed, text)
        }
        (Code::Io, StepName::Scrub) => Verdict::bad(Reason::ScrubFailed, text),
        (Code::Io, StepName::Probe | StepName::Inspect) => Verdict::bad(Reason::ProbeFailed, text),
        (Code::Io, StepName::Holders) => Verdict::fault(Fault::Worker, text),
    }
}

/// What follows from a probe, held against an earlier look where there is one.
#[must_use]
pub fn of_probe(stage: Stage, probe: &Probe, baseline: Option<&Baseline>) -> Verdict {
    let Probe { present, identity, bars, transactions, link, uncorrectable, counters, counts, .. } = probe;
    let judge = |fact: &Fact, reason| match fact {
        Fact::Good | Fact::Absent => Verdict::default(),
        Fact::Bad(seen) => Verdict::bad(reason, seen),
        Fact::Unreadable(why) => Verdict::bad(Reason::ProbeFailed, why),
    };
    if let (Stage::InUse, Fact::Good, Fact::Bad(seen)) = (stage, present, identity) {
        // Whatever else was seen is another card's, and says nothing of the one that was granted.
        return Verdict::bad(Reason::IdentityChanged, seen);
    }
    let always = judge(present, Reason::ProbeFailed).join(judge(identity, Reason::IdentityChanged));
    if stage == Stage::BeforeReset {
        return always;
    }
    let link_reason = if counts.width == Some(0) { Reason::LinkLost } else { Reason::LinkDegraded };
    let seen = always
        .join(judge(uncorrectable, Reason::AerUncorrectable))
        .join(judge(link, link_reason))
        .join(judge(counters, Reason::ProbeFailed));
    let now = match stage {
        Stage::InUse => seen,
        Stage::BeforeReset | Stage::AfterReset => {
            seen.join(judge(bars, Reason::ConfigLost)).join(judge(transactions, Reason::ResetIneffective))
        }
    };
    match baseline {
        Some(baseline) => now.join(of_growth(baseline, counts)),
        None => now,
    }
}

/// Correctable errors an hour from which a device counts as degraded.
const CORRECTABLE_AN_HOUR: u64 = 100;
/// As many at once are no rate yet.
const CORRECTABLE_AT_ONCE: u64 = 10;

/// What follows from counters that grew since an earlier look, and from a link that shrank.
fn of_growth(baseline: &Baseline, now: &Counts) -> Verdict {
    let then = &baseline.counts;
    let width = match (then.width, now.width) {
        (Some(then), Some(now)) if now < then => {
            Verdict::bad(Reason::LinkDegraded, format!("the link is x{now} and was x{then}"))
        }
        _ => Verdict::default(),
    };
    if !baseline.precedes(now) {
        return width;
    }
    let grown = |then: u64, now: u64, reason, kind| match now - then {
        0 => Verdict::default(),
        errors => Verdict::bad(reason, format!("{errors} {kind} errors since {}", baseline.at)),
    };
    let errors = now.correctable - then.correctable;
    let hours = jiff::Timestamp::now().duration_since(baseline.at).as_hours();
    let limit =
        CORRECTABLE_AN_HOUR.saturating_mul(u64::try_from(hours).unwrap_or(0)).max(CORRECTABLE_AT_ONCE);
    let degraded = (errors > limit).then(|| format!("{errors} correctable errors since {}", baseline.at));
    width
        .join(grown(then.fatal, now.fatal, Reason::AerFatal, "fatal"))
        .join(grown(then.nonfatal, now.nonfatal, Reason::AerUncorrectable, "uncorrectable"))
        .join(Verdict { degraded, ..Verdict::default() })
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
