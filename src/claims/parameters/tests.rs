use serde_json::{Value, json};

use super::*;

const OURS: &str = "cleanslate.dev";

fn device(request: &str) -> AllocatedDevice {
    AllocatedDevice { request: request.to_owned(), pool: "node".to_owned(), device: "d0".to_owned() }
}

fn ours(source: &str, requests: &[&str], fields: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "cleanslate.dev/v1alpha1", "kind": "SanitizationParameters"});
    parameters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"source": source, "requests": requests, "opaque": {"driver": OURS, "parameters": parameters}})
}

fn asked(configs: Value, request: &str) -> Result<Requirements, ParameterError> {
    let configs: Vec<DeviceAllocationConfiguration> = serde_json::from_value(configs).unwrap();
    requirements(&configs, OURS, &device(request))
}

fn mode(configs: Value, request: &str) -> Mode {
    asked(configs, request).unwrap().minimum_mode
}

/// C13: later and more specific wins within a source; a foreign blob may be anything.
#[test]
fn the_most_specific_entry_of_a_source_counts_and_foreign_ones_are_not_read() {
    let foreign =
        json!({"source": "FromClaim", "opaque": {"driver": "nic.example", "parameters": [1, "junk"]}});
    let entries = |a: Value, b: Value| json!([foreign, a, b]);
    let sampled = |requests: &[&str]| ours("FromClaim", requests, &json!({"minimumMode": "copy_sampled"}));
    let device = |requests: &[&str]| ours("FromClaim", requests, &json!({"minimumMode": "device_verified"}));
    assert_eq!(mode(entries(device(&["acc"]), sampled(&["acc/big"])), "acc/big"), Mode::CopySampled);
    assert_eq!(mode(entries(sampled(&["acc/big"]), device(&["acc"])), "acc/big"), Mode::CopySampled);
    assert_eq!(mode(entries(sampled(&[]), device(&["acc"])), "acc"), Mode::DeviceVerified);
    assert_eq!(
        mode(entries(device(&["acc"]), sampled(&["acc"])), "acc"),
        Mode::CopySampled,
        "the later of equals"
    );
    assert_eq!(mode(entries(device(&["other"]), sampled(&["acc"])), "acc"), Mode::CopySampled);
    assert_eq!(mode(json!([foreign]), "acc"), Mode::VendorReported);
}

/// I10: between class and claim the stronger counts, whichever comes later.
#[test]
fn a_claim_strengthens_its_class_and_never_weakens_it() {
    let strong = json!({"minimumMode": "copy_verified", "requireReset": true, "onchip": "required"});
    let weak = json!({"minimumMode": "vendor_reported", "requireReset": false, "onchip": "ifPossible"});
    for (class, claim) in [(&strong, &weak), (&weak, &strong)] {
        let configs = json!([ours("FromClass", &[], class), ours("FromClaim", &["acc"], claim)]);
        let all = asked(configs, "acc").unwrap();
        let strongest =
            Requirements { minimum_mode: Mode::CopyVerified, require_reset: true, onchip: Onchip::Required };
        assert_eq!(all, strongest);
        assert_eq!(all.join(Requirements::default()), strongest, "the policy's default takes nothing away");
    }
}

#[test]
fn a_gap_names_what_is_asked_and_what_is_given() {
    let offer = crate::types::Offer { mode: Mode::CopyVerified, reset: true, onchip: false };
    let default = Requirements::default();
    assert_eq!(default.gap(offer), None);
    let asked = Requirements { minimum_mode: Mode::DeviceVerified, ..default };
    assert_eq!(
        asked.gap(offer).unwrap(),
        "minimumMode is device_verified, the scrub of this device gives copy_verified"
    );
    assert!(Requirements { onchip: Onchip::Required, ..default }.gap(offer).unwrap().contains("onchip"));
    let reset = Requirements { require_reset: true, ..default };
    assert_eq!(reset.gap(offer), None);
    assert!(reset.gap(crate::types::Offer { reset: false, ..offer }).is_some());
}
