//! SIGKILL of the worker wherever something has changed or is about to.

use std::os::unix::fs::symlink;

use cleanslate::types::CONFIG_FLR;
use cleanslate::worker::{Outcome, Program};

use super::{LONG, Stage, order, put, repairs};
use crate::traced;

/// System calls by which a worker changes the device, its settings or the journal, or waits in between. A kill comes
/// at the beginning of one, so all states that one can be in are met: reads change none.
const CALLS: [&str; 6] = ["pwrite64", "write", "fsync", "rename", "clock_nanosleep", "unlink"];

/// A program that runs the worker and kills it at its `when`th `call`.
fn killer(stage: &Stage, call: &str, when: u32) -> Program {
    let path = stage.root.path().join(format!("killer-{when}"));
    // Never written, so that no process that forks just then keeps it busy.
    symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flr/killer.sh"), &path).unwrap();
    let arguments = format!("{call} {when} {}\n", env!("CARGO_BIN_EXE_cleanslate"));
    put(&path.with_extension("args"), arguments.as_bytes());
    Program(path)
}

/// Kills at each of one call's places; how many there are.
async fn at_every(call: &'static str, method: &'static str) -> u32 {
    for when in 1.. {
        let mut stage = Stage::with("");
        let (config, settings) = (stage.config(), stage.settings());
        let killer = killer(&stage, call, when);
        let honest = std::mem::replace(&mut stage.bench.program, killer);
        let (mut worker, locked) = stage.lock().await;
        let outcome = match locked {
            Outcome::Done(_) => {
                let deadline = cleanslate::types::Deadline::after(LONG);
                worker.order(&order(method, LONG), deadline, |_, _| {}).await.map(drop)
            }
            other => other.map(drop),
        };
        worker.end().await;
        stage.bench.program = honest;
        let at = format!("{method}: {call} {when}: {outcome:?}");
        match outcome {
            Outcome::Done(()) => return when - 1,
            Outcome::Crashed(_) => {}
            other => panic!("{at}, {other:?}"),
        }
        let next = stage.next_worker().await;
        assert!(repairs(&next).len() <= 2, "{at}, {next:?}");
        assert!(stage.config() == config, "{at}, {next:?}");
        assert_eq!(stage.settings(), settings, "{at}, {next:?}");
        assert!(!stage.journal().exists(), "{at}, {next:?}");
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn wherever_it_is_killed_the_next_worker_finds_the_device_whole_or_makes_it() {
    if !traced::works() {
        return;
    }
    let mut runs = Vec::new();
    for call in CALLS {
        for method in [CONFIG_FLR, "flr"] {
            runs.push((method, call, tokio::spawn(at_every(call, method))));
        }
    }
    for (method, call, run) in runs {
        let places = run.await.unwrap();
        println!("{method}: {places} places at {call}");
        let least = match (method, call) {
            (CONFIG_FLR, "pwrite64") => 20,
            (CONFIG_FLR, "fsync") => 4,
            (CONFIG_FLR, "rename") => 2,
            (CONFIG_FLR, "clock_nanosleep") | (_, "unlink") => 1,
            (_, "write") => 6,
            (_, "fsync") => 2,
            (_, "rename") => 1,
            _ => 0,
        };
        assert!(places >= least, "{method}: {places} places at {call}");
    }
}
