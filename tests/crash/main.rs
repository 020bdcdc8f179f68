//! A node's worst days: the daemon killed at every durable step, a disk that refuses or hangs at every write, workers
//! killed at every step, a storm of callers. The real binary on a simulated node, faults injected from outside; what
//! is counted is counted by the twins.
//!
//! Where strace is missing or may not trace, what needs it says so and injects nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, unused_imports, reason = "tests/cases has a use for all of it")]
#[path = "../common/node.rs"]
mod node;
#[path = "../common/strace.rs"]
mod strace;
#[path = "../common/traced.rs"]
mod traced;

mod census;
mod disk;
mod life;
mod random;
mod stage;
mod starts;
mod storm;
mod workers;

use std::time::Instant;

use cleanslate::sim::Folder as Mount;
use disk::Until;
use tokio::task::JoinHandle;

/// What a killed process was about to do: all states of the disk between two changes are met at an fsync.
const SYNCS: [&str; 1] = ["fsync"];
/// Every system call by which the writer thread changes the disk.
const WRITES: [&str; 5] = ["openat", "write", "fsync", "rename", "unlink"];

/// The runs of a table, side by side; what each covered is printed.
async fn covered(runs: Vec<(String, JoinHandle<u32>)>) -> u32 {
    let (begun, mut all) = (Instant::now(), 0);
    for (name, run) in runs {
        let points = run.await.unwrap();
        println!("{name}: {points} points");
        all += points;
    }
    println!("{all} points in {:.1} s", begun.elapsed().as_secs_f64());
    all
}

async fn table(calls: &[&'static str]) -> u32 {
    let mut runs = Vec::new();
    for call in calls {
        runs.push((
            format!("start over half-done records, {call}"),
            tokio::spawn(starts::over_half_done(true, call)),
        ));
        runs.push((format!("prepare and unprepare, {call}"), tokio::spawn(life::of_a_claim(true, call))));
        runs.push((
            format!("refused prepare and lifted quarantine, {call}"),
            tokio::spawn(life::of_a_quarantine(call)),
        ));
        runs.push((format!("start over a damaged record, {call}"), tokio::spawn(starts::over_damage(call))));
        runs.push((format!("first start, {call}"), tokio::spawn(starts::the_first(call))));
        runs.push((format!("prepare after a reboot, {call}"), tokio::spawn(life::after_a_reboot(call))));
    }
    covered(runs).await
}

/// Derived files are made by other threads than the one that writes records.
async fn derived() -> u32 {
    let mut runs = Vec::new();
    for call in ["fchmod", "rename", "unlink"] {
        runs.push((
            format!("CDI file, prepare and unprepare, {call}"),
            tokio::spawn(life::of_a_claim(false, call)),
        ));
        runs.push((
            format!("CDI files at a start, {call}"),
            tokio::spawn(starts::over_half_done(false, call)),
        ));
    }
    covered(runs).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_sync_of_a_record() {
    if traced::works() {
        assert!(table(&SYNCS).await >= 57);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_change_of_a_derived_file() {
    if traced::works() {
        assert!(derived().await >= 12);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: every system call of the writer thread, one by one"]
async fn killed_at_every_call_of_the_writer() {
    if traced::works() {
        assert!(table(&WRITES).await >= 270);
    }
}

#[tokio::test]
async fn a_prepare_without_its_derived_files_is_undone() {
    if traced::works() {
        tokio::join!(life::without_derived_files("fchmod"), life::without_derived_files("rename"));
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_repeated_from_the_record() {
    life::an_answer_is_lost().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_at_every_call_of_its_own() {
    if traced::works() {
        let runs = ["write", "pwrite64", "fsync", "rename", "unlink"];
        let runs = runs.map(|call| (format!("worker, {call}"), tokio::spawn(workers::at_every(call))));
        assert!(covered(runs.into()).await >= 30);
    }
}

async fn refusals(faults: &[(&'static str, &'static str, Until)]) -> u32 {
    let run = |(call, error, until)| {
        (format!("disk, {call}: {error}, {until:?}"), tokio::spawn(disk::refuses(call, error, until)))
    };
    covered(faults.iter().copied().map(run).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_refuses_at_every_write() {
    if traced::works() {
        let faults = [("openat", "ENOSPC", Until::Unprepared), ("fsync", "EIO", Until::Once)];
        assert!(refusals(&faults).await >= 20);
    }
}

#[tokio::test]
async fn a_full_disk_below_the_log_stops_nothing() {
    disk::takes_no_log().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: every system call of the writer thread and every error"]
async fn a_disk_that_refuses_at_every_call() {
    if traced::works() {
        let mut faults = Vec::new();
        for until in [Until::Once, Until::Unprepared, Until::Killed] {
            for (call, errors) in [
                ("openat", &["ENOSPC", "EROFS"][..]),
                ("fsync", &["ENOSPC", "EIO"]),
                ("rename", &["EIO", "EROFS"]),
                ("unlink", &["EIO", "EROFS"]),
            ] {
                faults.extend(errors.iter().map(|error| (call, *error, until)));
            }
        }
        assert!(refusals(&faults).await >= 165);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: the disk hangs for 25 s"]
async fn a_disk_that_hangs_is_waited_for_within_the_bound() {
    if traced::works() {
        // Before the claim is leased, and before it is granted.
        tokio::join!(disk::hangs(1), disk::hangs(3));
    }
}

/// The seed that the environment gives, or another one each time.
fn seed() -> u64 {
    let given = std::env::var("CLEANSLATE_STORM_SEED").ok().map(|seed| seed.parse().unwrap());
    given.unwrap_or_else(|| std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_of_500_calls() {
    storm::rages(500, seed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "`tests/run storm`: takes minutes"]
async fn storm_of_20000_calls() {
    let calls = std::env::var("CLEANSLATE_STORM_CALLS").ok();
    storm::rages(calls.map_or(20_000, |calls| calls.parse().unwrap()), seed()).await;
}
