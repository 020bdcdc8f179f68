use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Mode, PciAddress};

/// A step of a worker; each has a deadline of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepName {
    /// Lock the device and read who it is.
    Inspect,
    /// Judge its config space and registers.
    Probe,
    /// Look for processes that have it open.
    Holders,
    /// Reset it.
    Reset,
    /// Within a reset of our own: until it answers again.
    Ready,
    /// Within a reset of our own: write back what the reset took.
    Restore,
    /// Overwrite and read back its memory.
    Scrub,
}

impl StepName {
    /// All, in the order of a proof.
    pub const ALL: [Self; 7] =
        [Self::Inspect, Self::Probe, Self::Holders, Self::Reset, Self::Ready, Self::Restore, Self::Scrub];

    /// The name in policies, receipts and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Probe => "probe",
            Self::Holders => "holders",
            Self::Reset => "reset",
            Self::Ready => "ready",
            Self::Restore => "restore",
            Self::Scrub => "scrub",
        }
    }

    /// The deadline where no policy says otherwise; a scrub's grows with the memory.
    #[must_use]
    pub fn default_deadline(self) -> Duration {
        Duration::from_secs(match self {
            Self::Inspect | Self::Probe | Self::Holders => 2,
            Self::Reset => 10,
            Self::Ready | Self::Scrub => 5,
            Self::Restore => 1,
        })
    }
}

/// The word of a policy for a function level reset that we do ourselves through config space; all other words are
/// the kernel's.
pub const CONFIG_FLR: &str = "config_flr";

/// What a node's policy file says; without one no device is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether devices are touched at all.
    pub mode: NodeMode,
    /// Which devices are ours and how each is cleaned; the first rule that matches a device counts.
    pub devices: Vec<DeviceRule>,
    /// What happens when a claim lets go of a device, and to devices in quarantine.
    pub release: ReleasePolicy,
}

/// Whether devices are touched at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeMode {
    /// They are proved, granted and cleaned.
    #[default]
    Enforce,
    /// They are looked at, and it is told what would be done: for a first start on a fleet at work. Nothing is granted,
    /// reset, overwritten or published.
    Observe,
}

/// One rule of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    /// Which devices it is about; every field given must agree.
    pub matches: MatchRule,
    /// How its memory is overwritten; `None`: we have no way, so the device is never granted.
    pub scrub: Option<ScrubRule>,
    /// The kernel's reset method that is pinned for a reset, one word of `reset_method`; or [`CONFIG_FLR`].
    pub reset_method: String,
    /// Deadlines that differ from the defaults.
    pub deadlines: Deadlines,
    /// How the memory must be verified at least, whatever a claim asks.
    pub minimum_mode: Mode,
}

/// Which devices a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchRule {
    /// PCI vendor id.
    pub vendor: Option<u16>,
    /// PCI device id.
    pub device: Option<u16>,
    /// PCI class, 24 bits.
    pub class: Option<u32>,
    /// The function's address.
    pub address: Option<PciAddress>,
}

/// How memory is overwritten and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubRule {
    /// These BARs are the whole memory of the device.
    Bars(Vec<u8>),
    /// A vendor's library does it.
    Library(String),
}

/// Step deadlines by step.
pub type Deadlines = BTreeMap<StepName, Duration>;

/// Cleaning after a release and what ends a quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasePolicy {
    /// How long an unprepare waits for its cleaning before it answers.
    pub wait: Duration,
    /// How long a prepare or a cleaning waits for processes of a pod that has just ended.
    pub patience: Duration,
    /// Time between two attempts to bring a quarantined device back by a verified re-sanitization.
    pub retry: Duration,
    /// How many such attempts there are; 0 leaves every quarantine to an operator.
    pub attempts: u32,
    /// Devices without a proof on this boot are proved within this time after the start, spread over it.
    pub first_proof_within: Duration,
}

impl Default for ReleasePolicy {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(20),
            patience: Duration::from_secs(15),
            retry: Duration::from_secs(300),
            attempts: 3,
            first_proof_within: Duration::from_secs(30),
        }
    }
}

/// What a policy is held against: cached attributes, right even when the device is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI class, 24 bits.
    pub class: u32,
    /// The display that the firmware started with.
    pub boot_display: bool,
}

/// What a policy says of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Ours, by this rule.
    Ours(usize),
    /// This rule matches, and the node lives on such functions: only a rule that names it exactly makes it ours.
    Protected(usize, &'static str),
    /// No rule matches; of each rule the first field that does not.
    Foreign(Vec<&'static str>),
}

impl Policy {
    /// Whether devices are only looked at.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.mode == NodeMode::Observe
    }

    /// Whether a function is ours. The first rule that matches counts.
    #[must_use]
    pub fn decide(&self, address: PciAddress, ids: &Ids) -> Decision {
        let mut mismatches = Vec::new();
        for (index, rule) in self.devices.iter().enumerate() {
            match rule.matches.mismatch(address, ids) {
                Some(field) => mismatches.push(field),
                None => {
                    return match ids.lifeline().filter(|_| !rule.matches.is_exact()) {
                        Some(what) => Decision::Protected(index, what),
                        None => Decision::Ours(index),
                    };
                }
            }
        }
        Decision::Foreign(mismatches)
    }

    /// Whether a function at this address could be ours, whoever it is.
    #[must_use]
    pub fn may_mean(&self, address: PciAddress) -> bool {
        self.devices.iter().any(|rule| rule.matches.address.is_none_or(|this| this == address))
    }
}

impl Ids {
    /// What the node loses with this function, if it lives on it.
    fn lifeline(&self) -> Option<&'static str> {
        of_class(self.class).or_else(|| self.boot_display.then_some("the boot display"))
    }
}

/// What a node may live on, by its class.
fn of_class(class: u32) -> Option<&'static str> {
    match class >> 16 {
        0x01 => Some("storage"),
        0x02 => Some("network"),
        0x06 => Some("a bridge"),
        _ => None,
    }
}

impl MatchRule {
    /// Whether it matches every device that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        fn wider<T: PartialEq>(this: Option<&T>, other: Option<&T>) -> bool {
            this.is_none() || this == other
        }
        wider(self.vendor.as_ref(), other.vendor.as_ref())
            && wider(self.device.as_ref(), other.device.as_ref())
            && wider(self.class.as_ref(), other.class.as_ref())
            && wider(self.address.as_ref(), other.address.as_ref())
    }

    /// The class by which it matches what a node may live on, though it names neither one function nor one model; with
    /// what that is.
    #[must_use]
    pub fn lifeline(&self) -> Option<(u32, &'static str)> {
        let class = self.class.filter(|_| !self.is_exact())?;
        Some((class, of_class(class)?))
    }

    /// The first field that does not agree.
    fn mismatch(&self, address: PciAddress, ids: &Ids) -> Option<&'static str> {
        [
            ("vendor", self.vendor.is_none_or(|vendor| vendor == ids.vendor)),
            ("device", self.device.is_none_or(|device| device == ids.device)),
            ("class", self.class.is_none_or(|class| class == ids.class)),
            ("address", self.address.is_none_or(|this| this == address)),
        ]
        .into_iter()
        .find_map(|(field, agrees)| (!agrees).then_some(field))
    }

    /// Whether it names one function, or one model.
    fn is_exact(&self) -> bool {
        self.address.is_some() || self.vendor.is_some() && self.device.is_some()
    }
}

impl DeviceRule {
    /// The deadline of a step, before what its size adds.
    #[must_use]
    pub fn deadline(&self, step: StepName) -> Duration {
        self.deadlines.get(&step).copied().unwrap_or_else(|| step.default_deadline())
    }
}
