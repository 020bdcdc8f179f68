use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::config::{CONFIG, REVISION, Space};
use super::scrubs::Scrubs;
use super::{DeviceSpec, Fault};

/// What a device has been through, as the device counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Resets carried out.
    pub resets: u32,
    /// Times that its whole memory was overwritten and then zeroed.
    pub scrubs: u32,
}

/// A device without its mount: what it answers, and what a reset and a write session do to it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) spec: DeviceSpec,
    pub(super) scrubs: Scrubs,
    bar: u64,
    config: Space,
    resets: u32,
    /// A function level reset by a write to config space, and when it is over; `None`: never.
    resetting: Option<Option<Instant>>,
    damage: Option<Damage>,
    fill_skipped: bool,
}

/// What a reset has done to a device; stays until its fault is set anew or power is cycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Dead,
    BarsLost,
    /// No write to config space arrives.
    Deaf,
}

/// What a write to config space led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It holds what was written.
    Taken,
    /// It holds something else.
    Changed,
    /// A reset has begun.
    ResetBegun,
}

/// Where writes through the write-combining BAR land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Memory,
    Nowhere,
}

impl Device {
    /// `bar`: where its BAR 0 begins, in bytes of bus address space.
    pub(super) fn new(spec: DeviceSpec, bar: u64, content: Vec<u8>) -> Self {
        let scrubs = Scrubs::over(content);
        let config = Space::healthy(&spec, bar);
        Self { spec, scrubs, bar, config, resets: 0, resetting: None, damage: None, fill_skipped: false }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { resets: self.resets, scrubs: self.scrubs.count() }
    }

    /// How long the next reset takes; `None`: it never returns.
    pub(super) fn reset_takes(&self) -> Option<Duration> {
        let usual = match self.spec.fault {
            Some(Fault::HangReset) => return None,
            Some(Fault::SlowReset | Fault::RetryStatus) => 3000,
            _ => 20,
        };
        Some(Duration::from_millis(self.spec.reset_ms.unwrap_or(usual)))
    }

    /// `resets` are through. They leave the memory as it was, as real ones do.
    pub(super) fn was_reset(&mut self, resets: u32) {
        self.resets += resets;
        match self.spec.fault {
            Some(Fault::DieAtReset) => self.damage = Some(Damage::Dead),
            Some(Fault::BarsLost) => self.damage = Some(Damage::BarsLost),
            _ => {}
        }
    }

    /// Bytes are written to config space.
    pub(super) fn write_config(&mut self, at: usize, bytes: &[u8], now: Instant) -> Wrote {
        if self.resetting.is_some() || matches!(self.damage, Some(Damage::Deaf)) || self.is_dead() {
            return Wrote::Changed;
        }
        if self.config.write(at, bytes) {
            self.begin_reset(now);
            return Wrote::ResetBegun;
        }
        if self.config().get(at..at + bytes.len()) == Some(bytes) { Wrote::Taken } else { Wrote::Changed }
    }

    fn begin_reset(&mut self, now: Instant) {
        match self.spec.fault {
            Some(Fault::NoReset) => return,
            Some(Fault::DieAtReset) => self.damage = Some(Damage::Dead),
            Some(Fault::LoseRestore) => self.damage = Some(Damage::Deaf),
            _ => {}
        }
        self.config.reset();
        self.resetting = Some(self.reset_takes().map(|takes| now + takes));
    }

    /// Goes on to `now`: whether a reset by config space is over, which shows.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let is_over = self.resets_until().is_some_and(|end| end <= now);
        if is_over {
            self.resets += 1;
            self.resetting = None;
        }
        is_over
    }

    /// When a reset by config space will be over.
    pub(super) fn resets_until(&self) -> Option<Instant> {
        self.resetting.flatten()
    }

    /// Whether it has stopped to take writes to config space.
    pub(super) fn is_deaf(&self) -> bool {
        self.damage == Some(Damage::Deaf) && self.resetting.is_none()
    }

    /// Where the next write session goes.
    pub(super) fn target(&self) -> Target {
        match self.spec.fault {
            Some(Fault::DropWrites) => Target::Nowhere,
            Some(Fault::SkipFill) if !self.fill_skipped => Target::Nowhere,
            _ => Target::Memory,
        }
    }

    /// A session of writes to `target` begins.
    pub(super) fn session_begins(&mut self, target: Target) {
        self.fill_skipped = target == Target::Nowhere;
        if target == Target::Memory {
            self.scrubs.begin();
        }
    }

    pub(super) fn set_fault(&mut self, fault: Option<Fault>) {
        self.spec.fault = fault;
        self.heal();
    }

    fn heal(&mut self) {
        (self.damage, self.resetting, self.fill_skipped) = (None, None, false);
        self.config = Space::healthy(&self.spec, self.bar);
    }

    /// Power off and on.
    pub(super) fn power_cycle(&mut self, content: Vec<u8>) {
        self.heal();
        self.scrubs.start_over(content);
    }

    /// What a read of all of config space answers.
    pub(super) fn config(&self) -> [u8; CONFIG] {
        let answer = self.config.clone();
        match (self.resetting, self.spec.fault) {
            _ if self.is_dead() => [0xff; CONFIG],
            (Some(_), Some(Fault::RetryStatus)) => {
                let mut retry = [0xff; CONFIG];
                retry[..2].copy_from_slice(&[0x01, 0x00]);
                retry
            }
            (Some(_), _) => [0xff; CONFIG],
            _ if self.damage == Some(Damage::BarsLost) => answer.bars_lost().bytes(),
            (None, Some(Fault::KeepPending)) => answer.pending().bytes(),
            (None, _) => answer.bytes(),
        }
    }

    /// The attributes that are text, each with its content. What the kernel caches at enumeration is the same for
    /// a dead device; what it reads anew is what a real kernel made of all ones.
    pub(super) fn attributes(&self) -> Vec<(&'static str, String)> {
        let DeviceSpec { vendor, device, class, .. } = self.spec;
        let (speed, width, max_speed, max_width) = match self.is_dead() {
            true => ("Unknown", 63, "64.0 GT/s PCIe", 63),
            false => ("32.0 GT/s PCIe", 16, "32.0 GT/s PCIe", 16),
        };
        vec![
            ("vendor", format!("{vendor:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
            ("subsystem_vendor", format!("{vendor:#06x}\n")),
            ("subsystem_device", format!("{device:#06x}\n")),
            ("class", format!("{class:#08x}\n")),
            ("revision", format!("{REVISION:#04x}\n")),
            ("numa_node", "-1\n".into()),
            ("enable", "1\n".into()),
            ("power_state", "D0\n".into()),
            ("current_link_speed", format!("{speed}\n")),
            ("current_link_width", format!("{width}\n")),
            ("max_link_speed", format!("{max_speed}\n")),
            ("max_link_width", format!("{max_width}\n")),
            ("reset_method", "flr bus\n".into()),
            ("power/control", "auto\n".into()),
            ("d3cold_allowed", "1\n".into()),
            ("resource", self.resource()),
            ("aer_dev_correctable", no_errors(&CORRECTABLE, "COR")),
            ("aer_dev_fatal", no_errors(&UNCORRECTABLE, "FATAL")),
            ("aer_dev_nonfatal", no_errors(&UNCORRECTABLE, "NONFATAL")),
        ]
    }

    fn is_dead(&self) -> bool {
        self.spec.fault == Some(Fault::Dead) || self.damage == Some(Damage::Dead)
    }

    fn resource(&self) -> String {
        let line = |start: u64, end: u64, flags: u64| format!("0x{start:016x} 0x{end:016x} 0x{flags:016x}\n");
        let memory_64_prefetchable = 0x0014_220c;
        line(self.bar, self.bar + (self.spec.memory - 1), memory_64_prefetchable) + &line(0, 0, 0).repeat(12)
    }
}

const CORRECTABLE: [&str; 8] =
    ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF"];

const UNCORRECTABLE: [&str; 23] = [
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
    "UncorrIntErr",
    "BlockedTLP",
    "AtomicOpBlocked",
    "TLPBlockedErr",
    "PoisonTLPBlocked",
    "DMWrReqBlocked",
    "IDECheck",
    "MisIDETLP",
    "PCRC_CHECK",
    "TLPXlatBlocked",
];

fn no_errors(labels: &[&str], total: &str) -> String {
    labels.iter().map(|label| format!("{label} 0\n")).chain([format!("TOTAL_ERR_{total} 0\n")]).collect()
}
