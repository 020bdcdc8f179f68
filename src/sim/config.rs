//! The bytes of a device's config space.
//!
//! ```text
//! 0x000 type 0 header: ids, COMMAND, BAR 0 and 1 (one 64-bit prefetchable BAR)
//! 0x040 power management      0x060 PCI Express endpoint, version 2, FLR capable
//! 0x100 AER, nothing logged   0x140 Device Serial Number
//! ```

use super::DeviceSpec;

/// Bytes in the config space of a PCIe function.
pub(super) const CONFIG: usize = 4096;

pub(super) const REVISION: u8 = 0x01;

const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const MEMORY_AND_BUS_MASTER: u16 = 0x0006;
const BAR_64_PREFETCHABLE: u64 = 0xc;
const EXPRESS: usize = 0x60;
const AER: u16 = 0x100;
const SERIAL: u16 = 0x140;

/// What a healthy device at `bar` answers: the header agrees with the attributes, and nothing is logged.
pub(super) fn healthy(spec: &DeviceSpec, bar: u64) -> [u8; CONFIG] {
    let mut space = Space([0; CONFIG]);
    space.header(spec, bar);
    space.power_management();
    space.express();
    space.aer();
    space.serial(spec.serial);
    space.0
}

/// What a reset leaves of `config` that nobody restored.
pub(super) fn bars_lost(mut config: [u8; CONFIG]) -> [u8; CONFIG] {
    config[COMMAND..COMMAND + 2].fill(0);
    config[BAR0..BAR0 + 24].fill(0);
    config
}

struct Space([u8; CONFIG]);

impl Space {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn header(&mut self, spec: &DeviceSpec, bar: u64) {
        let ids = [spec.vendor.to_le_bytes(), spec.device.to_le_bytes()].concat();
        self.put(0x00, &ids);
        self.put(COMMAND, &MEMORY_AND_BUS_MASTER.to_le_bytes());
        self.put(0x06, &0x0010_u16.to_le_bytes());
        self.put(0x08, &(spec.class << 8 | u32::from(REVISION)).to_le_bytes());
        self.put(BAR0, &(bar | BAR_64_PREFETCHABLE).to_le_bytes());
        self.put(0x2c, &ids);
        self.put(0x34, &[0x40]);
    }

    fn power_management(&mut self) {
        let no_soft_reset = 0x0008_u16;
        self.put(0x40, &[0x01, 0x60]);
        self.put(0x42, &0x0003_u16.to_le_bytes());
        self.put(0x44, &no_soft_reset.to_le_bytes());
    }

    fn express(&mut self) {
        let (flr, role_based_errors) = (1_u32 << 28, 1_u32 << 15);
        let (gen5, x16) = (5_u16, 16_u16 << 4);
        self.put(EXPRESS, &[0x10, 0x00]);
        self.put(EXPRESS + 0x02, &0x0002_u16.to_le_bytes());
        self.put(EXPRESS + 0x04, &(flr | role_based_errors).to_le_bytes());
        self.put(EXPRESS + 0x08, &0x281f_u16.to_le_bytes());
        self.put(EXPRESS + 0x0c, &u32::from(x16 | gen5).to_le_bytes());
        self.put(EXPRESS + 0x12, &(x16 | gen5).to_le_bytes());
        self.put(EXPRESS + 0x2c, &0x0000_003e_u32.to_le_bytes());
        self.put(EXPRESS + 0x30, &gen5.to_le_bytes());
    }

    fn aer(&mut self) {
        self.extended(AER, 0x0001, 2, SERIAL);
        self.put(usize::from(AER) + 0x0c, &0x0046_2030_u32.to_le_bytes());
        self.put(usize::from(AER) + 0x14, &0x0000_2000_u32.to_le_bytes());
    }

    fn serial(&mut self, serial: u64) {
        self.extended(SERIAL, 0x0003, 1, 0);
        self.put(usize::from(SERIAL) + 4, &serial.to_le_bytes());
    }

    fn extended(&mut self, at: u16, id: u16, version: u16, next: u16) {
        self.put(at.into(), &[id.to_le_bytes(), (next << 4 | version).to_le_bytes()].concat());
    }
}
