mod files;
mod gate;
mod memory;
mod service;
mod slot;

use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{InitFlags, Inotify};

use self::files::Files;
use self::service::Service;
use self::slot::Slot;
use super::{Counts, DeviceSpec, Fault};
use crate::types::{PciAddress, Roots};

/// A folder of simulated devices, served until it is dropped; the files stay.
///
/// `<root>/counts.json` holds every device's [`Counts`], written anew after each change.
#[derive(Debug)]
pub struct Folder {
    shared: Arc<Shared>,
    wake: Option<PipeWriter>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    inotify: Inotify,
    service: Mutex<Service>,
}

impl Folder {
    /// Lays the tree out below `root`, where none may be yet, and begins to serve it.
    ///
    /// # Errors
    /// When there is a tree already, or the files cannot be made.
    pub fn create(root: &Path, specs: Vec<DeviceSpec>) -> io::Result<Self> {
        let files = Files::create(root)?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut slots = BTreeMap::new();
        for (number, spec) in (1..).zip(specs) {
            slots.insert(spec.address, Slot::plug(&files, &inotify, spec, number)?);
        }
        let mut service = Service::new(files, slots);
        service.catch_up(&inotify)?;
        let shared = Arc::new(Shared { inotify, service: Mutex::new(service) });
        let (woken, wake) = io::pipe()?;
        let server = std::thread::Builder::new().name("twin".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.serve(woken)
        })?;
        Ok(Self { shared, wake: Some(wake), server: Some(server) })
    }

    /// What a daemon is given to see these devices.
    #[must_use]
    pub fn roots(&self) -> Roots {
        self.shared.lock().files.roots.clone()
    }

    /// A device's counts, with everything in them that had happened before the call.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn counts(&self, address: PciAddress) -> io::Result<Counts> {
        self.with(|service| Ok(service.slot(address)?.device.counts))
    }

    /// Gives a device another fault, or none, which also undoes what the last one did to it.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn set_fault(&self, address: PciAddress, fault: Option<Fault>) -> io::Result<()> {
        self.with(|service| {
            service.slot(address)?.device.set_fault(fault);
            service.show(address)
        })
    }

    /// Leaves `bytes` in a device's memory at `offset`, as a tenant does.
    ///
    /// # Errors
    /// When there is no such device or they do not fit.
    pub fn leave(&self, address: PciAddress, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|service| {
            let slot = service.slot(address)?;
            slot.memory.write(offset, bytes)?;
            slot.device.now_holds(slot.memory.read()?);
            Ok(())
        })
    }

    /// What a device's memory holds.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory(&self, address: PciAddress) -> io::Result<Vec<u8>> {
        self.with(|service| service.slot(address)?.memory.read())
    }

    /// Starts a fake process in `cgroup` (a line of `/proc/<pid>/cgroup`) that has the device's memory open.
    ///
    /// # Errors
    /// When there is no such device, or such a process already.
    pub fn hold(&self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        self.with(|service| {
            service.slot(address)?;
            service.files.hold(address, pid, comm, cgroup)?;
            service.holders.insert(pid);
            Ok(())
        })
    }

    /// Ends a fake process.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn let_go(&self, pid: u32) -> io::Result<()> {
        self.with(|service| service.let_go(pid))
    }

    /// Power off and on: another boot id, no process left, noise in every memory, what resets had broken works again.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn reboot(&self) -> io::Result<()> {
        self.with(Service::reboot)
    }

    /// Pulls a device out.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn remove(&self, address: PciAddress) -> io::Result<()> {
        self.with(|service| service.remove(address).map(drop))
    }

    /// Puts another card of the same kind into a slot: healthy, never reset, noise in its memory.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn replace(&self, address: PciAddress, serial: u64) -> io::Result<()> {
        self.with(|service| service.replace(&self.shared.inotify, address, serial))
    }

    /// Runs `act` between what happened before it and what follows from it.
    fn with<T>(&self, act: impl FnOnce(&mut Service) -> io::Result<T>) -> io::Result<T> {
        let mut service = self.shared.lock();
        service.catch_up(&self.shared.inotify)?;
        let result = act(&mut service);
        service.catch_up(&self.shared.inotify)?;
        drop(service);
        if let Some(mut wake) = self.wake.as_ref() {
            wake.write_all(&[0])?;
        }
        result
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(server) = self.server.take() {
            // It has logged what ended it.
            let _ = server.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until the other end of `woken` is closed.
    fn serve(&self, mut woken: PipeReader) {
        let mut next = None;
        loop {
            match self.wait(&mut woken, next) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::error!(%error, "twin stops"),
            }
            next = match self.lock().catch_up(&self.inotify) {
                Ok(next) => next,
                Err(error) => return tracing::error!(%error, "twin stops"),
            };
        }
    }

    /// Waits for an event or `next`; false when the folder is dropped.
    fn wait(&self, woken: &mut PipeReader, next: Option<Instant>) -> io::Result<bool> {
        let timeout = match next {
            // Rounded up, since a wait that ends early would spin.
            Some(next) => {
                let left = next.saturating_duration_since(Instant::now()).as_millis() + 1;
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut fds = [self.inotify.as_fd(), woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_woken = fds[1].any().unwrap_or(false);
        Ok(!is_woken || woken.read(&mut [0; 64])? > 0)
    }
}
