//! What is to be proved.

use std::time::Duration;

use crate::types::{DeviceRule, Identity, Mode, Offer, PciAddress, StepName};
use crate::worker::Expected;

/// Reading and comparing a byte over a bus that does 16 MB/s, the slowest that we know of; a scrub moves each four
/// times.
const SLOWEST_BYTES_PER_SECOND: u64 = 16_000_000;

/// A device as a proof has to know it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Who it is.
    pub identity: Identity,
    /// Where it is.
    pub address: PciAddress,
    /// Who must answer there.
    pub expected: Expected,
    /// What the policy says of it.
    pub rule: DeviceRule,
    /// BARs that are its memory.
    pub bars: Vec<u8>,
    /// Bytes of memory in those BARs.
    pub memory: u64,
}

impl Subject {
    /// What its scrub can show: BARs are read back over the bus, and nothing of them reaches memory on the chip.
    #[must_use]
    pub fn offer(&self) -> Offer {
        Offer { mode: Mode::CopyVerified, reset: true, onchip: false }
    }

    /// How long a step may take on this device; a scrub's time grows with the memory, unless the policy fixes it.
    #[must_use]
    pub fn deadline(&self, step: StepName) -> Duration {
        let fixed = self.rule.deadlines.contains_key(&step);
        let bytes = if step == StepName::Scrub && !fixed { self.memory.saturating_mul(4) } else { 0 };
        self.rule.deadline(step) + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
    }
}
