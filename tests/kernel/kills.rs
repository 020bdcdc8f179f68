//! A worker on real config space that is killed wherever it changes something, and one whose device goes meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use cleanslate::types::{CONFIG_FLR, Deadline, Roots};
use cleanslate::worker::{Bench, Code, Command, Outcome, Program, Report, ResetOrder, Worker};

use crate::checks::{PATIENCE, check, until};
use crate::function::{CARD, DISK, Function};
use crate::machine::Log;
use crate::node::PROGRAM;

/// Settings of the kernel that a reset changes for its time.
const SETTINGS: [&str; 3] = ["reset_method", "power/control", "d3cold_allowed"];

pub(crate) async fn run() {
    fs::create_dir_all("/tmp/kills").unwrap();
    // The card has error reporting and power management, the disk neither.
    wherever(CARD, CONFIG_FLR, "pwrite64", 8).await;
    wherever(DISK, CONFIG_FLR, "pwrite64", 6).await;
    wherever(DISK, CONFIG_FLR, "fsync", 4).await;
    wherever(DISK, CONFIG_FLR, "rename", 2).await;
    wherever(DISK, CONFIG_FLR, "unlink", 1).await;
    wherever(DISK, "flr", "rename", 1).await;
    wherever(DISK, "flr", "unlink", 1).await;
    gone(CARD).await;
}

fn bench(program: Program) -> Bench {
    Bench { program, roots: Roots::default(), run: "/tmp/kills".into() }
}

/// A worker that strace changes.
fn traced(name: &str, arguments: &str) -> (Bench, PathBuf) {
    let path = PathBuf::from("/tmp/kills").join(name);
    let _ = fs::remove_file(&path);
    symlink("/bin/trace.sh", &path).unwrap();
    fs::write(path.with_extension("args"), arguments).unwrap();
    (bench(Program(path.clone())), path.with_extension("trace"))
}

fn reset(method: &str) -> Command {
    Command::Reset(ResetOrder { method: method.to_owned(), ready_ms: 2000, restore_ms: 5000 })
}

/// Locks the device and resets it; the first end that is none of both.
async fn run_worker(bench: &Bench, function: Function, order: Option<Command>) -> Outcome<Report> {
    let mut worker = Worker::start(&bench.program).unwrap();
    let lock = bench.order(function.address(), None, None);
    let mut outcome = Outcome::Crashed(String::new());
    for order in std::iter::once(lock).chain(order) {
        outcome = worker.order(&order, Deadline::after(PATIENCE), |_, _| {}).await;
        if !matches!(outcome, Outcome::Done(_)) {
            break;
        }
    }
    worker.end().await;
    outcome
}

fn state(function: Function) -> (Vec<u8>, [String; 3], bool) {
    let journal = PathBuf::from(format!("/tmp/kills/{}.saved", function.0)).exists();
    (function.config(), SETTINGS.map(|setting| function.text(setting)), journal)
}

/// Kills at each place of one system call; afterwards the next worker must make the device whole.
async fn wherever(function: Function, method: &str, call: &str, least: u32) {
    let name = format!("{} by {method}, killed at every {call}", function.0);
    let honest = bench(Program(PROGRAM.into()));
    let before = state(function);
    let (mut kills, mut changed) = (0, 0);
    loop {
        let arguments = format!("-e trace={call} -e inject={call}:signal=SIGKILL:when={}", kills + 1);
        let (bench, _) = traced("killed", &arguments);
        match run_worker(&bench, function, Some(reset(method))).await {
            Outcome::Done(_) => break,
            Outcome::Crashed(_) => kills += 1,
            other => return check(&name, false, (kills, other)),
        }
        changed += u32::from(function.config() != before.0);
        let next = run_worker(&honest, function, None).await;
        let now = state(function);
        if now != before {
            return check(&name, false, (kills, next, now.1, now.2));
        }
    }
    println!("    {kills} kills, {changed} of which left the device changed");
    let meant = call != "pwrite64" || changed > 3;
    check(&name, kills >= least && meant && state(function) == before, (kills, changed));
}

/// The device goes while it is restored: nothing more is sent after it.
async fn gone(function: Function) {
    let before = state(function);
    let log = Log::now();
    // The first two make it quiet and reset it; the third begins to restore.
    let (bench, trace) = traced("slow", "-e trace=pwrite64 -e inject=pwrite64:delay_enter=2000000:when=3");
    let worker = tokio::spawn(async move { run_worker(&bench, function, Some(reset(CONFIG_FLR))).await });
    until("it is reset", || (log.writes(function).len() >= 2).then_some(()));
    tokio::time::sleep(Duration::from_millis(400)).await;
    function.fall_off_the_bus();
    let outcome = worker.await.unwrap();
    let writes = fs::read_to_string(trace).unwrap().lines().count();
    println!("    {writes} writes, {outcome:?}");
    let lost = matches!(&outcome, Outcome::Failed(failure) if failure.code == Code::Lost);
    check("a device that goes while it is restored is lost", lost, &outcome);
    check("and nothing more is written to where it was", writes <= 3, writes);
    function.come_back();
    let next = run_worker(&super::kills::bench(Program(PROGRAM.into())), function, None).await;
    check("it is restored when it is there again", state(function) == before, (next, state(function).1));
}
