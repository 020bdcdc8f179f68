use super::*;
use crate::types::Counts;

fn probe() -> Probe {
    Probe {
        present: Fact::Good,
        identity: Fact::Good,
        bars: Fact::Good,
        transactions: Fact::Good,
        link: Fact::Good,
        uncorrectable: Fact::Good,
        counters: Fact::Good,
        counts: Counts::default(),
        notes: Vec::new(),
    }
}

/// What was judged is not in the list: else nobody could tell the two.
#[test]
fn c21_a_receipt_names_what_the_device_does_not_have_and_nothing_that_was_judged() {
    assert_eq!(not_covered(&probe()), ["on-chip memory", "ecc", "temperature", "nvlink"]);
    let without_aer = Probe { uncorrectable: Fact::Absent, counters: Fact::Absent, ..probe() };
    assert_eq!(not_covered(&without_aer)[NEVER_COVERED.len()..], ["aer"]);
    let integrated = Probe { link: Fact::Absent, transactions: Fact::Absent, bars: Fact::Absent, ..probe() };
    assert_eq!(not_covered(&integrated)[NEVER_COVERED.len()..], ["bars", "transactions", "link"]);
}
