//! Nine sysfs trees captured from a real kernel, probed by the real worker and judged as a node would.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

mod c21;
mod damage;
mod machine;
mod place;
mod policy;
mod tree;
mod virtual_functions;

use std::fs;
use std::path::Path;
use std::time::Duration;

use cleanslate::proof::verdict::{Stage, Verdict, of_end, of_probe};
use cleanslate::types::{Deadline, Fact, PciAddress, Probe, Roots, StepName};
use cleanslate::worker::{Bench, Command, Outcome, Program, Report};
use serde_json::Value;
use tree::lay_out;

async fn probe(root: &Path, address: PciAddress) -> Outcome<Probe> {
    let program = Program(env!("CARGO_BIN_EXE_cleanslate").into());
    let roots = Roots::below(root);
    // A captured vfio group has no node on this machine.
    fs::create_dir_all(roots.dev.join("vfio")).unwrap();
    for node in ["vfio", "7"] {
        fs::File::create(roots.dev.join("vfio").join(node)).unwrap();
    }
    let bench = Bench { program, roots, run: root.to_owned() };
    let orders = [bench.order(address, None, None), Command::Probe];
    let deadline = Deadline::after(Duration::from_secs(20));
    bench.run(&orders, deadline).await.map(|report| match report {
        Report::Probed(probe, _) => probe,
        other => panic!("{other:?}"),
    })
}

fn judged(stage: Stage, outcome: &Outcome<Probe>) -> Verdict {
    match outcome {
        Outcome::Done(probe) => of_probe(stage, probe, None),
        other => of_end(StepName::Probe, other),
    }
}

/// `ok`, or the reason.
fn word(verdict: &Verdict) -> String {
    match &verdict.device {
        Some((reason, _)) => reason.to_string(),
        None if verdict.is_good() => "ok".to_owned(),
        None => format!("{verdict:?}"),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn nine_trees_are_judged_as_expected_before_and_after_a_reset() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs");
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(fixtures.join("expected.json")).unwrap()).unwrap();
    let mut devices = 0;
    for (tree, functions) in expected["trees"].as_object().unwrap() {
        let root = tempfile::tempdir().unwrap();
        lay_out(&fixtures.join(tree), &root.path().join("sys"));
        for (address, expected) in functions.as_object().unwrap() {
            let outcome = probe(root.path(), address.parse().unwrap()).await;
            let before = word(&judged(Stage::BeforeReset, &outcome));
            let after = word(&judged(Stage::AfterReset, &outcome));
            let reason = expected["reason"].as_str().unwrap_or("ok");
            let right = |phase: &str| if expected[phase] == "ok" { "ok" } else { reason };
            println!("{tree} {address}: before {before}, after {after}");
            assert_eq!(before, right("before"), "{tree} {address} before: {outcome:?}");
            assert_eq!(after, right("after"), "{tree} {address} after: {outcome:?}");
            if let Outcome::Done(probe) = &outcome {
                for note in strings(&expected["notes"]) {
                    // `bar0=0` is said there of any lost BAR; the virtio device of tree 05 has its memory in BAR1.
                    let bar = |note: &String| note.starts_with("bar") && note.ends_with("=0");
                    let found = probe.notes.contains(&note) || bar(&note) && probe.notes.iter().any(bar);
                    assert!(found, "{tree} {address}: {note} in {:?}", probe.notes);
                }
                let uncovered = strings(&expected["not_covered"]).contains(&"aer".to_owned());
                assert_eq!(probe.uncorrectable == Fact::Absent, uncovered, "{tree} {address}: aer");
                let also = strings(&expected["also"]).contains(&"aer_uncorrectable".to_owned());
                assert!(!also || matches!(probe.uncorrectable, Fact::Bad(_)), "{tree} {address}");
            }
            devices += 1;
        }
    }
    assert_eq!(devices, 15, "every device of the nine trees");
}
