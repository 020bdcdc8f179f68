use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PciAddress, Token};

/// How the memory was shown to be clean, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The device itself compared every word.
    DeviceVerified,
    /// Every word was read back over the bus and compared by us.
    CopyVerified,
    /// A sample of the words was read back over the bus and compared by us.
    CopySampled,
    /// The vendor's software says that it is clean.
    VendorReported,
}

impl Mode {
    /// All, strongest first.
    pub const ALL: [Self; 4] =
        [Self::DeviceVerified, Self::CopyVerified, Self::CopySampled, Self::VendorReported];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeviceVerified => "device_verified",
            Self::CopyVerified => "copy_verified",
            Self::CopySampled => "copy_sampled",
            Self::VendorReported => "vendor_reported",
        }
    }
}

/// One step of a proof and what it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// Which step.
    pub step: String,
    /// Milliseconds from its order to its answer.
    pub ms: u64,
}

/// What was proved about one device under one lease; stands in the claim's record and in `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Where the device was.
    pub address: PciAddress,
    /// The lease under which it was proved.
    pub token: Token,
    /// When the proof was complete.
    pub at: Timestamp,
    /// The reset method that ran.
    pub reset: String,
    /// How the memory was verified.
    pub mode: Mode,
    /// Size of the memory in bytes.
    pub bytes_total: u64,
    /// Bytes written over both passes.
    pub bytes_written: u64,
    /// Bytes read back and compared over both passes.
    pub bytes_verified: u64,
    /// What this proof says nothing about.
    pub not_covered: Vec<String>,
    /// What a person may want to know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why the device counts as degraded though it is handed out.
    #[serde(default)]
    pub degraded: Option<String>,
    /// The steps in order.
    pub steps: Vec<StepTime>,
    /// SHA-256 over all other fields, in hexadecimal: a short name for exactly this receipt.
    #[serde(default)]
    pub digest: String,
}

impl Receipt {
    /// The receipt with its digest filled in.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.digest.clear();
        let text = serde_json::to_vec(&self).unwrap_or_default();
        self.digest = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        self
    }
}
