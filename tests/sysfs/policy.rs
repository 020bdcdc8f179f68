//! `cleanslate policy explain` over the captured trees, and over this machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::tree::lay_out;

const RULES: &str = r#"
apiVersion: cleanslate.dev/v1alpha1
kind: NodePolicy
devices:
- match: {vendor: "1234", device: "1111"}
  scrub: {bars: [0]}
- match: {vendor: "8086"}
- match: {vendor: "1af4"}
- match: {vendor: "1b36", device: "000c"}
"#;

fn explain(sys: &Path, policy: Option<&Path>) -> BTreeMap<String, Value> {
    explain_one("all", sys, policy)
}

fn explain_one(address: &str, sys: &Path, policy: Option<&Path>) -> BTreeMap<String, Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleanslate"));
    command.args(["policy", "explain", address, "-o", "json", "--sys"]).arg(sys);
    if let Some(policy) = policy {
        command.arg("--policy").arg(policy);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    lines.into_iter().map(|line| (line["address"].as_str().unwrap().to_owned(), line)).collect()
}

fn rules(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("policy.yaml");
    std::fs::File::create(&path).unwrap().write_all(RULES.as_bytes()).unwrap();
    path
}

/// What the rules make of a model.
fn expected(vendor: u64, device: u64, class: u64) -> (bool, &'static str) {
    match (vendor, device, class >> 16) {
        (0x1234, 0x1111, _) => (true, "matches devices[0]"),
        (0x1b36, 0x000c, _) => (true, "matches devices[3]"),
        (0x8086, _, 0x02) => (false, "matches devices[1], but is network"),
        (0x1af4, _, 0x02) => (false, "matches devices[2], but is network"),
        (0x1af4, _, 0x01) => (false, "matches devices[2], but is storage"),
        (0x1af4, _, _) => (true, "matches devices[2]"),
        _ => (false, "differs from devices[0] by its vendor"),
    }
}

#[test]
fn every_function_of_the_nine_trees_is_explained() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs");
    let mut functions = 0;
    for tree in
        std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        lay_out(&tree, &sys);
        for (address, line) in explain(&sys, Some(&rules(root.path()))) {
            let id = |name: &str| line["ids"][name].as_u64().unwrap();
            let (ours, why) = expected(id("vendor"), id("device"), id("class"));
            println!("{}: {}", tree.file_name().unwrap().display(), line["why"].as_str().unwrap());
            assert_eq!(line["ours"], ours, "{address} {line}");
            assert!(line["why"].as_str().unwrap().contains(why), "{address} {line}");
            functions += 1;
        }
    }
    assert_eq!(functions, 31, "endpoints and ports of the nine trees");
}

/// What is told of the four captured endpoints under the rules, by bus.
const ENDPOINTS: [(u8, bool, &str); 4] = [
    (1, true, "ours: 1234:1111 class 038000 (no known model) matches devices[0]"),
    (
        2,
        false,
        "not ours: 1af4:1041 class 020000 (Red Hat, Inc. Virtio 1.0 network device) matches devices[2], but is \
         network: a rule must name its address, or its vendor and device",
    ),
    (
        3,
        false,
        "not ours: 8086:10d3 class 020000 (Intel Corporation 82574L Gigabit Network Connection) matches devices[1], \
         but is network: a rule must name its address, or its vendor and device",
    ),
    (
        4,
        false,
        "not ours: 1b36:0010 class 010802 (Red Hat, Inc. QEMU NVM Express Controller) differs from devices[0] by its \
         vendor, devices[1] by its vendor, devices[2] by its vendor, devices[3] by its device",
    ),
];

/// Tree, bus, and where it is.
const PLACES: [(&str, u8, &str); 15] = [
    ("01-boot-unbound", 1, "no driver, root port 0000:00:03.0 of pci0000:00, IOMMU group 6"),
    ("01-boot-unbound", 2, "no driver, root port 0000:00:04.0 of pci0000:00, IOMMU group 7"),
    ("01-boot-unbound", 3, "no driver, root port 0000:00:05.0 of pci0000:00, IOMMU group 8"),
    ("01-boot-unbound", 4, "no driver, root port 0000:00:06.0 of pci0000:00, IOMMU group 9"),
    ("02-drivers-bound", 2, "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7"),
    ("02-drivers-bound", 3, "driver e1000e, root port 0000:00:05.0 of pci0000:00, IOMMU group 8"),
    ("02-drivers-bound", 4, "driver nvme, root port 0000:00:06.0 of pci0000:00, IOMMU group 9"),
    ("03-aer-correctable", 2, "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7"),
    ("03-aer-correctable", 3, "driver e1000e, root port 0000:00:05.0 of pci0000:00, IOMMU group 8"),
    (
        "04-aer-nonfatal-unrecovered",
        2,
        "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7",
    ),
    (
        "05-aer-fatal-recovery-failed",
        2,
        "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7",
    ),
    ("06-fell-off-bus-all-ff", 2, "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7"),
    ("07-raw-flr-not-restored", 4, "no driver, root port 0000:00:06.0 of pci0000:00, IOMMU group 9"),
    // This machine has no node for the group of the captured one.
    (
        "08-vfio-bound-d3hot",
        2,
        "driver vfio-pci, root port 0000:00:04.0 of pci0000:00, IOMMU group 7, device node vfio/7: No such file or \
         directory (os error 2)",
    ),
    ("09-aer-not-owned-by-os", 2, "driver virtio-pci, root port 0000:00:04.0 of pci0000:00, no IOMMU group"),
];

/// Explain says who is meant and where it is, whatever state it is in: a dead device is told as a healthy one.
#[test]
fn policy_explain_is_right_for_each_device_of_the_nine_trees() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs");
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(fixtures.join("expected.json")).unwrap()).unwrap();
    let mut rows = 0;
    for (tree, functions) in expected["trees"].as_object().unwrap() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        lay_out(&fixtures.join(tree), &sys);
        let policy = rules(root.path());
        for address in functions.as_object().unwrap().keys() {
            let is = |bus: u8| *address == format!("0000:{bus:02x}:00.0");
            let (_, ours, why) = ENDPOINTS.iter().find(|(bus, ..)| is(*bus)).unwrap();
            let (.., place) = PLACES.iter().find(|(of, bus, _)| of == tree && is(*bus)).unwrap();
            let line = &explain_one(address, &sys, Some(&policy))[address];
            println!("{tree} {}: {}; {}", address, line["why"], line["where"]);
            assert_eq!(
                (&line["ours"], &line["why"], &line["where"]),
                (&(*ours).into(), &(*why).into(), &(*place).into())
            );
            assert_eq!(line["place"]["numa_node"], Value::Null, "the captured machine names none");
            rows += 1;
        }
    }
    assert_eq!(rows, PLACES.len());
}

/// Read only: the machine that this test runs on has nothing of ours, whatever it is. Each device is asked for alone.
#[test]
fn policy_explain_nothing_of_this_machine_is_ours_without_a_policy() {
    let sys = Path::new("/sys");
    let Ok(devices) = std::fs::read_dir(sys.join("bus/pci/devices")) else {
        println!("this machine has no PCI bus");
        return;
    };
    let mut rows = 0;
    for device in devices {
        let address = device.unwrap().file_name().into_string().unwrap();
        let line = &explain_one(&address, sys, None)[&address];
        println!("{address}: {}; {}", line["why"], line["where"]);
        assert_eq!(line["ours"], false);
        assert!(line["why"].as_str().unwrap().contains("the policy has no rules"), "{line}");
        rows += 1;
    }
    println!("{rows} devices of this machine, none of them ours");
    assert_eq!(explain(sys, None).len(), rows);
}

#[test]
fn an_address_that_is_none_or_not_there_is_an_error_that_says_so() {
    let root = tempfile::tempdir().unwrap();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs/01-boot-unbound");
    lay_out(&tree, &root.path().join("sys"));
    for (address, words) in [("3b:00.0", "expected DDDD:BB:DD.F"), ("0000:99:00.0", "no such PCI function")] {
        let output = Command::new(env!("CARGO_BIN_EXE_cleanslate"))
            .args(["policy", "explain", address, "--sys"])
            .arg(root.path().join("sys"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(words), "{told}");
    }
}
