//! The simulated node: twins, an API server, a daemon of this very binary, a client that plays the kubelet.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::observe::control::{self, Answer, Request};
use crate::observe::status::Status;
use crate::sim::api::{Api, Kind, Verb};
use crate::sim::kubelet::Kubelet;
use crate::sim::{DeviceSpec, Folder};
use crate::types::PciAddress;
use crate::wire::dra::{Claim, NodePrepareResourceResponse};

pub(super) const NODE: &str = "demo-node";
const NAMESPACE: &str = "demo";
const ADDRESSES: [&str; 4] = ["0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0", "0000:af:00.0"];
/// Bytes of memory of each device.
pub(super) const MEMORY: u64 = 8 << 20;
/// What a function level reset takes on real cards.
const RESET_MS: u64 = 110;
/// A reset that has not returned by then never will; short, so that the story is.
pub(super) const RESET_DEADLINE: Duration = Duration::from_secs(4);

const POLICY: &str = "\
apiVersion: cleanslate.dev/v1alpha1
kind: NodePolicy
devices:
- match: {vendor: \"1234\", device: \"c1ea\"}
  scrub: {bars: [0]}
  deadlines: {reset: 4s}
release: {firstProofWithin: 0s}
";

/// Everything on the stage.
pub(super) struct Stage {
    pub(super) twin: Folder,
    pub(super) api: Api,
    pub(super) devices: Vec<PciAddress>,
    pub(super) kubelet: Kubelet,
    daemon: Child,
    // Dropped last.
    root: Root,
}

/// A folder that is gone when this is.
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        // A daemon that was killed a moment ago may be making a file. Whatever else is wrong harms nobody.
        while fs::remove_dir_all(&self.0).is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {}
    }
}

impl Stage {
    /// Sets the stage below a new folder of the system's temporary folder.
    pub(super) async fn set(log: bool) -> Result<Self, String> {
        let root = std::env::temp_dir().join(format!("cleanslate-demo-{}", std::process::id()));
        // A folder of an earlier process with our number; nobody uses it any more.
        let _ = fs::remove_dir_all(&root);
        Self::below(Root(root), log).await
    }

    async fn below(folder: Root, log: bool) -> Result<Self, String> {
        let root = &folder.0;
        for folder in ["state", "run", "cdi", "registry", "plugins"] {
            fs::create_dir_all(root.join(folder)).map_err(text)?;
        }
        write(&root.join("policy.yaml"), POLICY)?;
        let devices: Vec<PciAddress> = ADDRESSES.iter().filter_map(|address| address.parse().ok()).collect();
        let spec = |address: &PciAddress| DeviceSpec {
            memory: MEMORY,
            reset_ms: Some(RESET_MS),
            ..DeviceSpec::new(*address)
        };
        let twin = Folder::create(&root.join("twin"), devices.iter().map(spec).collect()).map_err(text)?;
        let api = Api::start().map_err(text)?;
        api.write_kubeconfig(&root.join("kubeconfig")).map_err(text)?;
        api.put(Kind::Nodes, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))?;
        let daemon = daemon(root, log)?;
        let kubelet =
            Kubelet::register(&root.join("registry"), Duration::from_secs(5)).await.map_err(text)?;
        Ok(Self { twin, api, devices, kubelet, daemon, root: folder })
    }

    /// Ends the daemon as the DaemonSet does, and clears the stage.
    pub(super) async fn strike(mut self) {
        if let Some(pid) = self.daemon.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGTERM);
        }
        if tokio::time::timeout(Duration::from_secs(5), self.daemon.wait()).await.is_err() {
            let _ = self.daemon.kill().await;
        }
    }

    /// Writes a claim that the scheduler has given this device, and asks for it as the kubelet does.
    pub(super) async fn prepare(
        &self,
        name: &str,
        device: PciAddress,
    ) -> Result<(NodePrepareResourceResponse, Duration), String> {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [{"name": "acc", "exactly": {"deviceClassName": "npu.cleanslate.dev"}}]}},
            "status": {"allocation": {"devices": {"results": [
                {"request": "acc", "driver": "cleanslate.dev", "pool": NODE, "device": device.device_name()},
            ]}}},
        });
        self.api.put(Kind::Claims, &object)?;
        let claim = self.claim(name)?;
        let start = Instant::now();
        let mut answers = self.kubelet.prepare(vec![claim.clone()]).await.map_err(text)?;
        let answer = answers.remove(&claim.uid).ok_or("the kubelet got no answer for the claim")?;
        Ok((answer, start.elapsed()))
    }

    pub(super) async fn unprepare(&self, name: &str) -> Result<(String, Duration), String> {
        let claim = self.claim(name)?;
        let start = Instant::now();
        let mut answers = self.kubelet.unprepare(vec![claim.clone()]).await.map_err(text)?;
        let answer = answers.remove(&claim.uid).ok_or("the kubelet got no answer for the claim")?;
        Ok((answer.error, start.elapsed()))
    }

    pub(super) async fn status(&self) -> Result<Status, String> {
        match control::call(&self.root.0.join("run"), &Request::Status).await.map_err(text)? {
            Answer::Done(value) => serde_json::from_value(value).map_err(text),
            Answer::Refused(why) => Err(why),
        }
    }

    /// How often the slice was written.
    pub(super) fn slice_writes(&self) -> usize {
        let calls = self.api.calls();
        let writes = |verb| matches!(verb, Verb::Create | Verb::Update | Verb::Delete);
        calls.iter().filter(|call| call.kind == Kind::Slices && writes(call.verb) && !call.dry).count()
    }

    /// The devices of the slice as it was first and as it is now, each with its taints.
    pub(super) fn slice(&self) -> Option<(Vec<String>, Vec<String>)> {
        let now = self.api.list(Kind::Slices).into_iter().next()?;
        let past = self.api.past(Kind::Slices, now["metadata"]["name"].as_str()?);
        Some((devices_of(past.first()?), devices_of(&now)))
    }

    /// A claim as the kubelet knows it.
    fn claim(&self, name: &str) -> Result<Claim, String> {
        let claims = self.api.list(Kind::Claims);
        let stored = claims.iter().find(|claim| claim["metadata"]["name"] == name);
        let uid = stored.and_then(|claim| claim["metadata"]["uid"].as_str());
        let uid = uid.ok_or_else(|| format!("there is no claim {name}"))?.to_owned();
        Ok(Claim { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid })
    }

    /// The text of a claim's CDI file; `None` where there is none.
    pub(super) fn cdi(&self, name: &str) -> Option<String> {
        let file = format!("cleanslate.dev-claim-{}.json", self.claim(name).ok()?.uid);
        fs::read_to_string(self.root.0.join("cdi").join(file)).ok()
    }
}

fn daemon(root: &Path, log: bool) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(text)?;
    let mut command = Command::new(program);
    command.args(["run", "--node-name", NODE, "--log-format", "text"]);
    for (flag, path) in [
        ("--policy", "policy.yaml"),
        ("--kubeconfig", "kubeconfig"),
        ("--sys", "twin/sys"),
        ("--dev", "twin/dev"),
        ("--proc", "twin/proc"),
        ("--state", "state"),
        ("--run", "run"),
        ("--cdi", "cdi"),
        ("--registry", "registry"),
        ("--plugins", "plugins"),
    ] {
        command.arg(flag).arg(root.join(path));
    }
    let errors =
        if log { Stdio::inherit() } else { File::create(root.join("daemon.log")).map_err(text)?.into() };
    command
        .env_remove("POD_UID")
        .stderr(errors)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(text)
}

/// `pci-0000-3b-00-0`, and after it what stands against it.
fn devices_of(slice: &Value) -> Vec<String> {
    let words = |device: &Value| {
        let taints = device["taints"].as_array().into_iter().flatten();
        let taint = |taint: &Value| {
            let word = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
            format!(" {}={}:{}", word("key"), word("value"), word("effect"))
        };
        device["name"].as_str().unwrap_or_default().to_owned() + &taints.map(taint).collect::<String>()
    };
    slice["spec"]["devices"].as_array().into_iter().flatten().map(words).collect()
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    File::create(path).and_then(|mut file| file.write_all(content.as_bytes())).map_err(text)
}

pub(super) fn text(error: impl Display) -> String {
    error.to_string()
}
