//! Killed while a daemon starts over what another has left, again and again over the same records.

use std::fs;
use std::path::Path;

use cleanslate::sim::Fault;

use super::node::{DRIVER, Node, Policy, at, claim, more, uid, write};
use super::stage::{LEFTOVER, Stage, done_or_dead, read, token_on_disk, token_used, unlocked};
use super::strace;
use cleanslate::types::Token;

/// What lasts, as it was.
struct Records(tempfile::TempDir);

const LASTING: [&str; 2] = ["state", "cdi"];

impl Records {
    fn of(node: &Node) -> Self {
        let kept = tempfile::tempdir().unwrap();
        LASTING.iter().for_each(|part| copy(&node.path(part), &kept.path().join(part)));
        Self(kept)
    }

    fn restore(&self, node: &Node) {
        for part in LASTING {
            fs::remove_dir_all(node.path(part)).unwrap();
            copy(&self.0.path().join(part), &node.path(part));
        }
        // What was done after these records tells nothing.
        for device in 0..node.devices() {
            let _ = fs::remove_file(node.path("run").join(format!("{}.lock", at(device))));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = {
            let entry = entry.unwrap();
            (entry.path(), entry.file_name())
        };
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Starts it so that it dies at this call; whether it did before all was done.
async fn dies(
    node: &mut Node,
    writer: bool,
    (call, when): (&str, u32),
    done: impl Fn(&Node) -> bool,
) -> bool {
    let wrapper = strace::wrapper(writer, call, "signal=SIGKILL", &when.to_string());
    let died = !node.start_by(&wrapper).await || done_or_dead(node, done).await;
    node.kill();
    for device in 0..node.devices() {
        unlocked(node, device).await;
    }
    died
}

/// Device 0 was being prepared, 3 was being released, the quarantine of 4 is damaged, and files are left that nobody
/// has; how many points there are.
pub(crate) async fn over_half_done(writer: bool, call: &'static str) -> u32 {
    let mut stage = Stage::with(5, Policy::default().release("wait", "100ms")).await;
    let node = &mut stage.node;
    for (device, name) in [(0, "a"), (0, "b"), (3, "c"), (3, "d"), (4, "e")] {
        node.give(&claim(name).on(device));
    }
    node.granted("c").await;
    node.fault(4, Some(Fault::DropWrites));
    node.refused("e").await;
    [0, 3].iter().for_each(|device| node.fault(*device, Some(Fault::HangReset)));
    let call_of_a = node.preparing("a");
    node.in_step(0, "reset").await;
    node.unprepared("c").await;
    call_of_a.abort();
    node.kill();
    [0, 3, 4].iter().for_each(|device| node.fault(*device, None));
    for device in [0, 3] {
        unlocked(node, device).await;
    }
    write(&node.record("quarantine", &node.identity(4)), "{}");
    write(&node.path("state/devices/half.tmp"), "");
    write(&node.cdi_path("a"), "{}");
    write(&node.path("cdi").join(format!("{DRIVER}-claim-gone.json.tmp")), "{");
    let records = Records::of(node);

    for when in 1.. {
        let node = &mut stage.node;
        records.restore(node);
        if !dies(node, writer, (call, when), |_| true).await {
            stage.node.start().await;
            stage.is_sound("to its end").await;
            return when - 1;
        }
        let at = format!("start, {call} {when}");
        let identities = [0, 3].map(|device| node.identity(device));
        let written = [0, 1].map(|it| token_on_disk(node, &identities[it]).unwrap());
        for (it, device) in [0, 3].into_iter().enumerate() {
            let used = token_used(node, device);
            assert!(used.is_none_or(|used| written[it] >= used), "{at}: a worker was at it under {used:?}");
            node.leave(device, LEFTOVER);
        }
        let before = [0, 3, 4].map(|device| node.counts(device));
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        tokio::join!(node.granted("b"), node.granted("d"));
        assert!(node.refused("e").await.contains("quarantine"), "{at}");
        for (it, device) in [0, 3].into_iter().enumerate() {
            assert!(!node.holds(device, LEFTOVER), "{at}");
            let (now, once) = (node.counts(device), more(before[it], 1, 1));
            assert!(now.resets >= once.resets && now.scrubs >= once.scrubs, "{at}: {now:?}");
            assert!(node.token(device).await > written[it], "{at}");
        }
        assert_eq!(node.counts(4), before[2], "{at}");
        assert!(read(node, "quarantine", &node.identity(4)).is_some(), "{at}: it is durable");
        node.kill();
    }
    unreachable!()
}

/// Nobody can tell whose record it was: every free device may be its; how many points there are.
pub(crate) async fn over_damage(call: &'static str) -> u32 {
    let mut stage = Stage::with(4, Policy::default()).await;
    let node = &mut stage.node;
    node.give(&claim("a").on(0));
    node.give(&claim("b").on(3));
    node.kill();
    write(&node.record("claims", &uid("ghost")), "{}");
    let records = Records::of(node);
    let before = [0, 3].map(|device| node.counts(device));
    for when in 1.. {
        let node = &mut stage.node;
        records.restore(node);
        let aside = node.record("damaged", &format!("claims.{}", uid("ghost")));
        let died = dies(node, true, (call, when), |_| aside.exists()).await;
        let at = format!("start over damage, {call} {when}");
        assert!(node.record("claims", &uid("ghost")).exists() != aside.exists(), "{at}: it is kept");
        node.start().await;
        for refused in ["a", "b"] {
            let words = node.refused(refused).await;
            assert!(words.contains("unknown_owner"), "{at}: {words}");
        }
        assert!(!done_or_dead(node, |_| aside.exists()).await);
        assert_eq!(node.records("quarantine").len(), 3, "{at}");
        node.kill();
        node.start().await;
        stage.is_sound(&at).await;
        let node = &mut stage.node;
        assert_eq!([0, 3].map(|device| node.counts(device)), before, "{at}: nobody's device was touched");
        node.kill();
        if !died {
            return when - 1;
        }
    }
    unreachable!()
}

/// Nothing is there yet; how many points there are.
pub(crate) async fn the_first(call: &'static str) -> u32 {
    let mut node = Node::lay(&["reset_ms=1,memory=8192"; 2], Policy::default());
    node.give(&claim("a").on(0).on(1));
    let records = Records::of(&node);
    let mut term = 0;
    for when in 1.. {
        records.restore(&node);
        if !dies(&mut node, true, (call, when), |_| true).await {
            return when - 1;
        }
        let at = format!("first start, {call} {when}");
        let written = read(&node, ".", "store").map_or(0, |record| record["term"].as_u64().unwrap());
        let before = [0, 1].map(|device| node.counts(device));
        (0..2).for_each(|device| node.leave(device, LEFTOVER));
        let nothing = Token { term: 0, epoch: 0 };
        let used = [0, 1].map(|device| token_used(&node, device).unwrap_or(nothing));
        node.start().await;
        node.granted("a").await;
        for device in 0..2 {
            assert!(node.token(device).await > used[device], "{at}");
            let (now, once) = (node.counts(device), more(before[device], 1, 1));
            assert!(now.resets >= once.resets && now.scrubs >= once.scrubs, "{at}: {now:?}");
            assert!(!node.holds(device, LEFTOVER), "{at}");
        }
        let now = node.token(0).await.term;
        assert!(
            now >= term && (written == 0 || now == written),
            "{at}: term {now} after {written} and {term}"
        );
        term = now;
        node.kill();
    }
    unreachable!()
}
