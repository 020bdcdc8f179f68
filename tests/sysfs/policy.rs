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
- match: {class: "020000"}
- match: {vendor: "1af4"}
- match: {vendor: "1b36", device: "000c"}
"#;

fn explain(sys: &Path, policy: Option<&Path>) -> BTreeMap<String, Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleanslate"));
    command.args(["policy", "explain", "all", "-o", "json", "--sys"]).arg(sys);
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
        (_, _, 0x02) if class == 0x02_0000 => (false, "matches devices[1], but is network"),
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

/// Read only: the machine that this test runs on has nothing of ours, whatever it is.
#[test]
fn nothing_of_this_machine_is_ours_without_a_policy() {
    let sys = Path::new("/sys");
    if !sys.join("bus/pci/devices").exists() {
        println!("skipped: this machine has no PCI bus");
        return;
    }
    for (address, line) in explain(sys, None) {
        println!("{address}: {}", line["why"].as_str().unwrap());
        assert_eq!(line["ours"], false);
        assert!(line["why"].as_str().unwrap().contains("the policy has no rules"), "{line}");
    }
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
