use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PciAddress;

/// The kernel's views, the only seam between us and a machine: a real node has `/sys`, `/dev`, `/proc`, a twin
/// has folders that look like them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots {
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// Where device nodes are.
    pub dev: PathBuf,
    /// Where procfs is mounted.
    pub proc: PathBuf,
}

impl Roots {
    /// `<sys>/bus/pci/devices`, one link per function.
    #[must_use]
    pub fn pci_devices(&self) -> PathBuf {
        self.sys.join("bus/pci/devices")
    }

    /// The folder of one function's attributes.
    #[must_use]
    pub fn pci_device(&self, address: PciAddress) -> PathBuf {
        self.pci_devices().join(address.to_string())
    }

    /// `<proc>/sys/kernel/random/boot_id`, new at every boot.
    #[must_use]
    pub fn boot_id(&self) -> PathBuf {
        self.proc.join("sys/kernel/random/boot_id")
    }

    /// Whether `sys` is anything but the kernel's sysfs: then the devices are a twin's, and everybody is told so.
    #[must_use]
    pub fn are_simulated(&self) -> bool {
        use nix::sys::statfs::{SYSFS_MAGIC, statfs};
        !statfs(&self.sys).is_ok_and(|fs| fs.filesystem_type() == SYSFS_MAGIC)
    }

    /// Roots below one folder, as twins lay them out.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self { sys: folder.join("sys"), dev: folder.join("dev"), proc: folder.join("proc") }
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}
