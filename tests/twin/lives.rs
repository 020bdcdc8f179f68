use std::fs::{self, File};

use cleanslate::sim::{Counts, DeviceSpec};

use super::{address, twin};
use crate::Mount;

#[test]
fn a_bound_device_has_its_links_and_its_node() {
    let twin = twin(",driver=vfio-pci");
    let end = |link: &str| {
        let target = fs::canonicalize(twin.path(link)).unwrap();
        target.file_name().unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(end("driver"), "vfio-pci");
    let group = end("iommu_group");
    assert!(twin.mount.roots().dev.join("vfio").join(&group).exists());
    assert!(twin.path("iommu_group/devices/0000:3b:00.0/vendor").exists());
}

#[test]
fn processes_reboots_and_cards_come_and_go() {
    let twin = twin(",fault=bars-lost,driver=vfio-pci");
    let roots = twin.mount.roots();
    twin.mount.hold(address(), 77, "trainer", "0::/kubepods/pod1").unwrap();
    let process = roots.proc.join("77");
    assert_eq!(fs::read_to_string(process.join("comm")).unwrap(), "trainer\n");
    assert_eq!(fs::read_to_string(process.join("cgroup")).unwrap(), "0::/kubepods/pod1\n");
    assert_eq!(
        fs::canonicalize(process.join("fd/3")).unwrap(),
        fs::canonicalize(twin.path("resource0")).unwrap()
    );
    twin.mount.let_go(77).unwrap();
    assert!(!process.exists());

    twin.mount.hold(address(), 78, "trainer", "").unwrap();
    let (boot, config) = (fs::read(roots.boot_id()).unwrap(), twin.config());
    twin.reset();
    twin.mount.reboot().unwrap();
    assert!(!roots.proc.join("78").exists());
    assert_ne!(fs::read(roots.boot_id()).unwrap(), boot);
    assert_eq!(twin.config(), config);
    assert!(twin.mount.memory(address()).unwrap().iter().any(|byte| *byte != 0));

    twin.mount.replace(address(), 0xbeef).unwrap();
    assert_eq!(&twin.config()[0x144..0x14c], 0xbeef_u64.to_le_bytes());
    twin.reset();
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts(), Counts { resets: 1, scrubs: 1 });

    twin.mount.remove(address()).unwrap();
    assert!(!twin.path("vendor").exists() && !roots.dev.join("vfio/1").exists());
    assert!(twin.mount.counts(address()).is_err());
}

#[test]
fn specs_that_make_no_sense_are_refused_with_the_reason() {
    for (text, why) in [
        ("3b:00.0", "is no PCI address"),
        ("0000:3b:00.0,memory=5", "no multiple of 4096"),
        ("0000:3b:00.0,fault=bored", "only hang-reset, dead"),
        ("0000:3b:00.0,colour=red", "no field \"colour\""),
        ("0000:3b:00.0,vendor=10de0", "too large"),
        ("0000:3b:00.0,class=1030200", "more than 24 bits"),
    ] {
        let error = text.parse::<DeviceSpec>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let root = tempfile::tempdir().unwrap();
    let nothing = DeviceSpec { memory: 0, ..DeviceSpec::new(address()) };
    assert!(Mount::create(root.path(), vec![nothing]).is_err());
}

#[test]
fn another_tree_is_never_overwritten() {
    let twin = twin("");
    assert!(Mount::create(twin.root.path(), vec![]).is_err());
    assert!(File::open(twin.path("vendor")).is_ok());
}
