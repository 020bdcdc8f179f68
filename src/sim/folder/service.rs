use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use super::events::Events;
use super::slot::Slot;
use crate::sim::layout::Layout;
use crate::sim::{Counts, DeviceSpec, Fault};
use crate::types::PciAddress;

/// All slots of a folder, and what happens to them.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) files: Layout,
    pub(super) events: Events,
    slots: BTreeMap<PciAddress, Slot>,
    holders: BTreeSet<u32>,
    recorded: Option<BTreeMap<PciAddress, Counts>>,
}

impl Service {
    pub(super) fn new(files: Layout, specs: Vec<DeviceSpec>) -> io::Result<Self> {
        let events = Events::new()?;
        let mut slots = BTreeMap::new();
        for (number, spec) in (1..).zip(specs) {
            possible(spec.fault)?;
            slots.insert(spec.address, Slot::plug(&files, &events, spec, number)?);
        }
        let mut service = Self { files, events, slots, holders: BTreeSet::new(), recorded: None };
        service.catch_up()?;
        Ok(service)
    }

    pub(super) fn slot(&mut self, address: PciAddress) -> io::Result<&mut Slot> {
        slot(&mut self.slots, address)
    }

    pub(super) fn set_fault(&mut self, address: PciAddress, fault: Option<Fault>) -> io::Result<()> {
        possible(fault)?;
        let slot = slot(&mut self.slots, address)?;
        slot.device.set_fault(fault);
        slot.show(&self.files)
    }

    pub(super) fn bind(&mut self, address: PciAddress, driver: Option<String>) -> io::Result<()> {
        slot(&mut self.slots, address)?.bind(&self.files, driver)
    }

    pub(super) fn reassign(&mut self, address: PciAddress) -> io::Result<()> {
        let slot = slot(&mut self.slots, address)?;
        slot.device.reassign();
        slot.show(&self.files)
    }

    pub(super) fn leave(&mut self, address: PciAddress, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // What ended before this counts, reported or not.
        self.counts(address)?;
        self.slot(address)?.leave(offset, bytes)
    }

    pub(super) fn hold(&mut self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        self.slot(address)?;
        self.files.hold(address, pid, comm, cgroup)?;
        self.holders.insert(pid);
        Ok(())
    }

    pub(super) fn let_go(&mut self, pid: u32) -> io::Result<()> {
        self.files.let_go(pid)?;
        self.holders.remove(&pid);
        Ok(())
    }

    pub(super) fn reboot(&mut self) -> io::Result<()> {
        for pid in std::mem::take(&mut self.holders) {
            self.files.let_go(pid)?;
        }
        for slot in self.slots.values_mut() {
            slot.power_cycle(&self.files)?;
        }
        self.files.renew_boot_id()
    }

    pub(super) fn remove(&mut self, address: PciAddress) -> io::Result<Slot> {
        let slot = self.slots.remove(&address).ok_or_else(|| missing(address))?;
        self.files.unplug(address)?;
        std::fs::remove_dir_all(self.files.device(address))?;
        self.files.unbind(slot.number)?;
        Ok(slot)
    }

    pub(super) fn replace(&mut self, address: PciAddress, serial: u64) -> io::Result<()> {
        let old = self.remove(address)?;
        let spec = DeviceSpec { serial, fault: None, ..old.device.spec };
        let mut slot = Slot::plug(&self.files, &self.events, spec, old.number)?;
        slot.power_cycle(&self.files)?;
        self.slots.insert(address, slot);
        Ok(())
    }

    /// Takes in all that has happened so far, then carries out what is due; returns when something will be.
    ///
    /// The counts are on record before a writer is let through, so that whoever waited for a reset finds it counted.
    pub(super) fn catch_up(&mut self) -> io::Result<Option<Instant>> {
        self.take_events()?;
        let mut next = None;
        for slot in self.slots.values_mut() {
            let due = slot.advance(&self.files, Instant::now())?;
            next = [next, due].into_iter().flatten().min();
        }
        self.record()?;
        self.slots.values_mut().try_for_each(|slot| slot.gates.release())?;
        Ok(next)
    }

    /// A device's counts, whatever of a session is not reported yet.
    pub(super) fn counts(&mut self, address: PciAddress) -> io::Result<Counts> {
        let slot = slot(&mut self.slots, address)?;
        if slot.device.scrubs.is_open() {
            slot.look(&mut self.events)?;
            self.take_events()?;
        }
        Ok(self.slot(address)?.device.counts())
    }

    fn take_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.events.next()? {
            for slot in self.slots.values_mut() {
                slot.take(&self.files, &mut self.events, &event)?;
            }
        }
        Ok(())
    }

    fn record(&mut self) -> io::Result<()> {
        let counts = self.slots.iter().map(|(address, slot)| (*address, slot.device.counts())).collect();
        if self.recorded.as_ref() != Some(&counts) {
            self.files.put(&self.files.counts(), &serde_json::to_vec(&counts)?)?;
            self.recorded = Some(counts);
        }
        Ok(())
    }
}

fn slot(slots: &mut BTreeMap<PciAddress, Slot>, address: PciAddress) -> io::Result<&mut Slot> {
    slots.get_mut(&address).ok_or_else(|| missing(address))
}

/// A plain file takes every write, and holds what was written.
fn possible(fault: Option<Fault>) -> io::Result<()> {
    match fault.filter(|fault| fault.needs_fuse()) {
        None => Ok(()),
        Some(fault) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("a folder cannot show the fault {fault:?}: that takes the mount of tests/fuse"),
        )),
    }
}

fn missing(address: PciAddress) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no device {address}"))
}
