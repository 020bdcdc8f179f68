//! What a device can do wrong in a reset, and which check finds it.

use std::time::{Duration, Instant};

use cleanslate::sim::Fault;
use cleanslate::types::{CONFIG_FLR, Deadline};
use cleanslate::worker::{Code, Outcome, Report};

use super::{LONG, Stage, code, order, repairs};

/// How a reset ends under a fault.
struct Case {
    fault: &'static str,
    /// How long the function may take to answer.
    ready: Duration,
    code: Code,
    /// What the words of that check are.
    found_by: &'static str,
    /// Resets that the twin counts: 0 where it was not begun, or did nothing.
    resets: u32,
    /// Whether the device is as it was, so that no journal is left.
    whole: bool,
}

const SHORT: Duration = Duration::from_millis(300);
/// A step's deadline that a section outlasts, and that leaves time to begin one on a busy machine.
const STEP: Duration = Duration::from_millis(700);

/// | fault          | check that finds it                                     | without it                      |
/// |----------------|---------------------------------------------------------|---------------------------------|
/// | `keep-pending` | Device Status bit 5 before the reset                    | it is reset in the middle of DMA |
/// | `no-reset`     | COMMAND still quiet after the reset                     | passes: all bytes are as before |
/// | `lose-restore` | 4096 bytes compared                                     | the next probe sees the BARs    |
/// | `slow-reset`   | all ones past `ready`                                   | a restore of nobody             |
/// | `retry-status` | ffff0001 past `ready`                                   | a restore of nobody             |
/// | `die-at-reset` | all ones past `ready`                                   | the next probe                  |
/// | `hang-reset`   | all ones past `ready`                                   | the next probe                  |
const CASES: [Case; 7] = [
    Case {
        fault: "keep-pending",
        ready: SHORT,
        code: Code::Pending,
        found_by: "transactions are pending",
        resets: 0,
        whole: true,
    },
    Case {
        fault: "no-reset",
        ready: SHORT,
        code: Code::Ineffective,
        found_by: "had reset nothing",
        resets: 0,
        whole: true,
    },
    Case {
        fault: "lose-restore",
        ready: LONG,
        code: Code::ConfigLost,
        found_by: "0x004 was 0x00100006 and is 0x00100000",
        resets: 1,
        whole: false,
    },
    Case {
        fault: "slow-reset,reset_ms=900",
        ready: SHORT,
        code: Code::NotReady,
        found_by: "does not answer",
        resets: 1,
        whole: false,
    },
    Case {
        fault: "retry-status,reset_ms=900",
        ready: SHORT,
        code: Code::NotReady,
        found_by: "does not answer",
        resets: 1,
        whole: false,
    },
    Case {
        fault: "die-at-reset",
        ready: SHORT,
        code: Code::NotReady,
        found_by: "does not answer",
        resets: 1,
        whole: false,
    },
    Case {
        fault: "hang-reset",
        ready: SHORT,
        code: Code::NotReady,
        found_by: "does not answer",
        resets: 0,
        whole: false,
    },
];

#[tokio::test]
async fn every_fault_is_found_by_its_check() {
    for Case { fault, ready, code: wanted, found_by, resets, whole } in CASES {
        let stage = Stage::with(&format!(",fault={fault}"));
        let (config, settings) = (stage.config(), stage.settings());
        let outcome = stage.reset_by(&order(CONFIG_FLR, ready), LONG).await;
        assert_eq!(code(&outcome), wanted, "{fault}: {outcome:?}");
        assert!(
            matches!(&outcome, Outcome::Failed(it) if it.text.contains(found_by)),
            "{fault}: {outcome:?}"
        );
        assert_eq!(stage.journal().exists(), !whole, "{fault}");
        assert_eq!(stage.config() == config, whole, "{fault}");
        if whole {
            assert_eq!(stage.settings(), settings, "{fault}");
            assert_eq!(stage.resets(), resets, "{fault}");
        } else {
            assert_eq!(stage.settings(), ["flr bus", "on", "0"], "{fault}: kept awake until it is restored");
        }
    }
}

/// The same device a little quicker, or waited for a little longer.
#[tokio::test]
async fn late_is_not_lost() {
    for fault in ["slow-reset,reset_ms=900", "retry-status,reset_ms=900"] {
        let stage = Stage::with(&format!(",fault={fault}"));
        let (config, start) = (stage.config(), Instant::now());
        let outcome = stage.reset().await;
        assert!(matches!(outcome, Outcome::Done(Report::WasReset(_))), "{fault}: {outcome:?}");
        assert!(start.elapsed() > Duration::from_millis(900), "{fault}: {:?}", start.elapsed());
        assert!(stage.config() == config && !stage.journal().exists(), "{fault}");
    }
}

/// Given up, and back before the next worker comes; or not back.
#[tokio::test]
async fn a_device_that_comes_back_later_is_restored_by_the_next_worker() {
    let stage = Stage::with(",fault=slow-reset,reset_ms=3000");
    let (config, settings) = (stage.config(), stage.settings());
    let outcome = stage.reset_by(&order(CONFIG_FLR, Duration::from_millis(100)), LONG).await;
    assert_eq!(code(&outcome), Code::NotReady);

    // As long as it does not answer it stays in quarantine, and the journal stays with it.
    let still = stage.next_worker().await;
    assert_eq!(code(&still), Code::ConfigLost, "{still:?}");
    assert!(stage.journal().exists());

    while stage.config().starts_with(&[0xff; 4]) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(stage.config() != config, "it answers, reset");
    let back = stage.next_worker().await;
    assert!(repairs(&back)[0].contains("20 registers of config space restored"), "{back:?}");
    assert!(stage.config() == config && stage.settings() == settings && !stage.journal().exists());
}

/// The parent's deadline for the step is over long before the reset is: it waits for the section's end.
#[tokio::test]
async fn a_worker_is_not_killed_between_reset_and_restore() {
    let stage = Stage::with(",fault=slow-reset,reset_ms=1500");
    let (config, settings) = (stage.config(), stage.settings());
    let outcome = stage.reset_by(&order(CONFIG_FLR, LONG), STEP).await;
    assert!(matches!(outcome, Outcome::Done(Report::WasReset(_))), "{outcome:?}");
    assert!(stage.settings() == settings && stage.config() == config && !stage.journal().exists());

    stage.fault(Some(Fault::HangReset));
    let outcome = stage.reset_by(&order(CONFIG_FLR, Duration::from_millis(1500)), STEP).await;
    assert_eq!(code(&outcome), Code::NotReady, "{outcome:?}");
    assert!(stage.journal().exists());
}

/// A daemon that is killed in the middle: its worker restores what it has reset, and ends.
#[tokio::test]
async fn an_orphan_restores_before_it_ends() {
    let stage = Stage::with(",reset_ms=400");
    stage.fault(Some(Fault::SlowReset));
    let (config, settings) = (stage.config(), stage.settings());
    let (mut worker, _) = stage.lock().await;
    let reset = order(CONFIG_FLR, Duration::from_secs(5));
    let patience = Duration::from_millis(250);
    let cut = tokio::time::timeout(patience, worker.order(&reset, Deadline::after(LONG), |_, _| {}));
    assert!(cut.await.is_err());
    drop(worker);
    assert!(stage.config() != config);
    let end = Instant::now() + LONG;
    while stage.journal().exists() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(stage.config() == config && stage.settings() == settings);
}
