use serde_json::{Value, json};

use super::*;
use crate::types::ClaimUid;

fn scope() -> Scope {
    Scope { driver: "cleanslate.dev".to_owned(), pool: "node1".to_owned(), node: "node1".to_owned() }
}

fn reference() -> ClaimRef {
    let uid = ClaimUid::try_from("3f1c".to_owned()).unwrap();
    ClaimRef { namespace: "default".to_owned(), name: "far".to_owned(), uid }
}

/// A claim with one device of ours, changed by a JSON merge patch of its `status.allocation`.
fn claim(change: Value) -> ResourceClaim {
    let mut allocation = json!({
        "allocationTimestamp": "2026-12-01T08:00:00Z",
        "devices": {"results": [result("acc", "pci-0000-3b-00-0", json!({}))]},
        "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]},
    });
    merge(&mut allocation, change);
    serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "far", "namespace": "default", "uid": "3f1c"},
        "spec": {}, "status": {"allocation": allocation},
    }))
    .unwrap()
}

fn result(request: &str, device: &str, change: Value) -> Value {
    let mut result =
        json!({"driver": "cleanslate.dev", "pool": "node1", "request": request, "device": device});
    merge(&mut result, change);
    result
}

fn results(results: &Value) -> Value {
    json!({"devices": {"results": results}})
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn refused(object: &ResourceClaim) -> String {
    check(object, &reference(), &scope()).unwrap_err().to_string()
}

#[test]
fn c13_only_our_results_count_and_foreign_parameters_are_not_read() {
    let object = claim(json!({"devices": {
        "results": [
            result("nic", "eth1", json!({"driver": "nic.example", "pool": "other", "shareID": "x", "adminAccess": true})),
            result("acc/big", "pci-0000-3b-00-0", json!({"adminAccess": false, "consumedCapacity": {}})),
        ],
        "config": [
            {"source": "FromClaim", "opaque": {"driver": "nic.example", "parameters": ["\u{0}", {"a": null}, 1e300]}},
            {"source": "FromClass"},
            {"source": "FromClaim", "requests": ["acc/small", "other"],
                "opaque": {"driver": "cleanslate.dev", "parameters": {}}},
        ],
    }}));
    let claim = check(&object, &reference(), &scope()).unwrap();
    let [device] = &claim.allocation.devices[..] else { panic!("{claim:?}") };
    assert_eq!((device.request.as_str(), device.base_request()), ("acc/big", "acc"));
    assert_eq!((device.device.as_str(), device.pool.as_str()), ("pci-0000-3b-00-0", "node1"));
    assert_eq!(claim.reference, reference());
    assert_eq!(claim.allocation.timestamp.as_deref(), Some("2026-12-01T08:00:00Z"));
}

#[test]
fn c27_another_time_or_other_results_are_another_allocation() {
    let of = |object: &ResourceClaim| check(object, &reference(), &scope()).unwrap().allocation;
    let first = of(&claim(json!({})));
    assert_eq!(first, of(&claim(json!({"allocationTimestamp": "2026-12-01T09:00:00+01:00"}))));
    assert_ne!(first, of(&claim(json!({"allocationTimestamp": "2026-12-01T08:00:01Z"}))));
    assert_ne!(first, of(&claim(json!({"allocationTimestamp": null}))));
    assert_ne!(first, of(&claim(results(&json!([result("acc", "pci-0000-5e-00-0", json!({}))])))));
}

#[test]
fn a_claim_that_is_not_ours_to_prepare_is_refused_with_what_is_wrong() {
    let one = |change| claim(results(&json!([result("acc", "pci-0000-3b-00-0", change)])));
    let ours = json!({"driver": "cleanslate.dev", "parameters": {"minimumMode": "device_verified"}});
    let config = |requests: Value| {
        claim(json!({"devices": {"config": [{"source": "FromClaim", "requests": requests, "opaque": ours}]}}))
    };
    let mut replaced = claim(json!({}));
    replaced.metadata.uid = Some("77aa".to_owned());
    let mut pending = claim(json!({}));
    pending.status = None;
    let mut deallocated = claim(json!({}));
    deallocated.status.as_mut().unwrap().allocation = None;
    let table = [
        (replaced, "was replaced: a claim of this name has UID \"77aa\" now"),
        (pending, "is not allocated: expected status.allocation"),
        (deallocated, "is not allocated"),
        (claim(json!({"devices": null})), "has no device of \"cleanslate.dev\": its devices are of {}"),
        (claim(results(&json!([]))), "has no device of \"cleanslate.dev\""),
        (
            one(json!({"driver": "gpu.example"})),
            "has no device of \"cleanslate.dev\": its devices are of {\"gpu.example\"}",
        ),
        // C26: the name is the same on every node.
        (
            one(json!({"pool": "node2"})),
            "device \"pci-0000-3b-00-0\" is of pool \"node2\": expected this node's pool \"node1\"",
        ),
        // C29.
        (one(json!({"adminAccess": true})), "is allocated with adminAccess: true; expected none"),
        (
            one(json!({"shareID": "a671"})),
            "is allocated with shareID: a671; expected none: a device has one holder",
        ),
        (
            one(json!({"consumedCapacity": {"memory": "1Gi"}})),
            "is allocated with consumedCapacity: memory 1Gi; expected none",
        ),
        (one(json!({"skipNodeOperations": ["*"]})), "is allocated with skipNodeOperations: *; expected none"),
        (
            claim(results(&json!([
                result("a", "pci-0000-3b-00-0", json!({})),
                result("b", "pci-0000-3b-00-0", json!({}))
            ]))),
            "device \"pci-0000-3b-00-0\" is allocated twice, to requests \"a\" and \"b\"",
        ),
        (
            config(json!(null)),
            "has parameters that cannot be understood: status.allocation.devices.config[0]",
        ),
        (config(json!([])), "missing field `apiVersion`"),
        (config(json!(["other", "acc"])), "missing field `apiVersion`"),
    ];
    for (object, expected) in table {
        let error = refused(&object);
        assert!(error.contains(expected), "\n  gives    {error}\n  expected {expected}");
    }
    let subrequest = claim(json!({"devices": {
        "results": [result("acc/big", "pci-0000-3b-00-0", json!({}))],
        "config": [{"source": "FromClass", "requests": ["acc"], "opaque": ours}],
    }}));
    assert!(refused(&subrequest).contains("missing field `apiVersion`"));
}

#[test]
fn c26_only_a_name_makes_a_selector_name_this_node() {
    let name = |operator: &str, values: &[&str]| json!({"key": "metadata.name", "operator": operator, "values": values});
    let label = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let terms = |terms: Value| claim(json!({"nodeSelector": {"nodeSelectorTerms": terms}}));
    let good = [
        claim(json!({"nodeSelector": null})),
        terms(json!([{"matchFields": [name("In", &["node2", "node1"])]}])),
        terms(json!([{"matchFields": [name("In", &["node2"])]}, {"matchFields": [name("In", &["node1"])]}])),
        terms(json!([{"matchFields": [name("In", &["node1"])], "matchExpressions": [label]}])),
        terms(json!([{"matchFields": [name("NotIn", &["node2"])]}])),
    ];
    for object in good {
        check(&object, &reference(), &scope()).unwrap();
    }
    let bad = [
        terms(json!([])),
        terms(json!([{}])),
        terms(json!([{"matchFields": [name("In", &["node2"])]}])),
        terms(json!([{"matchFields": [name("In", &["node"])]}])),
        terms(json!([{"matchFields": [name("In", &[])]}])),
        terms(json!([{"matchFields": [name("NotIn", &["node1"])]}])),
        terms(json!([{"matchFields": [name("Exists", &[])]}])),
        terms(json!([{"matchFields": [name("In", &["node1"]), name("NotIn", &["node1"])]}])),
        terms(json!([{"matchExpressions": [label]}])),
        terms(json!([{"matchExpressions": [name("In", &["node1"])]}])),
    ];
    for object in bad {
        let error = refused(&object);
        assert!(error.contains("is allocated to other nodes than \"node1\": expected a term"), "{error}");
    }
}
