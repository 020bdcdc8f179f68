//! The attributes of a device that are text, and what a write to one does by the kernel's rules (fs/sysfs,
//! drivers/pci/pci-sysfs.c; `reference/hardware.md` 1.1, 1.6).

use nix::errno::Errno;

use super::config::REVISION;
use super::model::Damage;
use super::{Device, DeviceSpec, Fault};

/// All that it can do, in the kernel's order.
const RESET_METHODS: [&str; 2] = ["flr", "bus"];

/// What the kernel lets be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    enable: bool,
    reset_methods: Vec<&'static str>,
    power_control: &'static str,
    d3cold_allowed: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let reset_methods = RESET_METHODS.to_vec();
        Self { enable: true, reset_methods, power_control: "auto", d3cold_allowed: true }
    }
}

/// What a write to an attribute led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It reads back.
    Set,
    /// A reset has to be carried out, for which the writer waits.
    Resets,
}

impl Device {
    /// Whether an attribute can be written.
    #[must_use]
    pub fn is_setting(attribute: &str) -> bool {
        ["enable", "reset", "reset_method", "power/control", "d3cold_allowed"].contains(&attribute)
    }

    /// A write to an attribute.
    ///
    /// # Errors
    /// `EINVAL`: the value makes no sense; what was set stays. `EBUSY`: the device belongs to a driver, or is in use.
    /// `ENOTTY`: no reset method is left. `EACCES`: nobody can write it.
    pub fn store(&mut self, attribute: &str, text: &[u8]) -> Result<Stored, Errno> {
        let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let word = text.strip_suffix('\n').unwrap_or(text);
        match attribute {
            "reset" => return self.may_reset(word).map(|()| Stored::Resets),
            "reset_method" => self.settings.reset_methods = methods(word)?,
            "power/control" => {
                let words = ["auto", "on"];
                self.settings.power_control =
                    words.into_iter().find(|known| *known == word).ok_or(Errno::EINVAL)?;
            }
            "d3cold_allowed" => self.settings.d3cold_allowed = number(word)? != 0,
            "enable" => {
                let wanted = number(word)?;
                if self.spec.driver.is_some() {
                    return Err(Errno::EBUSY);
                }
                self.settings.enable = wanted != 0;
            }
            _ => return Err(Errno::EACCES),
        }
        Ok(Stored::Set)
    }

    fn may_reset(&self, word: &str) -> Result<(), Errno> {
        match number(word)? {
            1 if self.settings.reset_methods.is_empty() => Err(Errno::ENOTTY),
            1 if self.spec.fault == Some(Fault::Busy) => Err(Errno::EBUSY),
            1 => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The attributes that are text, each with its content. What the kernel caches at enumeration is the same for
    /// a dead device; what it reads anew is what a real kernel made of all ones.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        let DeviceSpec { vendor, device, class, .. } = self.spec;
        let (speed, width, max_speed, max_width) = match self.is_dead() {
            true => ("Unknown", 63, "64.0 GT/s PCIe", 63),
            false => ("32.0 GT/s PCIe", self.width(), "32.0 GT/s PCIe", 16),
        };
        let Settings { enable, reset_methods, power_control, d3cold_allowed } = &self.settings;
        let nonfatal = u32::from(self.damage == Some(Damage::ErrorCounted));
        vec![
            ("vendor", format!("{vendor:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
            ("subsystem_vendor", format!("{vendor:#06x}\n")),
            ("subsystem_device", format!("{device:#06x}\n")),
            ("class", format!("{class:#08x}\n")),
            ("revision", format!("{REVISION:#04x}\n")),
            ("numa_node", "-1\n".into()),
            ("enable", format!("{}\n", u8::from(*enable))),
            ("power_state", "D0\n".into()),
            ("current_link_speed", format!("{speed}\n")),
            ("current_link_width", format!("{width}\n")),
            ("max_link_speed", format!("{max_speed}\n")),
            ("max_link_width", format!("{max_width}\n")),
            ("reset_method", format!("{}\n", reset_methods.join(" "))),
            ("power/control", format!("{power_control}\n")),
            ("d3cold_allowed", format!("{}\n", u8::from(*d3cold_allowed))),
            ("resource", self.resource()),
            ("aer_dev_correctable", errors(&CORRECTABLE, "COR", 0)),
            ("aer_dev_fatal", errors(&UNCORRECTABLE, "FATAL", 0)),
            ("aer_dev_nonfatal", errors(&UNCORRECTABLE, "NONFATAL", nonfatal)),
        ]
    }

    fn width(&self) -> u8 {
        if self.damage == Some(Damage::NarrowLink) { 8 } else { 16 }
    }

    fn resource(&self) -> String {
        let line = |start: u64, end: u64, flags: u64| format!("0x{start:016x} 0x{end:016x} 0x{flags:016x}\n");
        let memory_64_prefetchable = 0x0014_220c;
        line(self.bar(), self.bar() + (self.spec.memory - 1), memory_64_prefetchable)
            + &line(0, 0, 0).repeat(12)
    }
}

/// A list of methods, all of them known, in the order in which they are to be tried.
fn methods(words: &str) -> Result<Vec<&'static str>, Errno> {
    match words {
        "" => Ok(Vec::new()),
        "default" => Ok(RESET_METHODS.to_vec()),
        words => words
            .split(' ')
            .map(|word| RESET_METHODS.into_iter().find(|known| *known == word).ok_or(Errno::EINVAL))
            .collect(),
    }
}

fn number(word: &str) -> Result<u64, Errno> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| Errno::EINVAL)
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

/// `timeouts` completion timeouts, and nothing else.
fn errors(labels: &[&str], total: &str, timeouts: u32) -> String {
    let count = |label: &str| if label == "CmpltTO" { timeouts } else { 0 };
    let lines = labels.iter().map(|label| format!("{label} {}\n", count(label)));
    lines.chain([format!("TOTAL_ERR_{total} {timeouts}\n")]).collect()
}
