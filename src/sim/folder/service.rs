use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent};

use super::files::Files;
use super::slot::Slot;
use crate::sim::model::Target;
use crate::sim::{Counts, DeviceSpec};
use crate::types::PciAddress;

/// All slots of a folder, and what happens to them.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) files: Files,
    pub(super) slots: BTreeMap<PciAddress, Slot>,
    pub(super) holders: BTreeSet<u32>,
    recorded: Option<BTreeMap<PciAddress, Counts>>,
}

impl Service {
    pub(super) fn new(files: Files, slots: BTreeMap<PciAddress, Slot>) -> Self {
        Self { files, slots, holders: BTreeSet::new(), recorded: None }
    }

    pub(super) fn slot(&mut self, address: PciAddress) -> io::Result<&mut Slot> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no device {address}"));
        self.slots.get_mut(&address).ok_or_else(missing)
    }

    /// Brings a device's files to what it is now.
    pub(super) fn show(&mut self, address: PciAddress) -> io::Result<()> {
        match self.slots.get_mut(&address) {
            Some(slot) => slot.show(&self.files),
            None => Ok(()),
        }
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
        self.slot(address)?;
        let slot = self.slots.remove(&address).ok_or(io::ErrorKind::NotFound)?;
        self.files.unplug(address, slot.number)?;
        Ok(slot)
    }

    pub(super) fn replace(&mut self, inotify: &Inotify, address: PciAddress, serial: u64) -> io::Result<()> {
        let old = self.remove(address)?;
        let spec = DeviceSpec { serial, fault: None, ..old.device.spec };
        let mut slot = Slot::plug(&self.files, inotify, spec, old.number)?;
        slot.power_cycle(&self.files)?;
        self.slots.insert(address, slot);
        Ok(())
    }

    /// Takes in all that has happened so far, then carries out what is due; returns when something will be.
    ///
    /// The counts are on record before a writer is let through, so that whoever waited for a reset finds it counted.
    pub(super) fn catch_up(&mut self, inotify: &Inotify) -> io::Result<Option<Instant>> {
        let mut events = VecDeque::new();
        more(inotify, &mut events)?;
        while let Some(event) = events.pop_front() {
            self.take(&event, inotify, &mut events)?;
        }
        let mut next = None;
        for slot in self.slots.values_mut() {
            let due = slot.advance(&self.files, Instant::now())?;
            next = [next, due].into_iter().flatten().min();
        }
        self.record()?;
        self.slots.values_mut().try_for_each(Slot::release)?;
        Ok(next)
    }

    fn take(
        &mut self,
        event: &InotifyEvent,
        inotify: &Inotify,
        later: &mut VecDeque<InotifyEvent>,
    ) -> io::Result<()> {
        for slot in self.slots.values_mut() {
            if slot.is_gate(event.wd) && event.mask.contains(AddWatchFlags::IN_OPEN) {
                return slot.queue(&self.files, inotify);
            }
            if slot.watch != event.wd || !event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
                continue;
            }
            let target = match event.name.as_ref().and_then(|name| name.to_str()) {
                Some("resource0") => Target::Memory,
                Some(WRITE_COMBINED) => slot.memory.named(),
                _ => continue,
            };
            let content = slot.memory.read()?;
            // An opening is queued before anything can be written. So when none is, this is what the session left.
            more(inotify, later)?;
            let overtaken = later.iter().any(|event| is_opening(event, slot));
            slot.device.session_ended(target, (!overtaken).then_some(content));
            slot.memory.name(&self.files, slot.device.target())?;
        }
        Ok(())
    }

    fn record(&mut self) -> io::Result<()> {
        let counts = self.slots.iter().map(|(address, slot)| (*address, slot.device.counts)).collect();
        if self.recorded.as_ref() != Some(&counts) {
            self.files.put(&self.files.counts(), &serde_json::to_vec(&counts)?)?;
            self.recorded = Some(counts);
        }
        Ok(())
    }
}

const WRITE_COMBINED: &str = "resource0_wc";

fn is_opening(event: &InotifyEvent, slot: &Slot) -> bool {
    event.wd == slot.watch
        && event.mask.contains(AddWatchFlags::IN_OPEN)
        && event.name.as_ref().is_some_and(|name| name == WRITE_COMBINED)
}

fn more(inotify: &Inotify, events: &mut VecDeque<InotifyEvent>) -> io::Result<()> {
    loop {
        match inotify.read_events() {
            Ok(new) => events.extend(new),
            Err(Errno::EAGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
