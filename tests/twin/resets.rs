use std::thread;
use std::time::{Duration, Instant};

use cleanslate::sim::DeviceSpec;

use super::{reset, twin};
use crate::Mount;

#[test]
fn a_writer_waits_until_the_reset_is_done() {
    let twin = twin(",reset_ms=100");
    let took = twin.reset();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert_eq!(twin.resets(), 1);
}

#[test]
fn each_of_many_writers_waits_for_its_own_reset() {
    let twin = twin(",reset_ms=2");
    for resets in 1..=200 {
        assert!(twin.reset() >= Duration::from_millis(2));
        assert_eq!(twin.resets(), resets);
    }
}

#[test]
fn writers_at_once_all_get_through_and_none_early() {
    let twin = twin(",reset_ms=5");
    for _ in 0..20 {
        let paths: Vec<_> = (0..8).map(|_| twin.path("reset")).collect();
        let before = twin.resets();
        let writers: Vec<_> = paths.into_iter().map(|path| thread::spawn(move || reset(&path))).collect();
        for writer in writers {
            assert!(writer.join().unwrap() >= Duration::from_millis(5));
        }
        let resets = twin.resets() - before;
        assert!((1..=8).contains(&resets), "{resets}");
    }
}

#[test]
fn devices_reset_side_by_side() {
    let root = tempfile::tempdir().unwrap();
    let spec = |n: u32| -> DeviceSpec { format!("0000:0{n}:00.0,memory=4096,reset_ms=200").parse().unwrap() };
    let mount = Mount::create(root.path(), (0..8).map(spec).collect()).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        for n in 0..8 {
            let path = mount.roots().pci_device(spec(n).address).join("reset");
            scope.spawn(move || reset(&path));
        }
    });
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
}

#[test]
fn a_killed_writer_leaves_nothing_behind() {
    let twin = twin(",reset_ms=50");
    for round in 1..=20 {
        let mut writer = twin.writer();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(twin.reset() >= Duration::from_millis(50));
        assert_eq!(twin.resets(), 2 * round, "the hardware finishes what was begun");
    }
}

#[test]
fn clearing_a_hang_lets_the_writer_go() {
    let twin = twin(",fault=hang-reset");
    let mut writer = twin.writer();
    thread::park_timeout(Duration::from_millis(200));
    assert!(writer.try_wait().unwrap().is_none());
    assert_eq!(twin.resets(), 0);
    twin.set(None);
    assert!(writer.wait().unwrap().success());
    assert_eq!(twin.resets(), 1);
}

#[test]
fn a_slow_reset_takes_what_the_spec_says() {
    let twin = twin(",fault=slow-reset,reset_ms=300");
    assert!(twin.reset() >= Duration::from_millis(300));
}

#[test]
fn dropping_the_mount_ends_it_at_once_and_frees_writers() {
    let twin = twin(",fault=hang-reset");
    let mut writer = twin.writer();
    let begun = Instant::now();
    drop(twin.mount);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(!writer.wait().unwrap().success());
}
