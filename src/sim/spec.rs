use std::str::FromStr;

use crate::types::PciAddress;

/// What a simulated device is, and what is wrong with it from the start.
///
/// As text: `0000:3b:00.0,memory=1048576,fault=hang-reset`; ids, class and serial are hexadecimal, the rest decimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The slot.
    pub address: PciAddress,
    /// Bytes behind BAR 0, a multiple of 4096.
    pub memory: u64,
    /// Vendor id, also the subsystem's.
    pub vendor: u16,
    /// Device id, also the subsystem's.
    pub device: u16,
    /// 24-bit class code.
    pub class: u32,
    /// Device Serial Number in config space.
    pub serial: u64,
    /// The bound driver's name; `vfio-pci` brings an IOMMU group and its node.
    pub driver: Option<String>,
    /// Whether it says that it answers at once after a reset: immediate readiness.
    pub ready_at_once: bool,
    /// Milliseconds a reset takes; without it 20, under [`Fault::SlowReset`] 3000.
    pub reset_ms: Option<u64>,
    /// What is wrong.
    pub fault: Option<Fault>,
}

/// Text that describes no device.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("device {text:?}: {why}")]
pub struct SpecError {
    text: String,
    why: String,
}

impl DeviceSpec {
    /// A healthy, unbound processing accelerator with 8 MiB, its serial derived from its address.
    #[must_use]
    pub fn new(address: PciAddress) -> Self {
        Self {
            address,
            memory: 8 << 20,
            vendor: 0x1234,
            device: 0xc1ea,
            class: 0x12_0000,
            serial: serial_of(address),
            driver: None,
            ready_at_once: false,
            reset_ms: None,
            fault: None,
        }
    }

    fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        match field {
            "memory" => self.memory = decimal(value)?,
            "vendor" => self.vendor = hex(value)?,
            "device" => self.device = hex(value)?,
            "class" => self.class = hex(value)?,
            "serial" => self.serial = hex(value)?,
            "driver" => self.driver = Some(value.to_owned()),
            "ready_at_once" => self.ready_at_once = decimal(value)? != 0,
            "reset_ms" => self.reset_ms = Some(decimal(value)?),
            "fault" => self.fault = Some(value.parse()?),
            other => return Err(format!("there is no field {other:?}")),
        }
        Ok(())
    }

    /// Whether there can be such a device.
    ///
    /// # Errors
    /// Its memory is no multiple of 4096 bytes, or its class too large.
    pub fn check(&self) -> Result<(), SpecError> {
        let error = |why| SpecError { text: self.address.to_string(), why };
        if self.memory == 0 || !self.memory.is_multiple_of(4096) {
            return Err(error(format!("memory={} is no multiple of 4096", self.memory)));
        }
        if self.class > 0xff_ffff {
            return Err(error(format!("class={:x} has more than 24 bits", self.class)));
        }
        Ok(())
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split(',');
            let address = parts.next().unwrap_or_default();
            let mut spec = Self::new(address.parse().map_err(|error| format!("{error}"))?);
            for part in parts {
                let (field, value) =
                    part.split_once('=').ok_or_else(|| format!("{part:?} is not FIELD=VALUE"))?;
                spec.set(field, value)?;
            }
            Ok(spec)
        };
        let spec = parse().map_err(|why| SpecError { text: text.to_owned(), why })?;
        spec.check()?;
        Ok(spec)
    }
}

/// What can be wrong with a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write to `reset` never returns. Clearing the fault lets it go on; a writer killed before that never
    /// reset anything. A reset by a write to config space never answers again.
    HangReset,
    /// Config space reads all ones.
    Dead,
    /// A reset returns, then config space reads all ones.
    DieAtReset,
    /// A reset returns with COMMAND and BARs zero, while `resource` still shows them.
    BarsLost,
    /// No write through `resource0_wc` reaches the memory.
    DropWrites,
    /// Of each two write sessions the first does not reach the memory.
    SkipFill,
    /// A reset takes 3 seconds, or what [`DeviceSpec::reset_ms`] says. One by a write to config space reads all ones
    /// meanwhile.
    SlowReset,
    /// The same, but reads configuration retry status meanwhile.
    RetryStatus,
    /// After a reset by a write to config space no further write arrives.
    LoseRestore,
    /// A reset of any kind returns and does nothing.
    NoReset,
    /// A transaction stays pending.
    KeepPending,
    /// A write to `reset` is refused with `EBUSY`: somebody has the device open.
    Busy,
    /// The upper half of the memory is the lower one.
    Alias,
    /// What is written to the last quarter of the memory is lost.
    SkipChunk,
    /// One bit in the middle of the memory reads one, whatever is written.
    StuckBit,
    /// A reset brings the link back half as wide.
    NarrowLink,
    /// A reset leaves an error in the uncorrectable status of config space.
    LogError,
    /// The kernel counts an uncorrectable error during a reset.
    CountError,
}

impl Fault {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        FAULTS.iter().map(|(_, fault)| *fault)
    }

    /// Whether only a mount that sees every access can show it.
    #[must_use]
    pub fn needs_fuse(self) -> bool {
        matches!(self, Self::Busy | Self::Alias | Self::SkipChunk | Self::StuckBit)
    }
}

const FAULTS: [(&str, Fault); 18] = [
    ("hang-reset", Fault::HangReset),
    ("dead", Fault::Dead),
    ("die-at-reset", Fault::DieAtReset),
    ("bars-lost", Fault::BarsLost),
    ("drop-writes", Fault::DropWrites),
    ("skip-fill", Fault::SkipFill),
    ("slow-reset", Fault::SlowReset),
    ("retry-status", Fault::RetryStatus),
    ("lose-restore", Fault::LoseRestore),
    ("no-reset", Fault::NoReset),
    ("keep-pending", Fault::KeepPending),
    ("busy", Fault::Busy),
    ("alias", Fault::Alias),
    ("skip-chunk", Fault::SkipChunk),
    ("stuck-bit", Fault::StuckBit),
    ("narrow-link", Fault::NarrowLink),
    ("log-error", Fault::LogError),
    ("count-error", Fault::CountError),
];

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = FAULTS.iter().find(|(name, _)| *name == text).map(|(_, fault)| *fault);
        found.ok_or_else(|| {
            let names: Vec<_> = FAULTS.iter().map(|(name, _)| *name).collect();
            format!("there is no fault {text:?}, only {}", names.join(", "))
        })
    }
}

/// FNV-1a of the address: stable over runs, and two slots never share a card by accident.
fn serial_of(address: PciAddress) -> u64 {
    address.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn decimal(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text:?} is no number: {error}"))
}

fn hex<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u64::from_str_radix(digits, 16).map_err(|error| format!("{text:?} is no hex: {error}"))?;
    N::try_from(number).map_err(|_| format!("{text:?} is too large"))
}
