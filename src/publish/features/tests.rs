use super::*;
use crate::publish::device::{NO_EXECUTE, NO_SCHEDULE};

fn device(name: &str, effects: &[&str]) -> Device {
    let taint = |effect: &&str| DeviceTaint {
        key: "cleanslate.dev/quarantined".to_owned(),
        effect: (*effect).to_owned(),
        ..DeviceTaint::default()
    };
    let taints: Vec<_> = effects.iter().map(taint).collect();
    Device { name: name.to_owned(), taints: (!taints.is_empty()).then_some(taints), ..Device::default() }
}

fn slice(devices: &[Device]) -> ResourceSlice {
    let mut slice = ResourceSlice::default();
    slice.spec.devices = Some(devices.to_vec());
    slice
}

fn names(fit: &(Vec<Device>, Vec<String>)) -> Vec<&str> {
    fit.0.iter().map(|device| device.name.as_str()).collect()
}

#[test]
fn it_is_asked_only_for_what_must_not_be_used_and_until_it_has_answered() {
    let bad = [device("good", &[]), device("bad", &[NO_EXECUTE])];
    let mut features = Features::default();
    assert!(!features.must_ask(&[device("good", &[]), device("marked", &[NONE])]));
    assert!(features.must_ask(&bad));
    assert_eq!(names(&features.fit(&bad)), ["good", "bad"], "the question is about all of them");
    assert_eq!(features.learn(&bad, &slice(&bad), &slice(&bad)), Answer::Same);
    assert!(!features.must_ask(&bad));
}

#[test]
fn where_taints_are_dropped_devices_are_left_out_until_others_are_asked_for() {
    let bad = [device("good", &[NONE]), device("bad", &[NO_SCHEDULE, NONE])];
    let mut features = Features::default();
    assert!(features.must_ask(&bad));
    let bare = [device("good", &[]), device("bad", &[])];
    assert_eq!(features.learn(&bad, &slice(&bad), &slice(&bare)), Answer::Untainted);
    assert!(!features.must_ask(&bad));
    let (fit, left_out) = features.fit(&bad);
    assert_eq!((fit, left_out), (vec![device("good", &[])], vec!["bad".to_owned()]));

    let worse = [device("good", &[NO_SCHEDULE]), device("bad", &[NO_SCHEDULE])];
    assert!(features.must_ask(&worse), "it may have been upgraded");
    assert_eq!(names(&features.fit(&worse)), ["good", "bad"]);
}

/// One of several servers is older: what it answers counts, whatever another did.
#[test]
fn a_real_answer_without_taints_counts_too() {
    let bad = [device("bad", &[NO_EXECUTE])];
    let mut features = Features::default();
    features.kept();
    assert_eq!(features.learn(&bad, &slice(&bad), &slice(&[device("bad", &[])])), Answer::Untainted);
    assert_eq!(features.fit(&bad).1, ["bad"]);
}

#[test]
fn any_other_difference_is_no_matter_of_taints() {
    let sent = [device("bad", &[NO_EXECUTE])];
    let mut features = Features::default();
    for got in [vec![device("other", &[])], vec![], vec![device("bad", &[NO_EXECUTE]), device("more", &[])]] {
        assert_eq!(features.learn(&sent, &slice(&sent), &slice(&got)), Answer::Other);
    }
    assert_eq!(features.learn(&[], &slice(&[]), &slice(&sent)), Answer::Other);
}

#[test]
fn an_effect_that_is_refused_is_left_out_once_and_for_all() {
    let marked = [device("marked", &[NONE]), device("bad", &[NO_SCHEDULE, NONE])];
    let mut features = Features::default();
    assert!(!features.refused(&slice(&[device("bad", &[NO_SCHEDULE])])), "that is about something else");
    assert!(features.refused(&slice(&marked)));
    assert!(!features.refused(&slice(&marked)), "then it is about something else");
    let (fit, left_out) = features.fit(&marked);
    assert_eq!(fit, [device("marked", &[]), device("bad", &[NO_SCHEDULE])]);
    assert!(left_out.is_empty());
}
