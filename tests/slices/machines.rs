//! Other machines than a twin: this one, whatever it is, and one with 512 devices.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cleanslate::sim::api::Kind;
use cleanslate::types::Roots;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::node::{Node, POLICY, until, write};

/// Who opens a file of these folders for writing, however it ends, is noticed.
fn watch<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Inotify {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
    for folder in folders {
        inotify.add_watch(folder, AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MODIFY).unwrap();
    }
    inotify
}

/// Names of files that were.
fn written(inotify: &Inotify) -> Vec<String> {
    let events = inotify.read_events().unwrap_or_default();
    events.into_iter().map(|event| event.name.unwrap_or_default().into_string().unwrap()).collect()
}

fn command(node: &Node, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleanslate"));
    let output = command.args(arguments).arg("--run").arg(node.path("run")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The real `/sys`, `/dev` and `/proc`, read only, without a policy: nothing is ours, and everybody is told why.
#[tokio::test]
async fn this_machine_without_a_policy_has_nothing_of_ours_and_nothing_is_written() {
    let mut node = Node::new(&[], "");
    let roots = Roots::default();
    if !roots.pci_devices().exists() {
        println!("this machine has no PCI bus");
        return;
    }
    let devices = fs::read_dir(roots.pci_devices()).into_iter().flatten();
    let folders: Vec<_> = devices.map(|device| device.unwrap().path().canonicalize().unwrap()).collect();
    let watch = [watch(folders.iter().map(AsRef::as_ref)), watch([node.path("state").as_ref()])];

    let kubeconfig = node.path("kubeconfig");
    node.start_on(&roots, &["--kubeconfig", kubeconfig.to_str().unwrap()], false);
    let view = node.published("an empty pool", |view| view.last_success.is_some()).await;
    assert_eq!((view.slices, view.devices, view.failing()), (1, 0, None));
    let slices = node.slices();
    assert_eq!(slices.len(), 1, "{slices:?}");
    assert!(slices[0]["spec"]["devices"].as_array().is_none_or(Vec::is_empty), "{slices:?}");
    let status = node.status().await.unwrap();
    assert!(status.ledger.devices.is_empty() && status.refused.is_empty() && status.hardware.is_empty());

    // Why: in the log, and to whoever asks.
    assert!(node.log().contains("no policy file: no device of this node is ours"), "{}", node.log());
    let told = command(&node, &["status"]);
    println!("{told}");
    assert!(
        told.contains(
            "no device of this node is ours: there are no rules that could match one; --policy names"
        ),
        "{told}"
    );
    println!("{} functions of this machine, none ours", folders.len());
    node.stop_daemon().await;
    assert_eq!(written(&watch[0]), Vec::<String>::new(), "below /sys");
    assert!(!written(&watch[1]).is_empty(), "a watch sees what is written");
    assert_eq!(node.api.list(Kind::Slices).len(), 1);
}

const MANY: usize = 512;

/// `MANY` copies of a captured display, on sixteen buses.
fn multiply(roots: &Roots) {
    let captured =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs/01-boot-unbound/0000:01:00.0");
    let attributes = ["vendor", "device", "class", "config", "resource", "numa_node", "max_link_width"];
    let attributes = attributes.iter().chain(&["current_link_width", "current_link_speed", "max_link_speed"]);
    let attributes: Vec<_> = attributes.map(|name| (name, fs::read(captured.join(name)).unwrap())).collect();
    fs::create_dir_all(roots.pci_devices()).unwrap();
    for number in 0..MANY {
        let address = format!("0000:{:02x}:{:02x}.0", 0x20 + number / 32, number % 32);
        let folder = roots.sys.join("devices/pci0000:00").join(&address);
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in &attributes {
            File::create(folder.join(name)).unwrap().write_all(content).unwrap();
        }
        File::create(folder.join("reset_method")).unwrap().write_all(b"flr bus\n").unwrap();
        symlink(&folder, roots.pci_devices().join(&address)).unwrap();
    }
}

#[tokio::test]
async fn a_machine_with_512_devices_is_read_published_and_shown() {
    let mut node = Node::new(&[], POLICY);
    let machine = tempfile::tempdir().unwrap();
    let twin = node.twin.roots();
    let roots = Roots { sys: machine.path().join("sys"), ..twin };
    multiply(&roots);
    let policy = POLICY.replace("1234\", device: \"c1ea", "1234\", device: \"1111");
    write(&node.path("policy.yaml"), &policy.replace("firstProofWithin: 0s", "firstProofWithin: 10m"));

    let begun = Instant::now();
    let kubeconfig = node.path("kubeconfig");
    node.start_on(&roots, &["--kubeconfig", kubeconfig.to_str().unwrap()], true);
    let (_, registered) =
        until("it registers", 30, || fs::read_dir(node.path("registry")).unwrap().next().map(drop)).await;
    // One look of the inventory is one step of what the ledger knows.
    let read = loop {
        let status = node.status().await;
        if status.is_some_and(|status| status.hardware.len() == MANY) {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{}", node.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Each has a taint, and so many may stand in one slice: 64.
    let view = node.published("all of them", |view| view.devices == MANY && view.failing().is_none()).await;
    let published = begun.elapsed();
    assert_eq!((view.slices, node.offered().len(), node.slices().len()), (8, MANY, 8));

    let begun = Instant::now();
    let told = command(&node, &["status"]);
    let shown = begun.elapsed();
    assert_eq!(told.lines().filter(|line| line.trim_start().starts_with("pci-0000-")).count(), MANY);
    let json: serde_json::Value = serde_json::from_str(&command(&node, &["status", "-o", "json"])).unwrap();
    assert_eq!(json["hardware"].as_array().unwrap().len(), MANY);
    assert_eq!(json["hardware"][0]["place"]["pcie_root"], "pci0000:00");
    assert_eq!(json["hardware"][0]["link"]["speed"], "2.5 GT/s PCIe");
    let ms = |time: Duration| time.as_millis();
    println!(
        "512 devices: registered after {} ms, read after {} ms, published after {} ms, status takes {} ms",
        ms(registered),
        ms(read),
        ms(published),
        ms(shown)
    );
    node.stop_daemon().await;
    assert!(!node.log().contains("panicked"), "{}", node.log());
}
