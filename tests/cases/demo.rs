//! `cleanslate demo`, the README's first command: exit code 0 only if every line of it holds.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::program;

fn start(arguments: &[&str]) -> Child {
    let arguments = [&["demo"], arguments].concat();
    program(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Exit code and lines of each, once all have ended: one that is left alone cannot clear its stage.
fn ends<const N: usize>(demos: [Child; N]) -> [(Option<i32>, String); N] {
    let outputs = demos.map(|demo| demo.wait_with_output().unwrap());
    outputs.map(|output| {
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    })
}

/// Two at once, since they share the machine and must share nothing else.
#[test]
fn demo_tells_its_story() {
    for (code, out) in ends([start(&[]), start(&[])]) {
        assert_eq!(code, Some(0), "{out}");
        let mut rest = out.as_str();
        // In this order.
        for line in [
            "Nothing here is hardware",
            "✓ the kubelet finds the driver",
            "✓ each device is reset and wiped once",
            "✓ the last tenant's weights stand in the device's memory: found at",
            "✓ claim tenant-a is prepared",
            "probe",
            "reset",
            "scrub",
            "✓ every byte was overwritten and read back",
            "✓ the last tenant's weights are gone",
            "✓ its CDI file gives the container the device and its token",
            "CLEANSLATE_PCI_0000_3B_00_0=0000:3b:00.0,",
            "✓ a second claim for the same device is refused",
            "tenant-a",
            "✓ a device whose reset hangs costs its claim",
            "reset_timeout",
            "✓ another claim went through meanwhile",
            "✓ the hung device is in quarantine",
            "✓ nobody gets it any more",
            "✓ the pod ends",
            "✓ what the pod left was wiped before the call returned",
            "✓ the device's next tenant gets it under a higher token",
            "Everything above happened as told.",
        ] {
            let (_, after) =
                rest.split_once(line).unwrap_or_else(|| panic!("{line:?} is not told in:\n{out}"));
            rest = after;
        }
        assert!(!out.contains("BROKEN"), "{out}");
        let for_programmers = [" { ", "Counts", "Some(", "[]"];
        assert!(for_programmers.iter().all(|part| !out.contains(part)), "{out}");
    }
}

/// A demo with its own folder of temporary files, and its lines.
fn watched(folder: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = program(&["demo"]);
    command.env("TMPDIR", folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    (demo, lines)
}

/// Processes that were started with this folder in their arguments.
fn processes(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let named = |process: &PathBuf| {
        let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(folder.to_str().unwrap())
    };
    entries.filter(named).collect()
}

#[test]
fn demo_that_is_stopped_leaves_nothing_behind() {
    // At its first line, with a claim granted, and while a reset hangs.
    let moments = ["A simulated node", "tenant-a is prepared", "a second claim"];
    for (signal, moment) in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM].into_iter().zip(moments) {
        let folder = tempfile::tempdir().unwrap();
        let (demo, mut lines) = watched(folder.path());
        lines.find(|line| line.as_ref().unwrap().contains(moment)).unwrap().unwrap();
        assert!(!processes(folder.path()).is_empty());
        kill(Pid::from_raw(demo.id().try_into().unwrap()), signal).unwrap();
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        let ended = demo.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{err}");
        assert!(err.starts_with(&format!("cleanslate: {signal}")), "{err}");
        assert!(rest.iter().all(|line| !line.contains("BROKEN") && !line.contains("as told")), "{rest:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{moment}");
        assert_eq!(processes(folder.path()), [] as [PathBuf; 0], "{moment}");
    }
}

/// `cleanslate demo | head -1`
#[test]
fn demo_that_nobody_reads_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let (demo, mut lines) = watched(folder.path());
    lines.next().unwrap().unwrap();
    drop(lines);
    let ended = demo.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A story that holds whatever the devices do would be worth nothing.
#[test]
fn demo_names_the_line_that_does_not_hold() {
    let twins = [
        ("drop-writes", "claim tenant-a is prepared", "scrub_verify"),
        ("skip-fill", "claim tenant-a is prepared", "scrub_verify"),
        ("no-hang", "a device whose reset hangs costs its claim", "granted"),
    ];
    let told = ends(twins.map(|(twin, _, _)| start(&["--twin", twin])));
    for ((code, out), (twin, broken, seen)) in told.into_iter().zip(twins) {
        assert_eq!(code, Some(1), "{twin}:\n{out}");
        let last = out.lines().last().unwrap();
        assert!(last.starts_with(&format!("✗ BROKEN: {broken}")) && last.contains(seen), "{twin}:\n{out}");
        assert!(!out.contains(&format!("✓ {broken}")), "{twin}:\n{out}");
        assert_eq!(out.matches("BROKEN").count(), 1);
    }
}
