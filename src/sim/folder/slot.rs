use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Instant;

use nix::sys::inotify::{AddWatchFlags, InotifyEvent, WatchDescriptor};

use super::config::ConfigFile;
use super::events::Events;
use super::gates::Gates;
use super::memory::Memory;
use crate::sim::DeviceSpec;
use crate::sim::layout::{Layout, gone};
use crate::sim::model::{Device, Wrote};

/// One device and its files.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) device: Device,
    pub(super) memory: Memory,
    pub(super) gates: Gates,
    /// Unlike that of any other slot; its IOMMU group has the same.
    pub(super) number: u32,
    folder: PathBuf,
    watch: WatchDescriptor,
    sessions: u32,
    shown: Vec<(&'static str, String)>,
    config: ConfigFile,
}

impl Slot {
    /// Plugs a device in.
    pub(super) fn plug(files: &Layout, events: &Events, spec: DeviceSpec, number: u32) -> io::Result<Self> {
        spec.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let address = spec.address;
        let folder = files.device(address);
        fs::create_dir_all(folder.join("power"))?;
        let decoy = files.aside(&format!("{address}-decoy"));
        let memory = Memory::create(files, &folder, decoy, spec.memory)?;
        let device = Device::new(spec, number, memory.read()?);
        let config = ConfigFile::create(files, folder.join("config"), &device.config())?;
        let gates = Gates::put(files, events, &folder)?;
        // Writes too, since equal events next to each other come as one: two sessions must not.
        let what = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE;
        // Last, so that what we opened ourselves is not taken for the daemon's doing.
        let watch = events.watch(&folder, what)?;
        let mut slot =
            Self { device, memory, gates, number, folder, watch, sessions: 0, shown: Vec::new(), config };
        slot.show(files)?;
        slot.bind(files, slot.device.spec.driver.clone())?;
        files.plug(address)?;
        Ok(slot)
    }

    /// Binds a driver, or none.
    pub(super) fn bind(&mut self, files: &Layout, driver: Option<String>) -> io::Result<()> {
        for link in ["driver", "iommu_group"] {
            gone(fs::remove_file(self.folder.join(link)))?;
        }
        files.unbind(self.number)?;
        if let Some(driver) = &driver {
            for (link, target) in files.bind(self.device.spec.address, driver, self.number)? {
                symlink(target, self.folder.join(link))?;
            }
        }
        self.device.bind(driver);
        Ok(())
    }

    /// Brings the files to what the device answers now. An attribute that is as it was shown keeps what the daemon
    /// wrote to it.
    pub(super) fn show(&mut self, files: &Layout) -> io::Result<()> {
        self.memory.name(files, self.device.target())?;
        self.config.show(files, &self.device.config(), self.device.is_deaf())?;
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
    pub(super) fn power_cycle(&mut self, files: &Layout) -> io::Result<()> {
        self.memory.noise()?;
        self.device.power_cycle(self.memory.read()?);
        self.shown.clear();
        self.show(files)
    }

    /// Takes an event in.
    pub(super) fn take(
        &mut self,
        files: &Layout,
        events: &mut Events,
        event: &InotifyEvent,
    ) -> io::Result<()> {
        if event.wd != self.watch && event.mask.contains(AddWatchFlags::IN_OPEN) {
            return self.gates.opened(files, events, event.wd);
        }
        if self.is_config_write(event) {
            self.config_written(files)?;
        } else if self.is_begin(event) {
            self.sessions += 1;
            self.device.session_begins(self.memory.named());
            self.memory.name(files, self.device.target())?;
        } else if self.is_end(event) {
            self.sessions = self.sessions.saturating_sub(1);
            self.look(events)?;
        }
        Ok(())
    }

    /// Tells the device what was written to its config space.
    fn config_written(&mut self, files: &Layout) -> io::Result<()> {
        let mut is_shown = true;
        for (at, bytes) in self.config.written()? {
            is_shown &= self.device.write_config(at, &bytes, Instant::now()) == Wrote::Taken;
        }
        if is_shown { Ok(()) } else { self.show(files) }
    }

    /// Looks at what the memory holds, unless the next session has begun meanwhile.
    pub(super) fn look(&mut self, events: &mut Events) -> io::Result<()> {
        let content = self.memory.read()?;
        // That a session began is known before it can write. So when it is not, this is what the last one left.
        if !events.later()?.any(|event| self.is_begin(event)) {
            self.device.scrubs.look(content, self.sessions == 0);
        }
        Ok(())
    }

    /// Carries out the resets that are due; returns when the next one will be.
    pub(super) fn advance(&mut self, files: &Layout, now: Instant) -> io::Result<Option<Instant>> {
        let resets = self.gates.advance(now, self.device.reset_takes())?;
        if resets > 0 {
            self.device.was_reset(resets);
            self.show(files)?;
        }
        if self.device.advance(now) {
            self.show(files)?;
        }
        Ok([self.gates.due(), self.device.resets_until()].into_iter().flatten().min())
    }

    fn is_config_write(&self, event: &InotifyEvent) -> bool {
        let is_config = event.name.as_ref().is_some_and(|name| name == "config");
        event.wd == self.watch && is_config && event.mask.contains(AddWatchFlags::IN_MODIFY)
    }

    fn is_begin(&self, event: &InotifyEvent) -> bool {
        self.is_session(event) && event.mask.contains(AddWatchFlags::IN_OPEN)
    }

    fn is_end(&self, event: &InotifyEvent) -> bool {
        self.is_session(event) && event.mask.intersects(AddWatchFlags::IN_CLOSE)
    }

    fn is_session(&self, event: &InotifyEvent) -> bool {
        event.wd == self.watch && event.name.as_ref().is_some_and(|name| name == "resource0_wc")
    }
}
