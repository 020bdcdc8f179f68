//! The driver of a function, and the device nodes through which a process uses it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::sysfs::Function;
use crate::types::Roots;

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
/// sysfs cannot be read, or a node that must be there is not.
pub fn nodes(roots: &Roots, function: &Function) -> io::Result<Vec<PathBuf>> {
    let Some(driver) = bound(function)? else { return Ok(Vec::new()) };
    let names = if driver == "vfio-pci" {
        let group = function.link_name("iommu_group")?.ok_or_else(|| {
            io::Error::other("bound to vfio-pci and has no iommu_group: the IOMMU is off on this node")
        })?;
        vec![format!("vfio/{group}"), "vfio/vfio".to_owned()]
    } else {
        let mut names = Vec::new();
        character_devices(function.folder(), DEPTH, &mut names)?;
        names.sort();
        names
    };
    for name in &names {
        fs::metadata(roots.dev.join(name))
            .map_err(|error| io::Error::new(error.kind(), format!("device node {name}: {error}")))?;
    }
    Ok(names.into_iter().map(|name| Path::new("/dev").join(name)).collect())
}

fn character_devices(folder: &Path, depth: usize, names: &mut Vec<String>) -> io::Result<()> {
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Links lead to other devices.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if path.join("dev").exists() {
            let uevent = fs::read_to_string(path.join("uevent"))?;
            names.extend(uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned));
        }
        character_devices(&path, depth - 1, names)?;
    }
    Ok(())
}
