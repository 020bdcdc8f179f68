//! What may be other after a function level reset than it was before; anything else is a register that was lost.

use std::collections::BTreeMap;

use crate::pci::capability as id;
use crate::pci::config_space::ConfigSpace;

/// How many differences are told.
const TOLD: usize = 4;

/// Bits that change by themselves, in the dword at `offset` of what they belong to.
struct Exception {
    of: Part,
    offset: usize,
    bits: u32,
}

#[derive(Clone, Copy)]
enum Part {
    Header,
    /// The express capability where it has its second half: a version 1 is followed by something else.
    Express2,
    Capability(u8),
    Extended(u16),
}

const fn header(offset: usize, bits: u32) -> Exception {
    Exception { of: Part::Header, offset, bits }
}

const fn capability(id: u8, offset: usize, bits: u32) -> Exception {
    Exception { of: Part::Capability(id), offset, bits }
}

const fn extended(id: u16, offset: usize, bits: u32) -> Exception {
    Exception { of: Part::Extended(id), offset, bits }
}

/// All of them. The link's state is judged by the probe, which has its reasons and a baseline.
const EXCEPTIONS: &[Exception] = &[
    // Status: errors (cleared by ones), interrupt pending.
    header(0x04, 0xf908 << 16),
    // Power management: wake-up event (cleared by a one).
    capability(id::POWER, 0x04, 1 << 15),
    // Vital product data: a window onto other data, left wherever its last reader was.
    capability(id::VITAL_DATA, 0x00, 0xffff << 16),
    capability(id::VITAL_DATA, 0x04, u32::MAX),
    // Device Status: errors, transactions pending, power reduction seen.
    capability(id::EXPRESS, 0x08, 0x006f << 16),
    // Link Status, Link Status 2: speed, width, training, changes of bandwidth, equalization.
    capability(id::EXPRESS, 0x10, 0xffff << 16),
    Exception { of: Part::Express2, offset: 0x30, bits: 0xffff << 16 },
    // Error status and log; in the control register which error was first and whether a prefix was logged.
    extended(id::AER, 0x04, u32::MAX),
    extended(id::AER, 0x10, u32::MAX),
    extended(id::AER, 0x18, 0x0000_081f),
    extended(id::AER, 0x1c, u32::MAX),
    extended(id::AER, 0x20, u32::MAX),
    extended(id::AER, 0x24, u32::MAX),
    extended(id::AER, 0x28, u32::MAX),
    // Power budgeting: a window, as above.
    extended(id::POWER_BUDGET, 0x04, 0xff),
    extended(id::POWER_BUDGET, 0x08, u32::MAX),
    // Errors of lanes, equalization and parity, at 8, 16 and 32 GT/s.
    extended(id::SECONDARY, 0x08, u32::MAX),
    extended(id::PHYSICAL_16, 0x0c, u32::MAX),
    extended(id::PHYSICAL_16, 0x10, u32::MAX),
    extended(id::PHYSICAL_16, 0x14, u32::MAX),
    extended(id::PHYSICAL_16, 0x18, u32::MAX),
    extended(id::PHYSICAL_32, 0x0c, u32::MAX),
    // Page requests: whether one failed, whether it has stopped.
    extended(id::PAGE_REQUEST, 0x04, 0x0103 << 16),
    // Virtual functions: migration status.
    extended(id::VIRTUAL, 0x08, 1 << 16),
    // Data object mailbox: busy, error, ready.
    extended(id::MAILBOX, 0x0c, u32::MAX),
];

impl Exception {
    fn at(&self, config: &ConfigSpace) -> Option<usize> {
        let start = match self.of {
            Part::Header => Some(0),
            Part::Express2 => {
                config.capability(id::EXPRESS).filter(|start| config.word(start + 2) & 0xf >= 2)
            }
            Part::Capability(id) => config.capability(id),
            Part::Extended(id) => config.extended_capability(id),
        };
        start.map(|start| start + self.offset)
    }
}

/// The bits of this function's config space that change by themselves, so that they may be other after a reset: by the
/// offset of their dword.
#[must_use]
pub fn may_differ(before: &ConfigSpace) -> BTreeMap<usize, u32> {
    let mut free = BTreeMap::new();
    for exception in EXCEPTIONS {
        if let Some(at) = exception.at(before) {
            *free.entry(at).or_default() |= exception.bits;
        }
    }
    free
}

/// The dwords that are other now and must not be, for people; `None`: there are none.
pub(super) fn differences(before: &ConfigSpace, now: &ConfigSpace) -> Option<String> {
    if before.bytes().len() != now.bytes().len() {
        return Some(format!("it had {} bytes and has {}", before.bytes().len(), now.bytes().len()));
    }
    let free = may_differ(before);
    let mut found = Vec::new();
    let dwords = |config| ConfigSpace::bytes(config).as_chunks::<4>().0;
    let other = dwords(before).iter().zip(dwords(now)).enumerate().filter(|(_, (was, is))| was != is);
    for (at, (was, is)) in other.map(|(number, dwords)| (4 * number, dwords)) {
        let (was, is) = (u32::from_le_bytes(*was), u32::from_le_bytes(*is));
        if (was ^ is) & !free.get(&at).unwrap_or(&0) != 0 {
            found.push(format!("{at:#05x} was {was:#010x} and is {is:#010x}"));
        }
    }
    let more = found.len().saturating_sub(TOLD);
    found.truncate(TOLD);
    match (found.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(found.join(", ")),
        (false, more) => Some(format!("{} and {more} more", found.join(", "))),
    }
}
