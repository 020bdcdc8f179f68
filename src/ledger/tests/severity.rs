//! C1: of several signals about one device the worst stays, whatever their order.

use super::super::device::{Device, Event};
use super::super::record::Raised;
use super::*;

/// A tape of signals of all classes, two of the worst reason among them.
const TAPE: [(Reason, Raised); 6] = [
    (Reason::LinkDegraded, Raised::Elsewhere),
    (Reason::ResetTimeout, Raised::Elsewhere),
    (Reason::AerFatal, Raised::Prepare),
    (Reason::WorkerStuck, Raised::Elsewhere),
    (Reason::ScrubVerify, Raised::Elsewhere),
    (Reason::Operator, Raised::Elsewhere),
];

/// Every order of `tape`.
fn permutations<T: Clone>(tape: &[T]) -> Vec<Vec<T>> {
    if tape.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |first: usize| {
        let mut rest = tape.to_vec();
        let first = rest.remove(first);
        permutations(&rest).into_iter().map(move |order| [vec![first.clone()], order].concat())
    };
    (0..tape.len()).flat_map(with_first).collect()
}

fn signal(reason: Reason, raised: Raised) -> Quarantine {
    let record = serde_json::json!({
        "identity": Identity::from_address(d0()), "address": d0(), "reason": reason, "token": null,
        "evidence": format!("seen: {reason}"), "since": "2026-12-01T00:00:00Z", "raised": raised,
    });
    serde_json::from_value(record).unwrap()
}

/// The state itself: 720 orders of six signals, and every shorter tape on the way.
#[test]
fn c1_of_any_order_of_signals_the_worst_stays() {
    let token = Token { term: 1, epoch: 0 };
    let fresh = Device::new(Identity::from_address(d0()), d0(), token);
    let mut results = Vec::new();
    for order in permutations(&TAPE) {
        let mut device = fresh.clone();
        for (seen, (reason, raised)) in order.iter().enumerate() {
            device = device.on(Event::Quarantine(signal(*reason, *raised))).unwrap();
            let quarantine = device.quarantine.as_ref().unwrap();
            let worst = order[..=seen].iter().map(|(reason, _)| *reason).min().unwrap();
            assert_eq!(quarantine.reason, worst, "after {:?}", &order[..=seen]);
            assert_eq!(quarantine.evidence, format!("seen: {worst}"));
        }
        results.push(device.quarantine.unwrap());
    }
    assert_eq!(results.len(), 720);
    assert_eq!((results[0].reason, results[0].raised), (Reason::WorkerStuck, Raised::Prepare));
    assert!(results.iter().all(|result| *result == results[0]), "one result for all orders");
}

/// A signal that comes again changes nothing.
#[test]
fn c1_the_same_signal_again_changes_nothing() {
    let fresh = Device::new(Identity::from_address(d0()), d0(), Token { term: 1, epoch: 0 });
    for (worse, milder) in
        [(Reason::FellOffBus, Reason::AerFatal), (Reason::ResetTimeout, Reason::ResetTimeout)]
    {
        for order in permutations(&[worse, milder, worse, milder]) {
            let quarantined = order.iter().fold(fresh.clone(), |device, reason| {
                device.on(Event::Quarantine(signal(*reason, Raised::Elsewhere))).unwrap()
            });
            assert_eq!(quarantined.quarantine.unwrap(), signal(worse, Raised::Elsewhere), "{order:?}");
        }
    }
}

/// The reasons of DESIGN section 8 as far as this version raises them, worst first.
const WORST_FIRST: [&str; 18] = [
    "fell_off_bus",
    "worker_stuck",
    "reset_timeout",
    "reset_failed",
    "config_lost",
    "reset_ineffective",
    "scrub_verify",
    "scrub_failed",
    "scrub_timeout",
    "aer_fatal",
    "aer_uncorrectable",
    "link_lost",
    "probe_timeout",
    "probe_failed",
    "link_degraded",
    "unknown_owner",
    "identity_changed",
    "operator",
];

#[test]
fn c1_every_pair_of_reasons_joins_to_the_worse() {
    let all = WORST_FIRST.map(|name| serde_json::from_value::<Reason>(name.into()).unwrap());
    let mut pairs = 0;
    let fresh = Device::new(Identity::from_address(d0()), d0(), Token { term: 1, epoch: 0 });
    for (index, worse) in all.iter().enumerate() {
        for milder in &all[index + 1..] {
            for order in [[worse, milder], [milder, worse]] {
                let joined = order.into_iter().fold(fresh.clone(), |device, reason| {
                    device.on(Event::Quarantine(signal(*reason, Raised::Elsewhere))).unwrap()
                });
                assert_eq!(joined.quarantine.unwrap().reason, *worse, "{order:?}");
            }
            pairs += 1;
        }
    }
    assert_eq!(pairs, 153);
}

/// Through the ledger and its disk: what is refused afterwards, and what a restart finds.
#[tokio::test]
async fn c1_a_later_prepare_is_refused_for_the_worst_also_after_a_restart() {
    let tape = [Reason::AerFatal, Reason::ResetFailed, Reason::LinkDegraded, Reason::AerUncorrectable];
    let identity = Identity::from_address(d0());
    let mut told = Vec::new();
    for order in permutations(&tape) {
        let folder = tempfile::tempdir().unwrap();
        {
            let (ledger, _) = open(folder.path(), BOOT).await;
            for reason in &order {
                ledger.quarantine(&identity, *reason, format!("seen: {reason}"), None).await.unwrap();
            }
            let refused = ledger.lease(&claim("a"), &wanted()).await.unwrap_err().to_string();
            let view = ledger.snapshot().devices.remove(0);
            assert!(!view.schedulable && view.quarantine.is_some());
            told.push(refused);
        }
        let (ledger, _) = open(folder.path(), BOOT).await;
        told.push(ledger.lease(&claim("a"), &wanted()).await.unwrap_err().to_string());
    }
    assert_eq!(told.len(), 2 * 24);
    let words = "device pci-0000-3b-00-0 is in quarantine: reset_failed (needs_reset): seen: reset_failed; \
                 `cleanslate quarantine list` has the details";
    assert!(told.iter().all(|refused| refused == words), "{told:#?}");
}
