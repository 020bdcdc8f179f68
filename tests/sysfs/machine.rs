//! A captured machine with an inventory of its own: real workers read it, a real ledger keeps what follows.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleanslate::config;
use cleanslate::inventory::{Inventory, Known};
use cleanslate::ledger::{DeviceView, Ledger};
use cleanslate::types::{Deadline, PciAddress, Probe, Reason, Roots};
use cleanslate::worker::{Bench, Command, Outcome, Program, Report};

use crate::tree::lay_out;

/// A network card without a driver, with AER.
pub(crate) const CARD: &str = "0000:02:00.0";
/// A display beside it, without AER.
pub(crate) const NEIGHBOUR: &str = "0000:01:00.0";

/// Time enough for a busy machine; what a fifo blocks is given up sooner.
const RULES: &str = r#"
apiVersion: cleanslate.dev/v1alpha1
kind: NodePolicy
devices:
- match: {vendor: "1af4", device: "1041", address: "0000:02:00.0"}
  scrub: {bars: [4]}
  deadlines: {inspect: INSPECT}
- match: {vendor: "1234", device: "1111"}
  scrub: {bars: [0]}
  deadlines: {inspect: 30s}
- match: {vendor: "1b36", device: "0abc"}
  scrub: {bars: [4]}
  deadlines: {inspect: 30s}
"#;

pub(crate) struct Machine {
    pub(crate) roots: Roots,
    inspect: &'static str,
    root: tempfile::TempDir,
}

/// What an inventory made of a machine.
pub(crate) struct Taken {
    pub(crate) inventory: Inventory,
    pub(crate) ledger: Arc<Ledger>,
    _state: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn captured(tree: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::below(root.path());
        lay_out(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs").join(tree), &roots.sys);
        fs::create_dir_all(roots.dev.join("vfio")).unwrap();
        Self { roots, inspect: "30s", root }
    }

    /// The card's inspection has so long.
    pub(crate) fn hasty(mut self, inspect: &'static str) -> Self {
        self.inspect = inspect;
        self
    }

    pub(crate) fn bench(&self) -> Bench {
        let program = Program(env!("CARGO_BIN_EXE_cleanslate").into());
        Bench { program, roots: self.roots.clone(), run: self.root.path().to_owned() }
    }

    /// The real folder of a function.
    pub(crate) fn folder(&self, address: &str) -> PathBuf {
        self.roots.pci_device(address.parse().unwrap()).canonicalize().unwrap()
    }

    /// Another content for an attribute.
    pub(crate) fn put(&self, address: &str, attribute: &str, content: &[u8]) {
        put(&self.folder(address).join(attribute), content);
    }

    pub(crate) async fn probe(&self, address: &str) -> Outcome<Probe> {
        let bench = self.bench();
        let orders = [bench.order(address.parse().unwrap(), None, None), Command::Probe];
        bench.run(&orders, Deadline::after(Duration::from_secs(30))).await.map(|report| match report {
            Report::Probed(probe, _) => probe,
            other => panic!("{other:?}"),
        })
    }

    /// A first look by an inventory that knows nothing yet.
    pub(crate) async fn taken(&self) -> Taken {
        let state = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(state.path(), "boot".to_owned()).await.unwrap();
        let policy = config::parse(&RULES.replace("INSPECT", self.inspect), "rules").unwrap();
        let inventory = Inventory::new(self.bench(), Arc::new(policy), Arc::clone(&ledger));
        inventory.rescan().await;
        Taken { inventory, ledger, _state: state }
    }
}

impl Taken {
    pub(crate) fn known(&self, address: &str) -> Option<Arc<Known>> {
        let address: PciAddress = address.parse().unwrap();
        self.inventory.identified().into_iter().find(|known| known.subject.address == address)
    }

    /// Why a device cannot be had as it is.
    pub(crate) fn refused(&self, address: &str) -> Option<String> {
        let name = address.parse::<PciAddress>().unwrap().device_name();
        self.inventory.refused().into_iter().find(|(refused, _)| *refused == name).map(|(_, why)| why)
    }

    /// What stands against a device: its quarantine, or one that only the breaker withholds.
    pub(crate) fn quarantine(&self, address: &str) -> Option<Reason> {
        let address: PciAddress = address.parse().unwrap();
        let devices = self.ledger.snapshot().devices.into_iter().filter(|device| device.address == address);
        let against = |device: DeviceView| {
            let withheld = device.withheld.map(|withheld| withheld.reason);
            device.quarantine.map(|quarantine| quarantine.reason).or(withheld)
        };
        devices.filter_map(against).next()
    }
}

pub(crate) fn put(path: &Path, content: &[u8]) {
    remove(path);
    fs::File::create(path).unwrap().write_all(content).unwrap();
}

pub(crate) fn link(path: &Path, target: impl AsRef<Path>) {
    remove(path);
    symlink(target, path).unwrap();
}

pub(crate) fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}
