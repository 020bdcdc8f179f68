//! What must hold before a device is handed out (`reference/hardware.md` 1.12), read and not judged.

use std::path::PathBuf;

use super::{failure, unread};
use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::Function;
use crate::pci::{bar, driver};
use crate::types::{Fact, Probe};
use crate::worker::{Code, Expected, Failure, Order};

/// Command register bits 1 and 2: memory decoding and bus mastering.
const DECODES_AND_MASTERS: u16 = 0b110;

pub(super) fn probe(order: &Order, function: &Function) -> Result<(Probe, Vec<PathBuf>), Failure> {
    let config = ConfigSpace::read(function).map_err(|error| unread(&error))?;
    let probe = Probe {
        present: match config.header_type() {
            0 => Fact::Good,
            other => Fact::Bad(format!("header type {other:#x}, an endpoint has 0")),
        },
        identity: identity(order.expected.as_ref(), &config),
        bars: bars(function, &config),
        transactions: match config.transactions_pending() {
            None => Fact::Absent,
            Some(false) => Fact::Good,
            Some(true) => Fact::Bad("transactions are pending".to_owned()),
        },
    };
    let nodes = driver::nodes(&order.roots, function).map_err(|error| failure(Code::Io, &error))?;
    Ok((probe, nodes))
}

fn identity(expected: Option<&Expected>, config: &ConfigSpace) -> Fact {
    let (vendor, device) = config.ids();
    let found = Expected { vendor, device, serial: config.serial() };
    match expected {
        Some(expected) if *expected != found => {
            Fact::Bad(format!("{found} answers, {expected} was found here before"))
        }
        _ => Fact::Good,
    }
}

/// After a lost reset the kernel still shows the old BARs in `resource` while the registers hold zeros.
fn bars(function: &Function, config: &ConfigSpace) -> Fact {
    let state = function.text("power_state").unwrap_or_default();
    if state.starts_with("D3") {
        // The registers of a sleeping function say nothing about what they will hold.
        return Fact::Absent;
    }
    let bars = match bar::bars(function) {
        Ok(bars) => bars,
        Err(error) => return Fact::Unreadable(error.to_string()),
    };
    for bar in bars {
        let index = usize::from(bar.index);
        let high = if bar.wide { u64::from(config.bar(index + 1)) << 32 } else { 0 };
        let register = high | u64::from(config.bar(index) & !0xf);
        if register != bar.start {
            return Fact::Bad(format!("BAR{index} holds {register:#x}, the kernel gave it {:#x}", bar.start));
        }
    }
    let command = config.command();
    match driver::bound(function) {
        Err(error) => Fact::Unreadable(format!("driver link: {error}")),
        Ok(Some(driver)) if driver != "vfio-pci" && command & DECODES_AND_MASTERS != DECODES_AND_MASTERS => {
            Fact::Bad(format!(
                "command register {command:#06x} under driver {driver}: it neither decodes nor masters"
            ))
        }
        Ok(_) => Fact::Good,
    }
}
