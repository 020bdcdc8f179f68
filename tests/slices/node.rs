//! A node: the real binary as daemon, over simulated devices and a simulated API server.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cleanslate::observe::control::{self, Answer, Request};
use cleanslate::observe::status::Status;
use cleanslate::publish::PublishView;
use cleanslate::sim::api::{Api, Call, Kind, Verb};
use cleanslate::sim::kubelet::Kubelet;
use cleanslate::sim::{DeviceSpec, Folder};
use cleanslate::types::{PciAddress, Roots};
use cleanslate::wire::dra::Claim;
use serde_json::{Value, json};

pub(crate) const NODE: &str = "node-a";
pub(crate) const DRIVER: &str = "cleanslate.dev";
pub(crate) const FIRST: &str = "0000:3b:00.0";
pub(crate) const SECOND: &str = "0000:5e:00.0";

/// Deadlines that a busy test machine keeps, but for the reset, which is to hang.
pub(crate) const POLICY: &str = "\
apiVersion: cleanslate.dev/v1alpha1
kind: NodePolicy
devices:
- match: {vendor: \"1234\", device: \"c1ea\"}
  scrub: {bars: [0]}
  deadlines: {inspect: 30s, probe: 30s, holders: 30s, reset: 1500ms, scrub: 30s}
release: {firstProofWithin: 0s, retry: 10m, patience: 200ms}
";

pub(crate) struct Node {
    pub(crate) api: Api,
    pub(crate) twin: Folder,
    root: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Node {
    /// A node with these devices whose daemon is not started yet.
    pub(crate) fn new(devices: &[&str], policy: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["state", "run", "cdi", "registry", "plugins"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        write(&root.path().join("policy.yaml"), policy);
        let spec = |text: &&str| -> DeviceSpec { format!("{text},memory=65536").parse().unwrap() };
        let twin = Folder::create(&root.path().join("twin"), devices.iter().map(spec).collect()).unwrap();
        let api = Api::start().unwrap();
        api.write_kubeconfig(&root.path().join("kubeconfig")).unwrap();
        api.put(Kind::Nodes, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))
            .unwrap();
        Self { api, twin, root, daemon: None }
    }

    /// A node with these devices and its daemon.
    pub(crate) fn start(devices: &[&str], policy: &str) -> Self {
        let mut node = Self::new(devices, policy);
        node.start_daemon();
        node
    }

    pub(crate) fn start_daemon(&mut self) {
        let kubeconfig = self.root.path().join("kubeconfig");
        self.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()], true);
    }

    pub(crate) fn start_with(&mut self, more: &[&str], policy: bool) {
        self.start_on(&self.twin.roots(), more, policy);
    }

    /// On another machine than the twin's.
    pub(crate) fn start_on(&mut self, roots: &Roots, more: &[&str], policy: bool) {
        let root = self.root.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleanslate"));
        command.args(["run", "--node-name", NODE, "--log-format", "json"]).args(more);
        for (flag, path) in [("--sys", &roots.sys), ("--dev", &roots.dev), ("--proc", &roots.proc)] {
            command.arg(flag).arg(path);
        }
        for (flag, path) in [
            ("--state", "state"),
            ("--run", "run"),
            ("--cdi", "cdi"),
            ("--registry", "registry"),
            ("--plugins", "plugins"),
        ] {
            command.arg(flag).arg(root.join(path));
        }
        if policy {
            command.arg("--policy").arg(root.join("policy.yaml"));
        }
        let log = File::options().create(true).append(true).open(root.join("log")).unwrap();
        let child = command.env_remove("POD_UID").stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.daemon = Some(child);
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    /// Ends the daemon as the kubelet does, and waits for it.
    pub(crate) async fn stop_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let pid = nix::unistd::Pid::from_raw(daemon.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
        until("the daemon has ended", 30, || daemon.try_wait().unwrap()).await;
    }

    pub(crate) async fn kubelet(&self) -> Kubelet {
        Kubelet::register(&self.path("registry"), Duration::from_secs(20)).await.unwrap()
    }

    /// Has a claim for a device prepared, as the kubelet does; the error, if any.
    pub(crate) async fn prepare(&self, kubelet: &Kubelet, name: &str, device: &str) -> String {
        let claim = claim(name);
        let device = device.parse::<PciAddress>().unwrap().device_name();
        let result = json!({"request": "npu", "driver": DRIVER, "pool": NODE, "device": device});
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        });
        let stored = self.api.put(Kind::Claims, &object).unwrap();
        let uid = stored["metadata"]["uid"].as_str().unwrap().to_owned();
        let claim = Claim { uid: uid.clone(), ..claim };
        kubelet.prepare(vec![claim]).await.unwrap().remove(&uid).unwrap().error
    }

    pub(crate) async fn unprepare(&self, kubelet: &Kubelet, name: &str) {
        let claims = self.api.list(Kind::Claims);
        let stored = claims.iter().find(|claim| claim["metadata"]["name"] == name).unwrap();
        let uid = stored["metadata"]["uid"].as_str().unwrap().to_owned();
        let claim = Claim { uid: uid.clone(), ..claim(name) };
        let error = kubelet.unprepare(vec![claim]).await.unwrap().remove(&uid).unwrap().error;
        assert_eq!(error, "");
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        match control::call(&self.path("run"), &Request::Status).await.ok()? {
            Answer::Done(value) => Some(serde_json::from_value(value).unwrap()),
            Answer::Refused(why) => panic!("{why}"),
        }
    }

    /// What `status` says of publishing, once it fits.
    pub(crate) async fn published(&self, what: &str, fits: impl Fn(&PublishView) -> bool) -> PublishView {
        let start = Instant::now();
        loop {
            let view = self.status().await.and_then(|status| status.publish).unwrap_or_default();
            if fits(&view) {
                return view;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "never: {what}; {view:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.api.list(Kind::Slices)
    }

    /// All devices of all slices, by name, each with its taints as `key=value:effect`.
    pub(crate) fn offered(&self) -> Vec<(String, Vec<String>)> {
        self.slices().iter().flat_map(devices).collect()
    }

    /// Waits until a device stands there with these taints.
    pub(crate) async fn stands(&self, device: &str, taints: &[&str]) {
        let name = device.parse::<PciAddress>().unwrap().device_name();
        let wanted = (name, taints.iter().map(|taint| (*taint).to_owned()).collect::<Vec<_>>());
        let start = Instant::now();
        while !self.offered().contains(&wanted) {
            let offered = self.offered();
            assert!(start.elapsed() < Duration::from_secs(30), "{wanted:?}: {offered:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Real writes of slices that got through.
    pub(crate) fn writes(&self) -> Vec<Call> {
        let is_write = |call: &Call| {
            call.kind == Kind::Slices
                && matches!(call.verb, Verb::Create | Verb::Update | Verb::Delete)
                && !call.dry
                && call.code < 300
        };
        self.api.calls().into_iter().filter(is_write).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

pub(crate) fn devices(slice: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let taint = |taint: &Value| match taint["value"].as_str() {
        Some(value) => format!("{}={value}:{}", text(&taint["key"]), text(&taint["effect"])),
        None => format!("{}:{}", text(&taint["key"]), text(&taint["effect"])),
    };
    let device = |device: &Value| {
        let taints = device["taints"].as_array().into_iter().flatten();
        (text(&device["name"]), taints.map(taint).collect())
    };
    slice["spec"]["devices"].as_array().into_iter().flatten().map(device).collect()
}

fn claim(name: &str) -> Claim {
    Claim { namespace: "default".to_owned(), name: name.to_owned(), uid: String::new() }
}

pub(crate) fn write(path: &Path, content: &str) {
    File::create(path).unwrap().write_all(content.as_bytes()).unwrap();
}

/// Asks again and again, until there is an answer; how long that took.
pub(crate) async fn until<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Option<T>) -> (T, Duration) {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return (answer, start.elapsed());
        }
        assert!(start.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
