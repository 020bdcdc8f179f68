//! C2: a quarantine outlives everything but a verified re-sanitization and an operator's word.

use std::fs;
use std::time::{Duration, Instant};

use cleanslate::sim::Fault;
use serde_json::Value;

use super::node::{Node, Policy, at, claim, flock, more, name, view};

/// A node whose devices went bad, each in its own way, under claims `bad-0`, `bad-1`, …
async fn with_bad(bad: &[(Fault, &str)], policy: Policy) -> Node {
    let node = Node::with(bad.len(), policy).await;
    for (device, (fault, reason)) in bad.iter().enumerate() {
        node.fault(device, Some(*fault));
        node.give(&claim(&format!("bad-{device}")).on(device));
        let words = node.refused(&format!("bad-{device}")).await;
        assert!(words.contains(reason) && words.contains(&name(device)), "{words}");
    }
    node
}

const KINDS: [(Fault, &str); 3] = [
    (Fault::HangReset, "reset_timeout"),
    (Fault::DropWrites, "scrub_verify"),
    (Fault::BarsLost, "config_lost"),
];

#[tokio::test]
async fn c02_outlives_restart_kill_and_reboot() {
    let mut node = with_bad(&KINDS, Policy::default().hasty(0, "700ms")).await;
    let records = node.records("quarantine");
    assert_eq!(records.len(), KINDS.len());
    let texts = |node: &Node| {
        let read = |record| fs::read(node.path("state/quarantine").join(record)).unwrap();
        records.iter().map(read).collect::<Vec<_>>()
    };
    let before = texts(&node);
    // The devices are well again, but nobody has shown it.
    (0..KINDS.len()).for_each(|device| node.fault(device, None));
    let counts: Vec<_> = (0..KINDS.len()).map(|device| node.counts(device)).collect();
    for how in ["restart", "kill", "reboot"] {
        match how {
            "restart" => node.restart().await,
            "kill" => {
                node.kill();
                node.start().await;
            }
            _ => node.reboot().await,
        }
        for (device, (_, reason)) in KINDS.iter().enumerate() {
            // The very first calls after the registration.
            let words = node.refused(&format!("bad-{device}")).await;
            assert!(words.contains("quarantine") && words.contains(reason), "{how}: {words}");
            let shown = node.device(device).await;
            assert!(!shown.schedulable && shown.quarantine.unwrap().reason.as_str() == *reason);
            assert_eq!(node.counts(device), counts[device], "{how}: it was touched");
        }
        assert_eq!(texts(&node), before, "{how}");
    }
}

#[tokio::test]
async fn c02_a_healthy_device_is_lifted_once_by_a_whole_proof() {
    let mut node = with_bad(&KINDS[1..], Policy::default()).await;
    let before: Vec<_> = (0..2).map(|device| node.counts(device)).collect();
    let tokens = [node.token(0).await, node.token(1).await];
    node.stop().await;
    (0..2).for_each(|device| node.fault(device, None));
    node.policy = Policy::default().release("attempts", "3").release("retry", "2s");
    node.start().await;
    for device in 0..2 {
        let words = node.refused(&format!("bad-{device}")).await;
        assert!(words.contains("quarantine"), "right after the start: {words}");
    }
    node.proved().await;
    node.until("the records are gone", |_| node.records("quarantine").is_empty()).await;
    for device in 0..2 {
        let token = node.token(device).await;
        assert_eq!(token.epoch, tokens[device].epoch + 1, "one lease of its own");
        assert_eq!(steps(&node.log(), device, &token.to_string()), PROOF);
        assert_eq!(node.counts(device), more(before[device], 1, 1));
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    for device in 0..2 {
        assert_eq!(node.counts(device), more(before[device], 1, 1), "lifted once, and left alone since");
        node.granted(&format!("bad-{device}")).await;
        assert_eq!(node.counts(device), more(before[device], 2, 2), "its next claim has its own proof");
    }
}

const PROOF: [&str; 8] = ["inspect", "probe", "holders", "reset", "probe", "scrub", "holders", "probe"];

/// The steps that the log shows under a lease, in their order.
fn steps(log: &str, device: usize, token: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lease = [("message", "step"), ("device", &at(device).to_string()), ("token", token)]
        .map(|(field, value)| (field, value.to_owned()));
    let steps = lines.filter(|line| lease.iter().all(|(field, value)| line[field] == *value));
    steps.map(|line| line["step"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn c02_attempts_on_a_failing_device_stop_at_the_limit() {
    let policy = Policy::default().release("attempts", "2").release("retry", "150ms");
    let mut node = with_bad(&KINDS[1..], policy).await;
    let tried = |device: usize, attempts: u32| {
        move |status: &_| view(status, device).quarantine.as_ref().is_some_and(|it| it.attempts == attempts)
    };
    for device in 0..2 {
        node.until("both attempts", tried(device, 2)).await;
    }
    let counts: Vec<_> = (0..2).map(|device| node.counts(device)).collect();
    assert_eq!(counts[0].resets, 1 + 1 + 2, "first proof, claim, two attempts");
    for again in [false, true] {
        if again {
            node.restart().await;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        for device in 0..2 {
            assert_eq!(node.counts(device), counts[device], "restarted: {again}");
            let words = node.refused(&format!("bad-{device}")).await;
            assert!(words.contains(KINDS[1 + device].1), "{words}");
            node.until("still two", tried(device, 2)).await;
        }
    }
}

/// What the policy says, not how often somebody looks.
#[tokio::test]
async fn c02_attempts_follow_each_other_as_soon_as_the_policy_says() {
    let node =
        with_bad(&KINDS[1..2], Policy::default().release("attempts", "20").release("retry", "10ms")).await;
    let begun = Instant::now();
    let tried = |status: &_| view(status, 0).quarantine.as_ref().is_some_and(|it| it.attempts == 20);
    node.until("all attempts", tried).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?} for 20 proofs of 64 KiB", begun.elapsed());
}

/// A lock that somebody else holds says nothing against the device, and nothing for it.
#[tokio::test]
async fn c02_a_try_that_could_not_be_made_is_none() {
    let policy = Policy::default().release("attempts", "1").release("retry", "1s");
    let node = with_bad(&KINDS[1..2], policy).await;
    let lock = flock(&node, 0);
    node.fault(0, None);
    node.until("it is tried twice", |_| node.log().matches("is held, by").count() >= 2).await;
    let quarantine = node.device(0).await.quarantine.unwrap();
    assert_eq!((quarantine.reason.as_str(), quarantine.attempts), ("scrub_verify", 0));
    drop(lock);
    node.proved().await;
}

/// The operator's word comes while the device is being proved again: the proof decides what it is worth.
#[tokio::test]
async fn attack_a_release_during_a_resanitization_loses_nothing() {
    for heals in [true, false] {
        let policy = Policy::default().release("attempts", "1").release("retry", "50ms");
        let mut node = Node::lay(&[""], policy);
        node.start().await;
        node.proved().await;
        node.give(&claim("a").on(0));
        node.fault(0, Some(Fault::BarsLost));
        assert!(node.refused("a").await.contains("config_lost"));
        node.fault(0, Some(Fault::HangReset));
        node.in_step(0, "reset").await;
        let released = node.cli(&["quarantine", "release", &name(0), "--reason", "reseated"]);
        assert_eq!(released.status.code(), Some(0), "{released:?}");
        let token = node.token(0).await;
        if heals {
            let waits = node.preparing("a");
            node.fault(0, None);
            node.is_granted("a", waits.await.unwrap());
            assert!(node.records("quarantine").is_empty());
        } else {
            node.fault(0, Some(Fault::BarsLost));
            let status = node.until("it is back", |status| view(status, 0).quarantine.is_some()).await;
            let quarantine = view(&status, 0).quarantine.as_ref().unwrap();
            assert_eq!(
                (quarantine.reason.as_str(), quarantine.token),
                ("config_lost", Some(token)),
                "by that very proof"
            );
            node.restart().await;
            assert!(node.refused("a").await.contains("config_lost"), "that is durable");
        }
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
}

#[tokio::test]
async fn c02_an_operator_ends_it_for_a_reason_and_the_device_is_proved_first() {
    let node = with_bad(&KINDS[1..], Policy::default()).await;
    node.fault(0, None);
    let before = node.counts(0);
    let released = node.cli(&["quarantine", "release", &at(0).to_string(), "--reason", "card reseated"]);
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    assert!(String::from_utf8(released.stdout).unwrap().contains("proved again"));
    node.until("it is proved", |status| view(status, 0).schedulable).await;
    assert_eq!(node.counts(0), more(before, 1, 1));
    let identity = node.device(0).await.identity;
    let record = fs::read_to_string(node.record("devices", identity.as_str())).unwrap();
    assert!(record.contains("card reseated") && record.contains("scrub_verify"), "{record}");
    assert!(!node.record("quarantine", identity.as_str()).exists());
    node.granted("bad-0").await;

    // The other one is as bad as it was, so the word is worth one proof that fails.
    let before = node.counts(1);
    let released = node.cli(&["quarantine", "release", &name(1), "--reason", "hope"]);
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    node.until("it is back", |status| view(status, 1).quarantine.is_some()).await;
    assert_eq!(node.counts(1), more(before, 1, 0));
    assert!(node.refused("bad-1").await.contains("config_lost"));
}
