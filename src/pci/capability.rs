//! Where a function's capabilities are in its configuration space (`reference/hardware.md` 1.2).

use super::config_space::ConfigSpace;

/// Capability ids.
pub(super) const POWER: u8 = 0x01;
pub(super) const VITAL_DATA: u8 = 0x03;
pub(super) const MSI: u8 = 0x05;
pub(super) const EXPRESS: u8 = 0x10;
pub(super) const MSI_X: u8 = 0x11;
pub(super) const ADVANCED: u8 = 0x13;

/// Extended capability ids.
pub(super) const AER: u16 = 0x0001;
pub(super) const SERIAL: u16 = 0x0003;
pub(super) const POWER_BUDGET: u16 = 0x0004;
pub(super) const ACS: u16 = 0x000d;
pub(super) const ATS: u16 = 0x000f;
pub(super) const VIRTUAL: u16 = 0x0010;
pub(super) const PAGE_REQUEST: u16 = 0x0013;
pub(super) const RESIZABLE: u16 = 0x0015;
pub(super) const TPH: u16 = 0x0017;
pub(super) const LTR: u16 = 0x0018;
pub(super) const SECONDARY: u16 = 0x0019;
pub(super) const PASID: u16 = 0x001b;
pub(super) const L1_SUBSTATES: u16 = 0x001e;
pub(super) const PTM: u16 = 0x001f;
pub(super) const DESIGNATED: u16 = 0x0023;
pub(super) const VIRTUAL_RESIZABLE: u16 = 0x0024;
pub(super) const PHYSICAL_16: u16 = 0x0026;
pub(super) const PHYSICAL_32: u16 = 0x002a;
pub(super) const MAILBOX: u16 = 0x002e;
pub(super) const DEVICE_3: u16 = 0x002f;

impl ConfigSpace {
    /// Where a capability is.
    pub(super) fn capability(&self, id: u8) -> Option<usize> {
        let mut at = usize::from(self.byte(0x34) & 0xfc);
        // Broken devices have loops; there is room for 48 capabilities.
        for _ in 0..48 {
            let found = self.byte(at);
            if at < 0x40 || found == 0xff {
                return None;
            }
            if found == id {
                return Some(at);
            }
            at = usize::from(self.byte(at + 1) & 0xfc);
        }
        None
    }

    /// Where the first extended capability of this id is.
    pub(super) fn extended_capability(&self, id: u16) -> Option<usize> {
        self.extended_capabilities().find(|(found, _)| *found == id).map(|(_, at)| at)
    }

    /// All extended capabilities, with where they are.
    pub(super) fn extended_capabilities(&self) -> impl Iterator<Item = (u16, usize)> {
        let mut at = 0x100;
        // As above: room for 480.
        (0..480).map_while(move |_| {
            let header = self.dword(at);
            if at < 0x100 || header == 0 || header == u32::MAX {
                return None;
            }
            let found = (self.word(at), at);
            at = (header >> 20 & 0xffc) as usize;
            Some(found)
        })
    }
}
