use super::*;
use crate::types::ScrubPass;

fn failed(code: Code) -> Outcome<()> {
    Outcome::Failed(Failure { code, errno: Some(5), text: "seen".to_owned() })
}

/// Every kind of end in every step, and whom it costs.
#[test]
fn ends_by_step() {
    use StepName::{Holders, Inspect, Probe, Reset, Scrub};
    let stuck = Outcome::Stuck { pid: 7, wchan: "msleep".to_owned() };
    let device: &[(StepName, Outcome<()>, Reason)] = &[
        (Reset, Outcome::TimedOut, Reason::ResetTimeout),
        (Scrub, Outcome::TimedOut, Reason::ScrubTimeout),
        (Probe, Outcome::TimedOut, Reason::ProbeTimeout),
        (Inspect, Outcome::TimedOut, Reason::ProbeTimeout),
        (Reset, stuck.clone(), Reason::WorkerStuck),
        (Holders, stuck, Reason::WorkerStuck),
        (Reset, Outcome::Crashed(String::new()), Reason::ResetFailed),
        (Scrub, Outcome::Crashed(String::new()), Reason::ScrubFailed),
        (Probe, failed(Code::Lost), Reason::FellOffBus),
        (Reset, failed(Code::Lost), Reason::FellOffBus),
        (Reset, failed(Code::Io), Reason::ResetFailed),
        (Reset, failed(Code::NoMethod), Reason::ResetFailed),
        (Reset, failed(Code::NotReady), Reason::ResetFailed),
        (Reset, failed(Code::Pending), Reason::ResetFailed),
        (Reset, failed(Code::Ineffective), Reason::ResetIneffective),
        (Reset, failed(Code::ConfigLost), Reason::ConfigLost),
        (Inspect, failed(Code::ConfigLost), Reason::ConfigLost),
        (Scrub, failed(Code::Io), Reason::ScrubFailed),
        (Probe, failed(Code::Io), Reason::ProbeFailed),
    ];
    for (step, outcome, reason) in device {
        let verdict = of_end(*step, outcome);
        assert_eq!(verdict.device.map(|(reason, _)| reason), Some(*reason), "{step:?} {outcome:?}");
        assert_eq!((verdict.claim, verdict.node), (None, None), "{step:?} {outcome:?}");
    }
    for (step, code) in [
        (Probe, Code::Locked),
        (Reset, Code::Driver),
        (Reset, Code::Unsupported),
        (Scrub, Code::NoMemory),
        (Probe, Code::Gone),
    ] {
        let verdict = of_end(step, &failed(code));
        assert!(verdict.claim.is_some() && verdict.device.is_none(), "{code:?}");
    }
    for (step, outcome, fault) in [
        (Reset, failed(Code::ReadOnly), Fault::ReadOnlySysfs),
        (Probe, failed(Code::Permission), Fault::Permission),
        (Reset, failed(Code::Journal), Fault::Store),
        (Holders, Outcome::TimedOut, Fault::Worker),
        (Probe, Outcome::Crashed(String::new()), Fault::Worker),
    ] {
        let verdict = of_end(step, &outcome);
        assert_eq!(verdict.node.map(|(fault, _)| fault), Some(fault));
        assert_eq!(verdict.device, None, "a fault of the node blames no device");
    }
}

fn probe() -> Probe {
    Probe {
        present: Fact::Good,
        identity: Fact::Good,
        bars: Fact::Good,
        transactions: Fact::Absent,
        link: Fact::Absent,
        uncorrectable: Fact::Absent,
        counters: Fact::Absent,
        counts: Counts::default(),
        notes: Vec::new(),
    }
}

#[test]
fn probes_by_stage() {
    let lost = Probe { bars: Fact::Bad("BAR0 holds 0x0".to_owned()), ..probe() };
    assert!(of_probe(Stage::BeforeReset, &lost, None).is_good(), "a reset may cure it");
    assert_eq!(of_probe(Stage::AfterReset, &lost, None).device.unwrap().0, Reason::ConfigLost);
    let other = Probe { identity: Fact::Bad("another".to_owned()), ..lost };
    assert_eq!(of_probe(Stage::BeforeReset, &other, None).device.unwrap().0, Reason::IdentityChanged);
    assert_eq!(
        of_probe(Stage::AfterReset, &other, None).device.unwrap().0,
        Reason::ConfigLost,
        "the worse of two"
    );
    let sick = Probe { uncorrectable: Fact::Bad("0x4000".to_owned()), ..other };
    assert_eq!(
        of_probe(Stage::InUse, &sick, None).device.unwrap().0,
        Reason::IdentityChanged,
        "whose error it is"
    );
    let unreadable = Probe { bars: Fact::Unreadable("no file".to_owned()), ..probe() };
    assert!(!of_probe(Stage::AfterReset, &unreadable, None).is_good(), "unreadable is not healthy");
    assert!(of_probe(Stage::AfterReset, &probe(), None).is_good());
}

#[test]
fn holders_are_named_and_cost_only_the_claim() {
    let holder = HolderProcess {
        pid: 4242,
        comm: "python".to_owned(),
        cgroup: "0::/kubepods/pod1".to_owned(),
        path: "/dev/vfio/12".to_owned(),
    };
    let verdict = of_holders(&[holder]);
    let text = verdict.claim.unwrap();
    assert!(text.contains("4242") && text.contains("python") && text.contains("kubepods/pod1"), "{text}");
    assert_eq!((verdict.device, verdict.node), (None, None));
}

#[test]
fn a_join_is_a_join() {
    let bad = |reason| Verdict::bad(reason, "");
    let parts =
        [bad(Reason::Operator), bad(Reason::FellOffBus), bad(Reason::ScrubVerify), Verdict::refuse("x")];
    for a in &parts {
        assert_eq!(a.clone().join(a.clone()), *a, "idempotent");
        for b in &parts {
            let (ab, ba) = (a.clone().join(b.clone()), b.clone().join(a.clone()));
            assert_eq!(ab.device, ba.device, "the order of signals does not matter");
            for c in &parts {
                let left = ab.clone().join(c.clone());
                assert_eq!(left, a.clone().join(b.clone().join(c.clone())));
            }
        }
    }
    let fault = Verdict::fault(Fault::Worker, "w").join(bad(Reason::ResetFailed));
    assert!(fault.node.is_some() && fault.device.is_some(), "a fault of the node hides no device's");
}

#[test]
fn a_scrub_without_its_planted_errors_is_no_scrub() {
    let whole = ScrubPass { words_visited: 1, canaries_found: 1, errors: 0, first_error: None };
    let scrub = Scrub {
        size: 8,
        bytes_written: 16,
        chunks: 1,
        pattern: whole.clone(),
        zero: whole,
        canaries_left: 0,
    };
    assert!(of_scrub(&scrub).is_good());
    let blind = Scrub { zero: ScrubPass { canaries_found: 0, ..scrub.zero.clone() }, ..scrub };
    assert_eq!(of_scrub(&blind).device.unwrap().0, Reason::ScrubVerify);
}

/// C21: what grew since an earlier look on this boot.
#[test]
fn growth_since_a_baseline() {
    let counts = Counts { correctable: 5, nonfatal: 1, fatal: 0, width: Some(16) };
    let baseline = Baseline { boot_id: "b".to_owned(), at: jiff::Timestamp::now(), counts: counts.clone() };
    let after = |change: fn(&mut Counts)| {
        let mut counts = counts.clone();
        change(&mut counts);
        of_probe(Stage::AfterReset, &Probe { counts, ..probe() }, Some(&baseline))
    };
    let reason = |verdict: &Verdict| verdict.device.as_ref().map(|(reason, _)| *reason);
    assert!(after(|_| {}).is_good(), "what was there before is no fault now");
    assert_eq!(reason(&after(|now| now.fatal = 1)), Some(Reason::AerFatal));
    assert_eq!(reason(&after(|now| now.nonfatal = 2)), Some(Reason::AerUncorrectable));
    assert_eq!(reason(&after(|now| now.width = Some(8))), Some(Reason::LinkDegraded));
    let few = after(|now| now.correctable = 15);
    assert!(few.is_good() && few.degraded.is_none());
    let many = after(|now| now.correctable = 16);
    assert!(many.is_good() && many.degraded.is_some(), "degraded is told and no reason to refuse");
    let anew = after(|now| *now = Counts { width: Some(16), ..Counts::default() });
    assert!(anew.is_good(), "counters that went back began anew");
    let narrow = of_probe(Stage::BeforeReset, &Probe { link: Fact::Bad("x8".to_owned()), ..probe() }, None);
    assert!(narrow.is_good(), "a reset may cure it");
}

#[test]
fn an_answer_to_another_question_is_no_success() {
    let other = || Outcome::Done(Report::Unmarked);
    assert!(!probed(other()).unwrap_err().is_good());
    assert!(!of_look_for_holders(&other()).is_good());
    assert!(of_look_for_holders(&Outcome::Done(Report::Held(Vec::new()))).is_good());
}
