//! What is the folder's alone.

use std::fs;
use std::thread;
use std::time::Duration;

use cleanslate::sim::{DeviceSpec, Fault};

use super::Mount;
use super::body::{address, twin, until};

#[test]
fn a_hung_reset_never_returns_and_counts_nothing() {
    let twin = twin(",fault=hang-reset");
    let mut writer = twin.writer();
    thread::park_timeout(Duration::from_millis(200));
    assert!(writer.try_wait().unwrap().is_none());
    writer.kill().unwrap();
    writer.wait().unwrap();
    twin.set(None);
    assert_eq!(twin.resets(), 0);
    twin.reset();
    assert_eq!(twin.resets(), 1);
}

#[test]
fn counts_reach_the_file_unasked() {
    let twin = twin("");
    twin.session(1);
    twin.session(0);
    let counts = twin.root.path().join("counts.json");
    until("counted", || {
        fs::read_to_string(&counts).unwrap() == r#"{"0000:3b:00.0":{"resets":0,"scrubs":1}}"#
    });
}

#[test]
fn a_reset_is_on_record_before_its_writer_goes_on() {
    let twin = twin("");
    for resets in 1..=20 {
        twin.reset();
        let recorded = fs::read_to_string(twin.root.path().join("counts.json")).unwrap();
        assert_eq!(recorded, format!(r#"{{"0000:3b:00.0":{{"resets":{resets},"scrubs":0}}}}"#));
    }
}

#[test]
fn what_a_folder_cannot_show_is_refused() {
    let twin = twin("");
    for fault in Fault::all() {
        let set = twin.mount.set_fault(address(), Some(fault));
        let root = tempfile::tempdir().unwrap();
        let made =
            Mount::create(root.path(), vec![DeviceSpec { fault: Some(fault), ..DeviceSpec::new(address()) }]);
        for error in [set.err(), made.err()] {
            assert_eq!(error.is_some(), fault.needs_fuse(), "{fault:?}: {error:?}");
            assert!(error.is_none_or(|error| error.to_string().contains("tests/fuse")));
        }
    }
}
