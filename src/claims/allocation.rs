//! What a claim was allocated, and whether that is ours to prepare on this node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim};

use super::parameters::{self, ParameterError};
use crate::types::{AllocatedDevice, Allocation, Claim, ClaimRef};

/// What is ours: results that name another driver, pool or node are somebody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Our driver's name.
    pub driver: String,
    /// This node's pool.
    pub pool: String,
    /// This node.
    pub node: String,
}

/// Why a claim's allocation is not ours to prepare.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AllocationError {
    /// The name belongs to a later claim by now.
    #[error(
        "was replaced: a claim of this name has UID {found:?} now; the pod that was set up with the old \
         one must be created again"
    )]
    Replaced {
        /// The UID that the name has now.
        found: String,
    },
    /// The scheduler has not chosen devices, or the choice was taken back.
    #[error("is not allocated: expected status.allocation, which the scheduler writes before a pod starts")]
    NotAllocated,
    /// It is meant for other nodes.
    #[error(
        "is allocated to other nodes than {node:?}: expected a term of allocation.nodeSelector whose \
         metadata.name names this node, found {selector}"
    )]
    OtherNode {
        /// This node.
        node: String,
        /// The selector.
        selector: String,
    },
    /// None of its devices is ours.
    #[error("has no device of {driver:?}: its devices are of {found:?}")]
    NoneOfOurs {
        /// Our driver.
        driver: String,
        /// The drivers of its devices.
        found: BTreeSet<String>,
    },
    /// A device of ours, but of another node.
    #[error("device {device:?} is of pool {found:?}: expected this node's pool {pool:?}")]
    OtherPool {
        /// The device.
        device: String,
        /// Its pool.
        found: String,
        /// This node's pool.
        pool: String,
    },
    /// A device that a claim cannot have in that way.
    #[error("device {device:?} is allocated with {field}: {value}; expected none: {reason}")]
    NotExclusive {
        /// The device.
        device: String,
        /// The field of the result.
        field: &'static str,
        /// What stands in it.
        value: String,
        /// Why we have none of it.
        reason: &'static str,
    },
    /// The same device stands in it more than once.
    #[error(
        "device {device:?} is allocated twice, to requests {first:?} and {second:?}: expected each device \
         once, since a device has one holder"
    )]
    Twice {
        /// The device.
        device: String,
        /// The first request.
        first: String,
        /// The other.
        second: String,
    },
    /// What it asks of us cannot be understood.
    #[error("has parameters that cannot be understood: {0}")]
    Parameters(#[from] ParameterError),
}

impl AllocationError {
    /// Whether the claim was read and has no device of this node: whatever it had here before, it has no more.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        match self {
            Self::Replaced { .. } | Self::NotAllocated | Self::OtherNode { .. } | Self::NoneOfOurs { .. } => {
                true
            }
            // Its devices here may be the same as before.
            Self::OtherPool { .. } | Self::NotExclusive { .. } | Self::Twice { .. } | Self::Parameters(_) => {
                false
            }
        }
    }
}

/// Reads a claim's allocation. Other drivers' results and parameters are passed over unread.
///
/// # Errors
/// When it is not the claim that was asked for, or not ours to prepare here.
pub fn check(object: &ResourceClaim, reference: &ClaimRef, scope: &Scope) -> Result<Claim, AllocationError> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    if uid != reference.uid.as_str() {
        return Err(AllocationError::Replaced { found: uid.to_owned() });
    }
    let allocation = object.status.as_ref().and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or(AllocationError::NotAllocated)?;
    check_node(allocation.node_selector.as_ref(), &scope.node)?;
    let devices = our_devices(allocation, scope)?;
    let configs = allocation.devices.as_ref().and_then(|devices| devices.config.as_deref());
    let asked = |device| parameters::requirements(configs.unwrap_or_default(), &scope.driver, device);
    let requirements = devices.iter().map(asked).collect::<Result<_, _>>()?;
    let timestamp = allocation.allocation_timestamp.as_ref().map(|time| time.0.to_string());
    Ok(Claim { reference: reference.clone(), allocation: Allocation { timestamp, devices }, requirements })
}

fn our_devices(
    allocation: &AllocationResult,
    scope: &Scope,
) -> Result<Vec<AllocatedDevice>, AllocationError> {
    let results = || allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let mut ours: Vec<AllocatedDevice> = Vec::new();
    for result in results().filter(|result| result.driver == scope.driver) {
        check_result(result, scope)?;
        if let Some(first) = ours.iter().find(|other| other.device == result.device) {
            return Err(AllocationError::Twice {
                device: result.device.clone(),
                first: first.request.clone(),
                second: result.request.clone(),
            });
        }
        ours.push(AllocatedDevice {
            request: result.request.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        });
    }
    if ours.is_empty() {
        let found = results().map(|result| result.driver.clone()).collect();
        return Err(AllocationError::NoneOfOurs { driver: scope.driver.clone(), found });
    }
    Ok(ours)
}

fn check_result(result: &DeviceRequestAllocationResult, scope: &Scope) -> Result<(), AllocationError> {
    let device = &result.device;
    if result.pool != scope.pool {
        return Err(AllocationError::OtherPool {
            device: device.clone(),
            found: result.pool.clone(),
            pool: scope.pool.clone(),
        });
    }
    let given = [
        (
            "adminAccess",
            result.admin_access.filter(|admin| *admin).map(|admin| admin.to_string()),
            "a device in use by a pod would have to be shared with it",
        ),
        ("shareID", result.share_id.clone(), "a device has one holder"),
        (
            "consumedCapacity",
            result.consumed_capacity.as_ref().filter(|map| !map.is_empty()).map(|map| {
                map.iter().map(|(name, amount)| format!("{name} {}", amount.0)).collect::<Vec<_>>().join(", ")
            }),
            "a device has one holder",
        ),
        (
            "skipNodeOperations",
            result.skip_node_operations.as_ref().filter(|list| !list.is_empty()).map(|list| list.join(", ")),
            "no slice of ours asks the kubelet to skip a proof, so somebody else wrote this one",
        ),
    ];
    match given.into_iter().find_map(|(field, value, reason)| Some((field, value?, reason))) {
        Some((field, value, reason)) => {
            Err(AllocationError::NotExclusive { device: device.clone(), field, value, reason })
        }
        None => Ok(()),
    }
}

fn check_node(selector: Option<&NodeSelector>, node: &str) -> Result<(), AllocationError> {
    let Some(selector) = selector else { return Ok(()) };
    if selector.node_selector_terms.iter().any(|term| names(term, node)) {
        return Ok(());
    }
    let selector = serde_json::to_string(selector).unwrap_or_default();
    Err(AllocationError::OtherNode { node: node.to_owned(), selector })
}

/// Whether a term is about this node by its name. Labels are not known here; they were the scheduler's to match,
/// and count for nothing beside a name.
fn names(term: &NodeSelectorTerm, node: &str) -> bool {
    let mut by_name =
        term.match_fields.iter().flatten().filter(|field| field.key == "metadata.name").peekable();
    by_name.peek().is_some() && by_name.all(|field| agrees(field, node))
}

fn agrees(field: &NodeSelectorRequirement, node: &str) -> bool {
    let listed = field.values.iter().flatten().any(|value| value == node);
    match field.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
