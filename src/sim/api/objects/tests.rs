use super::*;

fn key(name: &str) -> Key {
    Key { kind: Kind::Slices, namespace: String::new(), name: name.to_owned() }
}

fn slice(name: &str, device: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"driver": "d", "nodeName": "n", "devices": [device],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
    })
}

fn tainted(effect: &str) -> Value {
    json!({"name": "dev", "taints": [{"key": "k", "effect": effect}]})
}

#[test]
fn versions_rise_and_stale_writes_conflict() {
    let mut objects = Objects::default();
    let made = objects.create(&key("a"), slice("a", &json!({"name": "dev"})), false).unwrap();
    assert_eq!(objects.create(&key("a"), slice("a", &json!({"name": "dev"})), false).unwrap_err().code, 409);
    assert_eq!(objects.update(&key("a"), made.clone(), false).unwrap(), made, "no change, no new version");
    let mut next = made.clone();
    next["spec"]["devices"][0]["name"] = json!("other");
    let changed = objects.update(&key("a"), next.clone(), false).unwrap();
    assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(objects.update(&key("a"), next, false).unwrap_err().code, 409);
    let stale = json!({"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(objects.delete(&key("a"), &stale).unwrap_err().code, 409);
    objects.delete(&key("a"), &json!({"preconditions": {"uid": made["metadata"]["uid"]}})).unwrap();
    assert_eq!(objects.update(&key("a"), changed, false).unwrap_err().code, 404);
    assert_eq!(objects.past(Kind::Slices, "a").len(), 3);
}

#[test]
fn a_dry_run_says_what_would_be_and_stores_nothing() {
    let features = Features { taints: false, effect_none: false };
    let mut objects = Objects { features, ..Objects::default() };
    let answer = objects.create(&key("a"), slice("a", &tainted("NoSchedule")), true).unwrap();
    assert!(answer["spec"]["devices"][0]["taints"].is_null());
    assert_eq!((objects.get(&key("a")).unwrap_err().code, objects.version), (404, 0));
}

#[test]
fn taints_are_dropped_refused_or_kept_as_the_server_can() {
    let features = |taints, effect_none| Features { taints, effect_none };
    for (features, effect, expected) in [
        (features(false, false), "NoSchedule", Ok(false)),
        (features(false, false), "None", Ok(false)),
        (features(true, false), "NoSchedule", Ok(true)),
        (features(true, false), "None", Err(422)),
        (features(true, true), "None", Ok(true)),
        (features(true, true), "Nonsense", Err(422)),
    ] {
        let mut objects = Objects { features, ..Objects::default() };
        let stored = objects.create(&key("a"), slice("a", &tainted(effect)), false);
        let kept = stored.map(|slice| slice["spec"]["devices"][0]["taints"][0]["timeAdded"].is_string());
        assert_eq!(kept.map_err(|refusal| refusal.code), expected, "{features:?} {effect}");
    }
}

#[test]
fn what_breaks_the_limits_is_refused() {
    let refused = |slice: Value| {
        let refusal = Objects::default().create(&key("a"), slice, false).unwrap_err();
        (refusal.code, refusal.status()["message"].as_str().unwrap_or_default().to_owned())
    };
    let attribute = |name: &str, value: Value| json!({"name": "dev", "attributes": {name: value}});
    for (device, words) in [
        (json!({"name": "Dev"}), "DNS label"),
        (attribute("d/x", json!({"string": "x".repeat(65)})), "64 bytes"),
        (attribute("d/x", json!({"string": "x", "int": 1})), "one value"),
        (attribute("x-y", json!({"int": 1})), "one value"),
        (json!({"name": "dev", "capacity": {"d/m": {}}}), "no quantity"),
    ] {
        let (code, message) = refused(slice("a", &device));
        assert!(code == 422 && message.contains(words), "{message}");
    }
    let many = |count: usize, last: Value| {
        let mut all: Vec<_> = (1..count).map(|n| json!({"name": format!("d{n}")})).collect();
        all.push(last);
        let mut slice = slice("a", &Value::Null);
        slice["spec"]["devices"] = all.into();
        slice
    };
    assert!(Objects::default().create(&key("a"), many(128, json!({"name": "dev"})), false).is_ok());
    assert!(refused(many(129, json!({"name": "dev"}))).1.contains("128"));
    assert!(refused(many(65, tainted("NoSchedule"))).1.contains("64"));

    let mut objects = Objects::default();
    let mut moved = objects.create(&key("a"), slice("a", &json!({"name": "dev"})), false).unwrap();
    moved["spec"]["nodeName"] = json!("elsewhere");
    assert_eq!(objects.update(&key("a"), moved, false).unwrap_err().code, 422);
}

#[test]
fn changes_are_found_by_version_and_field_until_they_are_forgotten() {
    let mut objects = Objects::default();
    let mut other = slice("b", &json!({"name": "dev"}));
    other["spec"]["nodeName"] = json!("m");
    objects.create(&key("b"), other, false).unwrap();
    objects.create(&key("a"), slice("a", &json!({"name": "dev"})), false).unwrap();
    objects.delete(&key("a"), &Value::Null).unwrap();
    let after = |objects: &Objects, version| {
        let event = objects.after(version, Kind::Slices, None, "spec.nodeName=n,spec.driver=d");
        event.map(|event| event.map(|event| (event.what, event.version))).map_err(|refusal| refusal.code)
    };
    assert_eq!(after(&objects, 0), Ok(Some(("ADDED", 2))));
    assert_eq!(after(&objects, 2), Ok(Some(("DELETED", 3))));
    assert_eq!(after(&objects, 3), Ok(None));
    objects.compact();
    assert_eq!(after(&objects, 3), Err(410));
    assert_eq!(after(&objects, objects.version), Ok(None));
}
