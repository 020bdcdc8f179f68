use std::fmt;

use serde::{Deserialize, Serialize};

use super::Requirements;

/// A claim's UID; its text is safe as a file name and as the beginning of a CDI device name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ClaimUid(String);

/// A text that cannot be a claim's UID.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no claim UID: expected 1 to 63 letters, digits and dashes, a dash not first, as in a UUID")]
pub struct UidError(String);

impl ClaimUid {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClaimUid {
    type Error = UidError;

    fn try_from(text: String) -> Result<Self, UidError> {
        let sane = text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if sane { Ok(Self(text)) } else { Err(UidError(text.chars().take(80).collect())) }
    }
}

impl<'de> Deserialize<'de> for ClaimUid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A claim as the kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID that the name had when the pod was set up.
    pub uid: ClaimUid,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// One device of ours in a claim's allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedDevice {
    /// The request that it satisfies, with its subrequest where there is one: `acc/big`.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name in the pool.
    pub device: String,
}

impl AllocatedDevice {
    /// The request as the kubelet matches it: `acc` for `acc/big`.
    #[must_use]
    pub fn base_request(&self) -> &str {
        self.request.split('/').next().unwrap_or(&self.request)
    }
}

/// What makes a grant *this* grant: a claim keeps its UID through deallocation and allocation, so the time and
/// the results belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// `status.allocation.allocationTimestamp` where the API server sets it (1.36 and later).
    pub timestamp: Option<String>,
    /// Our driver's results, in the order of the claim.
    pub devices: Vec<AllocatedDevice>,
}

impl Allocation {
    /// Whether both are, as far as can be told, one allocation. A server that knows no timestamp shows one that was made
    /// with it without: while a control plane is upgraded, servers of two versions answer in turn, and a pod must not
    /// lose its devices over that.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let untold = self.timestamp.is_none() || other.timestamp.is_none();
        self.devices == other.devices && (untold || self.timestamp == other.timestamp)
    }
}

/// A claim, read and checked: it is ours to prepare on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// How the kubelet names it.
    pub reference: ClaimRef,
    /// What it was allocated.
    pub allocation: Allocation,
    /// What class and claim ask for each device, in the order of the allocation.
    pub requirements: Vec<Requirements>,
}
