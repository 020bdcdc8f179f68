//! What stands on the disk. Fields are only added; those that a newer version added are kept.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::types::{
    AllocatedDevice, Allocation, Baseline, ClaimRef, Identity, PciAddress, Reason, Receipt, Token,
};

/// A claim being prepared or granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The claim.
    pub claim: ClaimRef,
    /// The allocation that this grant belongs to.
    pub allocation: Allocation,
    /// How far it is.
    pub phase: RecordPhase,
    /// The boot on which it was written.
    pub boot_id: String,
    /// Its devices, in the order of the allocation.
    pub devices: Vec<ClaimDevice>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPhase {
    /// Devices are leased and may be in the middle of anything.
    Preparing,
    /// Devices are proved and a pod may use them.
    Granted,
}

/// One device of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimDevice {
    /// Its place in the allocation.
    pub allocated: AllocatedDevice,
    /// Who it is.
    pub identity: Identity,
    /// Where it was.
    pub address: PciAddress,
    /// The lease.
    pub token: Token,
    /// What was proved under that lease.
    pub receipt: Option<Receipt>,
    /// Device nodes that the container gets.
    #[serde(default)]
    pub nodes: Vec<PathBuf>,
}

impl Raised {
    pub(super) fn join(self, other: Self) -> Self {
        if self == Self::Prepare { self } else { other }
    }
}

impl ClaimRecord {
    /// Whether a pod may have it, on whatever boot.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.phase == RecordPhase::Granted
    }

    /// Whether a pod may have it on this boot.
    #[must_use]
    pub fn is_granted_on(&self, boot_id: &str) -> bool {
        self.is_granted() && self.boot_id == boot_id
    }

    /// A short name for exactly this grant: a digest of its devices and tokens.
    #[must_use]
    pub fn grant_id(&self) -> String {
        let mut digest = Sha256::new();
        for device in &self.devices {
            digest.update(format!("{} {}\n", device.identity, device.token));
        }
        digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What is known of a device beside its holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DeviceRecord {
    pub(super) identity: Identity,
    pub(super) address: PciAddress,
    /// The last token that was issued when this was written.
    pub(super) token: Token,
    pub(super) proof: Option<LastProof>,
    #[serde(flatten)]
    pub(super) kept: Kept,
}

/// What stands in a device's record beside its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The last quarantine that a person ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lifted: Option<Lifted>,
    /// Another card answers where it was: it is not on the bus any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) gone: bool,
    /// What the last proof counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) baseline: Option<Baseline>,
    /// Why the last proof called it degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) degraded: Option<String>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

/// The proof that a free device is clean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastProof {
    /// The lease under which it was made.
    pub token: Token,
    /// When.
    pub at: Timestamp,
    /// On which boot; another one makes it worthless.
    pub boot_id: String,
    /// Digest of its receipt.
    pub digest: String,
}

/// A device that is not handed out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Who it is.
    pub identity: Identity,
    /// Where it was.
    pub address: PciAddress,
    /// Why.
    pub reason: Reason,
    /// What was seen, for a person.
    pub evidence: String,
    /// The lease under which it was seen.
    pub token: Option<Token>,
    /// Since when.
    pub since: Timestamp,
    /// Re-sanitizations tried so far.
    #[serde(default)]
    pub attempts: u32,
    /// Where it was raised.
    #[serde(default)]
    pub raised: Raised,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Where a quarantine was raised, which decides what happens to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Raised {
    /// In a prepare, or met by one: no container of that grant ran, and its pod would try here for ever.
    Prepare,
    /// Anywhere else; a pod may be running on the device.
    #[default]
    #[serde(other)]
    Elsewhere,
}

/// A quarantine that a person ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lifted {
    pub(super) quarantine: Quarantine,
    pub(super) why: String,
    pub(super) at: Timestamp,
}

/// The store's own record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OwnRecord {
    pub(super) term: u64,
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}
