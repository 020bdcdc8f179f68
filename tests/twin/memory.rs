use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use super::{MEMORY, address, twin};

#[test]
fn scrubs_are_counted_without_a_miss_200_times() {
    let twin = twin("");
    for scrubs in 1..=200 {
        twin.session(u8::try_from(scrubs % 255 + 1).unwrap());
        fs::read(twin.path("resource0")).unwrap();
        twin.session(0);
        fs::read(twin.path("resource0")).unwrap();
        assert_eq!(twin.counts().scrubs, scrubs);
    }
}

#[test]
fn scrubs_in_a_row_are_counted_however_late_the_twin_looks() {
    let twin = twin("");
    for scrub in 1..=200_u32 {
        twin.session(u8::try_from(scrub % 255 + 1).unwrap());
        twin.session(0);
    }
    assert_eq!(twin.counts().scrubs, 200);
}

/// A process that forks has a copy of what another thread closes meanwhile, so the kernel reports that close late.
#[test]
fn a_close_that_is_reported_late_changes_no_count() {
    let twin = twin("");
    for scrubs in 1..=20 {
        let fill = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
        fill.write_all_at(&[1; MEMORY], 0).unwrap();
        let zero = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
        zero.write_all_at(&[0; MEMORY / 2], 0).unwrap();
        drop(fill);
        assert_eq!(twin.counts().scrubs, scrubs - 1);
        zero.write_all_at(&[0; MEMORY], 0).unwrap();
        assert_eq!(twin.counts().scrubs, scrubs);
        drop(zero);
        assert_eq!(twin.counts().scrubs, scrubs);
    }
}

#[test]
fn half_a_scrub_is_none() {
    let twin = twin("");
    twin.mount.leave(address(), 4096, b"secret").unwrap();
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "zeroed only");
    twin.session(1);
    twin.mount.leave(address(), 0, b"secret").unwrap();
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "a tenant came between");
    let partly = OpenOptions::new().write(true).open(twin.path("resource0_wc")).unwrap();
    partly.write_all_at(&[1; MEMORY / 2], 0).unwrap();
    drop(partly);
    assert_eq!(twin.counts().scrubs, 0);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0, "filled in part");
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 1);
}

#[test]
fn what_a_tenant_left_survives_a_reset() {
    let twin = twin("");
    twin.mount.leave(address(), 8, b"secret").unwrap();
    twin.reset();
    assert_eq!(&fs::read(twin.path("resource0")).unwrap()[8..14], b"secret");
    assert!(twin.mount.leave(address(), MEMORY as u64 - 5, b"secret").is_err());
}

#[test]
fn dropped_writes_reach_nothing() {
    let twin = twin(",fault=drop-writes");
    twin.mount.leave(address(), 0, b"secret").unwrap();
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 0);
    assert_eq!(&twin.mount.memory(address()).unwrap()[..6], b"secret");
    twin.set(None);
    twin.session(1);
    twin.session(0);
    assert_eq!(twin.counts().scrubs, 1);
}

#[test]
fn a_skipped_fill_leaves_zeros_and_no_scrub() {
    let twin = twin(",fault=skip-fill");
    for _ in 0..20 {
        twin.mount.leave(address(), 0, b"secret").unwrap();
        twin.session(1);
        assert_eq!(twin.counts().scrubs, 0);
        assert_eq!(&twin.mount.memory(address()).unwrap()[..6], b"secret");
        twin.session(0);
        assert_eq!(twin.counts().scrubs, 0);
        assert!(twin.mount.memory(address()).unwrap().iter().all(|byte| *byte == 0));
    }
}
