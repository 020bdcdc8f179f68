//! Names of vendors and products, for people; nothing is decided by them.
//!
//! The `pci-ids` crate is pinned, since each version carries its own list, and its build script would replace that
//! list by whatever a web server answers: the test below holds the one that was reviewed.

use pci_ids::{Device, Vendor};

/// The product's name.
#[must_use]
pub fn product(vendor: u16, device: u16) -> Option<&'static str> {
    Device::from_vid_pid(vendor, device).map(Device::name)
}

/// The vendor's name.
#[must_use]
pub fn vendor(vendor: u16) -> Option<&'static str> {
    pci_ids::Vendors::iter().find(|found| found.id() == vendor).map(Vendor::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither the list of an older version (no H200) nor one that a build script fetched and cut short.
    #[test]
    fn the_pinned_list_is_the_one_that_is_built_in() {
        assert_eq!(product(0x10de, 0x2335), Some("GH100 [H200 SXM 141GB]"));
        assert_eq!(vendor(0x10de), Some("NVIDIA Corporation"));
        assert_eq!(product(0x1234, 0xc1ea), None, "the twins' id is nobody's");
    }
}
