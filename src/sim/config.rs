//! The bytes of a device's config space, and what writes and resets do to them.
//!
//! ```text
//! 0x000 type 0 header: ids, COMMAND, BAR 0 and 1 (one 64-bit prefetchable BAR)
//! 0x040 power management   0x050 MSI, off, an old address in it   0x060 PCI Express endpoint, version 2, FLR capable
//! 0x0a0 MSI-X, off
//! 0x100 AER, nothing logged   0x140 Device Serial Number   0x150 ACS   0x160 ATS, off   0x170 page requests, off
//! 0x180 PASID, off   0x190 latency tolerance   0x1a0 resizable BAR   0x1c0 virtual functions, none
//! ```

use super::DeviceSpec;

/// Bytes in the config space of a PCIe function.
pub(super) const CONFIG: usize = 4096;

pub(super) const REVISION: u8 = 0x01;

const COMMAND: usize = 0x04;
const MEMORY: u8 = 1 << 1;
const COMPLETION_TIMEOUT: u32 = 1 << 14;
const BAR0: usize = 0x10;
const EXPRESS: usize = 0x60;
const DEVICE_CONTROL: usize = EXPRESS + 0x08;
const INITIATE_RESET: u32 = 1 << 15;
const PENDING: u8 = 1 << 5;

/// A dword of which some bits can be written.
struct Register {
    at: usize,
    writable: u32,
    /// What the firmware, the kernel and an earlier driver have left in those bits.
    found: u32,
    /// What a function level reset leaves in them.
    reset: u32,
}

const fn register(at: usize, writable: u32, found: u32, reset: u32) -> Register {
    Register { at, writable, found, reset }
}

/// All but the BAR, whose address is the slot's. The link's registers survive, as the specification has it.
const REGISTERS: [Register; 28] = [
    register(COMMAND, 0x0547, 0x0006, 0),
    register(0x0c, 0x00ff, 0x0010, 0),
    register(0x3c, 0x00ff, 0x000b, 0),
    register(0x44, 0x0100, 0x0100, 0),
    register(0x50, 0x0071 << 16, 0, 0),
    register(0x54, 0xffff_fffc, 0xfee0_1000, 0),
    register(0x58, u32::MAX, 0, 0),
    register(0x5c, 0xffff, 0x4021, 0),
    register(DEVICE_CONTROL, 0x7fff, 0x281f, 0x2810),
    register(EXPRESS + 0x10, 0x01ff, 0x0040, 0x0040),
    register(EXPRESS + 0x28, 0xffff, 0x0009, 0),
    register(EXPRESS + 0x30, 0xffff, 0x0005, 0x0005),
    register(0xa0, 0xc000 << 16, 0x4000 << 16, 0),
    register(0x108, 0xffff_fff0, 0x0010_0000, 0),
    register(0x10c, 0xffff_fff0, 0x0046_3030, 0x0046_2030),
    register(0x114, 0xffff, 0x2000, 0xe000),
    register(0x118, 0x0140, 0x0140, 0),
    register(0x154, 0x005f << 16, 0x001d << 16, 0),
    register(0x164, 0x801f << 16, 0, 0),
    register(0x174, 0x0003, 0, 0),
    register(0x17c, u32::MAX, 0x20, 0),
    register(0x184, 0x0007 << 16, 0, 0),
    register(0x194, 0x1fff_1fff, 0x1003_1003, 0),
    register(0x1a8, 0x3f00, 0x0300, 0x0800),
    register(0x1c8, 0x001f, 0x0010, 0),
    register(0x1d0, 0xffff, 0, 0),
    register(0x1e0, u32::MAX, 1, 1),
    register(0x1e4, 0xffff_f000, 0xc080_0000, 0),
];

/// A device's config space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Space([u8; CONFIG]);

impl Space {
    /// What a healthy device at `bar` answers: the header agrees with the attributes, and nothing is logged.
    pub(super) fn healthy(spec: &DeviceSpec, bar: u64) -> Self {
        let mut space = Self([0; CONFIG]);
        space.header(spec, bar);
        space.capabilities();
        space.extended(0x100, 0x0001, 2, 0x140);
        space.extended(0x140, 0x0003, 1, 0x150);
        space.put(0x144, &spec.serial.to_le_bytes());
        space.extended(0x150, 0x000d, 1, 0x160);
        space.put(0x154, &[0x5f]);
        space.extended(0x160, 0x000f, 1, 0x170);
        space.extended(0x170, 0x0013, 1, 0x180);
        space.put(0x178, &[0x40]);
        space.extended(0x180, 0x001b, 1, 0x190);
        space.extended(0x190, 0x0018, 1, 0x1a0);
        space.extended(0x1a0, 0x0015, 1, 0x1c0);
        space.put(0x1a4, &0x0000_fff0_u32.to_le_bytes());
        space.put(0x1a8, &[1 << 5]);
        space.extended(0x1c0, 0x0010, 1, 0);
        space.put(0x1cc, &[4, 0, 4]);
        for register in &REGISTERS {
            space.set(register.at, register.writable, register.found);
        }
        space
    }

    pub(super) fn bytes(&self) -> [u8; CONFIG] {
        self.0
    }

    /// The same with a transaction pending.
    pub(super) fn pending(mut self) -> Self {
        self.0[EXPRESS + 0x0a] |= PENDING;
        self
    }

    /// The same with a completion timeout in its uncorrectable status.
    pub(super) fn logged(mut self) -> Self {
        self.set(0x104, COMPLETION_TIMEOUT, COMPLETION_TIMEOUT);
        self
    }

    /// Gives the BAR its place.
    pub(super) fn place(&mut self, bar: u64) {
        let memory_64_prefetchable = 0xc;
        self.put(BAR0, &(bar | memory_64_prefetchable).to_le_bytes());
    }

    /// Whether what answers with these bytes decodes memory at `bar`.
    pub(super) fn is_decoded(bytes: &[u8; CONFIG], bar: u64) -> bool {
        let register = bytes[BAR0..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        bytes[COMMAND] & MEMORY != 0 && register & !0xf == bar
    }

    /// What a reset leaves of the header that nobody restored.
    pub(super) fn bars_lost(mut self) -> Self {
        self.0[COMMAND..COMMAND + 2].fill(0);
        self.0[BAR0..BAR0 + 24].fill(0);
        self
    }

    /// A write of these bytes, in which bits that cannot be written stay; whether it initiates a reset.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let mut initiates = false;
        for (at, byte) in (at..CONFIG).zip(bytes) {
            let (dword, shift) = (at & !3, 8 * (at & 3));
            initiates |= dword == DEVICE_CONTROL && u32::from(*byte) << shift & INITIATE_RESET != 0;
            self.set(dword, writable(dword) & 0xff << shift, u32::from(*byte) << shift);
        }
        initiates
    }

    /// A function level reset.
    pub(super) fn reset(&mut self) {
        for register in &REGISTERS {
            self.set(register.at, register.writable, register.reset);
        }
        for bar in [BAR0, BAR0 + 4] {
            self.set(bar, writable(bar), 0);
        }
    }

    fn set(&mut self, at: usize, mask: u32, value: u32) {
        let now = u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        self.put(at, &(now & !mask | value & mask).to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn header(&mut self, spec: &DeviceSpec, bar: u64) {
        let ids = [spec.vendor, spec.device].map(u16::to_le_bytes).concat();
        self.put(0x00, &ids);
        self.put(0x06, &(0x0010 | u16::from(spec.ready_at_once)).to_le_bytes());
        self.put(0x08, &(spec.class << 8 | u32::from(REVISION)).to_le_bytes());
        self.place(bar);
        self.put(0x2c, &ids);
        self.put(0x34, &[0x40]);
    }

    fn capabilities(&mut self) {
        let no_soft_reset = 0x0008_u16;
        self.put(0x40, &[0x01, 0x50, 0x03, 0x00]);
        self.put(0x44, &no_soft_reset.to_le_bytes());
        let wide_address = 0x80;
        self.put(0x50, &[0x05, 0x60, wide_address, 0x00]);
        let (flr, role_based_errors) = (1_u32 << 28, 1_u32 << 15);
        let (gen5, x16) = (5_u16, 16_u16 << 4);
        self.put(EXPRESS, &[0x10, 0xa0, 0x02, 0x00]);
        self.put(EXPRESS + 0x04, &(flr | role_based_errors).to_le_bytes());
        self.put(EXPRESS + 0x0c, &u32::from(x16 | gen5).to_le_bytes());
        self.put(EXPRESS + 0x12, &(x16 | gen5).to_le_bytes());
        self.put(EXPRESS + 0x2c, &0x0000_003e_u32.to_le_bytes());
        self.put(0xa0, &[0x11, 0x00, 0x1f, 0x00]);
    }

    fn extended(&mut self, at: u16, id: u16, version: u16, next: u16) {
        self.put(at.into(), &[id.to_le_bytes(), (next << 4 | version).to_le_bytes()].concat());
    }
}

/// Which bits of a dword can be written.
fn writable(at: usize) -> u32 {
    match at {
        BAR0 => 0xffff_f000,
        0x14 => u32::MAX,
        _ => REGISTERS.iter().find(|register| register.at == at).map_or(0, |register| register.writable),
    }
}
