//! What only this mount can show.

use cleanslate::sim::DeviceSpec;
use std::fs;

#[test]
fn smoke() {
    let root = tempfile::tempdir().unwrap();
    let spec: DeviceSpec = "0000:3b:00.0,memory=65536".parse().unwrap();
    let a = spec.address;
    let fuse = crate::Mount::create(root.path(), vec![spec]).unwrap();
    let dir = fuse.roots().pci_device(a);
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    println!("{names:?}");
    println!("{:?}", fs::read_to_string(dir.join("resource")));
    println!("{:?}", fs::read(dir.join("config")).unwrap().len());
    println!("{:?}", fs::write(dir.join("reset"), b"1"));
    println!("{:?}", fs::write(dir.join("reset"), b"2"));
    println!("{:?}", fuse.counts(a));
}
