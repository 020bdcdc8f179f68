use cleanslate::sim::Fault;
use cleanslate::types::Reason;
use cleanslate::worker::Code;

use super::walk::Check::{
    self, Answers, Bars, Counters, Link, Mended, Pattern, ResetReturns, ResetSays, Transactions,
    Uncorrectable, Zero,
};

/// A fault, and what finds it.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) fault: Fault,
    /// By which kind of reset.
    pub(super) method: &'static str,
    /// What a proof says of it.
    pub(super) reason: Option<Reason>,
    /// Where it says something else of it behind FUSE.
    pub(super) reason_on_fuse: Option<Reason>,
    /// The checks that find it, each by itself.
    pub(super) found_by: &'static [Check],
    /// More of them behind FUSE, where memory that is not decoded does not answer.
    pub(super) also_on_fuse: &'static [Check],
    /// Checks that may find it or not.
    pub(super) by_chance: &'static [Check],
}

const MEMORY: &[Check] = &[Pattern, Zero, Mended];

const fn case(fault: Fault, method: &'static str, reason: Reason, found_by: &'static [Check]) -> Case {
    let (reason, reason_on_fuse) = (Some(reason), None);
    Case { fault, method, reason, reason_on_fuse, found_by, also_on_fuse: &[], by_chance: &[] }
}

const fn unreachable(case: &Case) -> Case {
    Case { also_on_fuse: MEMORY, ..*case }
}

pub(super) const CASES: &[Case] = &[
    Case {
        // There the killed worker stays, and keeps its lock.
        reason_on_fuse: Some(Reason::WorkerStuck),
        ..case(Fault::HangReset, "flr", Reason::ResetTimeout, &[ResetReturns])
    },
    unreachable(&case(
        Fault::HangReset,
        "config_flr",
        Reason::ResetFailed,
        &[ResetSays(Code::NotReady), Answers],
    )),
    unreachable(&case(Fault::Dead, "flr", Reason::FellOffBus, &[Answers])),
    unreachable(&case(Fault::DieAtReset, "flr", Reason::FellOffBus, &[Answers])),
    unreachable(&case(
        Fault::DieAtReset,
        "config_flr",
        Reason::ResetFailed,
        &[ResetSays(Code::NotReady), Answers],
    )),
    unreachable(&case(Fault::BarsLost, "flr", Reason::ConfigLost, &[Bars])),
    case(Fault::DropWrites, "flr", Reason::ScrubVerify, &[Pattern, Zero]),
    // Its third session, which mends the planted words, is lost as the first one is.
    case(Fault::SkipFill, "flr", Reason::ScrubVerify, &[Pattern, Mended]),
    Case {
        reason_on_fuse: Some(Reason::WorkerStuck),
        ..case(Fault::SlowReset, "flr", Reason::ResetTimeout, &[ResetReturns])
    },
    unreachable(&case(
        Fault::SlowReset,
        "config_flr",
        Reason::ResetFailed,
        &[ResetSays(Code::NotReady), Bars],
    )),
    unreachable(&case(
        Fault::RetryStatus,
        "config_flr",
        Reason::ResetFailed,
        &[ResetSays(Code::NotReady), Bars],
    )),
    unreachable(&case(
        Fault::LoseRestore,
        "config_flr",
        Reason::ConfigLost,
        &[ResetSays(Code::ConfigLost), Bars],
    )),
    case(Fault::NoReset, "config_flr", Reason::ResetIneffective, &[ResetSays(Code::Ineffective)]),
    case(Fault::KeepPending, "flr", Reason::ResetIneffective, &[Transactions]),
    case(Fault::KeepPending, "config_flr", Reason::ResetFailed, &[ResetSays(Code::Pending), Transactions]),
    case(Fault::Busy, "flr", Reason::ResetFailed, &[ResetSays(Code::Io)]),
    case(Fault::Alias, "flr", Reason::ScrubVerify, &[Pattern, Zero]),
    case(Fault::SkipChunk, "flr", Reason::ScrubVerify, &[Pattern, Zero]),
    Case {
        // The pattern has a one there half of the time.
        by_chance: &[Pattern],
        ..case(Fault::StuckBit, "flr", Reason::ScrubVerify, &[Zero])
    },
    case(Fault::NarrowLink, "flr", Reason::LinkDegraded, &[Link]),
    case(Fault::NarrowLink, "config_flr", Reason::LinkDegraded, &[Link]),
    case(Fault::LogError, "flr", Reason::AerUncorrectable, &[Uncorrectable]),
    case(Fault::LogError, "config_flr", Reason::AerUncorrectable, &[Uncorrectable]),
    case(Fault::CountError, "flr", Reason::AerUncorrectable, &[Counters]),
];
