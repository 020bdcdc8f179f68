//! A device of ours: who it is, what its memory is, and why it is never granted as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::names;
use crate::proof::Subject;
use crate::types::{CONFIG_FLR, DeviceRule, Identity, Inspection, Parent, PciAddress, ScrubRule};
use crate::worker::Expected;

/// A device of ours.
#[derive(Clone, Debug)]
pub struct Known {
    /// What a proof has to know of it.
    pub subject: Subject,
    /// What its inspection saw.
    pub inspection: Inspection,
    /// Its product's name, where one is known.
    pub product: Option<String>,
    /// Why it is never granted as it is.
    pub unsupported: Option<String>,
}

/// Two cards with one serial number would share one state: neither can be told from the other, so neither is used.
pub(super) fn refuse_twins(known: &mut BTreeMap<PciAddress, Result<Arc<Known>, String>>) {
    let mut places: BTreeMap<Identity, Vec<PciAddress>> = BTreeMap::new();
    for known in known.values().flatten() {
        places.entry(known.subject.identity.clone()).or_default().push(known.subject.address);
    }
    for (identity, places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
        let all: Vec<_> = places.iter().map(PciAddress::to_string).collect();
        let words = format!("its serial number is not unique: {identity} is at {}", all.join(" and "));
        known.extend(places.into_iter().map(|place| (place, Err(words.clone()))));
    }
}

pub(super) fn known(address: PciAddress, rule: &DeviceRule, inspection: &Inspection) -> Known {
    let Inspection { vendor, device, serial, bars, parent, .. } = inspection;
    let own = |address: PciAddress, vendor, device, serial| match serial {
        Some(serial) => Identity::from_serial(vendor, device, address.function(), serial),
        None => Identity::from_address(address),
    };
    let identity = match parent {
        Some(Parent { address, vendor, device, serial, number }) => {
            Identity::of_virtual(&own(*address, *vendor, *device, *serial), *number)
        }
        None => own(address, *vendor, *device, *serial),
    };
    let wanted = match &rule.scrub {
        Some(ScrubRule::Bars(bars)) => bars.clone(),
        Some(ScrubRule::Library(_)) | None => Vec::new(),
    };
    let memory =
        |index: &u8| bars.iter().find(|bar| bar.index == *index && bar.prefetchable).map(|bar| bar.size);
    let missing: Vec<_> = wanted.iter().filter(|index| memory(index).is_none()).collect();
    let unsupported = match &rule.scrub {
        None => Some("the policy names no way to scrub its memory".to_owned()),
        Some(ScrubRule::Library(name)) => Some(format!(
            "unsupported_mode: this version has no scrubber for library {name:?}, so nothing could prove the device's memory clean"
        )),
        Some(ScrubRule::Bars(_)) if has_memory_behind_its_bars(*vendor) => Some(format!(
            "unsupported_mode: vendor {vendor:04x} builds GPUs whose BARs are a window onto a larger memory; a scrub of BARs would leave the rest, and this version has no other scrubber for it"
        )),
        Some(ScrubRule::Bars(_)) => shared(inspection)
            .or_else(|| {
                let words = "unsupported_mode: it has no prefetchable memory in BARs";
                (!missing.is_empty()).then(|| format!("{words} {missing:?} that the policy names"))
            })
            .or_else(|| no_reset(rule, inspection)),
    };
    let subject = Subject {
        identity,
        address,
        expected: Expected { vendor: *vendor, device: *device, serial: *serial },
        rule: rule.clone(),
        memory: wanted.iter().filter_map(memory).fold(0, u64::saturating_add),
        bars: wanted,
    };
    let product = names::product(*vendor, *device).map(str::to_owned);
    Known { subject, inspection: inspection.clone(), product, unsupported }
}

/// Why neither it nor its memory is one device's alone.
fn shared(inspection: &Inspection) -> Option<String> {
    let Inspection { parent, virtual_functions, .. } = inspection;
    match (parent, virtual_functions) {
        (Some(Parent { address, number, .. }), _) => Some(format!(
            "unsupported_mode: it is virtual function {number} of {address}: its own config space shows neither its ids nor its BARs, and this version judges nothing else"
        )),
        (None, 0) => None,
        (None, count) => Some(format!(
            "unsupported_mode: it has {count} virtual functions enabled (sriov_numvfs), which a reset would take from whoever uses them"
        )),
    }
}

/// Why it cannot be reset as the policy wants.
fn no_reset(rule: &DeviceRule, inspection: &Inspection) -> Option<String> {
    let Inspection { reset_methods, no_config_flr, .. } = inspection;
    let method = &rule.reset_method;
    if method == CONFIG_FLR {
        let why = no_config_flr.as_ref()?;
        return Some(format!("unsupported_mode: no reset through its config space: {why}"));
    }
    (!reset_methods.contains(method)).then(|| {
        format!("unsupported_mode: the kernel has no reset method {method:?} for it, only {reset_methods:?}")
    })
}

/// NVIDIA, AMD and Intel: a GPU's memory is far larger than what its BARs show (`reference/hardware.md` 1.10).
fn has_memory_behind_its_bars(vendor: u16) -> bool {
    matches!(vendor, 0x10de | 0x1002 | 0x8086)
}
