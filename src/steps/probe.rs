//! What must hold before a device is handed out (`reference/hardware.md` 1.12), read and not judged.

use std::io;
use std::path::PathBuf;

use super::{failure, unread};
use crate::pci::bar::Bar;
use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::Function;
use crate::pci::{aer, bar, driver, link};
use crate::types::{Counts, Fact, Probe, Roots};
use crate::worker::{Code, Expected, Failure, Order};

/// Command register bits 1 and 2: memory decoding and bus mastering.
const DECODES_AND_MASTERS: u16 = 0b110;

pub(super) fn probe(order: &Order, function: &Function) -> Result<(Probe, Vec<PathBuf>), Failure> {
    let config = ConfigSpace::read(function).map_err(|error| unread(&error))?;
    let mut notes = Vec::new();
    let (link, width) = link(&order.roots, function, &config);
    let uncorrectable = match config.uncorrectable() {
        None => Fact::Absent,
        Some(0) => Fact::Good,
        Some(status) => {
            notes.push(format!("uncorrectable_status={status:#010x}"));
            Fact::Bad(format!("uncorrectable error status is {status:#010x}"))
        }
    };
    let (counters, mut counts) =
        match counts(&order.roots, function, uncorrectable == Fact::Absent, &mut notes) {
            Ok(Some(counts)) => (Fact::Good, counts),
            Ok(None) => (Fact::Absent, Counts::default()),
            Err(error) => (Fact::Unreadable(error.to_string()), Counts::default()),
        };
    counts.width = width;
    let probe = Probe {
        present: match config.header_type() {
            0 => Fact::Good,
            other => Fact::Bad(format!("header type {other:#x}, an endpoint has 0")),
        },
        identity: identity(order.expected.as_ref(), &config),
        bars: bars(function, &config, &mut notes),
        transactions: match config.transactions_pending() {
            None => Fact::Absent,
            Some(false) => Fact::Good,
            Some(true) => Fact::Bad("transactions are pending".to_owned()),
        },
        link,
        uncorrectable,
        counters,
        counts,
        notes,
    };
    let nodes = driver::nodes(&order.roots, function).map_err(|error| failure(Code::Io, &error))?;
    Ok((probe, nodes.into_iter().map(|node| node.path).collect()))
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
fn bars(function: &Function, config: &ConfigSpace, notes: &mut Vec<String>) -> Fact {
    let state = function.text("power_state").unwrap_or_default();
    let sleeps = state.starts_with("D3");
    if sleeps {
        notes.push(format!("power_state={state}"));
    }
    let command = config.command();
    if command == 0 {
        notes.push("command=0".to_owned());
    }
    let bars = match bar::bars(function) {
        Ok(bars) => bars,
        Err(error) => return Fact::Unreadable(error.to_string()),
    };
    if let Some((Bar { index, start, .. }, register)) = bar::misplaced(&bars, config) {
        notes.push(format!("bar{index}={register:x}"));
        // The registers of a sleeping function say nothing about what they will hold.
        if sleeps {
            return Fact::Absent;
        }
        return Fact::Bad(format!("BAR{index} holds {register:#x}, the kernel gave it {start:#x}"));
    }
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

/// The link's width against what both ends can do. A lower speed alone is how a device saves power.
fn link(roots: &Roots, function: &Function, config: &ConfigSpace) -> (Fact, Option<u32>) {
    if !config.has_link() {
        return (Fact::Absent, None);
    }
    let read = || {
        let width = link::width(function)?;
        // A bridge to conventional PCI, as virtual machines have them, has no link of its own.
        let above = match link::port(roots, function)?.map(|port| link::max_width(&Function::at(roots, port)))
        {
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            above => above.transpose()?.flatten(),
        };
        let fact = match (width, link::max_width(function)?, above) {
            (0, _, _) => Fact::Bad("the link is down".to_owned()),
            (width, Some(own), Some(above)) if width < own.min(above) => {
                Fact::Bad(format!("the link is x{width}, both ends can do x{}", own.min(above)))
            }
            _ => Fact::Good,
        };
        Ok::<_, io::Error>((fact, Some(width)))
    };
    read().unwrap_or_else(|error| (Fact::Unreadable(error.to_string()), None))
}

/// What the kernel counted, at the device and at the ports that serve it alone; `None` for a device without AER.
fn counts(
    roots: &Roots,
    function: &Function,
    without_aer: bool,
    notes: &mut Vec<String>,
) -> io::Result<Option<Counts>> {
    if without_aer {
        return Ok(None);
    }
    let own = |attribute| {
        aer::total(function, attribute)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{attribute} is missing on a device with AER"))
        })
    };
    let mut counts = Counts {
        correctable: own("aer_dev_correctable")?,
        nonfatal: own("aer_dev_nonfatal")?,
        fatal: own("aer_dev_fatal")?,
        width: None,
    };
    if counts.correctable > 0 {
        notes.push(format!("correctable_total={}", counts.correctable));
    }
    for port in link::ports(roots, function)?.into_iter().filter(|port| port.exclusive) {
        let port = Function::at(roots, port.address);
        let fatal = aer::port_total(&port, "aer_rootport_total_err_fatal")?.unwrap_or(0);
        let own_fatal = aer::total(&port, "aer_dev_fatal")?.unwrap_or(0);
        let own_nonfatal = aer::total(&port, "aer_dev_nonfatal")?.unwrap_or(0);
        if fatal > 0 {
            notes.push(format!("root_port_fatal_total={fatal}"));
        }
        counts.fatal += fatal.max(own_fatal);
        counts.nonfatal += own_nonfatal;
    }
    if !aer::are_ours(roots) {
        notes.push("aer judged from config space".to_owned());
    }
    Ok(Some(counts))
}
