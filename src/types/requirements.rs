use serde::{Deserialize, Serialize};

use super::Mode;

/// The least that a proof must show. Joined from policy, class and claim, field by field the stronger: what a claim
/// asks can strengthen the node's policy, never weaken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// How the memory must be verified at least.
    pub minimum_mode: Mode,
    /// Whether a reset must have run.
    pub require_reset: bool,
    /// Whether memory on the chip (caches, registers, local memories) must be cleaned too.
    pub onchip: Onchip,
}

/// What is asked of memory on the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Onchip {
    /// Cleaned, or no grant.
    Required,
    /// Cleaned where there is a way.
    #[default]
    IfPossible,
}

/// What the scrub of a device can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// How it verifies memory.
    pub mode: Mode,
    /// Whether it resets.
    pub reset: bool,
    /// Whether it cleans memory on the chip.
    pub onchip: bool,
}

impl Default for Requirements {
    fn default() -> Self {
        Self { minimum_mode: Mode::VendorReported, require_reset: false, onchip: Onchip::IfPossible }
    }
}

impl Requirements {
    /// Field by field the stronger.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            // Both orders have the strongest first.
            minimum_mode: self.minimum_mode.min(other.minimum_mode),
            require_reset: self.require_reset || other.require_reset,
            onchip: self.onchip.min(other.onchip),
        }
    }

    /// What of this the offer does not reach.
    #[must_use]
    pub fn gap(self, offer: Offer) -> Option<String> {
        if offer.mode > self.minimum_mode {
            let (asked, given) = (self.minimum_mode.as_str(), offer.mode.as_str());
            return Some(format!("minimumMode is {asked}, the scrub of this device gives {given}"));
        }
        if self.require_reset && !offer.reset {
            return Some("requireReset is true, this device is not reset".to_owned());
        }
        (self.onchip == Onchip::Required && !offer.onchip).then(|| {
            "onchip is required, the scrub of this device does not reach memory on the chip".to_owned()
        })
    }
}
