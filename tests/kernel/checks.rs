//! What held and what did not, a line each.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

/// Begins the last line, which says how many checks held and how many did not.
pub(crate) const END: &str = "END ";
/// For what must happen; far more than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static OK: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// A check; `seen` is told where it does not hold.
pub(crate) fn check(name: &str, holds: bool, seen: impl Debug) {
    if holds {
        OK.fetch_add(1, Ordering::Relaxed);
        println!("ok {name}");
    } else {
        FAILED.fetch_add(1, Ordering::Relaxed);
        println!("FAILED {name}: {seen:?}");
    }
}

/// Runs checks that belong together. One that cannot go on fails; the others are still run.
pub(crate) async fn scenario(name: &str, checks: impl Future<Output = ()>) {
    println!("--- {name}");
    if AssertUnwindSafe(checks).catch_unwind().await.is_err() {
        check(name, false, "it broke off, see above");
    }
}

pub(crate) fn end() {
    println!("{END}{} {}", OK.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed));
}

/// Waits for what comes by itself; panics where it does not come.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    patiently(ask).unwrap_or_else(|| panic!("never: {what}"))
}

/// A check of what comes by itself.
pub(crate) fn becomes(name: &str, mut holds: impl FnMut() -> bool) {
    let came = patiently(|| holds().then_some(())).is_some();
    check(name, came, "never");
}

fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match ask() {
            None if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            answer => return answer,
        }
    }
}
