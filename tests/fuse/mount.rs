//! The second mount of the twins: a file system of our own where a device's folder is, so that every read and write
//! is the device's to answer. What it can do and a folder cannot is listed in `src/sim.rs`.

mod filesystem;
mod slot;
mod state;
mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use cleanslate::sim::{Counts, DeviceSpec, Fault, Layout};
use cleanslate::types::{PciAddress, Roots};
use fuser::{BackgroundSession, Config, MountOption};
use nix::mount::{MntFlags, umount2};

use filesystem::Devices;
use state::State;

/// A mount's source in `/proc/mounts`, before the number of the process that serves it.
const NAME: &str = "cleanslate-twin-";

/// Simulated devices behind a mount, until it is dropped: then whoever waits for one is let go, and the mount is gone.
#[derive(Debug)]
pub(crate) struct Fuse {
    shared: Arc<Shared>,
    roots: Roots,
    mounted: PathBuf,
    clock: Option<JoinHandle<()>>,
    session: Option<BackgroundSession>,
}

/// What the server of requests, the clock and the tests share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Fuse {
    /// Lays the tree out below `root`, where none may be yet, and mounts the devices' folders in it.
    pub(crate) fn create(root: &Path, specs: Vec<DeviceSpec>) -> io::Result<Self> {
        Self::mount(root, specs, MountOption::RW)
    }

    /// The same, mounted as an unprivileged container sees sysfs.
    pub(crate) fn read_only(root: &Path, specs: Vec<DeviceSpec>) -> io::Result<Self> {
        Self::mount(root, specs, MountOption::RO)
    }

    fn mount(root: &Path, specs: Vec<DeviceSpec>, access: MountOption) -> io::Result<Self> {
        sweep()?;
        let layout = Layout::create(root)?;
        let (roots, mounted) = (layout.roots().clone(), layout.devices());
        let shared = Arc::new(Shared { state: Mutex::new(State::new(layout)), changed: Condvar::new() });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(format!("{NAME}{}", std::process::id())), access];
        let session = fuser::spawn_mount(Devices(Arc::clone(&shared)), &mounted, &config)?;
        let clock = std::thread::Builder::new().name("twin-clock".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.tick()
        })?;
        let fuse = Self { shared, roots, mounted, clock: Some(clock), session: Some(session) };
        specs.into_iter().try_for_each(|spec| fuse.with(|state| state.plug(spec)))?;
        Ok(fuse)
    }

    pub(crate) fn roots(&self) -> Roots {
        self.roots.clone()
    }

    pub(crate) fn counts(&self, address: PciAddress) -> io::Result<Counts> {
        self.with(|state| Ok(state.at(address)?.counts()))
    }

    pub(crate) fn set_fault(&self, address: PciAddress, fault: Option<Fault>) -> io::Result<()> {
        self.with(|state| {
            state.at(address)?.device.set_fault(fault);
            Ok(())
        })
    }

    pub(crate) fn bind(&self, address: PciAddress, driver: Option<&str>) -> io::Result<()> {
        self.with(|state| state.bind(address, driver.map(str::to_owned)))
    }

    pub(crate) fn reassign(&self, address: PciAddress) -> io::Result<()> {
        self.with(|state| {
            state.at(address)?.device.reassign();
            Ok(())
        })
    }

    pub(crate) fn leave(&self, address: PciAddress, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|state| state.at(address)?.leave(offset, bytes))
    }

    pub(crate) fn memory(&self, address: PciAddress) -> io::Result<Vec<u8>> {
        self.with(|state| Ok(state.at(address)?.memory.content().to_vec()))
    }

    pub(crate) fn hold(&self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        self.with(|state| state.hold(address, pid, comm, cgroup))
    }

    pub(crate) fn let_go(&self, pid: u32) -> io::Result<()> {
        self.with(|state| state.let_go(pid))
    }

    pub(crate) fn reboot(&self) -> io::Result<()> {
        self.with(State::reboot)
    }

    pub(crate) fn remove(&self, address: PciAddress) -> io::Result<()> {
        self.with(|state| state.remove(address).map(drop))
    }

    pub(crate) fn replace(&self, address: PciAddress, serial: u64) -> io::Result<()> {
        self.with(|state| state.replace(address, serial))
    }

    /// How many writers wait for a reset of the device.
    pub(crate) fn writers(&self, address: PciAddress) -> io::Result<usize> {
        self.with(|state| Ok(state.at(address)?.writers()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.shared.lock();
        state.advance(Instant::now());
        let result = act(&mut state);
        state.advance(Instant::now());
        self.shared.changed.notify_one();
        result
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.shared.lock().close();
        self.shared.changed.notify_one();
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
        // Lazily: a worker that was just let go may still have a file open, and then the session ends with it.
        let unmounted = umount2(&self.mounted, MntFlags::MNT_DETACH);
        drop(self.session.take());
        if !std::thread::panicking() {
            assert_eq!(unmounted, Ok(()), "{}", self.mounted.display());
        }
    }
}

/// Unmounts what processes have left that were killed: whoever waits there was let go when they ended.
fn sweep() -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/mounts")?.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(folder)) = (words.next(), words.next()) else { continue };
        let process = name.strip_prefix(NAME).map(|pid| Path::new("/proc").join(pid));
        if process.is_some_and(|process| !process.exists()) {
            // Another process may have swept it meanwhile.
            let _ = umount2(folder, MntFlags::MNT_DETACH);
        }
    }
    Ok(())
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time go on: resets end by themselves.
    fn tick(&self) {
        let mut state = self.lock();
        while !state.is_closed() {
            let next = state.advance(Instant::now());
            state = match next {
                Some(next) => {
                    let left = next.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
