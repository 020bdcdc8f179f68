use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::types::{PciAddress, Roots};

/// Where everything lies below a twin's root, whatever serves the devices' own folders.
#[derive(Debug)]
pub struct Layout {
    root: PathBuf,
    roots: Roots,
}

/// The links in a device's folder that a driver leaves, each with its target.
pub type Links = Vec<(&'static str, String)>;

impl Layout {
    /// Lays out the folders that do not depend on a device. `root` must hold no other tree: nothing is removed.
    ///
    /// # Errors
    /// There is a tree already, or the folders cannot be made.
    pub fn create(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        let roots = Roots::below(&root);
        for part in [&roots.sys, &roots.dev, &roots.proc] {
            fs::create_dir(part)?;
        }
        fs::create_dir_all(root.join(".twin"))?;
        fs::create_dir_all(roots.pci_devices())?;
        fs::create_dir_all(roots.proc.join("sys/kernel/random"))?;
        let layout = Self { root, roots };
        fs::create_dir_all(layout.devices())?;
        layout.renew_boot_id()?;
        Ok(layout)
    }

    /// What a daemon is given to see these devices.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The folder of all devices' folders.
    #[must_use]
    pub fn devices(&self) -> PathBuf {
        self.roots.sys.join("devices/pci0000:00")
    }

    /// The folder that a device's link in `bus/pci/devices` points to.
    #[must_use]
    pub fn device(&self, address: PciAddress) -> PathBuf {
        self.devices().join(address.to_string())
    }

    /// A place beside the tree, on its file system, that nobody looks at.
    pub(super) fn aside(&self, name: &str) -> PathBuf {
        self.root.join(".twin").join(name)
    }

    pub(super) fn counts(&self) -> PathBuf {
        self.root.join("counts.json")
    }

    /// Another boot.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn renew_boot_id(&self) -> io::Result<()> {
        self.put(&self.roots.boot_id(), &fs::read("/proc/sys/kernel/random/uuid")?)
    }

    /// Makes `path` hold `content`, at once for whoever opens it.
    pub(super) fn put(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let draft = self.aside("draft");
        File::create(&draft)?.write_all(content)?;
        fs::rename(draft, path)
    }

    /// Makes `path` another name of `file`, at once.
    pub(super) fn name(&self, path: &Path, file: &Path) -> io::Result<()> {
        let draft = self.aside("draft");
        fs::hard_link(file, &draft)?;
        fs::rename(draft, path)
    }

    /// Puts a device on the bus, once its folder is there.
    ///
    /// # Errors
    /// There is one at the address, or the link cannot be made.
    pub fn plug(&self, address: PciAddress) -> io::Result<()> {
        symlink(format!("../../../devices/pci0000:00/{address}"), self.roots.pci_device(address))
    }

    /// Takes a device off the bus, before its folder goes.
    ///
    /// # Errors
    /// It is not there, or the link cannot be removed.
    pub fn unplug(&self, address: PciAddress) -> io::Result<()> {
        fs::remove_file(self.roots.pci_device(address))
    }

    /// Makes what a driver leaves outside the device's folder; `group`: the IOMMU group's number for vfio-pci.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn bind(&self, address: PciAddress, driver: &str, group: u32) -> io::Result<Links> {
        fs::create_dir_all(self.roots.sys.join("bus/pci/drivers").join(driver))?;
        let mut links = vec![("driver", format!("../../../bus/pci/drivers/{driver}"))];
        if driver == "vfio-pci" {
            let members = self.roots.sys.join(format!("kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(&members)?;
            symlink(format!("../../../../devices/pci0000:00/{address}"), members.join(address.to_string()))?;
            links.push(("iommu_group", format!("../../../kernel/iommu_groups/{group}")));
            fs::create_dir_all(self.roots.dev.join("vfio"))?;
            self.put(&self.roots.dev.join("vfio/vfio"), b"")?;
            self.put(&self.roots.dev.join(format!("vfio/{group}")), b"")?;
        }
        Ok(links)
    }

    /// Takes away what [`bind`](Self::bind) has made.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn unbind(&self, group: u32) -> io::Result<()> {
        gone(fs::remove_dir_all(self.roots.sys.join(format!("kernel/iommu_groups/{group}"))))?;
        gone(fs::remove_file(self.roots.dev.join(format!("vfio/{group}"))))
    }

    /// Starts a fake process that has the device's memory open.
    ///
    /// # Errors
    /// There is such a process, or its files cannot be made.
    pub fn hold(&self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        let process = self.process(pid);
        fs::create_dir_all(process.join("fd"))?;
        self.put(&process.join("comm"), format!("{comm}\n").as_bytes())?;
        self.put(&process.join("cgroup"), format!("{cgroup}\n").as_bytes())?;
        symlink("/dev/null", process.join("fd/0"))?;
        symlink(self.device(address).join("resource0"), process.join("fd/3"))
    }

    /// Ends a fake process.
    ///
    /// # Errors
    /// There is no such process.
    pub fn let_go(&self, pid: u32) -> io::Result<()> {
        fs::remove_dir_all(self.process(pid))
    }

    fn process(&self, pid: u32) -> PathBuf {
        self.roots.proc.join(pid.to_string())
    }
}

/// It is not there any more, which is as good.
pub(super) fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
