//! What a user brings: a namespace with claims and pods that want the device.

use serde_json::{Value, json};

use crate::node::{Node, until};
use crate::twin::ADDRESS;

/// Our device as a slice names it.
pub(crate) const DEVICE: &str = "pci-0000-3b-00-0";
/// How the kubelet begins its event about a prepare that failed.
pub(crate) const REFUSED: &str = "Failed to prepare dynamic resources";
/// A namespace of a test's own, gone with it.
pub(crate) struct Tenant<'a> {
    node: &'a Node,
    name: &'static str,
}

impl<'a> Tenant<'a> {
    /// Makes the namespace, and templates of claims: `one` for the first device, `any` for any.
    pub(crate) fn new(node: &'a Node, name: &'static str) -> Self {
        let metadata = json!({"name": name, "labels": {"resource.kubernetes.io/admin-access": "true"}});
        node.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string());
        let tenant = Self { node, name };
        tenant.create("ResourceClaimTemplate", "one", &json!({"spec": one_device(false)}));
        let mut any = one_device(false);
        any["devices"]["requests"][0]["exactly"].as_object_mut().expect("an object").remove("selectors");
        tenant.create("ResourceClaimTemplate", "any", &json!({"spec": any}));
        tenant
    }

    fn create(&self, kind: &str, name: &str, spec: &Value) {
        let version = match kind {
            "Pod" => "v1",
            "Deployment" => "apps/v1",
            _ => "resource.k8s.io/v1",
        };
        let metadata = json!({"name": name, "namespace": self.name});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        self.node.apply(&object.to_string());
    }

    /// A pod that gets a claim of its own from the template.
    pub(crate) fn pod(&self, name: &str) {
        self.pod_with(name, &json!({"resourceClaimTemplateName": "one"}), &json!({}));
    }

    /// A pod with the given claim, and whatever else stands in its spec.
    pub(crate) fn pod_with(&self, name: &str, claim: &Value, more: &Value) {
        let mut spec = pod(claim);
        merge(&mut spec, more);
        self.create("Pod", name, &spec);
    }

    /// A Deployment of one pod that takes any device.
    pub(crate) fn deployment(&self, name: &str) {
        let labels = json!({"app": name});
        let template = json!({
            "metadata": {"labels": labels},
            "spec": pod(&json!({"resourceClaimTemplateName": "any"})),
        });
        let selector = json!({"matchLabels": labels});
        self.create("Deployment", name, &json!({"replicas": 1, "selector": selector, "template": template}));
    }

    /// A claim with a name of its own.
    pub(crate) fn claim(&self, name: &str, admin: bool) {
        self.create("ResourceClaim", name, &one_device(admin));
    }

    /// Runs kubectl in this namespace.
    pub(crate) fn kubectl(&self, arguments: &str) -> String {
        self.node.kubectl(&format!("--namespace {} {arguments}", self.name))
    }

    /// Waits until a pod runs, and reads what its container was told of the device.
    pub(crate) fn running(&self, pod: &str, seconds: u64) -> Token {
        until(&format!("pod {pod} is Running"), seconds, || (self.phase(pod) == "Running").then_some(()));
        let container = self.container(pod).expect("a Running pod has a running container");
        self.token(&container)
    }

    /// Where a pod stands.
    pub(crate) fn phase(&self, pod: &str) -> String {
        self.kubectl(&format!("get pod {pod} -o jsonpath={{.status.phase}}"))
    }

    /// A pod's running container, as crictl names it.
    pub(crate) fn container(&self, pod: &str) -> Option<String> {
        let labels =
            format!("io.kubernetes.pod.namespace={} --label io.kubernetes.pod.name={pod}", self.name);
        let id = self.node.run(&format!("crictl ps --quiet --state Running --label {labels}"));
        (!id.is_empty()).then(|| id.trim().to_owned())
    }

    /// What `crictl inspect` shows that a container was told of its device.
    pub(crate) fn token(&self, container: &str) -> Token {
        let text = self.node.run(&format!("crictl inspect {container}"));
        let inspected: Value = serde_json::from_str(&text).expect("crictl prints JSON");
        let environment =
            inspected["info"]["runtimeSpec"]["process"]["env"].as_array().expect("an environment");
        let words = environment.iter().filter_map(Value::as_str);
        let ours: Vec<_> = words.filter(|variable| variable.starts_with("CLEANSLATE_")).collect();
        println!("  crictl inspect: {ours:?}");
        let [variable] = ours[..] else { panic!("expected one variable of ours in {environment:?}") };
        Token::parse(variable)
    }

    /// The messages of a pod's events that hold the words.
    pub(crate) fn events(&self, pod: &str, words: &str) -> Vec<String> {
        let selector = format!("get events --field-selector involvedObject.name={pod} -o json");
        let events: Value = serde_json::from_str(&self.kubectl(&selector)).expect("kubectl prints JSON");
        let messages =
            events["items"].as_array().expect("a list").iter().filter_map(|event| event["message"].as_str());
        messages.filter(|message| message.contains(words)).map(str::to_owned).collect()
    }

    /// Waits for an event of a pod.
    pub(crate) fn event(&self, pod: &str, words: &str, seconds: u64) -> String {
        until(&format!("an event of pod {pod}"), seconds, || self.events(pod, words).pop())
    }
}

impl Drop for Tenant<'_> {
    fn drop(&mut self) {
        // A test that failed already tells why; a second panic would hide it.
        if let Err(problem) =
            self.node.try_run(&format!("kubectl delete namespace {} --timeout=90s", self.name), "")
        {
            println!("  namespace {} is left behind: {problem}", self.name);
        }
    }
}

/// The fencing token that a container was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    term: u64,
    epoch: u64,
}

impl Token {
    fn parse(variable: &str) -> Self {
        let token = variable.strip_prefix("CLEANSLATE_PCI_0000_3B_00_0=0000:3b:00.0,").and_then(|token| {
            let (term, epoch) = token.split_once('.')?;
            Some(Self { term: term.parse().ok()?, epoch: epoch.parse().ok()? })
        });
        token.unwrap_or_else(|| panic!("expected the device's variable, its address and token: {variable}"))
    }
}

/// A pod's spec.
fn pod(claim: &Value) -> Value {
    let mut spec = json!({
        // busybox's sleep ignores SIGTERM as a container's first process.
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "accelerator"}],
        "containers": [{
            "name": "main",
            "image": "localhost/busybox:dev",
            "resources": {"claims": [{"name": "accelerator"}]},
        }],
    });
    merge(&mut spec["resourceClaims"][0], claim);
    spec
}

/// A claim's spec, for the first device.
fn one_device(admin: bool) -> Value {
    let bus_id = r#"device.attributes["resource.kubernetes.io"].pciBusID"#;
    let expression = format!(
        r#"{bus_id} == "{ADDRESS}" && device.capacity["cleanslate.dev"].memory.isGreaterThan(quantity("1Mi"))"#
    );
    let selectors = json!([{"cel": {"expression": expression}}]);
    let mut exactly = json!({"deviceClassName": "npu.cleanslate.dev", "selectors": selectors});
    if admin {
        exactly["adminAccess"] = json!(true);
    }
    json!({"devices": {"requests": [{"name": "npu", "exactly": exactly}]}})
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().expect("an object") {
        into[key] = value.clone();
    }
}
