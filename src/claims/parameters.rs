//! `SanitizationParameters`: what a class or a claim may ask beyond the node's policy.
//!
//! Entries of one source that apply to a device are laid over each other, the most specific request last; then the
//! stronger of class and claim counts, field by field, and the policy's on top of both.

use k8s_openapi::api::resource::v1::DeviceAllocationConfiguration;
use serde::{Deserialize, Serialize};

use crate::types::{AllocatedDevice, Mode, Onchip, Requirements};

/// The opaque parameters of our driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Parameters {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
    minimum_mode: Option<Mode>,
    require_reset: Option<bool>,
    onchip: Option<Onchip>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum ApiVersion {
    #[default]
    #[serde(rename = "cleanslate.dev/v1alpha1")]
    V1Alpha1,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[default]
    SanitizationParameters,
}

/// Parameters that cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path}: {problem}: expected {right}")]
pub struct ParameterError {
    /// Where they stand in the claim's status.
    path: String,
    /// What is wrong.
    problem: String,
    /// What would be right.
    right: &'static str,
}

/// Where an entry comes from.
const FROM_CLASS: &str = "FromClass";

/// What class and claim ask for a device. Other drivers' entries are never decoded.
///
/// # Errors
/// An entry of ours that applies to the device cannot be understood: ignoring it could clean less than was asked.
pub(super) fn requirements(
    configs: &[DeviceAllocationConfiguration],
    driver: &str,
    device: &AllocatedDevice,
) -> Result<Requirements, ParameterError> {
    let mut class = Vec::new();
    let mut claim = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let Some(opaque) = config.opaque.as_ref().filter(|opaque| opaque.driver == driver) else { continue };
        let Some(specificity) = specificity(config, device) else { continue };
        let path = format!("status.allocation.devices.config[{index}].opaque.parameters");
        let parameters = serde_path_to_error::deserialize(&opaque.parameters.0).map_err(|error| {
            let field = error.path().to_string();
            let path = if field == "." { path } else { format!("{path}.{field}") };
            let problem = error.into_inner().to_string();
            // What it expects is said in words of Rust.
            let problem = problem.split(", expected").next().unwrap_or(&problem).to_owned();
            ParameterError { path, problem, right: right(&field) }
        })?;
        let source = if config.source == FROM_CLASS { &mut class } else { &mut claim };
        source.push((specificity, parameters));
    }
    Ok(laid_over(class).join(laid_over(claim)))
}

/// What a field takes.
fn right(field: &str) -> &'static str {
    match field {
        "apiVersion" => "cleanslate.dev/v1alpha1",
        "kind" => "SanitizationParameters",
        "minimumMode" => "device_verified, copy_verified, copy_sampled or vendor_reported",
        "requireReset" => "true or false",
        "onchip" => "required or ifPossible",
        _ => {
            "apiVersion: cleanslate.dev/v1alpha1, kind: SanitizationParameters and any of minimumMode, requireReset, \
             onchip"
        }
    }
}

/// How closely an entry names the device's request: all requests, the request, its subrequest; `None` if it is about
/// others.
fn specificity(config: &DeviceAllocationConfiguration, device: &AllocatedDevice) -> Option<u8> {
    let requests = config.requests.as_deref().unwrap_or_default();
    if requests.is_empty() {
        return Some(0);
    }
    let named = |name: &str| requests.iter().any(|request| request == name);
    if named(&device.request) && device.request != device.base_request() {
        return Some(2);
    }
    named(device.base_request()).then_some(1)
}

/// Of entries that are equally specific the later one counts.
fn laid_over(mut entries: Vec<(u8, Parameters)>) -> Requirements {
    entries.sort_by_key(|(specificity, _)| *specificity);
    let all = entries.into_iter().fold(Parameters::default(), |below, (_, over)| Parameters {
        minimum_mode: over.minimum_mode.or(below.minimum_mode),
        require_reset: over.require_reset.or(below.require_reset),
        onchip: over.onchip.or(below.onchip),
        ..below
    });
    let default = Requirements::default();
    Requirements {
        minimum_mode: all.minimum_mode.unwrap_or(default.minimum_mode),
        require_reset: all.require_reset.unwrap_or(default.require_reset),
        onchip: all.onchip.unwrap_or(default.onchip),
    }
}

#[cfg(test)]
mod tests;
