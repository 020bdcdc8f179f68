//! What a worker says it saw. Facts carry no judgement: `proof::verdict` makes that.

use serde::{Deserialize, Serialize};

use super::{LinkView, Parent, Place};

/// One thing that was looked at.
///
/// `Unreadable` (it should be there and cannot be read) is never healthy; `Absent` (the device has none, its
/// capability list was read whole) is named in the receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// As it must be.
    Good,
    /// Not as it must be, with what was seen.
    Bad(String),
    /// It should be there and cannot be read, with why.
    Unreadable(String),
    /// The device has none.
    Absent,
}

/// Who answers at an address, read from its config space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCIe Device Serial Number (extended capability 0003h).
    pub serial: Option<u64>,
    /// Words of `reset_method`.
    pub reset_methods: Vec<String>,
    /// Memory BARs.
    pub bars: Vec<BarView>,
    /// Why we would not reset it through its config space ourselves.
    pub no_config_flr: Option<String>,
    /// The physical function that it is a part of.
    pub parent: Option<Parent>,
    /// How many virtual functions it has enabled.
    pub virtual_functions: u32,
    /// Where it is.
    pub place: Place,
    /// Its link.
    pub link: LinkView,
}

/// A memory BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarView {
    /// 0 to 5.
    pub index: u8,
    /// Bytes.
    pub size: u64,
    /// Memory, not registers.
    pub prefetchable: bool,
}

/// What a probe looked at (`reference/hardware.md` 1.12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Config space answers, whole, with a sane header.
    pub present: Fact,
    /// Ids and serial are those of the device that was leased.
    pub identity: Fact,
    /// Every memory BAR register holds the address that the kernel gave it, and memory decoding is as the bound
    /// driver needs it.
    pub bars: Fact,
    /// No transaction is pending.
    pub transactions: Fact,
    /// The link is as wide as both of its ends can be.
    pub link: Fact,
    /// No uncorrectable error stands in the device's own status, whoever owns AER.
    pub uncorrectable: Fact,
    /// The kernel's error counters can be read.
    pub counters: Fact,
    /// What they say now; judged against an earlier look.
    pub counts: Counts,
    /// What a person may want to know and no rule is about.
    pub notes: Vec<String>,
}

/// Error counters of a device and of the ports that serve it alone, and the width of its link.
///
/// Counters survive a reset and start anew when the kernel finds the device again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Correctable errors.
    pub correctable: u64,
    /// Uncorrectable errors that were not fatal.
    pub nonfatal: u64,
    /// Fatal errors. The kernel does not count a device's own (it takes the link for unusable): its port's are
    /// here too.
    pub fatal: u64,
    /// Lanes in use.
    pub width: Option<u32>,
}

/// An earlier look at a device, which later ones are held against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// The boot: counters start anew with each.
    pub boot_id: String,
    /// When.
    pub at: jiff::Timestamp,
    /// What was counted.
    pub counts: Counts,
}

impl Baseline {
    /// Whether `now` can have grown out of this: the kernel finds a device anew with all counters at zero.
    #[must_use]
    pub fn precedes(&self, now: &Counts) -> bool {
        let then = &self.counts;
        then.correctable <= now.correctable && then.nonfatal <= now.nonfatal && then.fatal <= now.fatal
    }
}

/// A process that has the device open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderProcess {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// Its control group, which names the pod.
    pub cgroup: String,
    /// What it has open.
    pub path: String,
}

/// A reset that returned success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// The method that was pinned.
    pub method: String,
}

/// A scrub that ran to its end, whatever it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Size of the memory in bytes.
    pub size: u64,
    /// Bytes written in both passes.
    pub bytes_written: u64,
    /// How many canaries were planted in each pass, one per chunk.
    pub chunks: u64,
    /// The pass with this run's pattern.
    pub pattern: ScrubPass,
    /// The pass with zeros.
    pub zero: ScrubPass,
    /// Planted words that were not zero after their repair.
    pub canaries_left: u64,
}

/// What one verification visited and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// 64-bit words that were read and compared.
    pub words_visited: u64,
    /// Chunks in which exactly the planted word differed, with exactly the planted value.
    pub canaries_found: u64,
    /// Words that differed and were no canary.
    pub errors: u64,
    /// Byte offset of the first such word; never what stood there.
    pub first_error: Option<u64>,
}

impl Fact {
    /// What is wrong, where something is.
    fn fault(&self) -> Option<&str> {
        match self {
            Self::Good | Self::Absent => None,
            Self::Bad(seen) | Self::Unreadable(seen) => Some(seen),
        }
    }
}

impl Probe {
    /// The first thing that is not as it must be after a reset.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Self { present, identity, bars, transactions, link, uncorrectable, counters, .. } = self;
        let facts = [present, identity, bars, transactions, link, uncorrectable, counters];
        facts.into_iter().find_map(Fact::fault).map(str::to_owned)
    }
}

impl Scrub {
    /// Both scrubs as one. The offset of a first error is the one in its own memory.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let pass = |a: &ScrubPass, b: &ScrubPass| ScrubPass {
            words_visited: a.words_visited + b.words_visited,
            canaries_found: a.canaries_found + b.canaries_found,
            errors: a.errors + b.errors,
            first_error: a.first_error.or(b.first_error),
        };
        Self {
            size: self.size + other.size,
            bytes_written: self.bytes_written + other.bytes_written,
            chunks: self.chunks + other.chunks,
            pattern: pass(&self.pattern, &other.pattern),
            zero: pass(&self.zero, &other.zero),
            canaries_left: self.canaries_left + other.canaries_left,
        }
    }

    /// What is missing until this shows that every word was overwritten and read back, twice, by a verification
    /// that ran.
    #[must_use]
    pub fn gap(&self) -> Option<String> {
        let words = self.size / 8;
        if self.size == 0 || self.chunks == 0 || !self.size.is_multiple_of(8) {
            return Some(format!("no memory was scrubbed: {} bytes in {} chunks", self.size, self.chunks));
        }
        if self.bytes_written < 2 * self.size {
            return Some(format!(
                "{} bytes written, two passes over {} need twice that",
                self.bytes_written, self.size
            ));
        }
        for (name, pass) in [("pattern", &self.pattern), ("zero", &self.zero)] {
            if let Some(offset) = pass.first_error {
                return Some(format!(
                    "{name} pass: {} words read back wrong, the first at offset {offset:#x}",
                    pass.errors
                ));
            }
            if pass.errors != 0 || pass.words_visited != words {
                let (seen, errors) = (pass.words_visited, pass.errors);
                return Some(format!("{name} pass: {seen} of {words} words verified, {errors} errors"));
            }
            if pass.canaries_found != self.chunks {
                let (found, chunks) = (pass.canaries_found, self.chunks);
                return Some(format!(
                    "{name} pass: the verification found {found} of {chunks} planted errors, so it did not run whole"
                ));
            }
        }
        (self.canaries_left != 0).then(|| format!("{} planted words did not become zero", self.canaries_left))
    }
}
