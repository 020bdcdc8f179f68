//! One device as a slice shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity, DeviceTaint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::inventory::Known;
use crate::ledger::{DeviceView, QuarantineView, Raised, Snapshot};
use crate::types::PciAddress;

/// Effects of taints.
pub(super) const NO_EXECUTE: &str = "NoExecute";
pub(super) const NO_SCHEDULE: &str = "NoSchedule";
pub(super) const NONE: &str = "None";
/// Longest text of an attribute, in bytes.
const LONGEST: usize = 64;

/// Every device that may stand in a slice, by address: those that we could grant as they are, and those that could
/// not be read and are in quarantine for it.
pub(super) fn devices(
    snapshot: &Snapshot,
    known: &BTreeMap<String, Result<Arc<Known>, String>>,
    simulated: bool,
) -> Vec<Device> {
    let mut found: Vec<_> = known.iter().filter_map(|(name, known)| one(snapshot, name, known)).collect();
    found.sort_by_key(|(view, _)| view.address);
    found.into_iter().map(|(view, known)| device(view, known, simulated)).collect()
}

fn one<'a>(
    snapshot: &'a Snapshot,
    name: &str,
    known: &'a Result<Arc<Known>, String>,
) -> Option<(&'a DeviceView, Option<&'a Known>)> {
    match known {
        Ok(known) if known.unsupported.is_some() => None,
        Ok(known) => {
            let mut views = snapshot.devices.iter();
            Some((views.find(|view| view.identity == known.subject.identity)?, Some(known)))
        }
        // A card that was replaced and its successor share an address: the one in quarantine is meant.
        Err(_) => {
            let mut views = snapshot.devices.iter();
            Some((views.find(|view| view.name == name && view.quarantine.is_some())?, None))
        }
    }
}

fn device(view: &DeviceView, known: Option<&Known>, simulated: bool) -> Device {
    let capacity = known.map(|known| {
        let value = Quantity(binary(known.subject.memory));
        BTreeMap::from([(ours("memory"), DeviceCapacity { request_policy: None, value })])
    });
    let taints = taints(view);
    Device {
        name: view.name.clone(),
        attributes: Some(attributes(view.address, known, simulated)),
        capacity,
        taints: (!taints.is_empty()).then_some(taints),
        ..Device::default()
    }
}

fn attributes(
    address: PciAddress,
    known: Option<&Known>,
    simulated: bool,
) -> BTreeMap<String, DeviceAttribute> {
    let standard = |name: &str| format!("resource.kubernetes.io/{name}");
    let mut all = BTreeMap::from([(standard("pciBusID"), text(&address.to_string()))]);
    if simulated {
        all.insert(ours("simulated"), DeviceAttribute { bool: Some(true), ..DeviceAttribute::default() });
    }
    let Some(Known { inspection, product, .. }) = known else { return all };
    all.insert(ours("vendor"), text(&format!("{:04x}", inspection.vendor)));
    all.insert(ours("device"), text(&format!("{:04x}", inspection.device)));
    all.extend(product.as_ref().map(|name| (ours("productName"), text(name))));
    all.extend(inspection.place.driver.as_ref().map(|name| (ours("driver"), text(name))));
    all.extend(inspection.place.pcie_root.as_ref().map(|root| (standard("pcieRoot"), text(root))));
    let node = |node| DeviceAttribute { int: Some(i64::from(node)), ..DeviceAttribute::default() };
    all.extend(inspection.place.numa_node.map(|number| (standard("numaNode"), node(number))));
    all
}

fn taints(view: &DeviceView) -> Vec<DeviceTaint> {
    // A quarantine says more than a missing proof, which it implies.
    let main = match (&view.quarantine, view.unverified) {
        (Some(quarantine), _) => {
            let reason = quarantine.reason.as_str();
            Some(taint("quarantined", Some(reason), effect(quarantine)))
        }
        (None, Some(lacks)) => Some(taint("unverified", Some(lacks.as_str()), NO_SCHEDULE)),
        (None, None) => None,
    };
    let degraded = view.degraded.as_ref().map(|_| taint("degraded", None, NONE));
    main.into_iter().chain(degraded).collect()
}

/// A pod that has not started is evicted, since it would try here for ever; one that runs is not.
fn effect(quarantine: &QuarantineView) -> &'static str {
    match quarantine.raised {
        Raised::Prepare => NO_EXECUTE,
        Raised::Elsewhere => NO_SCHEDULE,
    }
}

fn taint(key: &str, value: Option<&str>, effect: &str) -> DeviceTaint {
    DeviceTaint {
        key: ours(key),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        time_added: None,
    }
}

/// Ours whatever the driver is called: policies and selectors name them.
fn ours(name: &str) -> String {
    format!("cleanslate.dev/{name}")
}

fn text(words: &str) -> DeviceAttribute {
    let end = (0..=LONGEST).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
    let words = words.get(..end).unwrap_or(words);
    DeviceAttribute { string: Some(words.to_owned()), ..DeviceAttribute::default() }
}

/// Bytes as the API server writes them back: with the largest binary unit that leaves no rest.
fn binary(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = (bytes.trailing_zeros() / 10).min(6);
    let unit = if bytes == 0 { 0 } else { unit };
    format!("{}{}", bytes >> (10 * unit), units[usize::try_from(unit).unwrap_or(0)])
}

#[cfg(test)]
mod tests;
