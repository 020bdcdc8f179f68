use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::types::{PciAddress, Roots};

/// Where everything lies below a twin's root.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    pub(super) roots: Roots,
}

impl Files {
    /// Lays out the folders that do not depend on a device. `root` must hold no other tree: nothing is removed.
    pub(super) fn create(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        let roots = Roots::below(&root);
        for part in [&roots.sys, &roots.dev, &roots.proc] {
            fs::create_dir(part)?;
        }
        fs::create_dir_all(root.join(".twin"))?;
        fs::create_dir_all(roots.pci_devices())?;
        fs::create_dir_all(roots.sys.join("devices/pci0000:00"))?;
        fs::create_dir_all(roots.proc.join("sys/kernel/random"))?;
        let files = Self { root, roots };
        files.renew_boot_id()?;
        Ok(files)
    }

    /// The folder that a device's link in `bus/pci/devices` points to.
    pub(super) fn device(&self, address: PciAddress) -> PathBuf {
        self.roots.sys.join("devices/pci0000:00").join(address.to_string())
    }

    /// A place beside the tree, on its file system, that nobody looks at.
    pub(super) fn aside(&self, name: &str) -> PathBuf {
        self.root.join(".twin").join(name)
    }

    pub(super) fn counts(&self) -> PathBuf {
        self.root.join("counts.json")
    }

    pub(super) fn renew_boot_id(&self) -> io::Result<()> {
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

    /// The links that a driver leaves; `group`: the IOMMU group's number for vfio-pci.
    pub(super) fn bind(&self, address: PciAddress, driver: &str, group: u32) -> io::Result<()> {
        let folder = self.device(address);
        fs::create_dir_all(self.roots.sys.join("bus/pci/drivers").join(driver))?;
        symlink(format!("../../../bus/pci/drivers/{driver}"), folder.join("driver"))?;
        if driver == "vfio-pci" {
            let members = self.roots.sys.join(format!("kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(&members)?;
            symlink(format!("../../../../devices/pci0000:00/{address}"), members.join(address.to_string()))?;
            symlink(format!("../../../kernel/iommu_groups/{group}"), folder.join("iommu_group"))?;
            fs::create_dir_all(self.roots.dev.join("vfio"))?;
            self.put(&self.roots.dev.join("vfio/vfio"), b"")?;
            self.put(&self.roots.dev.join(format!("vfio/{group}")), b"")?;
        }
        Ok(())
    }

    /// Takes a device's folder, links and node away, the link on the bus first.
    pub(super) fn unplug(&self, address: PciAddress, group: u32) -> io::Result<()> {
        fs::remove_file(self.roots.pci_device(address))?;
        fs::remove_dir_all(self.device(address))?;
        for path in [
            self.roots.sys.join(format!("kernel/iommu_groups/{group}")),
            self.roots.dev.join(format!("vfio/{group}")),
        ] {
            gone(if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) })?;
        }
        Ok(())
    }

    /// A process with the device's memory open.
    pub(super) fn hold(&self, address: PciAddress, pid: u32, comm: &str, cgroup: &str) -> io::Result<()> {
        let process = self.process(pid);
        fs::create_dir_all(process.join("fd"))?;
        self.put(&process.join("comm"), format!("{comm}\n").as_bytes())?;
        self.put(&process.join("cgroup"), format!("{cgroup}\n").as_bytes())?;
        symlink("/dev/null", process.join("fd/0"))?;
        symlink(self.device(address).join("resource0"), process.join("fd/3"))
    }

    pub(super) fn let_go(&self, pid: u32) -> io::Result<()> {
        fs::remove_dir_all(self.process(pid))
    }

    fn process(&self, pid: u32) -> PathBuf {
        self.roots.proc.join(pid.to_string())
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
