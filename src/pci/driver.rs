//! The driver of a function, and the device nodes through which a process uses it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};

use super::sysfs::{self, Function, named};
use crate::types::{DeviceNode, Roots};

/// How deep below a function's folder a driver keeps its character devices: `drm/card0/dev`, `accel/accel0/dev`.
const DEPTH: usize = 3;

/// Name of the bound driver; `None` is "unbound", not an error.
///
/// # Errors
/// The link is there and cannot be read.
pub fn bound(function: &Function) -> io::Result<Option<String>> {
    function.link_name("driver")
}

/// The device nodes of a function: for vfio-pci its group and `/dev/vfio/vfio`, for another driver the character
/// devices found below the function's folder, none for an unbound one. Paths are as a container sees them.
///
/// # Errors
/// sysfs cannot be read, or a node that must be there is not, or is another device's.
pub fn nodes(roots: &Roots, function: &Function) -> io::Result<Vec<DeviceNode>> {
    let Some(driver) = bound(function)? else { return Ok(Vec::new()) };
    let mut wanted = Vec::new();
    if driver == "vfio-pci" {
        let group = function.link_name("iommu_group")?.ok_or_else(|| {
            io::Error::other("bound to vfio-pci and has no iommu_group: the IOMMU is off on this node")
        })?;
        wanted = vec![(format!("vfio/{group}"), None), ("vfio/vfio".to_owned(), None)];
    } else {
        character_devices(function.folder(), DEPTH, &mut wanted)?;
        wanted.sort();
    }
    wanted.iter().map(|(name, number)| node(roots, name, number.as_deref())).collect()
}

/// A node below `/dev`, which must be there and be the device that the kernel means, where that is known.
fn node(roots: &Roots, name: &str, kernels: Option<&str>) -> io::Result<DeviceNode> {
    let path = roots.dev.join(name);
    let found = fs::metadata(path).map_err(named(&format!("device node {name}")))?;
    let number = || format!("{}:{}", major(found.rdev()), minor(found.rdev()));
    let kind = found.file_type();
    let number = (kind.is_char_device() || kind.is_block_device()).then(number);
    match (&number, kernels) {
        (Some(number), Some(kernels)) if number != kernels => {
            Err(io::Error::other(format!("device node {name} is {number}, the kernel's is {kernels}")))
        }
        _ => Ok(DeviceNode { path: Path::new("/dev").join(name), number }),
    }
}

/// Names below `/dev` with their numbers. What vanishes meanwhile is not there.
fn character_devices(
    folder: &Path,
    depth: usize,
    found: &mut Vec<(String, Option<String>)>,
) -> io::Result<()> {
    if depth == 0 {
        return Ok(());
    }
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(named(&folder.display().to_string()))?,
    };
    for entry in entries {
        let entry = entry?;
        // Links lead to other devices.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if let Some(number) = if_there(&path.join("dev"))? {
            let uevent = if_there(&path.join("uevent"))?.unwrap_or_default();
            let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
            found.extend(name.map(|name| (name.to_owned(), Some(number))));
        }
        character_devices(&path, depth - 1, found)?;
    }
    Ok(())
}

fn if_there(path: &Path) -> io::Result<Option<String>> {
    match sysfs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(&path.display().to_string())(error)),
    }
}
