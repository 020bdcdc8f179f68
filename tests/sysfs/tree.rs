//! Captured trees, laid out as the kernel shows them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Lays a captured tree out as the kernel shows it; `fixtures/sysfs/README.md` explains the files.
pub(crate) fn lay_out(tree: &Path, sys: &Path) {
    let devices = sys.join("bus/pci/devices");
    fs::create_dir_all(&devices).unwrap();
    if !tree.ends_with("09-aer-not-owned-by-os") {
        fs::create_dir_all(sys.join("bus/pci_express/drivers/aer")).unwrap();
    }
    for function in fs::read_dir(tree).unwrap() {
        let function = function.unwrap().path();
        let real = fs::read_to_string(function.join("_realpath")).unwrap();
        let below = real.trim().split("devices/").last().unwrap();
        let folder = sys.join("devices").join(below);
        fs::create_dir_all(&folder).unwrap();
        symlink(&folder, devices.join(function.file_name().unwrap())).unwrap();
        for file in fs::read_dir(&function).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            if let Some(link) = name.strip_suffix(".symlink") {
                symlink(fs::read_to_string(&file).unwrap().trim(), folder.join(link)).unwrap();
            } else if !name.ends_with(".size") && !name.ends_with(".errno") && name != "_realpath" {
                fs::copy(&file, folder.join(name)).unwrap();
            }
        }
    }
}
