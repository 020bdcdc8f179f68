//! Virtual functions: who they are follows their physical function from slot to slot, and none is granted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cleanslate::types::{Reason, VirtualOf};

use crate::machine::{Machine, link, put};

/// A captured e1000e, which has a serial number, made into a model that the rules name.
const PHYSICAL: &str = "0000:03:00.0";

/// Gives it two virtual functions, at `<bus>:10.0` and `<bus>:10.2`; config space as the specification has it for them.
fn enable(machine: &Machine, physical: &str, bus: &str) -> [String; 2] {
    let folder = machine.folder(physical);
    put(&folder.join("vendor"), b"0x1b36\n");
    put(&folder.join("device"), b"0x0abc\n");
    put(&folder.join("sriov_numvfs"), b"2\n");
    let mut config = fs::read(folder.join("config")).unwrap();
    config[..4].copy_from_slice(&[0x36, 0x1b, 0xbc, 0x0a]);
    put(&folder.join("config"), &config);
    config[..4].fill(0xff);
    config[0x10..0x28].fill(0);
    [(0, "0"), (1, "2")].map(|(number, function)| {
        let address = format!("{bus}:10.{function}");
        let own = folder.with_file_name(&address);
        fs::create_dir_all(&own).unwrap();
        for attribute in ["vendor", "device", "class", "resource", "reset_method"] {
            put(&own.join(attribute), &fs::read(folder.join(attribute)).unwrap());
        }
        put(&own.join("config"), &config);
        link(&own.join("physfn"), Path::new("..").join(physical));
        link(&folder.join(format!("virtfn{number}")), Path::new("..").join(&address));
        symlink(&own, machine.roots.pci_devices().join(&address)).unwrap();
        address
    })
}

#[tokio::test]
async fn a_virtual_function_is_known_by_its_parent_and_number() {
    let machine = Machine::captured("01-boot-unbound");
    let [first, second] = enable(&machine, PHYSICAL, "0000:03");
    let taken = machine.taken().await;
    let identity = |address: &str| taken.known(address).unwrap().subject.identity.to_string();
    let parent = identity(PHYSICAL);
    assert!(parent.starts_with("serial-1b36-0abc-0-"), "{parent}");
    assert_eq!(identity(&first), format!("{parent}-vf0"));
    assert_eq!(identity(&second), format!("{parent}-vf1"));

    let place = taken.known(&second).unwrap().inspection.place.clone();
    assert_eq!(place.virtual_of, Some(VirtualOf { parent: PHYSICAL.parse().unwrap(), number: 1 }));
    for address in [PHYSICAL, &first, &second] {
        assert_eq!(taken.quarantine(address), None, "nothing is known against {address}");
    }
    let told = taken.refused(&second).unwrap();
    assert!(told.starts_with("unsupported_mode: it is virtual function 1 of 0000:03:00.0: "), "{told}");
    let told = taken.refused(PHYSICAL).unwrap();
    assert!(
        told.starts_with("unsupported_mode: it has 2 virtual functions enabled (sriov_numvfs), "),
        "{told}"
    );

    // The card in another slot, whose bus has another number.
    let moved = Machine::captured("01-boot-unbound");
    let elsewhere = "0000:07:00.0";
    let folder = moved.folder(PHYSICAL);
    fs::rename(&folder, folder.with_file_name(elsewhere)).unwrap();
    fs::remove_file(moved.roots.pci_device(PHYSICAL.parse().unwrap())).unwrap();
    symlink(folder.with_file_name(elsewhere), moved.roots.pci_devices().join(elsewhere)).unwrap();
    let [_, second_there] = enable(&moved, elsewhere, "0000:07");
    let there = moved.taken().await;
    assert_eq!(there.known(&second_there).unwrap().subject.identity.to_string(), identity(&second));
}

#[tokio::test]
async fn a_virtual_function_falls_with_its_parent() {
    let machine = Machine::captured("01-boot-unbound");
    let [first, _] = enable(&machine, PHYSICAL, "0000:03");
    machine.put(PHYSICAL, "config", &[0xff; 4096]);
    let taken = machine.taken().await;
    assert_eq!(taken.quarantine(&first), Some(Reason::FellOffBus));
    let told = taken.refused(&first).unwrap();
    let words = "inspect: its physical function 0000:03:00.0: configuration space reads all ones";
    assert!(told.starts_with(words), "{told}");
}
