//! What every mount of a twin does, by one text: `crate::Mount` is the one under test.

mod config;
mod lives;
mod memory;
mod resets;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cleanslate::sim::{Counts, DeviceSpec, Fault};
use cleanslate::types::PciAddress;

use crate::Mount;

pub(crate) const MEMORY: usize = 64 << 10;

/// A twin with one device.
pub(crate) struct Twin {
    pub(crate) mount: Mount,
    pub(crate) root: tempfile::TempDir,
}

pub(crate) fn address() -> PciAddress {
    "0000:3b:00.0".parse().unwrap()
}

pub(crate) fn twin(fields: &str) -> Twin {
    let root = tempfile::tempdir().unwrap();
    let spec: DeviceSpec = format!("0000:3b:00.0,memory={MEMORY}{fields}").parse().unwrap();
    Twin { mount: Mount::create(root.path(), vec![spec]).unwrap(), root }
}

impl Twin {
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.mount.roots().pci_device(address()).join(file)
    }

    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub(crate) fn config(&self) -> Vec<u8> {
        fs::read(self.path("config")).unwrap()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.mount.counts(address()).unwrap()
    }

    pub(crate) fn resets(&self) -> u32 {
        self.counts().resets
    }

    /// Writes `1` to `reset`; how long that took.
    pub(crate) fn reset(&self) -> Duration {
        reset(&self.path("reset"))
    }

    pub(crate) fn session(&self, byte: u8) {
        let file = OpenOptions::new().write(true).open(self.path("resource0_wc")).unwrap();
        file.write_all_at(&[byte; MEMORY], 0).unwrap();
    }

    pub(crate) fn set(&self, fault: Option<Fault>) {
        self.mount.set_fault(address(), fault).unwrap();
    }

    /// A writer in a process of its own, whose reset has begun by the time this returns.
    pub(crate) fn writer(&self) -> Child {
        let before = self.mount.writers(address()).unwrap();
        let child = writer_to(&self.path("reset"));
        until("it waits", || self.mount.writers(address()).unwrap() > before);
        child
    }
}

/// A process that writes to `reset`.
pub(crate) fn writer_to(reset: &Path) -> Child {
    // Not by `sh`, which truncates: the kernel lets nobody truncate a file behind FUSE while somebody writes to it.
    let to = format!("of={}", reset.display());
    let options = ["conv=notrunc,nocreat", "status=none"];
    let mut child = Command::new("dd").arg(to).args(options).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"1").unwrap();
    child
}

pub(crate) fn reset(path: &Path) -> Duration {
    let begun = Instant::now();
    OpenOptions::new().write(true).open(path).unwrap().write_all(b"1").unwrap();
    begun.elapsed()
}

pub(crate) fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}
