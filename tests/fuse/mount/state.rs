use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use cleanslate::sim::{Device, DeviceSpec, Layout, Links, Target};
use cleanslate::types::PciAddress;
use fuser::{Errno, INodeNo};

use super::slot::Slot;
use super::tree::{FOLDER, Kind, inode, split};

/// All devices behind a mount, and what is open.
#[derive(Debug)]
pub(super) struct State {
    layout: Layout,
    /// By a number that no other device ever had.
    slots: BTreeMap<u64, Slot>,
    plugged: u64,
    holders: BTreeSet<u32>,
    open: BTreeMap<u64, Open>,
    opened: u64,
    is_closed: bool,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    /// A text as it was when its start was read.
    pub(super) text: Vec<u8>,
    /// Where its writes go, for a session of writes.
    pub(super) session: Option<Target>,
}

impl State {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            slots: BTreeMap::new(),
            plugged: 0,
            holders: BTreeSet::new(),
            open: BTreeMap::new(),
            opened: 0,
            is_closed: false,
        }
    }

    pub(super) fn plug(&mut self, spec: DeviceSpec) -> io::Result<()> {
        let number = 1 + u32::try_from(self.slots.len()).map_err(io::Error::other)?;
        self.plug_as(spec, number)
    }

    fn plug_as(&mut self, spec: DeviceSpec, number: u32) -> io::Result<()> {
        let address = spec.address;
        let links = self.links(address, spec.driver.as_deref(), number)?;
        self.plugged += 1;
        self.slots.insert(self.plugged, Slot::new(spec, number, links)?);
        self.layout.plug(address)
    }

    fn links(&self, address: PciAddress, driver: Option<&str>, number: u32) -> io::Result<Links> {
        driver.map_or(Ok(Links::new()), |driver| self.layout.bind(address, driver, number))
    }

    /// The device at an address.
    pub(super) fn at(&mut self, address: PciAddress) -> io::Result<&mut Slot> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no device {address}"));
        self.slots.values_mut().find(|slot| slot.device.spec().address == address).ok_or_else(missing)
    }

    /// The device of an inode. Files of one that is gone stay dead, also when another one has come.
    pub(super) fn of(&mut self, inode: INodeNo) -> Result<(&mut Slot, Kind), Errno> {
        let (device, number) = split(inode);
        if self.is_closed {
            return Err(Errno::ENODEV);
        }
        let slot = self.slots.get_mut(&device).ok_or(Errno::ENODEV)?;
        let kind = slot.kind(number).ok_or(Errno::ENODEV)?;
        Ok((slot, kind))
    }

    /// What is in a folder, with names and kinds.
    pub(super) fn entries(&mut self, folder: INodeNo) -> Result<Vec<(INodeNo, String, Kind)>, Errno> {
        if folder == INodeNo::ROOT {
            let of = |(number, slot): (&u64, &Slot)| {
                let name = slot.device.spec().address.to_string();
                (inode(*number, FOLDER), name, Kind::Folder)
            };
            return if self.is_closed { Err(Errno::ENODEV) } else { Ok(self.slots.iter().map(of).collect()) };
        }
        let (device, number) = split(folder);
        let (slot, _) = self.of(folder)?;
        let inside = slot.entries().into_iter().filter(|entry| entry.parent == number);
        Ok(inside.map(|entry| (inode(device, entry.number), entry.name, entry.kind)).collect())
    }

    pub(super) fn open(&mut self, session: Option<Target>) -> u64 {
        self.opened += 1;
        self.open.insert(self.opened, Open { text: Vec::new(), session });
        self.opened
    }

    pub(super) fn opened(&mut self, handle: u64) -> Option<&mut Open> {
        self.open.get_mut(&handle)
    }

    pub(super) fn close_file(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    pub(super) fn bind(&mut self, address: PciAddress, driver: Option<String>) -> io::Result<()> {
        let number = self.at(address)?.number;
        self.layout.unbind(number)?;
        let links = self.links(address, driver.as_deref(), number)?;
        let slot = self.at(address)?;
        slot.links = links;
        slot.device.bind(driver);
        Ok(())
    }

    pub(super) fn hold(&mut self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        self.at(address)?;
        self.layout.hold(address, pid, comm, cgroup)?;
        self.holders.insert(pid);
        Ok(())
    }

    pub(super) fn let_go(&mut self, pid: u32) -> io::Result<()> {
        self.layout.let_go(pid)?;
        self.holders.remove(&pid);
        Ok(())
    }

    pub(super) fn reboot(&mut self) -> io::Result<()> {
        for pid in std::mem::take(&mut self.holders) {
            self.layout.let_go(pid)?;
        }
        self.slots.values_mut().try_for_each(Slot::power_cycle)?;
        self.layout.renew_boot_id()
    }

    pub(super) fn remove(&mut self, address: PciAddress) -> io::Result<Slot> {
        self.at(address)?;
        let is_it = |slot: &Slot| slot.device.spec().address == address;
        let found = self.slots.iter().find(|(_, slot)| is_it(slot)).map(|(number, _)| *number);
        let mut slot = found.and_then(|number| self.slots.remove(&number)).ok_or(io::ErrorKind::NotFound)?;
        slot.end();
        self.layout.unplug(address)?;
        self.layout.unbind(slot.number)?;
        Ok(slot)
    }

    pub(super) fn replace(&mut self, address: PciAddress, serial: u64) -> io::Result<()> {
        let old = self.remove(address)?;
        let spec = DeviceSpec { serial, fault: None, ..old.device.spec().clone() };
        self.plug_as(spec, old.number)?;
        self.at(address)?.power_cycle()
    }

    /// Goes on to `now`; when something will happen by itself.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Instant> {
        self.slots.values_mut().filter_map(|slot| slot.advance(now)).min()
    }

    /// The machine is switched off: nobody is answered any more but by an error.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.slots.values_mut().for_each(Slot::end);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// What a text attribute holds now.
pub(super) fn text(device: &Device, name: &str) -> Vec<u8> {
    let attribute = device.attributes().into_iter().find(|(path, _)| *path == name);
    attribute.map_or_else(Vec::new, |(_, text)| text.into_bytes())
}
