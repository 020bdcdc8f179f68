mod config;
mod events;
mod gate;
mod gates;
mod memory;
mod server;
mod service;
mod slot;

use std::io::{self, PipeWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use self::server::Server;
use self::service::Service;
use super::layout::Layout;
use super::{Counts, DeviceSpec, Fault};
use crate::types::{PciAddress, Roots};

/// A folder of simulated devices, served until it is dropped; the files stay.
///
/// `<root>/counts.json` holds every device's [`Counts`], written anew after each change.
#[derive(Debug)]
pub struct Folder {
    service: Arc<Mutex<Service>>,
    wake: Option<PipeWriter>,
    server: Option<JoinHandle<()>>,
}

impl Folder {
    /// Lays the tree out below `root`, where none may be yet, and begins to serve it.
    ///
    /// # Errors
    /// When there is a tree already, or the files cannot be made.
    pub fn create(root: &Path, specs: Vec<DeviceSpec>) -> io::Result<Self> {
        let service = Service::new(Layout::create(root)?, specs)?;
        let events = service.events.descriptor()?;
        let service = Arc::new(Mutex::new(service));
        let (woken, wake) = io::pipe()?;
        let server = Server { service: Arc::clone(&service), events, woken };
        let server = std::thread::Builder::new().name("twin".into()).spawn(move || server.serve())?;
        Ok(Self { service, wake: Some(wake), server: Some(server) })
    }

    /// What a daemon is given to see these devices.
    #[must_use]
    pub fn roots(&self) -> Roots {
        lock(&self.service).files.roots().clone()
    }

    /// A device's counts, with everything in them that had happened before the call.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn counts(&self, address: PciAddress) -> io::Result<Counts> {
        self.with(|service| service.counts(address))
    }

    /// Gives a device another fault, or none, which also undoes what the last one did to it.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn set_fault(&self, address: PciAddress, fault: Option<Fault>) -> io::Result<()> {
        self.with(|service| service.set_fault(address, fault))
    }

    /// Binds a driver to a device, or none.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn bind(&self, address: PciAddress, driver: Option<&str>) -> io::Result<()> {
        self.with(|service| service.bind(address, driver.map(str::to_owned)))
    }

    /// The kernel gives a device's BAR another place.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn reassign(&self, address: PciAddress) -> io::Result<()> {
        self.with(|service| service.reassign(address))
    }

    /// Leaves `bytes` in a device's memory at `offset`, as a tenant does.
    ///
    /// # Errors
    /// When there is no such device or they do not fit.
    pub fn leave(&self, address: PciAddress, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|service| service.leave(address, offset, bytes))
    }

    /// How many writers wait for a reset of a device.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn writers(&self, address: PciAddress) -> io::Result<usize> {
        self.with(|service| Ok(service.slot(address)?.gates.writers()))
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
        self.with(|service| service.hold(address, pid, comm, cgroup))
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
        self.with(|service| service.replace(address, serial))
    }

    /// Runs `act` between what happened before it and what follows from it.
    fn with<T>(&self, act: impl FnOnce(&mut Service) -> io::Result<T>) -> io::Result<T> {
        let mut service = lock(&self.service);
        service.catch_up()?;
        let result = act(&mut service);
        service.catch_up()?;
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

fn lock(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
