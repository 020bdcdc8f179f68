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
