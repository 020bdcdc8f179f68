//! The reset through config space, on a folder: `flr/body.rs`, which `tests/fuse` runs too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "flr/body.rs"]
mod body;
#[path = "common/traced.rs"]
mod traced;

use std::fs::File;
use std::time::{Duration, Instant};

use cleanslate::sim::Folder as Mount;
use cleanslate::types::Deadline;
use cleanslate::worker::{Command, Outcome, Program, Worker};

/// A step's deadline that a section outlasts.
const STEP: Duration = Duration::from_millis(700);

/// A worker is not killed in a section that it has marked, but not for ever.
#[tokio::test]
async fn a_section_has_an_end_too() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hangs");
    std::os::unix::fs::symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flr/hangs.sh"), &program).unwrap();
    for (marked, from, to) in [(false, 700, 1400), (true, 1500, 6000)] {
        if marked {
            File::create(program.with_extension("marked")).unwrap();
        }
        let mut worker = Worker::start(&Program(program.clone())).unwrap();
        let start = Instant::now();
        let outcome = worker.order(&Command::Probe, Deadline::after(STEP), |_, _| {}).await;
        assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
        assert!((from..to).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
}
