//! What an API server does to a ResourceSlice before it stores it: drops what is switched off, fills in defaults,
//! refuses what breaks the limits.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Features;
use super::refusal::Refusal;

const MOST: usize = 128;
const MOST_TAINTED: usize = 64;
const MOST_ATTRIBUTES: usize = 32;
const LONGEST: usize = 64;

/// Makes of `slice` what is stored in place of `old`.
pub(super) fn admit(slice: &mut Value, old: Option<&Value>, features: Features) -> Result<(), Refusal> {
    // What the stored object has already is kept, though its feature is off.
    if !features.taints && !old.is_some_and(|old| devices(old).any(is_tainted)) {
        each_device(slice, |device| {
            device.as_object_mut().map(|device| device.remove("taints"));
        });
    }
    let now = now();
    each_device(slice, |device| {
        for taint in device["taints"].as_array_mut().into_iter().flatten() {
            if taint["timeAdded"].is_null() {
                taint["timeAdded"] = now.as_str().into();
            }
        }
        if device["taints"].is_null() {
            device.as_object_mut().map(|device| device.remove("taints"));
        }
    });
    let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    check(slice, old, features).map_err(|why| Refusal::invalid(&name, &why))
}

fn check(slice: &Value, old: Option<&Value>, features: Features) -> Result<(), String> {
    let spec = &slice["spec"];
    for field in ["/driver", "/nodeName", "/pool/name"] {
        let (now, before) = (spec.pointer(field), old.and_then(|old| old["spec"].pointer(field)));
        if old.is_some() && now != before {
            return Err(format!("spec{}: field is immutable", field.replace('/', ".")));
        }
        if now.and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(format!("spec{}: Required value", field.replace('/', ".")));
        }
    }
    if spec["pool"]["resourceSliceCount"].as_i64().is_none_or(|count| count < 1) {
        return Err("spec.pool.resourceSliceCount: must be greater than zero".to_owned());
    }
    let most = if devices(slice).any(is_tainted) { MOST_TAINTED } else { MOST };
    if devices(slice).count() > most {
        return Err(format!("spec.devices: Too many: must have at most {most} items"));
    }
    let mut names = BTreeSet::new();
    for device in devices(slice) {
        let name = device["name"].as_str().unwrap_or_default();
        if !is_label(name) || !names.insert(name) {
            return Err(format!("spec.devices.name: {name:?} is no DNS label, or is there twice"));
        }
        check_device(device, features).map_err(|why| format!("spec.devices[{name}].{why}"))?;
    }
    Ok(())
}

fn check_device(device: &Value, features: Features) -> Result<(), String> {
    let attributes = || device["attributes"].as_object().into_iter().flatten();
    let capacity = || device["capacity"].as_object().into_iter().flatten();
    if attributes().count() + capacity().count() > MOST_ATTRIBUTES {
        return Err(format!("attributes: must have at most {MOST_ATTRIBUTES} items with capacity"));
    }
    for (name, attribute) in attributes() {
        let values = attribute.as_object().map_or(0, serde_json::Map::len);
        let text = attribute["string"].as_str().unwrap_or_default();
        if !is_qualified(name) || values != 1 || text.len() > LONGEST {
            return Err(format!(
                "attributes[{name}]: {attribute} is not one value of at most {LONGEST} bytes"
            ));
        }
    }
    for (name, amount) in capacity() {
        if !is_qualified(name) || amount["value"].as_str().is_none_or(str::is_empty) {
            return Err(format!("capacity[{name}]: {amount} is no quantity"));
        }
    }
    for taint in device["taints"].as_array().into_iter().flatten() {
        let effect = taint["effect"].as_str().unwrap_or_default();
        let known = matches!(effect, "NoSchedule" | "NoExecute") || effect == "None" && features.effect_none;
        if !known || taint["key"].as_str().is_none_or(str::is_empty) {
            return Err(format!("taints.effect: Unsupported value: {effect:?} in {taint}"));
        }
        if taint["value"].as_str().is_some_and(|value| value.len() > 63) {
            return Err(format!("taints.value: too long in {taint}"));
        }
    }
    Ok(())
}

fn devices(slice: &Value) -> impl Iterator<Item = &Value> {
    slice["spec"]["devices"].as_array().into_iter().flatten()
}

fn each_device(slice: &mut Value, change: impl Fn(&mut Value)) {
    slice["spec"]["devices"].as_array_mut().into_iter().flatten().for_each(change);
}

fn is_tainted(device: &Value) -> bool {
    device["taints"].as_array().is_some_and(|taints| !taints.is_empty())
}

fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    ends && name.len() <= 63 && name.bytes().all(|byte| plain(byte) || byte == b'-')
}

/// A domain and a C identifier.
fn is_qualified(name: &str) -> bool {
    let Some((domain, name)) = name.split_once('/') else { return false };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !domain.is_empty() && domain.len() <= 63 && !name.is_empty() && name.len() <= 32 && name.bytes().all(word)
}

/// The time in whole seconds, as the API server writes it.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
