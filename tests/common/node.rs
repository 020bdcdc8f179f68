//! A simulated node for tests: the real binary as daemon, twins served by this process, a client that plays the
//! kubelet, claim files. Everything that it started is gone when it is dropped.

mod calls;
mod claim;
mod daemon;
mod policy;
mod views;
mod watch;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use cleanslate::sim::DeviceSpec;
use cleanslate::sim::kubelet::Kubelet;
use cleanslate::types::PciAddress;

use crate::Mount;

pub(crate) use claim::{ClaimFile, claim, reference, uid};
pub(crate) use daemon::{Daemon, flock, has_open, is_locked, program};
pub(crate) use policy::Policy;
pub(crate) use views::{claim_of, more, view};
pub(crate) use watch::Killer;

pub(crate) const NODE: &str = "node-1";
pub(crate) const DRIVER: &str = "cleanslate.dev";
const ADDRESSES: [&str; 16] = [
    "0000:3b:00.0",
    "0000:5e:00.0",
    "0000:86:00.0",
    "0000:af:00.0",
    "0001:17:00.0",
    "0001:ca:00.0",
    "0002:17:00.0",
    "0002:3b:00.0",
    "0002:5e:00.0",
    "0002:86:00.0",
    "0002:af:00.0",
    "0002:ca:00.0",
    "0003:17:00.0",
    "0003:3b:00.0",
    "0003:5e:00.0",
    "0003:86:00.0",
];
const FOLDERS: [&str; 6] = ["claims", "state", "run", "cdi", "registry", "plugins"];
/// For what must happen; far more than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where the device of this number is.
pub(crate) fn at(device: usize) -> PciAddress {
    ADDRESSES[device].parse().unwrap()
}

/// Its name in the pool.
pub(crate) fn name(device: usize) -> String {
    at(device).device_name()
}

/// A node; devices go by their number.
pub(crate) struct Node {
    pub(crate) policy: Policy,
    pub(crate) pod_uid: Option<String>,
    daemon: Option<Daemon>,
    kubelet: Option<Kubelet>,
    pub(crate) twin: Mount,
    devices: usize,
    folder: tempfile::TempDir,
}

impl Node {
    /// A node that runs, with this many healthy devices, each proved.
    pub(crate) async fn of(devices: usize) -> Self {
        Self::with(devices, Policy::default()).await
    }

    /// The same under another policy.
    pub(crate) async fn with(devices: usize, policy: Policy) -> Self {
        Self::with_fields(&vec![""; devices], policy).await
    }

    /// The same with devices that differ from the usual, as in [`Node::lay`].
    pub(crate) async fn with_fields(devices: &[&str], policy: Policy) -> Self {
        let mut node = Self::lay(devices, policy);
        node.start().await;
        node.proved().await;
        node
    }

    /// A node whose daemon is not started, with a device for each text: what differs from the usual one, such as
    /// `fault=dead,memory=65536`.
    pub(crate) fn lay(devices: &[&str], policy: Policy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in FOLDERS {
            fs::create_dir(folder.path().join(part)).unwrap();
        }
        let spec = |(number, fields): (usize, &&str)| -> DeviceSpec {
            let comma = if fields.is_empty() { "" } else { "," };
            // What a field says last counts.
            format!("{},memory=65536{comma}{fields}", at(number)).parse().unwrap()
        };
        let specs = devices.iter().enumerate().map(spec).collect();
        let twin = Mount::create(&folder.path().join("twin"), specs).unwrap();
        Self { policy, pod_uid: None, daemon: None, kubelet: None, twin, devices: devices.len(), folder }
    }

    /// How many devices it was laid with.
    pub(crate) fn devices(&self) -> usize {
        self.devices
    }

    pub(crate) fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    /// The arguments of `cleanslate run` on this node.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["run", "--node-name", NODE, "--log-format", "json", "--log-level", "info,cleanslate=debug"]
                .map(str::to_owned)
                .to_vec();
        for (flag, part) in [
            ("--policy", "policy.yaml"),
            ("--sys", "twin/sys"),
            ("--dev", "twin/dev"),
            ("--proc", "twin/proc"),
        ] {
            arguments.extend([flag.to_owned(), self.path(part).display().to_string()]);
        }
        for part in FOLDERS {
            arguments.extend([format!("--{part}"), self.path(part).display().to_string()]);
        }
        for uid in self.pod_uid.iter() {
            arguments.extend(["--pod-uid".to_owned(), uid.clone()]);
        }
        arguments
    }

    /// Starts another daemon, with some arguments replaced, that must end by itself: its exit code and its words.
    pub(crate) async fn run_to_its_end(&self, replaced: &[(&str, &Path)]) -> (Option<i32>, String) {
        if self.daemon.is_none() {
            write(&self.path("policy.yaml"), &self.policy.text());
        }
        let mut arguments = self.arguments();
        for (flag, path) in replaced {
            let place = arguments.iter().position(|argument| argument == flag).unwrap();
            arguments[place + 1] = path.display().to_string();
        }
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut daemon = Daemon::start(&[], &arguments, log.path());
        let begun = Instant::now();
        loop {
            let words = || fs::read_to_string(log.path()).unwrap();
            if let Some(status) = daemon.ended() {
                return (status.code(), words());
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on with {replaced:?}: {}", words());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts the daemon under the present policy and lets the kubelet find it.
    pub(crate) async fn start(&mut self) {
        let registered = self.start_by(&[]).await;
        assert!(registered, "it ended before it registered\n{}", self.told());
    }

    /// The same, run by another program; whether it lived to be found.
    pub(crate) async fn start_by(&mut self, wrapper: &[String]) -> bool {
        write(&self.path("policy.yaml"), &self.policy.text());
        let mut daemon = Daemon::start(wrapper, &self.arguments(), &self.path("daemon.log"));
        let begun = Instant::now();
        self.kubelet = loop {
            let found = Kubelet::register(&self.path("registry"), Duration::from_millis(200)).await;
            if let Ok(kubelet) = found {
                break Some(kubelet);
            }
            if daemon.ended().is_some() {
                break None;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not register: {found:?}\n{}", self.told());
        };
        self.daemon = Some(daemon);
        self.kubelet.is_some()
    }

    /// SIGTERM; how long it took to end, which is by itself and with success.
    pub(crate) async fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        self.kubelet = None;
        let status = self.daemon.take().unwrap().terminate(PATIENCE).await;
        assert!(status.success(), "{status}\n{}", self.told());
        begun.elapsed()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.kubelet = None;
        self.daemon.take().unwrap().kill();
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    /// Power off and on: daemon and workers are gone, and so is what lies in memory file systems.
    pub(crate) fn power_cycle(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
        daemon::end_lock_holders(&self.path("run"));
        for part in ["run", "cdi"] {
            // A worker that was about to take a lock may make its file meanwhile.
            while fs::remove_dir_all(self.path(part))
                .is_err_and(|e| e.kind() == io::ErrorKind::DirectoryNotEmpty)
            {}
            fs::create_dir(self.path(part)).unwrap();
        }
        self.twin.reboot().unwrap();
    }

    pub(crate) async fn reboot(&mut self) {
        self.power_cycle();
        self.start().await;
    }

    pub(crate) fn is_dead(&mut self) -> bool {
        self.daemon.as_mut().unwrap().ended().is_some()
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// The daemon's log, of all its starts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// Its end, for a test that fails.
    pub(crate) fn told(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Runs a command of ours against this node.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        let run = self.path("run");
        program(arguments).arg("--run").arg(run).output().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.daemon.take());
        daemon::end_lock_holders(&self.path("run"));
    }
}

pub(crate) fn write(path: &Path, content: &str) {
    let written: io::Result<()> = File::create(path).and_then(|mut file| file.write_all(content.as_bytes()));
    written.unwrap();
}
