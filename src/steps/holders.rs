//! Which processes have a device open: its BARs through sysfs, or its device nodes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::failure;
use crate::pci::driver;
use crate::pci::sysfs::Function;
use crate::types::{HolderProcess, PciAddress, Roots};
use crate::worker::{Code, Failure};

/// Scans `/proc/*/fd`. Needs the host's PID namespace and `CAP_SYS_PTRACE`: a process that cannot be looked into
/// may hold anything, so it fails the step.
pub(super) fn holders(
    roots: &Roots,
    address: PciAddress,
    function: &Function,
) -> Result<Vec<HolderProcess>, Failure> {
    let io = |error| failure(Code::Io, &error);
    let nodes = driver::nodes(roots, function).map_err(io)?.into_iter().map(|node| node.path);
    let nodes: Vec<_> = nodes.collect();
    let wanted = Wanted {
        address: address.to_string(),
        // The group's container, `/dev/vfio/vfio`, is everybody's.
        numbers: nodes
            .iter()
            .filter(|node| !node.ends_with("vfio/vfio"))
            .filter_map(|node| number(roots, node))
            .collect(),
        nodes,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&roots.proc).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(path) = wanted.in_process(&roots.proc.join(&name)).map_err(io)? {
            let text = |file: &str| fs::read_to_string(roots.proc.join(&name).join(file)).unwrap_or_default();
            let comm = text("comm").trim_end().to_owned();
            let cgroup = text("cgroup").lines().next_back().unwrap_or_default().to_owned();
            found.push(HolderProcess { pid, comm, cgroup, path: path.display().to_string() });
        }
    }
    Ok(found)
}

/// What an open file is compared with.
struct Wanted {
    address: String,
    nodes: Vec<PathBuf>,
    numbers: Vec<u64>,
}

impl Wanted {
    /// The first descriptor of a process that is the device's. A process that ends meanwhile holds nothing.
    fn in_process(&self, process: &Path) -> io::Result<Option<PathBuf>> {
        let gone = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
        };
        let entries = match fs::read_dir(process.join("fd")) {
            Ok(entries) => entries,
            Err(error) if gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let link = match entry {
                Ok(entry) => entry.path(),
                Err(error) if gone(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            match fs::read_link(&link) {
                Ok(target) if self.is_ours(&link, &target) => return Ok(Some(target)),
                Ok(_) => {}
                Err(error) if gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// By the link's text first: only below /dev is the file itself asked, since asking a hung network file system
    /// would hang us.
    fn is_ours(&self, link: &Path, target: &Path) -> bool {
        let mut parts = target.components().rev().map(|part| part.as_os_str().to_string_lossy());
        let (file, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let bar = folder == *self.address && file.starts_with("resource");
        let node = target.starts_with("/dev")
            && fs::metadata(link).is_ok_and(|meta| self.numbers.contains(&meta.rdev()) && meta.rdev() != 0);
        // A twin's nodes are plain files below its own dev folder.
        let twin = self.nodes.iter().any(|node| {
            let inside = node.strip_prefix("/dev").unwrap_or(node);
            !inside.ends_with("vfio/vfio")
                && !target.starts_with("/dev")
                && target.ends_with(Path::new("dev").join(inside))
        });
        bar || node || twin
    }
}

fn number(roots: &Roots, node: &Path) -> Option<u64> {
    let inside = node.strip_prefix("/dev").ok()?;
    fs::metadata(roots.dev.join(inside)).ok().map(|meta| meta.rdev())
}
