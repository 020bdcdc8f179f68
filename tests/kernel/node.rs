//! The daemon on this machine, and what it says of itself.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cleanslate::ledger::DeviceView;
use cleanslate::observe::control::{self, Answer, Request};
use cleanslate::observe::status::Status;
use cleanslate::sim::kubelet::Kubelet;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::checks::PATIENCE;
use crate::function::Function;

pub(crate) const PROGRAM: &str = "/bin/cleanslate";
pub(crate) const NODE: &str = "node-1";
const FOLDERS: [&str; 6] = ["claims", "state", "run", "cdi", "registry", "plugins"];

/// A node of its own: no other test's records are in its way.
pub(crate) struct Node {
    folder: PathBuf,
    policy: Option<String>,
    daemon: Option<Child>,
    pub(crate) kubelet: Option<Kubelet>,
}

/// A policy of these rules. First proofs come at once, nobody is waited for, a quarantine stays.
pub(crate) fn policy(rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| format!("- {rule}\n")).collect::<String>();
    format!(
        "apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\ndevices:\n{rules}\
         release: {{firstProofWithin: 0s, patience: 100ms, attempts: 0}}\n"
    )
}

impl Node {
    /// A node that runs under this policy.
    pub(crate) async fn start(policy: Option<String>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let folder = PathBuf::from(format!("/tmp/node{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        for part in FOLDERS {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let mut node = Self { folder, policy, daemon: None, kubelet: None };
        node.up().await;
        node
    }

    pub(crate) fn path(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    /// Starts the daemon, after it was stopped or killed.
    pub(crate) async fn up(&mut self) {
        let mut command = Command::new(PROGRAM);
        command.args([
            "run",
            "--node-name",
            NODE,
            "--log-format",
            "json",
            "--log-level",
            "info,cleanslate=debug",
        ]);
        if let Some(policy) = &self.policy {
            fs::write(self.path("policy.yaml"), policy).unwrap();
            command.arg("--policy").arg(self.path("policy.yaml"));
        }
        for part in FOLDERS {
            command.arg(format!("--{part}")).arg(self.path(part));
        }
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        self.daemon = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        self.kubelet = loop {
            // On a busy machine a kubelet, too, asks more than once.
            match Kubelet::register(&self.path("registry"), PATIENCE).await {
                Ok(kubelet) => break Some(kubelet),
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}: {}", self.log()),
            }
        };
    }

    /// Stops it and starts it again under a policy in which this is replaced.
    pub(crate) async fn restart_with(&mut self, old: &str, new: &str) {
        self.stop().await;
        self.policy = self.policy.as_ref().map(|policy| policy.replace(old, new));
        self.up().await;
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.daemon.as_ref().unwrap().id().try_into().unwrap())
    }

    /// SIGTERM; how it ended, and after how long.
    pub(crate) async fn stop(&mut self) -> (ExitStatus, Duration) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        let mut daemon = self.daemon.take().unwrap();
        let begun = Instant::now();
        let status = loop {
            match daemon.try_wait().unwrap() {
                Some(status) => break status,
                None if begun.elapsed() > PATIENCE => panic!("SIGTERM does not end it"),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        (status, begun.elapsed())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// The process that has a device's lock, by the lock file's words.
    pub(crate) fn worker(&self, function: Function) -> Option<Pid> {
        let text = fs::read_to_string(self.path("run").join(format!("{}.lock", function.0))).ok()?;
        let pid: i32 = text.split_whitespace().nth(1)?.parse().ok()?;
        Path::new(&format!("/proc/{pid}")).exists().then(|| Pid::from_raw(pid))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) async fn status(&self) -> Status {
        match control::call(&self.path("run"), &Request::Status).await {
            Ok(Answer::Done(value)) => serde_json::from_value(value).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn device(&self, function: Function) -> Option<DeviceView> {
        let status = self.status().await;
        status.ledger.devices.into_iter().find(|device| device.address == function.address())
    }

    /// Waits until the device's view is so.
    pub(crate) async fn until(
        &self,
        what: &str,
        function: Function,
        shown: impl Fn(&DeviceView) -> bool,
    ) -> DeviceView {
        let begun = Instant::now();
        loop {
            let device = self.device(function).await;
            if let Some(device) = device.as_ref().filter(|device| shown(device)) {
                return device.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "never: {what}: {device:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the proof that is made after the start.
    pub(crate) async fn proved(&self, function: Function) -> DeviceView {
        let free = |device: &DeviceView| device.schedulable && device.state == "free";
        self.until("proved and free", function, free).await
    }

    /// An operator's command on this node.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(arguments).arg("--run").arg(self.path("run")).output().unwrap()
    }

    /// An operator ends a device's quarantine.
    pub(crate) fn release(&self, function: Function) {
        let output = self.cli(&["quarantine", "release", function.0, "--reason", "tested"]);
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let name = self.folder.file_name().unwrap().to_owned();
        let _ = fs::copy(self.path("log"), Path::new("/host").join(name).with_extension("log"));
    }
}
