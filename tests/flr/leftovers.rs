//! What the next worker does about a journal that it finds.

use std::fs;

use cleanslate::pci::config_space::ConfigSpace;
use cleanslate::pci::saved::{Journal, Saved};
use cleanslate::pci::sysfs::Function;
use cleanslate::sim::Fault;
use cleanslate::types::CONFIG_FLR;
use cleanslate::worker::{Code, Outcome};

use super::{LONG, Stage, address, code, order, poke, put, repairs, roots};

const DEVICE_CONTROL: u64 = 0x68;

/// Leaves what a worker leaves that is killed before, or after, its reset.
pub(super) fn killed(stage: &Stage, after_reset: bool) {
    let function = Function::at(&roots(stage), address());
    let boot = fs::read_to_string(roots(stage).boot_id()).unwrap().trim().to_owned();
    let mut saved = Saved::of(&function, boot, std::time::Duration::from_millis(500)).unwrap();
    saved.config = Some(ConfigSpace::read(&function).unwrap());
    Journal::of(&stage.bench.run, address()).write(&saved).unwrap();
    saved.keep_awake(&function).unwrap();
    if after_reset {
        let before = stage.resets();
        poke(stage, DEVICE_CONTROL, &[0x1f, 0xa8]);
        while stage.resets() == before {
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn what_was_reset_is_restored_and_what_was_not_is_left() {
    for after_reset in [false, true] {
        let stage = Stage::with("");
        let (config, settings) = (stage.config(), stage.settings());
        killed(&stage, after_reset);
        assert_eq!(stage.config() != config, after_reset);
        let outcome = stage.next_worker().await;
        let lost = if after_reset { "20 registers" } else { "0 registers" };
        assert!(repairs(&outcome)[0].contains(lost), "{outcome:?}");
        assert!(stage.config() == config && stage.settings() == settings && !stage.journal().exists());
        assert!(repairs(&stage.next_worker().await).is_empty());
    }
}

#[tokio::test]
async fn what_does_not_answer_keeps_its_journal() {
    let stage = Stage::with("");
    killed(&stage, true);
    stage.fault(Some(Fault::Dead));
    let outcome = stage.next_worker().await;
    assert_eq!(code(&outcome), Code::ConfigLost, "{outcome:?}");
    assert!(stage.journal().exists());
}

#[tokio::test]
async fn a_damaged_journal_is_never_taken_for_none() {
    let stage = Stage::with("");
    killed(&stage, true);
    let mut bytes = fs::read(stage.journal()).unwrap();
    bytes[300] ^= 1;
    put(&stage.journal(), &bytes);
    let outcome = stage.next_worker().await;
    assert_eq!(code(&outcome), Code::ConfigLost, "{outcome:?}");
    assert!(matches!(&outcome, Outcome::Failed(it) if it.text.contains("is damaged")), "{outcome:?}");
    assert!(stage.journal().exists());
}

/// What was saved must never be written over what somebody else has set up since.
#[tokio::test]
async fn a_journal_that_time_has_passed_is_dropped() {
    let rebooted = Stage::with("");
    killed(&rebooted, true);
    rebooted.mount.reboot().unwrap();
    let replaced = Stage::with("");
    killed(&replaced, true);
    replaced.mount.replace(address(), 0xbeef).unwrap();
    let driven = Stage::with("");
    killed(&driven, false);
    driven.mount.bind(address(), Some("nvme")).unwrap();
    let moved = Stage::with("");
    killed(&moved, false);
    moved.mount.reassign(address()).unwrap();
    for (stage, why) in [
        (rebooted, "before the node rebooted"),
        (replaced, "another card is there now"),
        (driven, "driver nvme has set the device up anew"),
        (moved, "the kernel has set the device up anew"),
    ] {
        let config = stage.config();
        let outcome = stage.next_worker().await;
        assert!(repairs(&outcome)[0].contains(why), "{why}: {outcome:?}");
        assert!(stage.config() == config && !stage.journal().exists(), "{why}");
    }
}

#[tokio::test]
async fn under_a_driver_nothing_is_written_and_what_is_lost_is_told() {
    let stage = Stage::with("");
    killed(&stage, true);
    stage.mount.bind(address(), Some("nvme")).unwrap();
    let config = stage.config();
    let outcome = stage.next_worker().await;
    assert_eq!(code(&outcome), Code::ConfigLost, "{outcome:?}");
    assert!(matches!(&outcome, Outcome::Failed(it) if it.text.contains("BAR0 holds 0x0")), "{outcome:?}");
    assert!(stage.config() == config && stage.journal().exists());
}

#[tokio::test]
async fn a_device_that_is_gone_may_come_back_to_its_journal() {
    let stage = Stage::with("");
    killed(&stage, true);
    stage.mount.remove(address()).unwrap();
    assert!(repairs(&stage.next_worker().await).is_empty());
    assert!(stage.journal().exists());
}

/// The kernel's reset hangs, the worker is killed, and the list of methods stays pinned until the next one comes.
#[tokio::test]
async fn a_pin_that_was_left_is_taken_off() {
    let stage = Stage::with(",fault=hang-reset");
    let before = stage.settings();
    let outcome = stage.reset_by(&order("flr", LONG), std::time::Duration::from_secs(2)).await;
    assert!(matches!(outcome, Outcome::TimedOut | Outcome::Stuck { .. }), "{outcome:?}");
    assert_eq!(stage.settings(), ["flr", "on", "0"]);
    assert!(stage.journal().exists());
    // A worker that is stuck keeps the lock until the kernel lets go.
    stage.fault(None);
    let outcome = stage.next_worker().await;
    assert!(
        repairs(&outcome)[0].contains("reset_method, power/control, d3cold_allowed put back"),
        "{outcome:?}"
    );
    assert_eq!(stage.settings(), before);
    assert!(!stage.journal().exists());

    let outcome = stage.reset_by(&order("flr", LONG), LONG).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let outcome = stage.reset_by(&order(CONFIG_FLR, LONG), LONG).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(stage.settings(), before);
}
