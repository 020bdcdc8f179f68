use super::*;
use crate::ledger::{QuarantineView, Raised};
use crate::types::{Class, Identity, PciAddress, Reason, Token};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn device(state: &str, checked: Option<i64>) -> DeviceView {
    let address: PciAddress = "0000:3b:00.0".parse().unwrap();
    DeviceView {
        name: address.device_name(),
        address,
        identity: Identity::from_address(address),
        state: state.to_owned(),
        detail: String::new(),
        token: Token { term: 1, epoch: 1 },
        schedulable: false,
        quarantine: None,
        withheld: None,
        degraded: None,
        checked: checked.map(at),
        proof: None,
        unverified: None,
    }
}

fn snapshot(device: DeviceView, maintained: Option<i64>) -> Snapshot {
    Snapshot {
        devices: vec![device],
        claims: Vec::new(),
        damaged: Vec::new(),
        unwritten: 0,
        maintained: maintained.map(at),
    }
}

fn told(device: DeviceView, now: i64) -> (HealthStatus, String) {
    let devices = report(&snapshot(device, Some(now)), "node", at(now)).unwrap();
    assert_eq!(devices[0].health_check_timeout_seconds, 30, "explicit");
    (devices[0].health(), devices[0].message.clone())
}

#[test]
fn a_device_is_what_the_last_look_says_and_an_old_look_says_nothing() {
    assert_eq!(told(device("granted", Some(990)), 1000), (HealthStatus::Healthy, String::new()));
    let (health, message) = told(device("granted", Some(960)), 1000);
    assert_eq!((health, message.as_str()), (HealthStatus::Unknown, "not looked at for 40 s"));
    assert_eq!(told(device("granted", None), 1000).0, HealthStatus::Unknown);
    assert_eq!(told(device("free", None), 1000).0, HealthStatus::Unknown, "without a proof");
    let quarantine = QuarantineView {
        reason: Reason::FellOffBus,
        class: Class::NeedsPowerCycle,
        evidence: "all ones".to_owned(),
        since: at(1),
        token: None,
        attempts: 0,
        raised: Raised::Elsewhere,
    };
    let bad = DeviceView { quarantine: Some(quarantine), ..device("granted", Some(1000)) };
    let (health, message) = told(bad, 1000);
    assert_eq!(health, HealthStatus::Unhealthy);
    assert!(message.contains("fell_off_bus") && message.contains("all ones"), "{message}");
}

/// A report is a sign of life, so none is sent while the loop that looks is blocked.
#[test]
fn c19_no_heartbeat_without_a_look() {
    let device = || device("granted", Some(1000));
    assert!(report(&snapshot(device(), Some(970)), "node", at(1000)).is_some());
    assert!(report(&snapshot(device(), Some(969)), "node", at(1000)).is_none());
    assert!(report(&snapshot(device(), None), "node", at(1000)).is_none());
}

#[test]
fn only_what_a_pod_would_show_is_news() {
    let one = report(&snapshot(device("granted", Some(990)), Some(1000)), "node", at(1000)).unwrap();
    let later = report(&snapshot(device("granted", Some(999)), Some(1000)), "node", at(1000)).unwrap();
    assert!(!differ(&one, &later));
    let other = report(&snapshot(device("free", None), Some(1000)), "node", at(1000)).unwrap();
    assert!(differ(&one, &other) && differ(&one, &[]));
}
