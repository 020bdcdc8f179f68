//! The commands for people: what they print, where, and how they end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;

use cleanslate::sim::Fault;
use serde_json::Value;

use super::node::{Node, at, claim, name, program, uid, write};

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Device 0 is granted, 1 in quarantine, 2 free.
async fn node() -> Node {
    let node = Node::of(3).await;
    node.give(&claim("a").on(0));
    node.give(&claim("bad").on(1));
    node.granted("a").await;
    node.fault(1, Some(Fault::DropWrites));
    node.refused("bad").await;
    node
}

#[tokio::test]
async fn commands_status_shows_devices_claims_and_proofs() {
    let node = node().await;
    let (code, out, err) = text(&node.cli(&["status"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let token = node.token(0).await;
    for part in ["node-1", "cleanslate.dev", "registered", "SIMULATED"] {
        assert!(out.contains(part), "no {part} in:\n{out}");
    }
    let row = |device: usize| out.lines().find(|line| line.trim_start().starts_with(&name(device))).unwrap();
    assert!(row(0).contains("granted") && row(0).contains("tests/a") && row(0).contains(&token.to_string()));
    assert!(row(1).contains("scrub_verify (needs_reset)") && row(1).contains("offset 0x"), "{}", row(1));
    assert!(row(2).contains("free") && row(2).contains("Z "), "when it was proved: {}", row(2));
    let claim = out.split_once("claim tests/a").unwrap().1;
    // The twin has a link and AER, and both were judged.
    let nothing_of = "says nothing of: on-chip memory, ecc, temperature, nvlink\n";
    for part in ["granted", &name(0), "read back", "131072 bytes written", nothing_of] {
        assert!(claim.contains(part), "no {part} in:\n{claim}");
    }
}

#[tokio::test]
async fn commands_print_json_for_scripts() {
    let node = node().await;
    for arguments in [&["status", "-o", "json"][..], &["status", "--output=json"]] {
        let (code, out, err) = text(&node.cli(arguments));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let status: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&status["node"], &status["simulated"]), (&"node-1".into(), &true.into()));
        let devices = status["devices"].as_array().unwrap();
        let states: Vec<_> = devices.iter().map(|device| device["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["granted", "free", "free"]);
        // As in the help's example for jq.
        let bad: Vec<_> =
            devices.iter().filter(|device| !device["quarantine"].is_null()).map(|it| &it["name"]).collect();
        assert_eq!(bad, [&name(1)]);
        assert_eq!(status["claims"][0]["claim"]["uid"], uid("a"));
        assert!(status["claims"][0]["devices"][0]["receipt"]["digest"].as_str().unwrap().len() == 64);
    }
    for arguments in [["quarantine", "list", "-o", "json"], ["quarantine", "-o", "json", "list"]] {
        let (code, out, _) = text(&node.cli(&arguments));
        assert_eq!(code, Some(0));
        let list: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 1);
        assert_eq!(list[0]["quarantine"]["reason"], "scrub_verify");
    }
}

#[tokio::test]
async fn commands_quarantine_lists_and_releases() {
    let node = node().await;
    let (code, out, _) = text(&node.cli(&["quarantine", "list"]));
    assert_eq!(code, Some(0));
    for part in [&name(1), "scrub_verify (needs_reset)", "since", "offset 0x", "under token", "tried: 0"] {
        assert!(out.contains(part), "no {part} in:\n{out}");
    }
    assert!(!out.contains(&name(0)) && !out.contains(&name(2)), "{out}");

    let release =
        |device: &str| text(&node.cli(&["quarantine", "release", device, "--reason", "looked at it"]));
    for device in ["0000:99:00.0", "pci-0000-99-00-0", "gpu-7", ""] {
        let (code, out, err) = release(device);
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.starts_with("cleanslate: ") && err.contains("`cleanslate status` lists them"), "{err}");
    }
    let (code, _, err) = release(&name(2));
    assert_eq!(code, Some(1));
    assert!(err.contains(&name(2)) && err.contains("is not in quarantine"), "{err}");

    node.fault(1, None);
    let (code, out, err) = release(&at(1).to_string());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains(&at(1).to_string()) && out.contains("proved again"), "{out}");
    let (code, _, _) = release(&at(1).to_string());
    assert_eq!(code, Some(1), "once");
    let (code, out, _) = text(&node.cli(&["quarantine", "list"]));
    assert_eq!((code, out.trim()), (Some(0), "no device is in quarantine"));
}

/// What is kept of a decision says something, and a script gets what it ended.
#[tokio::test]
async fn commands_quarantine_release_wants_words_and_prints_json() {
    let node = node().await;
    for reason in ["", " ", "\t\n"] {
        let (code, out, err) = text(&node.cli(&["quarantine", "release", &name(1), "--reason", reason]));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{reason:?}");
        assert!(err.contains("--reason") && err.contains("a few words"), "{err}");
    }
    assert!(node.device(1).await.quarantine.is_some());
    let (code, out, err) =
        text(&node.cli(&["quarantine", "release", &name(1), "--reason", " looked ", "-o", "json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&answer["device"], &answer["ended"]["reason"]), (&name(1).into(), &"scrub_verify".into()));
    let identity = node.device(1).await.identity;
    let record = std::fs::read_to_string(node.record("devices", identity.as_str())).unwrap();
    assert!(record.contains("\"looked\""), "{record}");
}

/// Whoever is there and cannot be talked to is not nobody.
#[tokio::test]
async fn commands_end_with_1_where_the_daemon_makes_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let status = |run: &Path| text(&program(&["status", "--run"]).arg(run).output().unwrap());
    let (code, _, err) = status(folder.path());
    assert_eq!(code, Some(3), "{err}");
    let daemon = UnixListener::bind(folder.path().join("control.sock")).unwrap();
    let answers = [("", "closed the connection without an answer"), ("{}\n", "does not understand")];
    for (answer, expected) in answers {
        let (code, out, err) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = BufReader::new(daemon.accept().unwrap().0);
                client.read_line(&mut String::new()).unwrap();
                client.get_mut().write_all(answer.as_bytes()).unwrap();
            });
            status(folder.path())
        });
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("control.sock") && err.contains(expected), "{err}");
    }
    let file = folder.path().join("file");
    write(&file, "");
    assert_eq!(status(&file).0, Some(1), "no folder");
}

/// As with `cleanslate status | head -1`, long after head has gone.
#[tokio::test]
async fn commands_end_quietly_where_nobody_reads_on() {
    let node = node().await;
    for command in [&["status"][..], &["status", "-o", "json"], &["quarantine", "list"]] {
        let (unread, out) = std::io::pipe().unwrap();
        drop(unread);
        let ended = program(command).arg("--run").arg(node.path("run")).stdout(out).output().unwrap();
        let (code, _, err) = text(&ended);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{command:?}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = program(&["status"]).arg("--run").arg(node.path("run")).stdout(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "what is lost is said to be");
}

#[tokio::test]
async fn commands_end_with_3_where_no_daemon_answers() {
    let mut node = Node::of(1).await;
    let commands: [&[&str]; 3] =
        [&["status"], &["quarantine", "list"], &["quarantine", "release", "0000:3b:00.0", "--reason", "x"]];
    let silent = |node: &Node| {
        for command in commands {
            let (code, out, err) = text(&node.cli(command));
            assert_eq!((code, out.as_str()), (Some(3), ""), "{command:?}");
            assert!(err.contains("control.sock") && err.contains("cleanslate run"), "{err}");
        }
    };
    assert_eq!(node.cli(&["status"]).status.code(), Some(0));
    node.kill();
    silent(&node);
    node.start().await;
    assert_eq!(node.cli(&["status"]).status.code(), Some(0));
    node.stop().await;
    silent(&node);
}

fn bare(arguments: &[&str]) -> (Option<i32>, String, String) {
    text(&program(arguments).output().unwrap())
}

#[test]
fn commands_end_with_2_when_the_command_line_is_wrong() {
    let wrong: [&[&str]; 9] = [
        &[],
        &["prove"],
        &["status", "--verbose"],
        &["status", "-o", "xml"],
        &["quarantine"],
        &["quarantine", "release", "0000:3b:00.0"],
        &["quarantine", "release", "--reason", "x"],
        &["run"],
        &["run", "--node-name", "n", "--log-level", "loud"],
    ];
    for arguments in wrong {
        let (code, out, err) = bare(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn commands_help_shows_examples_that_can_be_typed() {
    let (code, out, _) = bare(&["--help"]);
    assert_eq!(code, Some(0));
    for part in ["run", "demo", "status", "quarantine", "Exit codes", "no daemon answers"] {
        assert!(out.contains(part), "no {part} in:\n{out}");
    }
    assert!(!out.contains("worker"), "what only the daemon starts is hidden:\n{out}");
    let commands: [&[&str]; 6] = [
        &["run"],
        &["demo"],
        &["status"],
        &["quarantine"],
        &["quarantine", "list"],
        &["quarantine", "release"],
    ];
    for command in commands {
        let (code, out, _) = bare(&[command, &["--help"]].concat());
        assert_eq!(code, Some(0));
        let (_, examples) = out.split_once("Examples:").unwrap_or_else(|| panic!("{command:?}:\n{out}"));
        let example = format!("cleanslate {}", command[0]);
        assert!(examples.lines().any(|line| line.trim_start().starts_with(&example)), "{examples}");
    }
    assert_eq!(bare(&["--version"]).1.trim(), concat!("cleanslate ", env!("CARGO_PKG_VERSION")));
}
