use std::sync::Arc;

use super::*;
use crate::ledger::{DeviceView, Unverified};
use crate::proof::Subject;
use crate::types::{DeviceRule, Identity, Inspection, LinkView, MatchRule, Mode, Place, Reason, Token};
use crate::worker::Expected;

fn known(address: &str) -> Known {
    let address: PciAddress = address.parse().unwrap();
    let rule = DeviceRule {
        matches: MatchRule::default(),
        scrub: None,
        reset_method: "flr".to_owned(),
        deadlines: BTreeMap::new(),
        minimum_mode: Mode::CopyVerified,
    };
    Known {
        subject: Subject {
            identity: Identity::from_address(address),
            address,
            expected: Expected { vendor: 0x10de, device: 0x2330, serial: None },
            rule,
            bars: vec![0],
            memory: 80 << 30,
        },
        inspection: Inspection {
            no_config_flr: None,
            vendor: 0x10de,
            device: 0x2330,
            serial: None,
            reset_methods: Vec::new(),
            bars: Vec::new(),
            parent: None,
            virtual_functions: 0,
            place: Place {
                driver: Some("nvidia".to_owned()),
                numa_node: Some(1),
                pcie_root: Some("pci0000:3a".to_owned()),
                ..Place::default()
            },
            link: LinkView::default(),
        },
        product: Some("GH100 [H100 SXM5 80GB]".to_owned()),
        unsupported: None,
    }
}

fn view(address: &str) -> DeviceView {
    let address: PciAddress = address.parse().unwrap();
    DeviceView {
        name: address.device_name(),
        address,
        identity: Identity::from_address(address),
        state: "free".to_owned(),
        detail: String::new(),
        token: Token { term: 1, epoch: 1 },
        schedulable: true,
        quarantine: None,
        withheld: None,
        degraded: None,
        checked: None,
        proof: None,
        unverified: None,
    }
}

fn quarantine(reason: Reason, raised: Raised) -> Option<QuarantineView> {
    Some(QuarantineView {
        reason,
        class: reason.class(),
        evidence: String::new(),
        since: jiff::Timestamp::now(),
        token: None,
        attempts: 0,
        raised,
    })
}

fn all(views: Vec<DeviceView>, known: Vec<(&str, Result<Known, String>)>) -> Vec<Device> {
    let snapshot =
        Snapshot { devices: views, claims: Vec::new(), damaged: Vec::new(), unwritten: 0, maintained: None };
    let name = |address: &str| address.parse::<PciAddress>().unwrap().device_name();
    let known = known.into_iter().map(|(address, known)| (name(address), known.map(Arc::new))).collect();
    devices(&snapshot, &known, false)
}

const A: &str = "0000:3b:00.0";

fn taints_of(view: DeviceView) -> Vec<String> {
    let device = all(vec![view], vec![(A, Ok(known(A)))]).remove(0);
    let words =
        |taint: DeviceTaint| format!("{}={}:{}", taint.key, taint.value.unwrap_or_default(), taint.effect);
    device.taints.unwrap_or_default().into_iter().map(words).collect()
}

#[test]
fn attributes_have_their_types_and_what_is_not_known_is_left_out() {
    let device = all(vec![view(A)], vec![(A, Ok(known(A)))]).remove(0);
    let json = serde_json::to_value(&device).unwrap();
    let expected = serde_json::json!({
        "name": "pci-0000-3b-00-0",
        "attributes": {
            "resource.kubernetes.io/pciBusID": {"string": A},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"},
            "resource.kubernetes.io/numaNode": {"int": 1},
            "cleanslate.dev/vendor": {"string": "10de"},
            "cleanslate.dev/device": {"string": "2330"},
            "cleanslate.dev/driver": {"string": "nvidia"},
            "cleanslate.dev/productName": {"string": "GH100 [H100 SXM5 80GB]"},
        },
        "capacity": {"cleanslate.dev/memory": {"value": "80Gi"}},
    });
    assert_eq!(json, expected);
    let mut bare = known(A);
    bare.product = None;
    bare.inspection.place = Place::default();
    let device = all(vec![view(A)], vec![(A, Ok(bare))]).remove(0);
    let keys: Vec<_> = device.attributes.unwrap().into_keys().collect();
    assert_eq!(keys, ["cleanslate.dev/device", "cleanslate.dev/vendor", "resource.kubernetes.io/pciBusID"]);
}

#[test]
fn a_name_that_is_too_long_is_cut_between_characters() {
    let mut long = known(A);
    long.product = Some(format!("a{}", "ä".repeat(40)));
    let device = all(vec![view(A)], vec![(A, Ok(long))]).remove(0);
    let name = device.attributes.unwrap()["cleanslate.dev/productName"].string.clone().unwrap();
    assert_eq!(name, format!("a{}", "ä".repeat(31)));
}

#[test]
fn taints_say_what_stands_against_a_device() {
    let with = |change: &dyn Fn(&mut DeviceView)| {
        let mut view = view(A);
        change(&mut view);
        taints_of(view)
    };
    assert_eq!(with(&|_| {}), Vec::<String>::new());
    let first = with(&|view| view.unverified = Some(Unverified::FirstProof));
    assert_eq!(first, ["cleanslate.dev/unverified=first_proof:NoSchedule"]);
    let release = with(&|view| view.unverified = Some(Unverified::Release));
    assert_eq!(release, ["cleanslate.dev/unverified=release:NoSchedule"]);
    for (raised, effect) in [(Raised::Prepare, "NoExecute"), (Raised::Elsewhere, "NoSchedule")] {
        let both = with(&|view| {
            view.unverified = Some(Unverified::FirstProof);
            view.quarantine = quarantine(Reason::ScrubVerify, raised);
        });
        assert_eq!(both, [format!("cleanslate.dev/quarantined=scrub_verify:{effect}")]);
    }
    let degraded = with(&|view| {
        view.degraded = Some("12 correctable errors".to_owned());
        view.quarantine = quarantine(Reason::Operator, Raised::Elsewhere);
    });
    assert_eq!(degraded, ["cleanslate.dev/quarantined=operator:NoSchedule", "cleanslate.dev/degraded=:None"]);
}

#[test]
fn only_what_could_be_granted_or_is_in_quarantine_stands_there_in_order() {
    let [b, c, d, vmd] = ["0000:5e:00.0", "0000:86:00.0", "0000:af:00.0", "10000:01:00.0"];
    let mut unsupported = known(b);
    unsupported.unsupported = Some("unsupported_mode".to_owned());
    let mut sick = view(c);
    sick.quarantine = quarantine(Reason::FellOffBus, Raised::Elsewhere);
    let unread = || Err("it gave no inspection".to_owned());
    let found = all(
        vec![view(vmd), view(A), view(b), sick, view(d)],
        vec![(vmd, Ok(known(vmd))), (A, Ok(known(A))), (b, Ok(unsupported)), (c, unread()), (d, unread())],
    );
    let names: Vec<_> = found.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["pci-0000-3b-00-0", "pci-0000-86-00-0", "pci-10000-01-00-0"]);
    assert_eq!(found[1].capacity, None);
    assert_eq!(found[1].attributes.as_ref().unwrap().len(), 1, "what is not known is not said");
}

#[test]
fn bytes_are_written_as_the_server_does() {
    for (bytes, text) in [
        (0, "0"),
        (512, "512"),
        (4096, "4Ki"),
        (1536 << 20, "1536Mi"),
        (80 << 30, "80Gi"),
        (1 << 62, "4Ei"),
        (8_589_934_593, "8589934593"),
    ] {
        assert_eq!(binary(bytes), text);
    }
}
