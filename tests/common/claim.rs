use cleanslate::wire::dra::Claim;
use serde_json::{Value, json};

use super::{DRIVER, NODE, name};

const NAMESPACE: &str = "tests";

/// A `ResourceClaim` as the API server shows it.
#[derive(Clone)]
pub(crate) struct ClaimFile {
    name: String,
    uid: String,
    results: Vec<Value>,
    timestamp: Option<String>,
    selector: Option<Value>,
    configs: Vec<Value>,
}

/// A claim that is not allocated.
pub(crate) fn claim(name: &str) -> ClaimFile {
    ClaimFile {
        name: name.to_owned(),
        uid: uid(name),
        results: Vec::new(),
        timestamp: None,
        selector: None,
        configs: Vec::new(),
    }
}

/// Its UID.
pub(crate) fn uid(name: &str) -> String {
    format!("{name}-4000-8000")
}

/// How the kubelet names it.
pub(crate) fn reference(name: &str) -> Claim {
    Claim { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid: uid(name) }
}

impl ClaimFile {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The scheduler gives it this device.
    pub(crate) fn on(self, device: usize) -> Self {
        let name = name(device);
        self.named(&name)
    }

    /// The same, by the device's name.
    pub(crate) fn named(mut self, device: &str) -> Self {
        let request = format!("r{}", self.results.len());
        self.results.push(json!({"request": request, "driver": DRIVER, "pool": NODE, "device": device}));
        self
    }

    /// Another value in the last device's result.
    pub(crate) fn but(mut self, field: &str, value: Value) -> Self {
        self.results.last_mut().unwrap()[field] = value;
        self
    }

    /// Opaque parameters for a driver, by the claim or `FromClass`, for all of its requests.
    pub(crate) fn asking(self, source: &str, driver: &str, parameters: &Value) -> Self {
        let opaque = json!({"driver": driver, "parameters": parameters});
        self.configured(json!({"source": source, "requests": [], "opaque": opaque}))
    }

    /// An entry of the allocation's configuration, as the scheduler copies it.
    pub(crate) fn configured(mut self, config: Value) -> Self {
        self.configs.push(config);
        self
    }

    /// When it was allocated.
    pub(crate) fn allocated_at(mut self, timestamp: &str) -> Self {
        self.timestamp = Some(timestamp.to_owned());
        self
    }

    /// For which node.
    pub(crate) fn for_node(mut self, node: &str) -> Self {
        self.selector = Some(json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]},
        ]}]}));
        self
    }

    pub(crate) fn with_uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    pub(super) fn object(&self) -> Value {
        let requests: Vec<_> = (0..self.results.len().max(1))
            .map(|number| {
                json!({"name": format!("r{number}"), "exactly": {"deviceClassName": "npu.cleanslate.dev"}})
            })
            .collect();
        let mut object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "uid": self.uid},
            "spec": {"devices": {"requests": requests}},
        });
        if !self.results.is_empty() {
            let mut allocation = json!({"devices": {"results": self.results}});
            if !self.configs.is_empty() {
                allocation["devices"]["config"] = json!(self.configs);
            }
            if let Some(timestamp) = &self.timestamp {
                allocation["allocationTimestamp"] = json!(timestamp);
            }
            if let Some(selector) = &self.selector {
                allocation["nodeSelector"] = selector.clone();
            }
            object["status"] = json!({"allocation": allocation});
        }
        object
    }
}
