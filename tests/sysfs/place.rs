//! Where a device is and through which nodes it is used, as an inspection tells.

use std::fs;

use cleanslate::proof::verdict::of_end;
use cleanslate::types::{Reason, StepName};

use crate::machine::{CARD, Machine, NEIGHBOUR, link, put};

/// A driver's node below the card's folder, and what stands below `/dev`: a link to a device that every machine has.
fn node(machine: &Machine, folder: &str, name: &str, number: &str, device: &str) {
    let own = machine.folder(CARD).join(folder);
    fs::create_dir_all(&own).unwrap();
    put(&own.join("dev"), format!("{number}\n").as_bytes());
    put(&own.join("uevent"), format!("MAJOR=1\nDEVNAME={name}\n").as_bytes());
    let path = machine.roots.dev.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    link(&path, device);
}

#[tokio::test]
async fn an_inspection_tells_where_a_device_is_and_its_nodes() {
    let machine = Machine::captured("02-drivers-bound");
    machine.put(CARD, "numa_node", b"1\n");
    node(&machine, "drm/card7", "dri/card7", "1:3", "/dev/null");
    node(&machine, "drm/renderD135", "dri/renderD135", "1:5", "/dev/zero");
    node(&machine, "accel/accel0", "accel/accel0", "1:7", "/dev/full");
    node(&machine, "misc/npu", "npu", "1:8", "/dev/random");
    let taken = machine.taken().await;
    let inspection = taken.known(CARD).unwrap().inspection.clone();
    let place = &inspection.place;
    let nodes = place.nodes.iter().map(|node| (node.path.to_str().unwrap(), node.number.as_deref().unwrap()));
    let expected = [
        ("/dev/accel/accel0", "1:7"),
        ("/dev/dri/card7", "1:3"),
        ("/dev/dri/renderD135", "1:5"),
        ("/dev/npu", "1:8"),
    ];
    assert_eq!(nodes.collect::<Vec<_>>(), expected);
    assert_eq!(place.driver.as_deref(), Some("virtio-pci"));
    assert_eq!((place.numa_node, place.iommu_group), (Some(1), Some(7)));
    assert_eq!(place.pcie_root.as_deref(), Some("pci0000:00"));
    assert_eq!(place.root_port.unwrap().to_string(), "0000:00:04.0");
    assert_eq!((place.virtual_of, &place.nodes_unreadable), (None, &None));
    let link = inspection.link;
    assert_eq!((link.width.as_deref(), link.max_speed.as_deref()), (Some("1"), Some("2.5 GT/s PCIe")));

    // -1 is no node; a display without a driver has no nodes.
    let other = taken.known(NEIGHBOUR).unwrap().inspection.place.clone();
    assert_eq!((other.numa_node, other.driver, other.nodes), (None, None, Vec::new()));
}

/// A container would get another device, or none.
#[tokio::test]
async fn a_node_that_is_not_the_kernels_is_told_and_no_proof_comes_of_it() {
    let rows = [
        ("1:3", "/dev/zero", "device node dri/card7 is 1:5, the kernel's is 1:3"),
        ("1:3", "nowhere", "device node dri/card7: No such file or directory (os error 2)"),
    ];
    for (number, device, words) in rows {
        let machine = Machine::captured("02-drivers-bound");
        node(&machine, "drm/card7", "dri/card7", number, device);
        let taken = machine.taken().await;
        let place = &taken.known(CARD).unwrap().inspection.place;
        assert_eq!((place.nodes_unreadable.as_deref(), place.nodes.len()), (Some(words), 0));
        let (reason, evidence) = of_end(StepName::Probe, &machine.probe(CARD).await).device.unwrap();
        assert_eq!(reason, Reason::ProbeFailed);
        assert!(evidence.starts_with(&format!("probe: {words}")), "{evidence}");
    }
}

/// A driver that goes away takes its folders with it, between any two reads.
#[tokio::test]
async fn nodes_that_vanish_are_not_there() {
    let machine = Machine::captured("02-drivers-bound");
    node(&machine, "drm/card7", "dri/card7", "1:3", "/dev/null");
    let gone = machine.folder(CARD).join("drm/card8");
    fs::create_dir(&gone).unwrap();
    link(&gone.join("dev"), "nowhere");
    let taken = machine.taken().await;
    let place = &taken.known(CARD).unwrap().inspection.place;
    assert_eq!((place.nodes.len(), &place.nodes_unreadable), (1, &None));
}
