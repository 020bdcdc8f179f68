//! A simulated node for tests: the real binary as daemon, twins served by this process, a client that plays the
//! kubelet, claim files. Everything that it started is gone when it is dropped.

mod claim;
mod daemon;
mod policy;
mod watch;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use cleanslate::ledger::{ClaimView, DeviceView};
use cleanslate::observe::control::{self, Answer, Request};
use cleanslate::observe::status::Status;
use cleanslate::sim::kubelet::Kubelet;
use cleanslate::sim::{Counts, DeviceSpec, Fault, Folder};
use cleanslate::types::{PciAddress, Token};
use cleanslate::wire::dra::{Claim, Device, NodePrepareResourceResponse};
use tokio::task::JoinHandle;

pub(crate) use claim::{ClaimFile, claim, reference, uid};
pub(crate) use daemon::{Daemon, flock, is_locked, program};
pub(crate) use policy::Policy;
pub(crate) use watch::Killer;

pub(crate) const NODE: &str = "node-1";
pub(crate) const DRIVER: &str = "cleanslate.dev";
const ADDRESSES: [&str; 6] =
    ["0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0", "0000:af:00.0", "0001:17:00.0", "0001:ca:00.0"];
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
    pub(crate) twin: Folder,
    folder: tempfile::TempDir,
}

impl Node {
    /// A node that runs, with this many healthy devices, each proved.
    pub(crate) async fn of(devices: usize) -> Self {
        Self::with(devices, Policy::default()).await
    }

    /// The same under another policy.
    pub(crate) async fn with(devices: usize, policy: Policy) -> Self {
        let mut node = Self::lay(&vec![""; devices], policy);
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
        let twin = Folder::create(&folder.path().join("twin"), specs).unwrap();
        Self { policy, pod_uid: None, daemon: None, kubelet: None, twin, folder }
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
        let mut daemon = Daemon::start(&arguments, log.path());
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
        write(&self.path("policy.yaml"), &self.policy.text());
        let mut daemon = Daemon::start(&self.arguments(), &self.path("daemon.log"));
        let begun = Instant::now();
        self.kubelet = loop {
            let found = Kubelet::register(&self.path("registry"), Duration::from_millis(200)).await;
            if let Ok(kubelet) = found {
                break Some(kubelet);
            }
            let ended = daemon.ended();
            let waits = ended.is_none() && begun.elapsed() < PATIENCE;
            assert!(waits, "it does not register: {found:?} {ended:?}\n{}", self.told());
        };
        self.daemon = Some(daemon);
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

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// The daemon's log, of all its starts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// Its end, for a test that fails.
    fn told(&self) -> String {
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

/// Claims.
impl Node {
    /// Writes a claim's file, as the API server would show the claim.
    pub(crate) fn give(&self, claim: &ClaimFile) {
        let path = self.path("claims").join(format!("{}.json", claim.name()));
        let draft = path.with_extension("draft");
        write(&draft, &claim.object().to_string());
        fs::rename(draft, path).unwrap();
    }

    fn kubelet(&self) -> &Kubelet {
        self.kubelet.as_ref().unwrap()
    }

    /// What the kubelet gets for one claim.
    pub(crate) async fn prepare(&self, name: &str) -> NodePrepareResourceResponse {
        ask(self.kubelet().clone(), reference(name)).await
    }

    /// The same, going on beside the test.
    pub(crate) fn preparing(&self, name: &str) -> JoinHandle<NodePrepareResourceResponse> {
        tokio::spawn(ask(self.kubelet().clone(), reference(name)))
    }

    /// Several claims in one call, in this order; `None` for a call that broke off.
    pub(crate) async fn call(&self, claims: Vec<Claim>) -> Option<Vec<NodePrepareResourceResponse>> {
        let uids: Vec<_> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let mut answers = self.kubelet().prepare(claims).await.ok()?;
        Some(uids.iter().map(|uid| answers.remove(uid).unwrap()).collect())
    }

    /// It must be granted; its devices as the kubelet is told of them.
    pub(crate) async fn granted(&self, name: &str) -> Vec<Device> {
        self.is_granted(name, self.prepare(name).await)
    }

    pub(crate) fn is_granted(&self, name: &str, answer: NodePrepareResourceResponse) -> Vec<Device> {
        assert_eq!(answer.error, "", "{}", self.told());
        assert!(!answer.devices.is_empty() && self.cdi(name).is_some(), "{answer:?}");
        answer.devices
    }

    /// It must be refused, which leaves neither CDI file nor lease; the words.
    pub(crate) async fn refused(&self, name: &str) -> String {
        self.is_refused(name, self.prepare(name).await).await
    }

    pub(crate) async fn is_refused(&self, name: &str, answer: NodePrepareResourceResponse) -> String {
        assert!(!answer.error.is_empty() && answer.devices.is_empty(), "{answer:?}");
        assert_eq!(self.cdi(name), None, "{}", answer.error);
        let status = self.status().await;
        let left = claim_of(&status, name);
        assert!(left.is_none() && !self.record("claims", &uid(name)).exists(), "{left:?}");
        answer.error
    }

    /// It must succeed, as it always can, and leaves no CDI file.
    pub(crate) async fn unprepared(&self, name: &str) {
        self.unprepared_only(name).await;
        assert_eq!(self.cdi(name), None);
    }

    /// The same, for a claim that is prepared again at once.
    pub(crate) async fn unprepared_only(&self, name: &str) {
        let claim = reference(name);
        let mut answers = self.kubelet().unprepare(vec![claim.clone()]).await.unwrap();
        assert_eq!(answers.remove(&claim.uid).unwrap().error, "");
    }

    /// Prepared and unprepared by a daemon that may be shot meanwhile; whoever asks finds out from the records.
    pub(crate) async fn used_by(&self, name: &str, killer: &mut Killer) {
        let kubelet = self.kubelet();
        let prepared = kubelet.prepare(vec![reference(name)]).await.is_ok();
        if prepared && !killer.has_shot() {
            let _ = kubelet.unprepare(vec![reference(name)]).await;
        }
    }

    pub(crate) fn cdi_path(&self, name: &str) -> PathBuf {
        self.path("cdi").join(format!("{DRIVER}-claim-{}.json", uid(name)))
    }

    /// What stands in the claim's CDI file.
    pub(crate) fn cdi(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.cdi_path(name)).ok()
    }
}

/// What can be seen.
impl Node {
    pub(crate) async fn status(&self) -> Status {
        let run = self.path("run");
        match control::call(&run, &Request::Status).await {
            Ok(Answer::Done(value)) => serde_json::from_value(value).unwrap(),
            other => panic!("{other:?}\n{}", self.told()),
        }
    }

    /// Waits until the status shows it.
    pub(crate) async fn until(&self, what: &str, shown: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = self.status().await;
            if shown(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{status:#?}\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for what the status does not show.
    pub(crate) async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nothing is left to be cleaned, unless the daemon is dead.
    pub(crate) async fn settled_or_dead(&mut self) {
        let begun = Instant::now();
        while self.daemon.as_mut().unwrap().ended().is_none() && !self.records("releasing").is_empty() {
            assert!(begun.elapsed() < PATIENCE, "never settled\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every device is free and proved on this boot.
    pub(crate) async fn proved(&self) -> Status {
        let proved = |status: &Status| {
            let devices = &status.ledger.devices;
            !devices.is_empty() && devices.iter().all(|device| device.schedulable && device.state == "free")
        };
        self.until("every device proved", proved).await
    }

    /// Waits until a worker does this step on the device.
    pub(crate) async fn in_step(&self, device: usize, step: &str) -> Status {
        let words = format!("{step} for");
        self.until(&words, |status| view(status, device).detail.contains(&words)).await
    }

    pub(crate) async fn device(&self, device: usize) -> DeviceView {
        view(&self.status().await, device).clone()
    }

    /// The last token issued for the device.
    pub(crate) async fn token(&self, device: usize) -> Token {
        self.device(device).await.token
    }

    pub(crate) fn counts(&self, device: usize) -> Counts {
        self.twin.counts(at(device)).unwrap()
    }

    pub(crate) fn fault(&self, device: usize, fault: Option<Fault>) {
        self.twin.set_fault(at(device), fault).unwrap();
    }

    /// A tenant's data in the device's memory.
    pub(crate) fn leave(&self, device: usize, data: &[u8]) {
        self.twin.leave(at(device), 4096, data).unwrap();
    }

    pub(crate) fn holds(&self, device: usize, data: &[u8]) -> bool {
        self.twin.memory(at(device)).unwrap().windows(data.len()).any(|window| window == data)
    }

    /// Path of a record.
    pub(crate) fn record(&self, folder: &str, name: &str) -> PathBuf {
        self.path("state").join(folder).join(format!("{name}.json"))
    }

    /// The records of a folder.
    pub(crate) fn records(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("state").join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.daemon.take());
        daemon::end_lock_holders(&self.path("run"));
    }
}

async fn ask(kubelet: Kubelet, claim: Claim) -> NodePrepareResourceResponse {
    let mut answers = kubelet.prepare(vec![claim.clone()]).await.unwrap();
    answers.remove(&claim.uid).unwrap()
}

/// The device of this number; of two cards that were in its slot, the one that was seen last.
pub(crate) fn view(status: &Status, device: usize) -> &DeviceView {
    status.ledger.devices.iter().find(|view| view.address == at(device)).unwrap()
}

pub(crate) fn claim_of<'a>(status: &'a Status, name: &str) -> Option<&'a ClaimView> {
    status.ledger.claims.iter().find(|claim| claim.record.claim.name == name)
}

/// One more of each.
pub(crate) fn more(counts: Counts, resets: u32, scrubs: u32) -> Counts {
    Counts { resets: counts.resets + resets, scrubs: counts.scrubs + scrubs }
}

pub(crate) fn write(path: &Path, content: &str) {
    let written: io::Result<()> = File::create(path).and_then(|mut file| file.write_all(content.as_bytes()));
    written.unwrap();
}
