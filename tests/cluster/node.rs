//! The node under test: started once, shared by all tests, gone with this process.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::twin::{ADDRESS, Twin};

/// A node with our DaemonSet on it and two simulated devices.
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
        // First proofs, which nobody asked for, must not be counted as a test's.
        until("both devices are published and proved", 60, || {
            let devices = self.devices();
            (devices.len() == 2 && devices.iter().all(|(_, taints)| taints.is_empty())).then_some(())
        });
    }

    /// The slices of our driver.
    pub(crate) fn slices(&self) -> Vec<Value> {
        let list = self.kubectl("get resourceslices --field-selector spec.driver=cleanslate.dev -o json");
        let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
        list["items"].as_array().expect("a list").clone()
    }

    /// The devices in them, each with its taints as `key=value:effect`.
    pub(crate) fn devices(&self) -> Vec<(String, Vec<String>)> {
        self.slices().iter().flat_map(devices).collect()
    }

    /// Follows what happens to slices from now on.
    pub(crate) fn watch_slices(&self) -> SliceWatch {
        let path = self.scratch.join("watch.json");
        let file = fs::File::create(&path).expect("the scratch folder is ours");
        let command = "timeout 120 kubectl get resourceslices --watch-only --output-watch-events -o json";
        let mut enter = enter(&self.scratch);
        enter.args(command.split_whitespace()).stdin(Stdio::null()).stdout(file);
        let process = enter.spawn().expect("cannot start enter.sh");
        std::thread::sleep(Duration::from_secs(1));
        SliceWatch { path, process }
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

/// A running `kubectl get --watch`.
pub(crate) struct SliceWatch {
    path: PathBuf,
    process: Child,
}

impl SliceWatch {
    /// What was seen so far: what happened, and the slice.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let text = fs::read(&self.path).expect("it was created");
        // The last one may be half written.
        let events = serde_json::Deserializer::from_slice(&text).into_iter::<Value>().map_while(Result::ok);
        let events = events.map(|event| (event["type"].to_string(), event["object"].clone()));
        events.collect()
    }
}

impl Drop for SliceWatch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The devices of a slice, each with its taints.
pub(crate) fn devices(slice: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let taint = |taint: &Value| {
        format!("{}={}:{}", text(&taint["key"]), text(&taint["value"]), text(&taint["effect"]))
    };
    let device = |device: &Value| {
        let taints = device["taints"].as_array().into_iter().flatten();
        (text(&device["name"]), taints.map(taint).collect())
    };
    slice["spec"]["devices"].as_array().into_iter().flatten().map(device).collect()
}

fn enter(scratch: &Path) -> Command {
    let mut command = script("enter.sh");
    command.arg(scratch);
    command
}
