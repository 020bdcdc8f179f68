//! What `cleanslate status` shows: one snapshot of everything.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::inventory::{Inventory, Known};
use crate::kubelet::registration::KubeletVerdict;
use crate::ledger::{Ledger, Snapshot};
use crate::maintenance::Observation;
use crate::publish::PublishView;
use crate::types::{Identity, Inspection, NodeMode};

/// The state of a node. Fields are only added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Our version.
    pub version: String,
    /// The node, also the pool.
    pub node: String,
    /// The driver.
    pub driver: String,
    /// The devices are a twin's: `sys` is no sysfs.
    pub simulated: bool,
    /// What the kubelet said of our registration.
    pub registration: String,
    /// What the policy lets us do.
    #[serde(default)]
    pub mode: NodeMode,
    /// What would be done to each device, while the policy only observes.
    #[serde(default)]
    pub observed: Vec<Observation>,
    /// Devices, claims, damaged records.
    #[serde(flatten)]
    pub ledger: Snapshot,
    /// Devices that match the policy and are never granted as they are.
    pub refused: Vec<Refused>,
    /// Why no device of this node is ours, where none is.
    #[serde(default)]
    pub nothing_ours: Option<String>,
    /// What stands in the slots of our devices, as it was last inspected.
    #[serde(default)]
    pub hardware: Vec<Hardware>,
    /// What the API server has of this node; `None` for a node without one.
    #[serde(default)]
    pub publish: Option<PublishView>,
}

/// A device as its inspection saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hardware {
    /// Its name.
    pub name: String,
    /// Who it is.
    pub identity: Identity,
    /// Its product's name, where one is known.
    pub product: Option<String>,
    /// Ids, BARs, link, place.
    #[serde(flatten)]
    pub inspection: Inspection,
}

/// A device that is never granted as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Its name.
    pub device: String,
    /// Why.
    pub why: String,
}

/// Who can tell the status.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// This node.
    pub node: String,
    /// The driver.
    pub driver: String,
    /// Whether the devices are a twin's.
    pub simulated: bool,
    /// Device state.
    pub ledger: Arc<Ledger>,
    /// Which devices are ours.
    pub inventory: Arc<Inventory>,
    /// What would be done, while the policy only observes.
    pub observed: watch::Receiver<Vec<Observation>>,
    /// What the kubelet says.
    pub registration: watch::Receiver<KubeletVerdict>,
    /// What is published.
    pub publish: Option<watch::Receiver<PublishView>>,
}

impl Reporter {
    /// Everything at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        let refused = self.inventory.refused().into_iter();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.clone(),
            driver: self.driver.clone(),
            simulated: self.simulated,
            registration: self.registration.borrow().to_string(),
            mode: if self.inventory.observes() { NodeMode::Observe } else { NodeMode::Enforce },
            observed: self.observed.borrow().clone(),
            ledger: self.ledger.snapshot(),
            hardware: self.inventory.identified().iter().map(|known| hardware(known)).collect(),
            refused: refused.map(|(device, why)| Refused { device, why }).collect(),
            nothing_ours: self.inventory.nothing_ours().map(str::to_owned),
            publish: self.publish.as_ref().map(|publish| publish.borrow().clone()),
        }
    }
}

fn hardware(known: &Known) -> Hardware {
    Hardware {
        name: known.subject.address.device_name(),
        identity: known.subject.identity.clone(),
        product: known.product.clone(),
        inspection: known.inspection.clone(),
    }
}
