use std::fmt;

use serde::{Deserialize, Serialize};

use super::PciAddress;

/// Between a virtual function's parent and its number.
const VIRTUAL: &str = "-vf";

/// Who a device is, over slots and reboots: its serial number where it has one, a virtual function
/// by its parent and its number there, else its address.
///
/// Records are keyed by it, so that a quarantine follows the card and not the slot. The text is safe as a file
/// name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    /// A function with a PCIe Device Serial Number (PCIe extended capability 0003h). The function's ids are part
    /// of the name: a card with several functions has one serial for all.
    #[must_use]
    pub fn from_serial(vendor: u16, device: u16, function: u8, serial: u64) -> Self {
        Self(format!("serial-{vendor:04x}-{device:04x}-{function:x}-{serial:016x}"))
    }

    /// A function that has only its place.
    #[must_use]
    pub fn from_address(address: PciAddress) -> Self {
        Self(address.device_name())
    }

    /// A virtual function: it has no serial number of its own, and its address changes with the slot of its parent
    /// and with how many of them there are.
    #[must_use]
    pub fn of_virtual(parent: &Self, number: u16) -> Self {
        Self(format!("{parent}{VIRTUAL}{number}"))
    }

    /// The physical function: itself, or a virtual function's parent.
    #[must_use]
    pub fn physical(&self) -> &str {
        self.0.rsplit_once(VIRTUAL).map_or(&self.0, |(parent, _)| parent)
    }

    /// The text, also the name of the device's records.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
