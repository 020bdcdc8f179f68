use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a device is in quarantine, worst first: the order is the severity, and a worse reason is never
/// overwritten by a milder one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Config space reads all ones.
    FellOffBus,
    /// A worker still holds the device's lock past its kill.
    WorkerStuck,
    /// The reset did not return within its deadline.
    ResetTimeout,
    /// The kernel refused the reset, or the device has no way to be reset.
    ResetFailed,
    /// Registers that must hold after a reset do not: BARs or command lost.
    ConfigLost,
    /// The reset returned and left pending what it must have ended.
    ResetIneffective,
    /// Memory read back wrong, or the verification cannot be shown to have run.
    ScrubVerify,
    /// Memory could not be written or read.
    ScrubFailed,
    /// The scrub did not end within its deadline.
    ScrubTimeout,
    /// A fatal error was counted since the last look.
    AerFatal,
    /// An uncorrectable error stands in the device's status, or was counted since the last look.
    AerUncorrectable,
    /// The link is gone.
    LinkLost,
    /// A step that only reads did not end within its deadline.
    ProbeTimeout,
    /// What the probe must read cannot be read or makes no sense.
    ProbeFailed,
    /// The link is narrower than it can be, or than it was.
    LinkDegraded,
    /// Nobody can say who used it last: a record is damaged.
    UnknownOwner,
    /// Another card answers at the address of the one that was leased.
    IdentityChanged,
    /// A person asked for it.
    Operator,
}

/// What ends a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Only power helps.
    NeedsPowerCycle,
    /// Only a reboot of the node helps.
    NeedsReboot,
    /// A verified re-sanitization ends it.
    NeedsReset,
    /// It may pass by itself, or a person ends it.
    Retry,
}

impl Reason {
    /// What ends a quarantine for this reason.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::FellOffBus => Class::NeedsPowerCycle,
            Self::WorkerStuck => Class::NeedsReboot,
            Self::ResetTimeout
            | Self::ResetFailed
            | Self::ConfigLost
            | Self::ResetIneffective
            | Self::ScrubVerify
            | Self::ScrubFailed
            | Self::ScrubTimeout
            | Self::AerFatal
            | Self::AerUncorrectable
            | Self::LinkLost
            | Self::ProbeTimeout
            | Self::ProbeFailed
            | Self::UnknownOwner
            | Self::IdentityChanged => Class::NeedsReset,
            Self::LinkDegraded | Self::Operator => Class::Retry,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FellOffBus => "fell_off_bus",
            Self::WorkerStuck => "worker_stuck",
            Self::ResetTimeout => "reset_timeout",
            Self::ResetFailed => "reset_failed",
            Self::ConfigLost => "config_lost",
            Self::ResetIneffective => "reset_ineffective",
            Self::ScrubVerify => "scrub_verify",
            Self::ScrubFailed => "scrub_failed",
            Self::ScrubTimeout => "scrub_timeout",
            Self::AerFatal => "aer_fatal",
            Self::AerUncorrectable => "aer_uncorrectable",
            Self::LinkLost => "link_lost",
            Self::LinkDegraded => "link_degraded",
            Self::ProbeTimeout => "probe_timeout",
            Self::ProbeFailed => "probe_failed",
            Self::UnknownOwner => "unknown_owner",
            Self::IdentityChanged => "identity_changed",
            Self::Operator => "operator",
        }
    }
}

impl Class {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsPowerCycle => "needs_power_cycle",
            Self::NeedsReboot => "needs_reboot",
            Self::NeedsReset => "needs_reset",
            Self::Retry => "retry",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is wrong with the node or our deployment on it: it refuses work and never blames a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A record could not be written.
    Store,
    /// sysfs is mounted read-only.
    ReadOnlySysfs,
    /// We lack a permission: `CAP_SYS_ADMIN`, `CAP_SYS_PTRACE`, or the kernel is locked down.
    Permission,
    /// A worker process could not be started or spoke out of turn.
    Worker,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::ReadOnlySysfs => "read_only_sysfs",
            Self::Permission => "permission",
            Self::Worker => "worker",
        })
    }
}
