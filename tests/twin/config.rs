use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use cleanslate::sim::Fault;

use super::{MEMORY, Twin, twin, until};

const COMMAND: usize = 0x04;

const DEVICE_CONTROL: usize = 0x68;

/// Writes to config space, as `setpci` does.
fn poke(twin: &Twin, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(twin.path("config")).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// Initiates a function level reset and waits until config space shows that it is over.
fn reset_by_config(twin: &Twin) {
    let before = twin.resets();
    poke(twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
    until("reset", || twin.resets() > before);
}

#[test]
fn a_dead_device_reads_all_ones_but_keeps_what_the_kernel_cached() {
    let twin = twin("");
    let healthy = twin.config();
    twin.set(Some(Fault::Dead));
    assert_eq!(twin.config(), [0xff; 4096]);
    assert_eq!((twin.text("vendor"), twin.text("current_link_width")), ("0x1234\n".into(), "63\n".into()));
    twin.set(None);
    assert_eq!((twin.config(), twin.text("current_link_width")), (healthy, "16\n".into()));
}

#[test]
fn what_a_reset_breaks_is_broken_when_it_returns() {
    let twin = twin(",fault=die-at-reset");
    assert_ne!(twin.config(), [0xff; 4096]);
    twin.reset();
    assert_eq!(twin.config(), [0xff; 4096]);
    twin.set(Some(Fault::BarsLost));
    let (before, resource) = (twin.config(), twin.text("resource"));
    twin.reset();
    let after = twin.config();
    assert_eq!((&after[4..6], &after[0x10..0x28]), (&[0; 2][..], &[0; 24][..]));
    assert_eq!((&after[..4], &after[0x28..]), (&before[..4], &before[0x28..]));
    assert_eq!(twin.text("resource"), resource);
}

#[test]
fn a_reset_by_config_write_is_seen_each_of_500_times() {
    let twin = twin(",reset_ms=1");
    let healthy = twin.config();
    for resets in 1..=500 {
        poke(&twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
        until("reset", || {
            let config = twin.config();
            config[..4] == healthy[..4] && config[DEVICE_CONTROL..DEVICE_CONTROL + 2] == [0x10, 0x28]
        });
        assert_eq!(twin.resets(), resets);
    }
}

#[test]
fn a_reset_by_config_write_takes_what_the_specification_says() {
    let twin = twin("");
    let healthy = twin.config();
    reset_by_config(&twin);
    let after = twin.config();
    assert_eq!((&after[COMMAND..COMMAND + 2], &after[0x14..0x18]), (&[0; 2][..], &[0; 4][..]));
    assert_eq!(after[0x10], 0x0c, "what the BAR is cannot be written");
    assert_eq!((after[0xa3], after[0x3c]), (0, 0), "MSI-X, interrupt line");
    assert_eq!(after[0x70..0x74], healthy[0x70..0x74], "the link goes on");
    assert_eq!((&after[..4], &after[0x140..0x14c]), (&healthy[..4], &healthy[0x140..0x14c]));
    for (at, was) in healthy.iter().enumerate().filter(|(at, was)| after[*at] != **was) {
        poke(&twin, at, &[*was]);
    }
    twin.resets();
    assert_eq!(twin.config(), healthy, "all of it can be restored");
}

#[test]
fn what_cannot_be_written_comes_back() {
    let twin = twin("");
    let healthy = twin.config();
    for (at, bytes) in [(0x00, &[0; 4][..]), (0x06, &[0xff; 2]), (0x34, &[0]), (0x64, &[0; 4]), (0x800, &[1])]
    {
        poke(&twin, at, bytes);
        until("undone", || twin.config() == healthy);
    }
}

#[test]
fn not_ready_is_all_ones_or_retry_status() {
    for (fault, first) in [("slow-reset", [0xff; 4]), ("retry-status", [0x01, 0x00, 0xff, 0xff])] {
        let twin = twin(&format!(",fault={fault},reset_ms=300"));
        let healthy = twin.config();
        poke(&twin, DEVICE_CONTROL, &[0x1f, 0xa8]);
        until("reset", || twin.config()[..4] == first);
        assert_eq!(twin.config()[4..], [0xff; 4092]);
        assert_eq!(twin.resets(), 0);
        until("ready", || twin.config()[..4] == healthy[..4]);
        assert_eq!(twin.resets(), 1);
    }
}

#[test]
fn a_lost_restore_a_reset_that_is_none_and_a_pending_transaction() {
    let lost = twin(",fault=lose-restore");
    let file = OpenOptions::new().read(true).write(true).open(lost.path("config")).unwrap();
    reset_by_config(&lost);
    file.write_all_at(&[0x06, 0x00], COMMAND as u64).unwrap();
    assert_eq!(lost.config()[COMMAND], 0, "whoever had it open writes to nobody");
    poke(&lost, COMMAND, &[0x06]);
    until("undone", || lost.config()[COMMAND] == 0);

    let none = twin(",fault=no-reset");
    let healthy = none.config();
    poke(&none, DEVICE_CONTROL, &[0x1f, 0xa8]);
    until("taken", || none.config() == healthy);
    assert_eq!(none.resets(), 0);

    let pending = twin(",fault=keep-pending");
    assert_eq!(pending.config()[0x6a], 1 << 5);
    reset_by_config(&pending);
    assert_eq!(pending.config()[0x6a], 1 << 5);
}

#[test]
fn config_space_agrees_with_the_attributes() {
    let twin = twin(",vendor=10de,device=0x2330,class=030200,serial=123456789abcdef0");
    let config = twin.config();
    let dword = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    assert_eq!(config.len(), 4096);
    assert_eq!((dword(0), dword(8)), (0x2330_10de, 0x0302_0001));
    assert_eq!((twin.text("vendor"), twin.text("device")), ("0x10de\n".into(), "0x2330\n".into()));
    assert_eq!(twin.text("class"), "0x030200\n");
    let bar = u64::from(dword(0x14)) << 32 | u64::from(dword(0x10) & !0xf);
    let first = format!("{bar:#018x} {:#018x} 0x000000000014220c", bar + MEMORY as u64 - 1);
    let resource = twin.text("resource");
    assert_eq!((resource.lines().count(), resource.lines().next().unwrap()), (13, &*first));
    let (mut capabilities, mut at) = (vec![], usize::from(config[0x34]));
    while at != 0 {
        capabilities.push(config[at]);
        at = usize::from(config[at + 1]);
    }
    assert_eq!(capabilities, [0x01, 0x05, 0x10, 0x11]);
    assert_eq!((dword(0x60) >> 16 & 0xf, dword(0x64) >> 28 & 1), (2, 1), "version 2, FLR");
    assert_eq!((dword(0x100), dword(0x104), dword(0x110)), (0x1402_0001, 0, 0), "AER, clean");
    assert_eq!((dword(0x140), dword(0x144), dword(0x148)), (0x1501_0003, 0x9abc_def0, 0x1234_5678));
    assert_eq!(twin.text("aer_dev_fatal").lines().last(), Some("TOTAL_ERR_FATAL 0"));
    assert!(!twin.path("driver").exists());
}
