//! Policies and parameters that cannot be used: what is given, and every word that is answered.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use cleanslate::config;
use serde_json::{Value, json};

use super::node::{DRIVER, Node, Policy, claim, claim_of, program};

const HEAD: &str = "apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\n";
const MODEL: &str = r#"match: {vendor: "1234", device: c1ea}"#;
/// Where the answer is about the whole file.
const WHOLE: &str = "apiVersion: cleanslate.dev/v1alpha1, kind: NodePolicy and devices, a list of rules";

const TIME: &str = "a number and a unit, for example 200ms, 2s or 1m 30s";
/// Where parameters are wrong, and what would be right.
const PATH: &str = "claim tests/a (a-4000-8000): has parameters that cannot be understood: \
                    status.allocation.devices.config[1].opaque.parameters";
const ALL: &str = "apiVersion: cleanslate.dev/v1alpha1, kind: SanitizationParameters and any of minimumMode, \
                   requireReset, onchip";
const MODES: &str = "device_verified, copy_verified, copy_sampled or vendor_reported";

/// Whole files; what follows the file's name.
#[rustfmt::skip]
const FILES: [(&str, &str); 28] = [
    ("", ":1:1: it is empty: expected WHOLE"),
    ("# nothing\n", ":2:1: it is empty: expected WHOLE"),
    ("null\n", r#":1:1: "null" cannot stand here: expected WHOLE"#),
    ("[]\n", r#":1:1: "[]" cannot stand here: expected WHOLE"#),
    ("policy\n", r#":1:1: "policy" cannot stand here: expected WHOLE"#),
    ("kind: NodePolicy\ndevices: []\n", ":2:1: field `apiVersion` is missing: expected cleanslate.dev/v1alpha1"),
    ("HEAD", r#":2:1: field `devices` is missing: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("apiVersion: cleanslate.dev/v1alpha1\ndevices: []\n", ":2:1: field `kind` is missing: expected NodePolicy"),
    ("apiVersion: v2\nkind: NodePolicy\ndevices: []\n", r#":1:13: apiVersion: "v2" is none that we know: expected cleanslate.dev/v1alpha1"#),
    ("apiVersion: cleanslate.dev/v1alpha1\nkind: Pod\ndevices: []\n", r#":2:7: kind: "Pod" is none that we know: expected NodePolicy"#),
    ("apiVersion: [v2]\nkind: NodePolicy\ndevices: []\n", r#":1:13: apiVersion: "[v2]" cannot stand here: expected cleanslate.dev/v1alpha1"#),
    ("HEADdevices: []\ndevice: []\n", ":4:1: device: unknown field `device`, expected one of apiVersion, kind, mode, devices, release"),
    ("HEADdevices: []\ndevices: []\n", ":4:1: field `devices` is given twice: expected it once"),
    ("HEADdevices: 7\n", r#":3:10: devices: "7" cannot stand here: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADdevices: {}\n", r#":3:10: devices: "{}" cannot stand here: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADdevices:\n", r#":3:8: devices: it has no value: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADdevices: [\n", r#":3:10: devices: unclosed bracket '[': expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADdevices: [7]\n", r#":3:11: devices[0]: "7" cannot stand here: expected a rule, for example {match: {vendor: "10de"}}"#),
    ("HEADdevices: []\n---\nHEAD", ":5:1: another YAML document begins here: expected one NodePolicy a file"),
    ("HEADdevices: []\n\tx: 1\n", ":4:2: tabs disallowed within this context (block indentation): expected WHOLE"),
    ("a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\ndevices: *c\n", ":1:1: a: unknown field `a`, expected one of apiVersion, kind, mode, devices, release"),
    ("HEADdevices: &d\n- *d\n", r#":4:3: devices: Recursive reference not allowed here: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADdevices: *rules\n", ":3:10: no anchor has this name: expected the value itself"),
    ("HEADdevices: !include /etc/shadow\n", r#":3:19: devices: "/etc/shadow" cannot stand here: expected a list of rules, for example [{match: {vendor: "10de"}}], or []"#),
    ("HEADmode: dry-run\ndevices: []\n", r#":3:7: mode: "dry-run" is no mode that we know: expected enforce, or observe, which looks at devices and touches none"#),
    ("HEADmode:\ndevices: []\n", r#":3:5: mode: it has no value: expected enforce, or observe, which looks at devices and touches none"#),
    ("HEADdevices: []\nrelease: 5s\n", r#":4:10: release: "5s" cannot stand here: expected a value for each field, for example {wait: 20s, retry: 5m}"#),
    (r#"{"apiVersion": "cleanslate.dev/v1alpha1", "kind": "NodePolicy", "devices": [}"#, ":1:76: mismatched bracket '[' closed by '}': expected WHOLE"),
];

/// The fields of one rule.
#[rustfmt::skip]
const RULES: [(&str, &str); 43] = [
    ("", r#":4:3: devices[0]: field `match` is missing: expected at least one of vendor, class, address, for example {vendor: "10de"}"#),
    ("match: {}", r#":4:11: devices[0].match: it is empty, which would make every PCI function of the node ours: expected at least one of vendor, class, address, for example {vendor: "10de"}"#),
    ("match: 1234", r#":4:11: devices[0].match: "1234" cannot stand here: expected at least one of vendor, class, address, for example {vendor: "10de"}"#),
    ("match: {vendor: }", ":4:18: devices[0].match.vendor: it has no value: expected four hexadecimal digits, for example 10de"),
    ("match: {device: c1ea}", ":4:11: devices[0].match: device c1ea means another model with each vendor: expected vendor beside it"),
    ("match: {vendr: 1234}", ":4:12: devices[0].match.vendr: unknown field `vendr`, expected one of vendor, device, class, address"),
    ("match: {vendor: nvidia}", r#":4:20: devices[0].match.vendor: "nvidia" is no PCI id: expected four hexadecimal digits, for example 10de"#),
    ("match: {vendor: 12345}", r#":4:20: devices[0].match.vendor: "12345" is no PCI id: expected four hexadecimal digits, for example 10de"#),
    ("match: {vendor: 0X123}", r#":4:20: devices[0].match.vendor: "0X123" is no PCI id: expected four hexadecimal digits, for example 10de"#),
    ("match: {vendor: [10de]}", r#":4:20: devices[0].match.vendor: "[10de]" cannot stand here: expected four hexadecimal digits, for example 10de"#),
    ("match: {class: 12}", r#":4:19: devices[0].match.class: "12" is no PCI class: expected six hexadecimal digits, for example 120000"#),
    ("match: {class: +12000}", r#":4:19: devices[0].match.class: "+12000" is no PCI class: expected six hexadecimal digits, for example 120000"#),
    ("match: {address: '3b:00.0'}", r#":4:21: devices[0].match.address: "3b:00.0" is no PCI address: expected DDDD:BB:DD.F in hexadecimal, for example 0000:3b:00.0"#),
    ("match: {address: '0000:3b:00.8'}", r#":4:21: devices[0].match.address: "0000:3b:00.8" is no PCI address: expected DDDD:BB:DD.F in hexadecimal, for example 0000:3b:00.0"#),
    ("match: {vendor: 1234, vendor: 5678}", ":4:26: devices[0].match: field `vendor` is given twice: expected it once"),
    ("match: {class: '010802'}", ":4:11: devices[0].match: class 010802 is storage, which the node may live on, so nothing is ours by that alone: expected address, or vendor and device, beside it"),
    ("match: {vendor: 144d, class: '020000'}", ":4:11: devices[0].match: class 020000 is network, which the node may live on, so nothing is ours by that alone: expected address, or vendor and device, beside it"),
    ("MODEL, scrub: {}", ":4:50: devices[0].scrub: it is empty, and without a scrub the device is never granted: expected bars, for example {bars: [0]}, or library, for example {library: nvidia}"),
    ("MODEL, scrub: ", ":4:48: devices[0].scrub: it has no value: expected bars, for example {bars: [0]}, or library, for example {library: nvidia}"),
    ("MODEL, scrub: {bars: [0], library: nvidia}", ":4:50: devices[0].scrub: it names both bars and library: expected one of them"),
    ("MODEL, scrub: {bars: []}", ":4:50: devices[0].scrub: bars is empty: expected the numbers of all memory BARs, for example [0]"),
    ("MODEL, scrub: {bars: [6]}", ":4:58: devices[0].scrub.bars[0]: there is no BAR 6: expected 0 to 5"),
    ("MODEL, scrub: {bars: [-1]}", ":4:58: devices[0].scrub.bars[0]: there is no BAR -1: expected 0 to 5"),
    ("MODEL, scrub: {bars: [2, 0, 2]}", ":4:50: devices[0].scrub: bars names BAR 2 twice: expected each BAR once"),
    ("MODEL, scrub: {bars: 0}", r#":4:57: devices[0].scrub.bars: "0" cannot stand here: expected the numbers of all memory BARs, 0 to 5, for example [0]"#),
    ("MODEL, scrub: {bars: [first]}", r#":4:58: devices[0].scrub.bars[0]: "first" cannot stand here: expected the number of a memory BAR, 0 to 5"#),
    ("MODEL, scrub: {library: cuda}", r#":4:60: devices[0].scrub.library: "cuda" is no library that we know: expected one of nvidia"#),
    ("MODEL, scrub: all", r#":4:50: devices[0].scrub: "all" cannot stand here: expected bars, for example {bars: [0]}, or library, for example {library: nvidia}"#),
    ("match: {class: 120000}, scrub: {bars: [0]}", ":4:3: devices[0]: scrub.bars says that these BARs are all of the memory, which holds for one model only: expected match.vendor and match.device beside it"),
    ("MODEL, reset: warm", r#":4:50: devices[0].reset: "warm" is no reset method that we know: expected one of device_specific, acpi, flr, af_flr, pm, bus, cxl_bus, config_flr"#),
    ("MODEL, reset: [flr, bus]", r#":4:50: devices[0].reset: "[flr, bus]" cannot stand here: expected one of device_specific, acpi, flr, af_flr, pm, bus, cxl_bus, config_flr"#),
    ("MODEL, deadlines: {wipe: 2s}", r#":4:55: devices[0].deadlines.wipe: "wipe" is no step: expected one of inspect, probe, holders, reset, ready, restore, scrub"#),
    ("MODEL, deadlines: {probe: 5}", r#":4:62: devices[0].deadlines.probe: "5" is no time that is allowed here: expected TIME, above zero and at most 600 s"#),
    ("MODEL, deadlines: {probe: 0s}", r#":4:62: devices[0].deadlines.probe: "0s" is no time that is allowed here: expected TIME, above zero and at most 600 s"#),
    ("MODEL, deadlines: {probe: -2s}", r#":4:62: devices[0].deadlines.probe: "-2s" is no time that is allowed here: expected TIME, above zero and at most 600 s"#),
    ("MODEL, deadlines: {probe: 11m}", r#":4:62: devices[0].deadlines.probe: "11m" is no time that is allowed here: expected TIME, above zero and at most 600 s"#),
    ("MODEL, deadlines: {reset: }", ":4:60: devices[0].deadlines.reset: it has no value: expected TIME"),
    ("MODEL, deadlines: 5s", r#":4:54: devices[0].deadlines: "5s" cannot stand here: expected a time for each step, for example {reset: 10s}"#),
    ("MODEL, minimumMode: best", r#":4:56: devices[0].minimumMode: "best" is no mode that we know: expected one of device_verified, copy_verified, copy_sampled, vendor_reported"#),
    ("MODEL, scrub: {bars: [0]}, minimumMode: device_verified", ":4:3: devices[0]: minimumMode is device_verified, which scrub.bars never is, since BARs are read back over the bus, so no device would be granted: expected copy_verified or a weaker one beside it"),
    ("MODEL, minimumMode: ", ":4:54: devices[0].minimumMode: it has no value: expected one of device_verified, copy_verified, copy_sampled, vendor_reported"),
    ("MODEL}\n- {MODEL, reset: pm", ":4:3: devices: devices[1] never counts, since devices[0] matches every device that it matches and comes first: expected one of them, or the narrower one first"),
    ("match: {vendor: 1234}}\n- {MODEL", ":4:3: devices: devices[1] never counts, since devices[0] matches every device that it matches and comes first: expected one of them, or the narrower one first"),
];

/// The fields of `release`.
#[rustfmt::skip]
const RELEASES: [(&str, &str); 8] = [
    ("wait: 36s", r#":4:17: release.wait: "36s" is no time that is allowed here: expected TIME, above zero and at most 35 s"#),
    ("retry: soon", r#":4:18: release.retry: "soon" is no time that is allowed here: expected TIME, above zero and at most 600 s"#),
    ("attempts: -1", ":4:21: release.attempts: -1 is too few or too many: expected 0 (only an operator ends a quarantine) to 1000"),
    ("attempts: many", r#":4:21: release.attempts: "many" cannot stand here: expected a number from 0 to 1000"#),
    ("attempts: 1001", ":4:21: release.attempts: 1001 is too few or too many: expected 0 (only an operator ends a quarantine) to 1000"),
    ("attemps: 1", ":4:11: release.attemps: unknown field `attemps`, expected one of wait, patience, retry, attempts, firstProofWithin"),
    ("firstProofWithin: 1d", r#":4:29: release.firstProofWithin: "1d" is no time that is allowed here: expected TIME, zero or more, at most 600 s"#),
    ("patience: ", ":4:19: release.patience: it has no value: expected TIME"),
];

/// Files that are no text, or too much of it.
fn contents() -> Vec<(Vec<u8>, &'static str)> {
    let aliases = format!("{HEAD}devices: [&r {{{MODEL}}}{}]\n", ", *r".repeat(200_000));
    let utf16 = HEAD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    [
        (b"apiVersion: cleanslate.dev/v1alpha1\nkind: Node\xff\xfePolicy\n".to_vec(), "policy file FILE:2: invalid utf-8 sequence of 1 bytes from index 46: expected YAML or JSON in UTF-8"),
        (utf16, "policy file FILE:1:2: unexpected character: `\\u{0}': expected WHOLE"),
        (b"apiVersion: \0\n".to_vec(), "policy file FILE:1:13: unexpected character: `\\u{0}': expected WHOLE"),
        (b"[".repeat(3000), "policy file FILE:1:256: recursion limit exceeded: expected WHOLE"),
        (aliases.into_bytes(), "policy file FILE:3:142903: devices[35713]: too many nested values or aliases: expected a few rules, each written out"),
        (b" ".repeat((1 << 20) + 1), "policy file FILE: larger than 1048576 bytes: expected a NodePolicy, which takes a few hundred a rule"),
    ]
    .into()
}

fn parameters(field: &str, value: Value) -> Value {
    let mut all = json!({"apiVersion": "cleanslate.dev/v1alpha1", "kind": "SanitizationParameters"});
    all[field] = value;
    all
}

/// Our parameters in a claim; what is answered.
fn asked() -> Vec<(Value, &'static str)> {
    vec![
        (
            parameters("minimumMod", json!("copy_verified")),
            "PATH.minimumMod: unknown field `minimumMod`: expected ALL",
        ),
        (parameters("minimumMode", json!("best")), "PATH.minimumMode: unknown variant `best`: expected MODE"),
        (parameters("minimumMode", json!(3)), "PATH.minimumMode: invalid type: integer `3`: expected MODE"),
        (
            parameters("requireReset", json!("yes")),
            "PATH.requireReset: invalid type: string \"yes\": expected true or false",
        ),
        (
            parameters("onchip", json!("maybe")),
            "PATH.onchip: unknown variant `maybe`: expected required or ifPossible",
        ),
        (
            parameters("onchip", json!("IfPossible")),
            "PATH.onchip: unknown variant `IfPossible`: expected required or ifPossible",
        ),
        (
            parameters("apiVersion", json!("cleanslate.dev/v2")),
            "PATH.apiVersion: unknown variant `cleanslate.dev/v2`: expected cleanslate.dev/v1alpha1",
        ),
        (
            parameters("kind", json!("NodePolicy")),
            "PATH.kind: unknown variant `NodePolicy`: expected SanitizationParameters",
        ),
        (json!({"kind": "SanitizationParameters"}), "PATH: missing field `apiVersion`: expected ALL"),
        (json!({"apiVersion": "cleanslate.dev/v1alpha1"}), "PATH: missing field `kind`: expected ALL"),
        (json!([]), "PATH: invalid length 0: expected ALL"),
        (json!("text"), "PATH: invalid type: string \"text\": expected ALL"),
        (
            parameters("minimumMode", json!("device_verified")),
            "device pci-0000-3b-00-0 cannot be cleaned as asked: minimumMode is device_verified, the scrub of this device gives copy_verified",
        ),
        (
            parameters("onchip", json!("required")),
            "device pci-0000-3b-00-0 cannot be cleaned as asked: onchip is required, the scrub of this device does not reach memory on the chip",
        ),
    ]
}

#[tokio::test]
async fn bad_policies_and_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    let mut rows = 0;
    let mut row = |path: &Path, expected: &str| {
        let told = config::load(path).unwrap_err().to_string();
        let told = told.replace(path.to_str().unwrap(), "FILE");
        println!("{told}");
        assert_eq!(told, expected);
        rows += 1;
    };
    let rule = |fields: &str| format!("HEADdevices:\n- {{{fields}}}\n");
    let release = |fields: &str| format!("HEADdevices: []\nrelease: {{{fields}}}\n");
    let texts = FILES.iter().map(|(text, words)| ((*text).to_owned(), *words));
    let texts = texts
        .chain(RULES.iter().map(|(fields, words)| (rule(fields), *words)))
        .chain(RELEASES.iter().map(|(fields, words)| (release(fields), *words)));
    for (text, words) in texts {
        let text = text.replace("HEAD", HEAD).replace("MODEL", MODEL);
        fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).unwrap();
        row(&path, &format!("policy file FILE{}", words.replace("WHOLE", WHOLE).replace("TIME", TIME)));
    }
    for (content, words) in contents() {
        fs::File::create(&path).and_then(|mut file| file.write_all(&content)).unwrap();
        row(&path, &words.replace("WHOLE", WHOLE));
    }
    for (path, why) in [
        (folder.path().join("none.yaml"), "No such file or directory (os error 2)"),
        (folder.path().to_owned(), "Is a directory (os error 21)"),
        ("/proc/self/mem".into(), "Input/output error (os error 5)"),
    ] {
        let words = "--policy must name a readable YAML or JSON file";
        row(&path, &format!("cannot read the policy file FILE: {why}; {words}"));
    }
    let policies = rows;

    // The command says the same, and ends with 1.
    let none = folder.path().join("none.yaml");
    let output = program(&["policy", "check", none.to_str().unwrap()]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let words = config::load(&none).unwrap_err().to_string();
    assert_eq!((output.status.code(), told), (Some(1), format!("cleanslate: {words}\n")));

    let node = Node::with(1, Policy::default()).await;
    let before = node.counts(0);
    let foreign = json!([1, {"not": "ours"}]);
    for (parameters, expected) in asked() {
        node.give(&claim("a").on(0).asking("FromClass", "nic.example", &foreign).asking(
            "FromClaim",
            DRIVER,
            &parameters,
        ));
        let told = node.refused("a").await;
        println!("{told}");
        let expected = expected.replace("PATH", PATH).replace("MODE", MODES).replace("ALL", ALL);
        assert_eq!(told, expected, "{parameters}");
        rows += 1;
    }
    assert_eq!(node.counts(0), before, "nothing was touched");
    println!("{rows} rows: {policies} policies, {} parameters", rows - policies);
    assert!(policies >= 40 && rows - policies >= 13);

    // C13, I10: another driver's are not read, and what asks for less than the policy weakens nothing.
    let weak = parameters("minimumMode", json!("vendor_reported"));
    let weaker = parameters("requireReset", json!(false));
    node.give(
        &claim("a")
            .on(0)
            .asking("FromClaim", "nic.example", &foreign)
            .asking("FromClaim", DRIVER, &weak)
            .asking("FromClaim", DRIVER, &weaker),
    );
    node.granted("a").await;
    let status = node.status().await;
    let receipt = claim_of(&status, "a").unwrap().record.devices[0].receipt.clone().unwrap();
    assert_eq!((receipt.mode.as_str(), receipt.reset.as_str()), ("copy_verified", "flr"));
}
