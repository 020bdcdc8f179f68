use std::time::Duration;

use super::*;
use crate::types::{CONFIG_FLR, MatchRule, ReleasePolicy, ScrubRule, StepName};

const FULL: &str = r#"
apiVersion: cleanslate.dev/v1alpha1
kind: NodePolicy
devices:
  - match: {vendor: "1234", device: 0xC1EA, class: 120000, address: "0000:3b:00.0"}
    scrub: {bars: [0, 2]}
    reset: pm
    deadlines: {reset: 200ms, probe: 1m 30s}
  - match: {vendor: 10de}
    scrub: {library: nvidia}
    reset: config_flr
    deadlines: {ready: 20s, restore: 2s}
  - match: {class: "120000"}
release: {wait: 35s, patience: 1ms, retry: 10m, attempts: 0, firstProofWithin: 0s}
"#;

#[test]
fn every_field_is_read() {
    let policy = parse(FULL, "policy.yaml").unwrap();
    let [twin, nvidia, unknown] = &policy.devices[..] else { panic!("{policy:?}") };
    assert_eq!(
        twin.matches,
        MatchRule {
            vendor: Some(0x1234),
            device: Some(0xc1ea),
            class: Some(0x12_0000),
            address: Some("0000:3b:00.0".parse().unwrap()),
        }
    );
    assert_eq!(twin.scrub, Some(ScrubRule::Bars(vec![0, 2])));
    assert_eq!(twin.reset_method, "pm");
    assert_eq!(twin.deadline(StepName::Reset), Duration::from_millis(200));
    assert_eq!(twin.deadline(StepName::Probe), Duration::from_secs(90));
    assert_eq!(twin.deadline(StepName::Holders), StepName::Holders.default_deadline());
    assert_eq!(nvidia.matches, MatchRule { vendor: Some(0x10de), ..MatchRule::default() });
    assert_eq!(nvidia.scrub, Some(ScrubRule::Library("nvidia".to_owned())));
    assert_eq!((nvidia.reset_method.as_str(), nvidia.deadlines.len()), (CONFIG_FLR, 2));
    assert_eq!(nvidia.deadline(StepName::Ready), Duration::from_secs(20));
    assert_eq!((unknown.reset_method.as_str(), unknown.deadlines.len()), ("flr", 0));
    assert_eq!(unknown.scrub, None);
    let ms = Duration::from_millis;
    let release = ReleasePolicy {
        wait: ms(35_000),
        patience: ms(1),
        retry: ms(600_000),
        attempts: 0,
        first_proof_within: ms(0),
    };
    assert_eq!(policy.release, release);
}

#[test]
fn json_says_the_same_and_what_is_left_out_has_its_default() {
    let json = r#"{"apiVersion": "cleanslate.dev/v1alpha1", "kind": "NodePolicy", "devices": [
        {"match": {"vendor": "0x1234", "device": "c1ea"}, "scrub": {"bars": [0]}}], "release": {"attempts": 7}}"#;
    let policy = parse(json, "policy.json").unwrap();
    assert_eq!(policy.devices[0].matches.device, Some(0xc1ea));
    assert_eq!(policy.release, ReleasePolicy { attempts: 7, ..ReleasePolicy::default() });
    let none = parse("{apiVersion: cleanslate.dev/v1alpha1, kind: NodePolicy, devices: []}", "x").unwrap();
    assert_eq!(none, Policy::default());
}

/// A whole file around the fields of one rule.
fn rule(fields: &str) -> String {
    format!("apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\ndevices:\n- {{{fields}}}\n")
}

/// A whole file around the fields of `release`.
fn release(fields: &str) -> String {
    format!("apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\ndevices: []\nrelease: {{{fields}}}\n")
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let head = "apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\n";
    let model = "match: {vendor: 1234, device: c1ea}";
    let table = [
        ("".to_owned(), "at line 1, column 1"),
        ("kind: NodePolicy\ndevices: []".to_owned(), "missing field `apiVersion`"),
        (head.to_owned(), "missing field `devices`"),
        (
            "apiVersion: v2\nkind: NodePolicy\ndevices: []".to_owned(),
            "apiVersion is \"v2\": expected cleanslate.dev/v1alpha1 at line 1, column 13",
        ),
        (
            "apiVersion: cleanslate.dev/v1alpha1\nkind: Pod\ndevices: []".to_owned(),
            "kind is \"Pod\": expected NodePolicy at line 2",
        ),
        (
            format!("{head}devices: []\ndevice: []"),
            "unknown field `device`, expected one of apiVersion, kind, devices, release at line 4",
        ),
        (
            format!("{head}devices: []\ndevices: []"),
            "duplicate mapping key `devices` is not allowed here at line 4",
        ),
        (format!("{head}devices: 7"), "line 3, column 10"),
        (format!("{head}devices: ["), "unclosed bracket '[' at line 3"),
        (
            format!("{head}devices: []\n---\n{head}"),
            "only single YAML document expected but multiple found at line 5",
        ),
        (rule(""), "missing field `match`"),
        (
            rule("match: {}"),
            "match is empty, which would make every PCI function of the node ours: expected at least one of vendor, class, address at line 4",
        ),
        (rule("match: {vendor: }"), "line 4, column 1"),
        (
            rule("match: {device: c1ea}"),
            "match.device c1ea means another model with each vendor: expected match.vendor",
        ),
        (
            rule("match: {vendr: 1234}"),
            "unknown field `vendr`, expected one of vendor, device, class, address at line 4, column 12",
        ),
        (
            rule("match: {vendor: nvidia}"),
            "\"nvidia\" is no PCI id: expected four hexadecimal digits, for example 10de at line 4, column 20",
        ),
        (rule("match: {vendor: 12345}"), "\"12345\" is no PCI id"),
        (rule("match: {vendor: 0X123}"), "\"0X123\" is no PCI id"),
        (
            rule("match: {class: 12}"),
            "\"12\" is no PCI class: expected six hexadecimal digits, for example 120000",
        ),
        (rule("match: {class: +12000}"), "\"+12000\" is no PCI class"),
        (
            rule("match: {address: '3b:00.0'}"),
            "\"3b:00.0\" is no PCI address: expected DDDD:BB:DD.F in hexadecimal, for example 0000:3b:00.0 at line 4",
        ),
        (
            rule(&format!("{model}, scrub: {{}}")),
            "scrub is empty: expected bars, for example {bars: [0]}, or library",
        ),
        (rule(&format!("{model}, scrub: ")), "line 4"),
        (
            rule(&format!("{model}, scrub: {{bars: [0], library: nvidia}}")),
            "scrub names both bars and library: expected one of them",
        ),
        (
            rule(&format!("{model}, scrub: {{bars: []}}")),
            "scrub.bars is empty: expected the numbers of all memory BARs",
        ),
        (rule(&format!("{model}, scrub: {{bars: [6]}}")), "there is no BAR 6: expected 0 to 5"),
        (rule(&format!("{model}, scrub: {{bars: [-1]}}")), "there is no BAR -1: expected 0 to 5"),
        (rule(&format!("{model}, scrub: {{bars: [2, 0, 2]}}")), "scrub.bars names BAR 2 twice"),
        (
            rule(&format!("{model}, scrub: {{library: cuda}}")),
            "\"cuda\" is no library that we know: expected one of nvidia",
        ),
        (
            rule("match: {class: 120000}, scrub: {bars: [0]}"),
            "holds for one model only: expected match.vendor and match.device",
        ),
        (
            rule(&format!("{model}, reset: warm")),
            "\"warm\" is no reset method that we know: expected one of device_specific, acpi, flr, af_flr, pm, bus, cxl_bus, config_flr",
        ),
        (
            rule(&format!("{model}, deadlines: {{wipe: 2s}}")),
            "unknown variant `wipe`, expected one of inspect, probe, holders, reset, ready, restore, scrub",
        ),
        (
            rule(&format!("{model}, deadlines: {{probe: 5}}")),
            "\"5\" is no time that is allowed here: expected a number and a unit, for example 200ms, 2s or 1m 30s, above zero and at most 600 s",
        ),
        (rule(&format!("{model}, deadlines: {{probe: 0s}}")), "\"0s\" is no time"),
        (rule(&format!("{model}, deadlines: {{probe: -2s}}")), "\"-2s\" is no time"),
        (rule(&format!("{model}, deadlines: {{probe: 11m}}")), "\"11m\" is no time"),
        (rule(&format!("{model}}}\n- {{{model}, reset: pm")), "devices[1] matches the same as devices[0]"),
        (
            release("wait: 36s"),
            "\"36s\" is no time that is allowed here: expected a number and a unit, for example 200ms, 2s or 1m 30s, above zero and at most 35 s at line 4",
        ),
        (release("retry: soon"), "\"soon\" is no time"),
        (release("attempts: -1"), "attempts is -1: expected 0 (only an operator ends a quarantine) to 1000"),
        (release("attemps: 1"), "unknown field `attemps`, expected one of wait, patience, retry, attempts"),
    ];
    for (text, expected) in table {
        let error = parse(&text, "/etc/policy.yaml").unwrap_err().to_string();
        assert!(error.starts_with("policy file /etc/policy.yaml: "), "{error}");
        assert!(error.contains(expected), "{text}\n  gives    {error}\n  expected {expected}");
        assert!(error.contains("at line "), "no place in {error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.yaml");
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("policy.yaml: No such file"), "{error}");
    std::fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("larger than 1048576 bytes"), "{error}");
}
