//! C21: what links and error counters say, read by the real worker from captured attributes that are edited. A verdict is
//! that after a reset.

use std::fs;

use cleanslate::proof::verdict::{Stage, Verdict, of_probe};
use cleanslate::types::{Baseline, Fact, Probe, Reason};
use cleanslate::worker::Outcome;
use jiff::{Timestamp, ToSpan as _};

use crate::machine::{CARD, Machine, NEIGHBOUR, remove};

const PORT: &str = "0000:00:04.0";

async fn probe(machine: &Machine, address: &str) -> Probe {
    match machine.probe(address).await {
        Outcome::Done(probe) => probe,
        other => panic!("{other:?}"),
    }
}

fn reason(verdict: &Verdict) -> Option<Reason> {
    verdict.device.as_ref().map(|(reason, _)| *reason)
}

/// Another number in the last line of an AER file.
fn count(machine: &Machine, address: &str, attribute: &str, total: u64) {
    let text = fs::read_to_string(machine.folder(address).join(attribute)).unwrap();
    let (before, label) = match text.trim_end().rsplit_once('\n') {
        Some((before, last)) => (format!("{before}\n"), format!("{} ", last.split(' ').next().unwrap())),
        None => (String::new(), String::new()),
    };
    machine.put(address, attribute, format!("{before}{label}{total}\n").as_bytes());
}

#[tokio::test]
async fn c21_a_link_of_8_lanes_of_16_fails() {
    let machine = Machine::captured("01-boot-unbound");
    let rows: [(&str, &str, &str, Option<Reason>); 7] = [
        // Of the card: in use, at most; at most of the port above it.
        ("8", "16", "16", Some(Reason::LinkDegraded)),
        ("8", "16", "32", Some(Reason::LinkDegraded)),
        ("16", "16", "16", None),
        ("8", "16", "8", None),
        ("8", "8", "16", None),
        // What is not known is no measure: a learned baseline is.
        ("8", "255", "16", None),
        ("0", "16", "16", Some(Reason::LinkLost)),
    ];
    for row @ (now, most, above, expected) in rows {
        machine.put(CARD, "current_link_width", format!("{now}\n").as_bytes());
        machine.put(CARD, "max_link_width", format!("{most}\n").as_bytes());
        machine.put(PORT, "max_link_width", format!("{above}\n").as_bytes());
        let probe = probe(&machine, CARD).await;
        assert_eq!(reason(&of_probe(Stage::AfterReset, &probe, None)), expected, "{row:?}");
        assert_eq!(reason(&of_probe(Stage::InUse, &probe, None)), expected, "{row:?}");
        assert!(of_probe(Stage::BeforeReset, &probe, None).is_good(), "{row:?}: a reset may cure it");
        assert_eq!(probe.counts.width, Some(now.parse().unwrap()));
    }
    // A dead device shows 63.
    machine.put(CARD, "current_link_width", b"63\n");
    let verdict = of_probe(Stage::AfterReset, &probe(&machine, CARD).await, None);
    let (reason, evidence) = verdict.device.unwrap();
    assert_eq!(reason, Reason::ProbeFailed);
    assert_eq!(evidence, "current_link_width holds \"63\": expected a width that a link has");
}

/// Idle devices lower their speed, sleeping ones even more.
#[tokio::test]
async fn c21_a_low_speed_is_no_fault() {
    let machine = Machine::captured("01-boot-unbound");
    machine.put(CARD, "max_link_speed", b"32.0 GT/s PCIe\n");
    machine.put(PORT, "max_link_speed", b"32.0 GT/s PCIe\n");
    for state in ["D0", "D3hot", "unknown"] {
        for speed in ["2.5 GT/s PCIe", "5.0 GT/s PCIe", "32.0 GT/s PCIe", "8 GT/s", "Unknown"] {
            machine.put(CARD, "power_state", format!("{state}\n").as_bytes());
            machine.put(CARD, "current_link_speed", format!("{speed}\n").as_bytes());
            let probe = probe(&machine, CARD).await;
            assert_eq!(probe.link, Fact::Good, "{state} {speed}");
            assert!(of_probe(Stage::AfterReset, &probe, None).is_good(), "{state} {speed}: {probe:?}");
        }
    }
}

#[tokio::test]
async fn c21_an_error_counted_since_the_last_look_fails() {
    let rows = [
        (CARD, "aer_dev_fatal", Reason::AerFatal),
        (CARD, "aer_dev_nonfatal", Reason::AerUncorrectable),
        // The kernel counts a device's fatal error at the port that serves it alone.
        (PORT, "aer_rootport_total_err_fatal", Reason::AerFatal),
        (PORT, "aer_dev_fatal", Reason::AerFatal),
        (PORT, "aer_dev_nonfatal", Reason::AerUncorrectable),
    ];
    for (address, attribute, expected) in rows {
        let machine = Machine::captured("01-boot-unbound");
        count(&machine, address, attribute, 0);
        let before = probe(&machine, CARD).await;
        let baseline =
            Baseline { boot_id: "b".to_owned(), at: Timestamp::now(), counts: before.counts.clone() };
        assert!(of_probe(Stage::AfterReset, &before, Some(&baseline)).is_good());
        count(&machine, address, attribute, 1);
        let after = probe(&machine, CARD).await;
        for stage in [Stage::AfterReset, Stage::InUse] {
            let verdict = of_probe(stage, &after, Some(&baseline));
            assert_eq!(reason(&verdict), Some(expected), "{address} {attribute} {stage:?}");
        }
        let first = of_probe(Stage::AfterReset, &after, None);
        assert!(first.is_good(), "{address} {attribute}: what was there at the first look is no fault");
    }
}

#[tokio::test]
async fn c21_correctable_errors_above_their_rate_degrade() {
    let machine = Machine::captured("01-boot-unbound");
    count(&machine, CARD, "aer_dev_correctable", 5);
    let before = probe(&machine, CARD).await.counts;
    for (hours, errors, degraded) in
        [(0, 10, false), (0, 11, true), (1, 100, false), (1, 101, true), (3, 300, false), (3, 301, true)]
    {
        count(&machine, CARD, "aer_dev_correctable", 5 + errors);
        let at = Timestamp::now() - (60 * hours + 1).minutes();
        let baseline = Baseline { boot_id: "b".to_owned(), at, counts: before.clone() };
        let verdict = of_probe(Stage::AfterReset, &probe(&machine, CARD).await, Some(&baseline));
        assert!(verdict.is_good(), "{errors} in {hours} h: it is handed out");
        assert_eq!(verdict.degraded.is_some(), degraded, "{errors} in {hours} h: {verdict:?}");
        assert!(verdict.degraded.is_none_or(|words| words.contains(&format!("{errors} correctable errors"))));
    }
}

#[tokio::test]
async fn c21_a_missing_file_is_unreadable_and_never_healthy() {
    for attribute in [
        "current_link_width",
        "max_link_width",
        "aer_dev_correctable",
        "aer_dev_nonfatal",
        "aer_dev_fatal",
        "resource",
    ] {
        let machine = Machine::captured("01-boot-unbound");
        remove(&machine.folder(CARD).join(attribute));
        let probe = probe(&machine, CARD).await;
        let facts = [&probe.link, &probe.counters, &probe.bars];
        let names_it = |why: &String| why.starts_with(attribute);
        let unreadable =
            facts.into_iter().filter(|fact| matches!(fact, Fact::Unreadable(why) if names_it(why)));
        assert_eq!(unreadable.count(), 1, "{attribute}: {probe:?}");
        assert!(probe.fault().is_some(), "{attribute}: no proof can be sealed with it");
        let verdict = of_probe(Stage::AfterReset, &probe, None);
        assert_eq!(reason(&verdict), Some(Reason::ProbeFailed), "{attribute}");
    }
}

#[tokio::test]
async fn c21_a_device_without_aer_is_judged_without_it() {
    let machine = Machine::captured("01-boot-unbound");
    let probe = probe(&machine, NEIGHBOUR).await;
    assert_eq!((&probe.uncorrectable, &probe.counters), (&Fact::Absent, &Fact::Absent));
    assert!(of_probe(Stage::AfterReset, &probe, None).is_good());
}
