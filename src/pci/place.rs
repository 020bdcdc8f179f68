//! Where a function is in the machine. But for what a virtual one is a part of, only hints for schedulers and people:
//! what cannot be read is not known.

use std::ffi::OsStr;
use std::fs;
use std::io;

use super::sysfs::{Function, named, senseless};
use super::{driver, link};
use crate::types::{PciAddress, Place, Roots, VirtualOf};

/// Everything that links and cached attributes say.
///
/// # Errors
/// What it is a part of, or its driver, cannot be read.
pub fn of(roots: &Roots, address: PciAddress) -> io::Result<Place> {
    let function = &Function::at(roots, address);
    let (nodes, nodes_unreadable) = match driver::nodes(roots, function) {
        Ok(nodes) => (nodes, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Ok(Place {
        driver: driver::bound(function)?,
        numa_node: numa_node(function),
        pcie_root: root(function),
        root_port: link::root_port(roots, function).ok().flatten(),
        iommu_group: function.link_name("iommu_group").ok().flatten().and_then(|group| group.parse().ok()),
        virtual_of: virtual_of(roots, address)?,
        nodes,
        nodes_unreadable,
    })
}

/// The physical function of a virtual one, and the number that this one has there; `None` for one that is none.
///
/// # Errors
/// It is one, and which cannot be told.
fn virtual_of(roots: &Roots, address: PciAddress) -> io::Result<Option<VirtualOf>> {
    let Some(name) = Function::at(roots, address).link_name("physfn")? else { return Ok(None) };
    let parent = name.parse().map_err(|_| senseless("physfn", &name, "a link to a PCI function"))?;
    let above = Function::at(roots, parent);
    for entry in fs::read_dir(above.folder()).map_err(named("physfn"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(number) = name.strip_prefix("virtfn").and_then(|number| number.parse().ok()) else {
            continue;
        };
        let target = above.link_name(&name)?;
        if target.and_then(|target| target.parse().ok()) == Some(address) {
            return Ok(Some(VirtualOf { parent, number }));
        }
    }
    Err(senseless("physfn", &name, "a function with a virtfn link to this one"))
}

/// The NUMA node next to the function; the kernel shows -1 where the firmware names none.
fn numa_node(function: &Function) -> Option<u32> {
    function.text("numa_node").ok()?.parse().ok()
}

/// The root complex above the function, the first folder of its real path that is one: `pci0000:00`.
fn root(function: &Function) -> Option<String> {
    let path = fs::canonicalize(function.folder()).ok()?;
    path.iter().filter_map(OsStr::to_str).find(|part| is_root(part)).map(str::to_owned)
}

fn is_root(part: &str) -> bool {
    let hex = |text: &str, least| text.len() >= least && text.bytes().all(|b| b.is_ascii_hexdigit());
    let place = part.strip_prefix("pci").and_then(|place| place.split_once(':'));
    place.is_some_and(|(domain, bus)| hex(domain, 4) && hex(bus, 2) && bus.len() == 2)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::types::Roots;

    #[test]
    fn the_first_root_of_the_real_path_counts() {
        let address = "10000:e1:00.0";
        for (path, expected) in [
            ("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", Some("pci0000:00")),
            ("platform/3f000000.pcie/pci0000:7f/10000:e1:00.0", Some("pci0000:7f")),
            ("pcie/pci00:00/pci0000:zz/pci0000:000/10000:e1:00.0", None),
        ] {
            let machine = tempfile::tempdir().unwrap();
            let roots = Roots::below(machine.path());
            let folder = roots.sys.join("devices").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir_all(roots.pci_devices()).unwrap();
            symlink(&folder, roots.pci_devices().join(address)).unwrap();
            let function = Function::at(&roots, address.parse().unwrap());
            assert_eq!(root(&function).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_numa_node_that_is_none_is_not_known() {
        let machine = tempfile::tempdir().unwrap();
        let roots = Roots::below(machine.path());
        let function = Function::at(&roots, "0000:3b:00.0".parse().unwrap());
        assert_eq!(numa_node(&function), None);
        fs::create_dir_all(function.folder()).unwrap();
        for (text, expected) in [("-1\n", None), ("1\n", Some(1)), ("", None), ("99999999999", None)] {
            let file = fs::File::create(function.path("numa_node")).unwrap();
            std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
            assert_eq!(numa_node(&function), expected, "{text:?}");
        }
    }
}
