//! A disk that refuses at each write in turn, once or from then on, and one that hangs. No error is injected into
//! `write` itself: by that the writer thread wakes others, too, which never fails on a real machine; what follows from
//! one is what follows from the sync after it.

use std::fs;
use std::time::{Duration, Instant};

use super::node::{PATIENCE, Policy, claim, claim_of, more};
use super::stage::{LEFTOVER, Stage, claim_record, quiet_or_dead};
use super::strace::Tracer;

/// Until when a disk refuses that has begun to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It refuses once.
    Once,
    /// The pod has ended.
    Unprepared,
    /// The daemon is killed after that.
    Killed,
}

/// Prepare, unprepare and the cleaning; how many points there are.
pub(crate) async fn refuses(call: &'static str, error: &'static str, until: Until) -> u32 {
    let policy = Policy::default().release("wait", "500ms");
    let mut stage = Stage::with(3, policy).await;
    for when in 1.. {
        let at = format!("{call}, {error} at {when}, {until:?}");
        let (a, b) = (format!("a-{when}"), format!("b-{when}"));
        let node = &mut stage.node;
        node.give(&claim(&a).on(0));
        node.give(&claim(&b).on(0));
        let token = node.token(0).await;
        let times = if until == Until::Once { when.to_string() } else { format!("{when}+") };
        let threads = node.daemon().threads("store", false);
        let tracer = Tracer::attach(&threads, call, &format!("error={error}"), &times);
        let answer = node.prepare(&a).await;
        if answer.error.is_empty() {
            node.is_granted(&a, answer);
        } else {
            assert!(answer.error.contains("store: "), "{at}: {}", answer.error);
            assert!(node.cdi(&a).is_none() && claim_of(&node.status().await, &a).is_none(), "{at}");
        }
        let begun = Instant::now();
        // A pod can end whatever the disk says.
        node.unprepared(&a).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{at}: {:?}", begun.elapsed());
        match until {
            Until::Once => assert!(!quiet_or_dead(node).await, "{at}"),
            // The cleaning may have to write, too.
            Until::Unprepared | Until::Killed => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        if until == Until::Killed {
            node.kill();
        }
        let refused = tracer.injected();
        node.leave(0, LEFTOVER);
        // Its allocation ends with its pod.
        fs::remove_file(node.path("claims").join(format!("{a}.json"))).unwrap();
        if until == Until::Killed {
            super::stage::unlocked(node, 0).await;
            node.start().await;
        }
        let before = node.counts(0);
        // Granted on the disk and refused in the answer, a is an orphan now: looked for at the start and by b, who may
        // find the device locked by the other look, and comes again as the kubelet does.
        let begun = Instant::now();
        let granted = loop {
            let answer = node.prepare(&b).await;
            if until != Until::Killed || !answer.error.contains(&a) {
                break node.is_granted(&b, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "{at}: {}", answer.error);
            println!("{at}: {}", answer.error);
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let (now, once) = (node.counts(0), more(before, 1, 1));
        assert!(now.resets >= once.resets && now.scrubs >= once.scrubs, "{at}: {before:?} {now:?}");
        assert!(!node.holds(0, LEFTOVER) && node.token(0).await > token, "{at}");
        node.until("nothing is owed", |status| status.ledger.unwritten == 0).await;
        // What the records say is what is true.
        assert!(claim_record(node, &a).is_none(), "{at}");
        node.kill();
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        assert_eq!(node.granted(&b).await, granted, "{at}");
        assert_eq!(node.counts(0), now, "{at}: its pod was left alone");
        node.unprepared(&b).await;
        assert!(!quiet_or_dead(node).await);
        if refused == 0 {
            return when - 1;
        }
    }
    unreachable!()
}

/// A disk that does not answer for 25 s: what needs it not is answered at once, the rest within the bound, and
/// nothing comes of it later.
pub(crate) async fn hangs(when: u32) {
    let mut stage = Stage::with(4, Policy::default().release("wait", "500ms")).await;
    let node = &mut stage.node;
    for (device, name) in [(0, "a"), (0, "b"), (3, "c")] {
        node.give(&claim(name).on(device));
    }
    node.granted("c").await;
    let threads = node.daemon().threads("store", false);
    let tracer = Tracer::attach(&threads, "fsync", "delay_enter=25s", &when.to_string());
    let begun = Instant::now();
    let preparing = node.preparing("a");
    node.until("it waits for the disk", |status| claim_of(status, "a").is_some()).await;
    while begun.elapsed() < Duration::from_secs(8) {
        let begun = Instant::now();
        node.status().await;
        node.granted("bystander").await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}: they need no disk", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    node.unprepared("c").await;
    println!("unprepare was answered {:.1} s into the hang", begun.elapsed().as_secs_f64());
    assert!(begun.elapsed() < Duration::from_secs(8 + 40));
    let answer = preparing.await.unwrap();
    println!("prepare was answered after {:.1} s: {}", begun.elapsed().as_secs_f64(), answer.error);
    assert!(begun.elapsed() < Duration::from_secs(40));
    assert!(answer.error.contains("has not answered for 10 s"), "{}", answer.error);
    tokio::time::sleep(Duration::from_secs(27).saturating_sub(begun.elapsed())).await;
    assert!(tracer.injected() > 0);
    node.until("what was owed is written", |status| status.ledger.unwritten == 0).await;
    tokio::join!(node.granted("b"), node.granted("c"));
    assert!(claim_record(node, "a").is_none());
    node.kill();
    node.start().await;
    stage.is_sound("after the hang").await;
}

/// Nobody hears what it says, which is no reason to stop.
pub(crate) async fn takes_no_log() {
    let mut node = super::node::Node::lay(&["", ""], Policy::default().release("wait", "500ms"));
    std::os::unix::fs::symlink("/dev/full", node.path("daemon.log")).unwrap();
    node.start().await;
    node.proved().await;
    for (device, name) in [(0, "a"), (1, "b")] {
        node.give(&claim(name).on(device));
        node.granted(name).await;
    }
    node.unprepared("a").await;
    node.granted("a").await;
    node.stop().await;
}
