//! The node under test: started once, shared by all tests, gone with this process.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::twin::{ADDRESS, Twin};

/// A node with our DaemonSet on it and one simulated device.
pub(crate) struct Node {
    scratch: PathBuf,
    pub(crate) twin: Twin,
    // The node ends when this pipe does, however this process ends.
    _alive: ChildStdin,
}

/// The node, for as long as one test uses it.
pub(crate) fn node() -> MutexGuard<'static, Node> {
    static NODE: LazyLock<Mutex<Node>> = LazyLock::new(|| Mutex::new(Node::start()));
    NODE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks again and again, until there is an answer.
pub(crate) fn until<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            println!("  {what}: after {:.1} s", start.elapsed().as_secs_f32());
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster").join(name))
}

impl Node {
    fn start() -> Self {
        let scratch = std::env::temp_dir().join(format!("cleanslate-cluster-{}", std::process::id()));
        let mut up = script("up.sh").arg(&scratch).stdin(Stdio::piped()).spawn().expect("cannot start up.sh");
        let alive = up.stdin.take().expect("stdin is piped");
        // Long, since it builds what is missing.
        until("the node is up", 1200, || {
            let ended = up.try_wait().expect("up.sh is our child");
            assert!(
                ended.is_none(),
                "up.sh ended: {ended:?}; it needs root and what `tests/run cluster` installs"
            );
            scratch.join("ready").exists().then_some(())
        });
        let twin = Twin::start(enter(&scratch));
        let node = Self { scratch, twin, _alive: alive };
        node.deploy();
        node
    }

    fn deploy(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/deploy");
        let objects =
            self.kubectl(&format!("kustomize --load-restrictor LoadRestrictionsNone {}", folder.display()));
        self.apply(&objects);
        until("the kubelet has registered the plugin", 60, || self.registrations().pop());
        self.kubectl("--namespace cleanslate rollout status daemonset/cleanslate --timeout=60s");
        // Its first proof, which nobody asked for, must not be counted as a test's.
        until("the device has its first proof", 60, || (self.twin.counts().scrubs > 0).then_some(()));
    }

    /// Runs a command on the node; its output, or what it said went wrong.
    pub(crate) fn try_run(&self, command: &str, input: &str) -> Result<String, String> {
        let mut child = enter(&self.scratch)
            .args(command.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot start enter.sh");
        // A command that ends early breaks the pipe; its own words tell more.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("enter.sh is our child");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{command}: {}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    /// Runs a command on the node that has to succeed.
    pub(crate) fn run(&self, command: &str) -> String {
        self.try_run(command, "").unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Runs kubectl; its arguments have no spaces.
    pub(crate) fn kubectl(&self, arguments: &str) -> String {
        self.run(&format!("kubectl {arguments}"))
    }

    /// Runs our program beside the daemon, as an operator does.
    pub(crate) fn cleanslate(&self, arguments: &str) -> String {
        let output =
            self.kubectl(&format!("--namespace cleanslate exec ds/cleanslate -- cleanslate {arguments}"));
        println!("  cleanslate {arguments}: {}", output.trim());
        output
    }

    /// Creates or changes objects, given as YAML or JSON.
    pub(crate) fn apply(&self, objects: &str) {
        self.try_run("kubectl apply -f -", objects).unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// The kubelet's log lines that hold all of the given words.
    pub(crate) fn kubelet_log(&self, words: &[&str]) -> Vec<String> {
        let log = fs::read(self.scratch.join("var/log/kubelet.log")).expect("the kubelet logs to a file");
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
    }

    /// The kubelet's own words for each time that our plugin registered.
    pub(crate) fn registrations(&self) -> Vec<String> {
        self.kubelet_log(&["Registered DRA plugin", "driverName=\"cleanslate.dev\""])
    }

    /// What the plugin answered to each prepare, in the kubelet's own words.
    pub(crate) fn prepared(&self) -> Vec<String> {
        let lines = self.kubelet_log(&["Done calling NodePrepareResources rpc"]);
        lines.iter().filter_map(|line| Some(line.split_once("response=")?.1.to_owned())).collect()
    }

    /// The CDI files that containers are made from.
    pub(crate) fn cdi_files(&self) -> usize {
        fs::read_dir(self.scratch.join("run/cdi")).expect("the plugin makes it").count()
    }

    /// Whether a text stands in the device's memory.
    pub(crate) fn memory_holds(&self, text: &str) -> bool {
        let memory = format!("run/twin/sys/bus/pci/devices/{ADDRESS}/resource0");
        let memory = fs::read(self.scratch.join(memory)).expect("the twin's memory is a file");
        memory.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Ends the kubelet and waits until it has come back and registered the plugin anew.
    pub(crate) fn restart_kubelet(&self) {
        let pid = fs::read_to_string(self.scratch.join("run/kubelet.pid")).expect("node.sh writes it");
        self.until_registered_again(|| {
            self.run(&format!("kill {pid}"));
        });
    }

    /// Replaces the plugin's pod, as an update does.
    pub(crate) fn restart_plugin(&self) {
        self.until_registered_again(|| {
            self.kubectl("--namespace cleanslate rollout restart daemonset/cleanslate");
            self.kubectl("--namespace cleanslate rollout status daemonset/cleanslate --timeout=120s");
        });
    }

    fn until_registered_again(&self, restart: impl FnOnce()) {
        let before = self.registrations().len();
        restart();
        until("the plugin is registered again", 60, || (self.registrations().len() > before).then_some(()));
    }
}

fn enter(scratch: &Path) -> Command {
    let mut command = script("enter.sh");
    command.arg(scratch);
    command
}
