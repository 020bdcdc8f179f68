use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::inotify::{AddWatchFlags, Inotify, WatchDescriptor};

use super::files::Files;
use super::gate::Gate;
use super::memory::Memory;
use crate::sim::DeviceSpec;
use crate::sim::model::Device;

/// One device and its files.
///
/// `gate` stands in the folder. Who comes to it takes it to `waiting`, whose first has its reset due at `due`, unless
/// the device hangs; an opened one stays in `opened` until its writers have left.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) device: Device,
    pub(super) memory: Memory,
    pub(super) watch: WatchDescriptor,
    pub(super) number: u32,
    folder: PathBuf,
    shown: Vec<(&'static str, String)>,
    gate: Gate,
    waiting: VecDeque<Gate>,
    due: Option<Instant>,
    opened: Vec<Gate>,
}

impl Slot {
    /// Plugs a device in; `number` is unlike that of any other slot.
    pub(super) fn plug(files: &Files, inotify: &Inotify, spec: DeviceSpec, number: u32) -> io::Result<Self> {
        let address = spec.address;
        let folder = files.device(address);
        fs::create_dir(&folder)?;
        let decoy = files.aside(&format!("{address}-decoy"));
        let memory = Memory::create(files, &folder, decoy, spec.memory)?;
        if let Some(driver) = &spec.driver {
            files.bind(address, driver, number)?;
        }
        let bar = (1 << 45) | u64::from(number) << 37;
        let device = Device::new(spec, bar, memory.read()?);
        let gate = new_gate(files, &folder, inotify)?;
        // Last, so that what we opened ourselves is not taken for the daemon's doing.
        let watch = inotify.add_watch(&folder, AddWatchFlags::IN_OPEN | AddWatchFlags::IN_CLOSE_WRITE)?;
        let mut slot = Self {
            device,
            memory,
            watch,
            number,
            folder,
            shown: Vec::new(),
            gate,
            waiting: VecDeque::new(),
            due: None,
            opened: Vec::new(),
        };
        slot.show(files)?;
        symlink(format!("../../../devices/pci0000:00/{address}"), files.roots.pci_device(address))?;
        Ok(slot)
    }

    /// Brings the files to what the device answers now. An attribute that is as it was shown keeps what the daemon
    /// wrote to it.
    pub(super) fn show(&mut self, files: &Files) -> io::Result<()> {
        self.memory.name(files, self.device.target())?;
        // In place, since whoever has it open sees the device, not a file.
        let config =
            File::options().write(true).create(true).truncate(false).open(self.folder.join("config"));
        config?.write_all(&self.device.config())?;
        let attributes = self.device.attributes();
        for attribute @ (name, content) in &attributes {
            if !self.shown.contains(attribute) {
                files.put(&self.folder.join(name), content.as_bytes())?;
            }
        }
        self.shown = attributes;
        Ok(())
    }

    /// Power off and on. Attributes are as at boot again, whatever the daemon wrote to them.
    pub(super) fn power_cycle(&mut self, files: &Files) -> io::Result<()> {
        self.memory.noise()?;
        self.device.power_cycle(self.memory.read()?);
        self.shown.clear();
        self.show(files)
    }

    /// Whether this is the watch of the gate in the folder, whose first writer has come then.
    pub(super) fn is_gate(&self, watch: WatchDescriptor) -> bool {
        self.gate.watch == watch
    }

    /// A writer has come.
    pub(super) fn queue(&mut self, files: &Files, inotify: &Inotify) -> io::Result<()> {
        let fresh = new_gate(files, &self.folder, inotify)?;
        self.waiting.push_back(std::mem::replace(&mut self.gate, fresh));
        Ok(())
    }

    /// Carries out resets that are due, up to where the next one has to wait; returns until when.
    pub(super) fn advance(&mut self, files: &Files, now: Instant) -> io::Result<Option<Instant>> {
        while let Some(first) = self.waiting.front() {
            match (self.due, self.device.reset_takes()) {
                (Some(due), _) if now < due => return Ok(self.due),
                (Some(_), _) => {
                    self.due = None;
                    self.device.was_reset();
                    self.opened.extend(self.waiting.pop_front());
                    self.show(files)?;
                }
                (None, Some(takes)) => self.due = Some(now + takes),
                (None, None) if first.is_left()? => drop(self.waiting.pop_front()),
                (None, None) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Lets the writers through whose resets are done. Whoever shares a gate comes through one by one.
    pub(super) fn release(&mut self) -> io::Result<()> {
        for gate in std::mem::take(&mut self.opened) {
            gate.open()?;
            if !gate.is_left()? {
                self.opened.push(gate);
            }
        }
        Ok(())
    }
}

fn new_gate(files: &Files, folder: &Path, inotify: &Inotify) -> io::Result<Gate> {
    Gate::put(&folder.join("reset"), &files.aside("gate"), inotify)
}
