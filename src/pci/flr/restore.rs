//! What a function level reset takes, in the order in which it is written back: what other registers depend on
//! comes first, COMMAND last (`reference/hardware.md` 1.9 B; the kernel's `pci_restore_state`).

use super::NotReset;
use super::registers::{Registers, Width, saved};
use crate::pci::capability as id;
use crate::pci::config_space::{ConfigSpace, Unread};

/// Root complex integrated endpoints have no link registers.
const INTEGRATED: u16 = 9;

/// A register, and which of its bits are written back.
struct Register {
    at: usize,
    width: Width,
    mask: u32,
}

/// Writes back what differs from `before`; how many registers did. Then, if asked, clears the errors that were logged
/// when it was saved. Stops where nothing answers any more: what is written then is lost, or somebody else's.
pub(super) fn write_back(
    registers: &Registers,
    before: &ConfigSpace,
    clear_errors: bool,
) -> Result<usize, NotReset> {
    let mut written = 0;
    for Register { at, width, mask } in order(before) {
        let value = saved(before, at, width) & mask;
        let now = registers.read(at, width)?;
        if now == width.all_ones() && registers.read(0, Width::Four)? == u32::MAX {
            return Err(NotReset::Unread(Unread::Lost));
        }
        if now & mask != value {
            registers.write(at, width, value)?;
            written += 1;
        }
    }
    if let Some(aer) = before.extended_capability(id::AER).filter(|_| clear_errors) {
        // Bits are cleared by writing ones; the status is sticky, so the reset left it.
        for status in [aer + 0x04, aer + 0x10] {
            let logged = saved(before, status, Width::Four);
            if logged != 0 {
                registers.write(status, Width::Four, logged)?;
            }
        }
    }
    Ok(written)
}

fn order(before: &ConfigSpace) -> Vec<Register> {
    let mut order = Order { before, list: Vec::new() };
    order.express();
    order.resizable(id::RESIZABLE);
    order.extended(id::ATS, &[0x06], Width::Two);
    order.extended(id::PASID, &[0x06], Width::Two);
    // How many requests may be open is fixed once they are enabled.
    order.extended(id::PAGE_REQUEST, &[0x0c], Width::Four);
    order.extended(id::PAGE_REQUEST, &[0x04], Width::Two);
    order.extended(id::LTR, &[0x04], Width::Four);
    order.extended(id::ACS, &[0x06], Width::Two);
    order.extended(id::AER, &[0x08, 0x0c, 0x14, 0x18], Width::Four);
    // What newer kernels restore too. Of the link's low power states the enabling register comes second.
    order.extended(id::L1_SUBSTATES, &[0x0c, 0x08], Width::Four);
    order.extended(id::PTM, &[0x08], Width::Four);
    order.extended(id::TPH, &[0x08], Width::Four);
    order.extended(id::DEVICE_3, &[0x08], Width::Four);
    order.virtual_functions();
    order.power();
    for at in (0x10..0x40).step_by(4).rev().chain([0x0c]) {
        order.put(at, Width::Four);
    }
    order.interrupts();
    order.put(super::COMMAND, Width::Two);
    order.list
}

struct Order<'a> {
    before: &'a ConfigSpace,
    list: Vec<Register>,
}

impl Order<'_> {
    fn put(&mut self, at: usize, width: Width) {
        self.list.push(Register { at, width, mask: u32::MAX });
    }

    fn put_but(&mut self, at: usize, width: Width, without: u32) {
        self.list.push(Register { at, width, mask: !without });
    }

    fn extended(&mut self, id: u16, offsets: &[usize], width: Width) {
        if let Some(start) = self.before.extended_capability(id) {
            offsets.iter().for_each(|offset| self.put(start + offset, width));
        }
    }

    /// Device and link control; of a version 1 capability only the first of each, since something else follows it.
    fn express(&mut self) {
        let Some(start) = self.before.capability(id::EXPRESS) else { return };
        let (version, kind) = (self.before.word(start + 2) & 0xf, self.before.word(start + 2) >> 4 & 0xf);
        self.put_but(start + 0x08, Width::Two, super::Way::INITIATE);
        if kind != INTEGRATED {
            self.put(start + 0x10, Width::Two);
        }
        if version >= 2 {
            self.put(start + 0x28, Width::Two);
            if kind != INTEGRATED {
                self.put(start + 0x30, Width::Two);
            }
        }
    }

    /// How large each BAR is: without it a BAR takes another address than it is given.
    fn resizable(&mut self, id: u16) {
        let Some(start) = self.before.extended_capability(id) else { return };
        let bars = (self.before.dword(start + 8) >> 5 & 0b111).min(6) as usize;
        (0..bars).for_each(|bar| self.put(start + 8 + 8 * bar, Width::Four));
    }

    /// None is enabled, but where they would be and in pages of which size.
    fn virtual_functions(&mut self) {
        self.resizable(id::VIRTUAL_RESIZABLE);
        self.extended(id::VIRTUAL, &[0x20, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38], Width::Four);
        self.extended(id::VIRTUAL, &[0x10, 0x08], Width::Two);
    }

    /// Wake-up, without its status, which a one would clear.
    fn power(&mut self) {
        if let Some(start) = self.before.capability(id::POWER) {
            self.put_but(start + 4, Width::Two, 1 << 15);
        }
    }

    /// Where messages go before whether they go.
    fn interrupts(&mut self) {
        if let Some(start) = self.before.capability(id::MSI) {
            let control = self.before.word(start + 2);
            let wide = if control & 1 << 7 != 0 { 4 } else { 0 };
            self.put(start + 0x04, Width::Four);
            if wide > 0 {
                self.put(start + 0x08, Width::Four);
            }
            self.put(start + 0x08 + wide, Width::Two);
            if control & 1 << 8 != 0 {
                self.put(start + 0x0c + wide, Width::Four);
            }
            self.put(start + 0x02, Width::Two);
        }
        if let Some(start) = self.before.capability(id::MSI_X) {
            self.put(start + 0x02, Width::Two);
        }
    }
}

/// Where registers are written, in their order.
#[cfg(test)]
pub(super) fn places(before: &ConfigSpace) -> Vec<usize> {
    order(before).iter().map(|register| register.at).collect()
}
