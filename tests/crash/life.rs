//! Killed while claims come and go, and while a quarantine does.

use cleanslate::sim::Fault;
use nix::unistd::Pid;

use super::node::{Node, Policy, claim, more, name, reference};
use super::stage::{LEFTOVER, Stage, claim_record, quiet_or_dead, token_on_disk, token_used, unlocked};
use super::strace::Tracer;

const KILL: &str = "signal=SIGKILL";

/// The thread that writes records, or all others of the daemon.
fn threads(node: &Node, writer: bool) -> Vec<Pid> {
    node.daemon().threads("store", !writer)
}

/// Prepare, unprepare and the cleaning; how many points there are.
pub(crate) async fn of_a_claim(writer: bool, call: &'static str) -> u32 {
    let mut stage = Stage::with(3, Policy::default()).await;
    for when in 1.. {
        let (a, b) = (format!("a-{when}"), format!("b-{when}"));
        let node = &mut stage.node;
        node.give(&claim(&a).on(0));
        node.give(&claim(&b).on(0));
        let (before, token) = (node.counts(0), node.token(0).await);
        let tracer = Tracer::attach(&threads(node, writer), call, KILL, &when.to_string());
        node.used(&a).await;
        let dead = quiet_or_dead(node).await;
        drop(tracer);
        if !dead {
            return when - 1;
        }
        node.kill();
        unlocked(node, 0).await;
        let (left, releasing) = (claim_record(node, &a), node.records("releasing").len());
        let phase = left.as_ref().map(|record| record["phase"].as_str().unwrap().to_owned());
        let at = format!("{call} {when}, {phase:?}, {releasing} releasing");
        let identity = node.identity(0);
        let written = token_on_disk(node, &identity).unwrap();
        let used = token_used(node, 0);
        let is_covered = used.is_none_or(|used| written >= used);
        assert!(written >= token && is_covered, "{at}: a worker was at it under {used:?}");
        node.leave(0, LEFTOVER);
        let killed = node.counts(0);
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        if phase.as_deref() == Some("granted") {
            assert!(killed.resets > before.resets && killed.scrubs > before.scrubs, "{at}: proved before");
            assert!(written > token, "{at}");
            // The answer that was lost is repeated.
            node.granted(&a).await;
            assert!(node.token(0).await == written, "{at}");
            assert!(node.refused(&b).await.contains(&a), "{at}: it is a's until a is released");
            assert_eq!(node.counts(0), killed, "{at}");
            node.unprepared(&a).await;
        }
        node.granted(&b).await;
        assert!(!node.holds(0, LEFTOVER), "{at}");
        let cleanings = if phase.is_some() || releasing > 0 { 2 } else { 1 };
        assert_eq!(node.counts(0), more(killed, cleanings, cleanings), "{at}");
        assert!(node.token(0).await > written, "{at}");
        node.unprepared(&b).await;
        assert!(!quiet_or_dead(node).await);
    }
    unreachable!()
}

/// A prepare that finds its device broken, then an operator's word and the proof after it; how many points there are.
pub(crate) async fn of_a_quarantine(call: &'static str) -> u32 {
    let mut stage = Stage::with(3, Policy::default()).await;
    let mut points = 0;
    for when in 1.. {
        let (refused, lifted) = (refuse(&mut stage, call, when).await, lift(&mut stage, call, when).await);
        points += u32::from(refused) + u32::from(lifted);
        if !refused && !lifted {
            return points;
        }
    }
    unreachable!()
}

/// Whether it was killed meanwhile; the device is in quarantine afterwards.
async fn refuse(stage: &mut Stage, call: &str, when: u32) -> bool {
    let a = format!("a-{when}");
    let node = &mut stage.node;
    node.give(&claim(&a).on(0));
    node.fault(0, Some(Fault::DropWrites));
    let tracer = Tracer::attach(&threads(node, true), call, KILL, &when.to_string());
    node.used(&a).await;
    let dead = quiet_or_dead(node).await;
    drop(tracer);
    let record = node.record("quarantine", &node.identity(0));
    if dead {
        node.kill();
        unlocked(node, 0).await;
        let at = format!("{call} {when}, quarantine written: {}", record.exists());
        let had = record.exists();
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        let is_sick = node.device(0).await.quarantine.is_some();
        assert!(is_sick || !had, "{at}: it is lost");
        // What it had not found out yet, the next one finds: it is never handed out.
        assert!(node.refused(&a).await.contains("scrub_verify"), "{at}");
        quiet_or_dead(node).await;
    }
    let node = &mut stage.node;
    assert!(record.exists() && node.device(0).await.quarantine.is_some());
    node.fault(0, None);
    dead
}

/// Whether it was killed meanwhile; the device is proved and free afterwards.
async fn lift(stage: &mut Stage, call: &str, when: u32) -> bool {
    let b = format!("b-{when}");
    let node = &mut stage.node;
    node.give(&claim(&b).on(0));
    node.leave(0, LEFTOVER);
    let word = ["quarantine", "release", &name(0), "--reason", "looked at"];
    let tracer = Tracer::attach(&threads(node, true), call, KILL, &when.to_string());
    node.cli(&word);
    let dead = quiet_or_dead(node).await;
    drop(tracer);
    if dead {
        node.kill();
        unlocked(node, 0).await;
        let had = node.record("quarantine", &node.identity(0)).exists();
        let at = format!("{call} {when} of a lift, quarantine there: {had}");
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        assert_eq!(node.device(0).await.quarantine.is_some(), had, "{at}");
        if had {
            assert!(node.cli(&word).status.success(), "{at}");
        }
    }
    let node = &mut stage.node;
    node.granted(&b).await;
    assert!(!node.holds(0, LEFTOVER));
    node.unprepared(&b).await;
    quiet_or_dead(node).await;
    dead
}

/// A claim that was granted before a reboot is prepared again: its device is proved anew. How many points there are.
pub(crate) async fn after_a_reboot(call: &'static str) -> u32 {
    let mut node = Node::with_fields(&["reset_ms=1,memory=8192"], Policy::default()).await;
    node.give(&claim("a").on(0));
    node.granted("a").await;
    for when in 1.. {
        node.reboot().await;
        node.leave(0, LEFTOVER);
        let before = node.counts(0);
        let tracer = Tracer::attach(&threads(&node, true), call, KILL, &when.to_string());
        node.call(vec![reference("a")]).await;
        let dead = quiet_or_dead(&mut node).await;
        drop(tracer);
        let at = format!("after a reboot, {call} {when}");
        if dead {
            node.kill();
            unlocked(&node, 0).await;
            let (killed, written) = (node.counts(0), token_on_disk(&node, &node.identity(0)));
            let phase = claim_record(&node, "a").map(|record| record["phase"].clone());
            node.start().await;
            node.granted("a").await;
            let (now, token) = (node.counts(0), node.token(0).await);
            assert!(Some(token) >= written, "{at}, {phase:?}");
            // Where its record says so, it was granted on this boot: proved by whoever was killed.
            let is_repeated = now == killed && now == more(before, 1, 1);
            assert!(
                is_repeated || now.resets > killed.resets && now.scrubs > killed.scrubs,
                "{at}, {phase:?}"
            );
        }
        assert!(!node.holds(0, LEFTOVER), "{at}");
        assert!(node.counts(0).scrubs > before.scrubs, "{at}: proved on this boot");
        if !dead {
            return when - 1;
        }
    }
    unreachable!()
}

/// A prepare that cannot put its CDI file where it belongs leaves neither file nor record, and its device is cleaned.
pub(crate) async fn without_derived_files(call: &'static str) {
    let mut stage = Stage::with(3, Policy::default()).await;
    let node = &mut stage.node;
    node.give(&claim("a").on(0));
    let before = node.counts(0);
    let tracer = Tracer::attach(&threads(node, false), call, "error=EIO", "1+");
    let words = node.refused("a").await;
    assert!(words.contains("CDI file") && words.contains("--cdi must name a folder"), "{words}");
    assert!(tracer.injected() > 0);
    stage.is_sound(call).await;
    let node = &mut stage.node;
    assert!(!quiet_or_dead(node).await);
    assert_eq!(node.counts(0), more(before, 2, 2), "proved, and cleaned since it was granted for a moment");
    node.granted("a").await;
    stage.is_sound(call).await;
}

/// The kubelet is gone when its claim is granted: the next call has the answer, and nothing is done twice.
pub(crate) async fn an_answer_is_lost() {
    let node = Node::of(1).await;
    for number in 0..5 {
        let a = format!("a-{number}");
        node.give(&claim(&a).on(0));
        let call = node.preparing(&a);
        node.until("it is leased", |status| status.ledger.claims.len() == 1).await;
        call.abort();
        node.until("it is granted", |status| status.ledger.devices[0].state == "granted").await;
        let (counts, token) = (node.counts(0), node.token(0).await);
        node.granted(&a).await;
        assert_eq!((node.counts(0), node.token(0).await), (counts, token));
        node.unprepared(&a).await;
    }
}
