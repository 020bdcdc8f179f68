use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::files::Files;
use super::gate::Gate;
use super::memory::Memory;
use super::service::more;
use crate::sim::DeviceSpec;
use crate::sim::model::Device;

/// One device and its files.
///
/// `gate` stands in the folder. Who comes to it takes it to `waiting`, whose first has its reset due at `due`, unless
/// the device hangs; it is opened in `done` and stays there until its writers have left.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) device: Device,
    pub(super) memory: Memory,
    watch: WatchDescriptor,
    sessions: u32,
    pub(super) number: u32,
    folder: PathBuf,
    shown: Vec<(&'static str, String)>,
    gate: Gate,
    waiting: VecDeque<Gate>,
    due: Option<Instant>,
    done: Vec<Gate>,
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
        // Writes too, since equal events next to each other come as one: two sessions must not.
        let events = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE;
        // Last, so that what we opened ourselves is not taken for the daemon's doing.
        let watch = inotify.add_watch(&folder, events)?;
        let mut slot = Self {
            device,
            memory,
            watch,
            sessions: 0,
            number,
            folder,
            shown: Vec::new(),
            gate,
            waiting: VecDeque::new(),
            due: None,
            done: Vec::new(),
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

    /// A tenant leaves `bytes` in memory.
    pub(super) fn leave(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(offset, bytes)?;
        self.device.scrubs.start_over(self.memory.read()?);
        Ok(())
    }

    /// Power off and on. Attributes are as at boot again, whatever the daemon wrote to them.
    pub(super) fn power_cycle(&mut self, files: &Files) -> io::Result<()> {
        self.memory.noise()?;
        self.device.power_cycle(self.memory.read()?);
        self.shown.clear();
        self.show(files)
    }

    /// Takes an event in; `later` are those after it.
    pub(super) fn take(
        &mut self,
        files: &Files,
        inotify: &Inotify,
        event: &InotifyEvent,
        later: &mut VecDeque<InotifyEvent>,
    ) -> io::Result<()> {
        let is_opened = event.mask.contains(AddWatchFlags::IN_OPEN);
        if event.wd != self.watch {
            return if is_opened { self.writer_came(files, inotify, event.wd) } else { Ok(()) };
        }
        if !is_write_combining(event) {
            return Ok(());
        }
        if is_opened {
            self.sessions += 1;
            self.device.session_begins(self.memory.named());
            self.memory.name(files, self.device.target())?;
        } else if event.mask.intersects(AddWatchFlags::IN_CLOSE) {
            self.sessions = self.sessions.saturating_sub(1);
            self.look(inotify, later)?;
        }
        Ok(())
    }

    /// Looks at what the memory holds, unless the next session has begun meanwhile.
    pub(super) fn look(&mut self, inotify: &Inotify, later: &mut VecDeque<InotifyEvent>) -> io::Result<()> {
        let content = self.memory.read()?;
        // That a session began is queued before it can write. So when it is not, this is what the last one left.
        more(inotify, later)?;
        let is_begin = |event: &InotifyEvent| {
            event.wd == self.watch && is_write_combining(event) && event.mask.contains(AddWatchFlags::IN_OPEN)
        };
        if !later.iter().any(is_begin) {
            self.device.scrubs.look(content, self.sessions == 0);
        }
        Ok(())
    }

    /// Who opened the gate of `watch`, if it is one of these, waits for a reset.
    fn writer_came(&mut self, files: &Files, inotify: &Inotify, watch: WatchDescriptor) -> io::Result<()> {
        if self.gate.watch == watch {
            let fresh = new_gate(files, &self.folder, inotify)?;
            self.waiting.push_back(std::mem::replace(&mut self.gate, fresh));
        }
        if let Some(gate) = self.waiting.iter_mut().find(|gate| gate.watch == watch) {
            gate.owed += 1;
        }
        Ok(())
    }

    /// Carries out resets that are due, up to where the next one has to wait; returns until when.
    pub(super) fn advance(&mut self, files: &Files, now: Instant) -> io::Result<Option<Instant>> {
        while let Some(first) = self.waiting.front_mut() {
            match (self.due, self.device.reset_takes()) {
                (Some(due), _) if now < due => return Ok(self.due),
                (Some(_), _) => {
                    self.due = None;
                    self.device.was_reset();
                    first.owed -= 1;
                    if first.owed == 0 {
                        self.done.extend(self.waiting.pop_front());
                    }
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
        for gate in std::mem::take(&mut self.done) {
            gate.open()?;
            if !gate.is_left()? {
                self.done.push(gate);
            }
        }
        Ok(())
    }
}

fn is_write_combining(event: &InotifyEvent) -> bool {
    event.name.as_ref().is_some_and(|name| name == "resource0_wc")
}

fn new_gate(files: &Files, folder: &Path, inotify: &Inotify) -> io::Result<Gate> {
    Gate::put(&folder.join("reset"), &files.aside("gate"), inotify)
}
