//! `cleanslate demo`, the README's first command: exit code 0 only if every line of it holds.

use std::process::{Child, Stdio};

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
    }
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
