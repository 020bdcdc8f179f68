//! What parent and worker say to each other: one JSON line each way a step.
//!
//! Each command of the parent travels in a [`Line`].
//!
//! ```text
//!   parent  {"lock":{…}}      "probe"             {"scrub":[0]}                         EOF
//!   worker        {"locked":[]}     {"probed":[…]}        {"progress":[…]} {"scrubbed":{…}}   (ends)
//! ```
//!
//! Between `{"marked":ms}` and `"unmarked"` the device is not as it was found, and the worker is about to mend that:
//! the parent does not kill it before those milliseconds have passed.
//!
//! The parent gives the next step only after it has judged the last: a device that reads all ones is never reset,
//! and work that nobody wants any more ends between two steps.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::types::{HolderProcess, Ids, Inspection, PciAddress, Place, Probe, Reset, Roots, Scrub, Token};

/// One line of the parent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line<C> {
    /// Whole seconds after which the worker ends itself: a worker whose parent was killed, and who hangs, must not
    /// keep the device's lock for ever. The parent's own deadline comes first.
    pub seconds: u32,
    /// What is wanted.
    pub command: C,
}

/// What the parent wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Lists all functions by their cached attributes; touches none.
    Scan(Roots),
    /// Says where these functions are, by links and cached attributes; touches none.
    Locate(Roots, Vec<PciAddress>),
    /// Takes the device's lock and everything that later steps need.
    Lock(Order),
    /// Reads who answers at the address.
    Inspect,
    /// Reads what a probe judges.
    Probe,
    /// Looks for processes that have the device open.
    Holders,
    /// Resets it.
    Reset(ResetOrder),
    /// Overwrites and reads back these BARs.
    Scrub(Vec<u8>),
}

/// Which device, under which lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where it is.
    pub address: PciAddress,
    /// The lease; it stands in the lock file for people.
    pub token: Option<Token>,
    /// Who it should be.
    pub expected: Option<Expected>,
    /// The kernel's views.
    pub roots: Roots,
    /// Where locks are.
    pub run: PathBuf,
}

/// How to reset it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResetOrder {
    /// A word of the kernel's `reset_method`, or [`crate::types::CONFIG_FLR`].
    pub method: String,
    /// Milliseconds within which it must answer afterwards.
    pub ready_ms: u64,
    /// Milliseconds for writing back what a reset of our own took.
    pub restore_ms: u64,
}

/// Who should answer at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCIe Device Serial Number.
    pub serial: Option<u64>,
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)?;
        match self.serial {
            Some(serial) => write!(f, " serial {serial:016x}"),
            None => write!(f, " without a serial"),
        }
    }
}

/// What the worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Answer to [`Command::Scan`].
    Scanned(Vec<Seen>),
    /// Answer to [`Command::Locate`], in its order; or why one cannot be told.
    Located(Vec<Result<Place, String>>),
    /// Answer to [`Command::Lock`], with what an earlier worker had left half done and this one has repaired.
    Locked(Vec<String>),
    /// Answer to [`Command::Inspect`].
    Inspected(Inspection),
    /// Answer to [`Command::Probe`], with the device nodes as they are now.
    Probed(Probe, Vec<PathBuf>),
    /// Answer to [`Command::Holders`].
    Held(Vec<HolderProcess>),
    /// Answer to [`Command::Reset`].
    WasReset(Reset),
    /// Answer to [`Command::Scrub`].
    Scrubbed(Scrub),
    /// A long step goes on: bytes done of bytes in all.
    Progress(u64, u64),
    /// From here on a kill would leave the device changed; at most this many milliseconds.
    Marked(u64),
    /// The device is whole again, or given up.
    Unmarked,
    /// The step could not be done.
    Failed(Failure),
}

/// A function as its cached attributes show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Where it is.
    pub address: PciAddress,
    /// Its ids, class and memory; or why they cannot be read.
    pub ids: Result<Ids, String>,
}

/// Why a step could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub code: Code,
    /// The system's error number, where there is one.
    pub errno: Option<i32>,
    /// For people.
    pub text: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Somebody else has the device's lock.
    Locked,
    /// The kernel no longer has the function.
    Gone,
    /// Config space reads all ones.
    Lost,
    /// sysfs is read-only.
    ReadOnly,
    /// A permission is missing.
    Permission,
    /// The kernel has no such reset method for it, or would not be pinned to it.
    NoMethod,
    /// A driver is bound that is not told of a reset.
    Driver,
    /// It is of a kind, or in a state, in which this cannot be done to it.
    Unsupported,
    /// Transactions are pending and stay so.
    Pending,
    /// It did not answer after its reset.
    NotReady,
    /// The reset returned and did nothing.
    Ineffective,
    /// Registers do not hold what they held before a reset.
    ConfigLost,
    /// The run folder cannot be written.
    Journal,
    /// A BAR that the policy names is not memory that we can write.
    NoMemory,
    /// The system failed otherwise.
    Io,
    /// The worker did not understand.
    Protocol,
}
