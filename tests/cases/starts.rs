//! Starts that cannot be right: each ends with exit code 1 and says what would be right, and disturbs no daemon that
//! runs already.

use std::fs;
use std::path::Path;

use super::node::{Node, Policy, claim, write};

/// A start with some arguments replaced must fail and say all of this.
async fn fails(node: &Node, replaced: &[(&str, &Path)], expected: &[&str]) {
    let (code, words) = node.run_to_its_end(replaced).await;
    assert_eq!(code, Some(1), "{words}");
    assert!(expected.iter().all(|part| words.contains(part)), "{expected:?}: {words}");
    let last = words.lines().last().unwrap();
    let told = last.strip_prefix("cleanslate: ");
    let told = told.unwrap_or_else(|| panic!("for a person, at the end: {words}"));
    let parts = told.split('"').max_by_key(|part| part.len()).unwrap();
    assert_eq!(words.matches(parts).count(), 1, "once: {words}");
}

#[tokio::test]
async fn bad_input_a_folder_that_cannot_be_used_is_named() {
    let node = Node::lay(&[""], Policy::default());
    let file = node.path("file");
    write(&file, "no folder");
    let below = file.join("below");
    let named = file.display().to_string();
    for flag in ["--state", "--run", "--cdi"] {
        for path in [&file, &below] {
            fails(&node, &[(flag, path)], &[&named]).await;
        }
    }
    for path in [&file, &below, &node.path("nowhere")] {
        let path = path.as_path();
        let named = path.display().to_string();
        fails(&node, &[("--claims", path)], &[&named, "--claims must name a folder of ResourceClaims"]).await;
    }
    for (flag, path) in [("--plugins", &file), ("--registry", &below)] {
        fails(&node, &[(flag, path)], &[&named]).await;
    }
    // procfs takes no files, whoever writes.
    let read_only = Path::new("/proc/self/cleanslate");
    fails(&node, &[("--state", read_only)], &["/proc/self/cleanslate", "writable folder"]).await;
    fails(&node, &[("--proc", &below)], &["boot_id", "--proc must name a procfs"]).await;
    // A folder of records has a file in its place.
    let _ = fs::remove_dir(node.path("state/claims"));
    write(&node.path("state/claims"), "no folder");
    fails(&node, &[], &["state/claims", "writable folder"]).await;
    assert_eq!(node.counts(0).resets, 0, "none of them touched the device");
}

#[tokio::test]
async fn bad_input_a_damaged_policy_is_no_policy() {
    let mut node = Node::lay(&[""], Policy::default());
    let good = Policy::default().text();
    let policies = [
        (String::new(), "policy.yaml"),
        ("{".to_owned(), "policy.yaml:1:1: "),
        (good.replace("kind: NodePolicy", "kind: Pod"), "expected NodePolicy"),
        (good.replace("scrub: {bars: [0]}", "scrub: {bars: [9]}"), "there is no BAR 9"),
        (good.replace("1234", "12345"), "no PCI id"),
        (good.replace("release", "realease"), "unknown field"),
        (good[..good.len() / 2].to_owned(), "policy.yaml"),
        (good.replace("firstProofWithin: 0s", "firstProofWithin: soon"), "soon"),
    ];
    for (text, expected) in policies {
        node.policy = Policy::of(&text);
        fails(&node, &[], &["policy file", expected]).await;
    }
    fails(&node, &[("--policy", &node.path("nowhere.yaml"))], &["nowhere.yaml", "--policy must name"]).await;
    assert_eq!(node.counts(0).resets, 0);
}

/// Its own state, sockets or run folder would not be enough: one thing shared with a daemon that runs is too much.
#[tokio::test]
async fn bad_input_a_second_daemon_is_refused_and_touches_nothing() {
    let mut node = Node::lay(&["", ""], Policy::default());
    node.pod_uid = Some("5a4e2f8c-9d1b-4c3a-8e7f-0123456789ab".to_owned());
    node.start().await;
    node.proved().await;
    node.give(&claim("a").on(0));
    let answer = node.granted("a").await;
    let (cdi, counts) = (node.cdi("a"), [node.counts(0), node.counts(1)]);
    let entries = |part: &str| {
        let mut names: Vec<_> =
            fs::read_dir(node.path(part)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (registry, plugins) = (entries("registry"), entries("plugins/cleanslate.dev"));
    let other: Vec<_> = ["s", "r", "p", "q"].map(|part| node.path(part)).to_vec();
    let [state, run, plugins_folder, registry_folder] = &other[..] else { unreachable!() };
    let all = [("--run", run.as_path()), ("--plugins", plugins_folder), ("--registry", registry_folder)];
    fs::create_dir(registry_folder).unwrap();
    let in_use = ["in use by another cleanslate"];
    let taken = ["somebody answers there", "another instance is running"];
    for _ in 0..2 {
        fails(&node, &[], &in_use).await;
        fails(&node, &all, &in_use).await;
        fails(&node, &[("--state", state), ("--run", run)], &taken).await;
        fails(
            &node,
            &[("--state", state), ("--plugins", plugins_folder), ("--registry", registry_folder)],
            &taken,
        )
        .await;
        fails(&node, &[("--state", state), ("--run", run), ("--plugins", plugins_folder)], &taken).await;
        assert_eq!(
            (entries("registry"), entries("plugins/cleanslate.dev")),
            (registry.clone(), plugins.clone())
        );
        assert_eq!(fs::read_dir(registry_folder).unwrap().count(), 0, "no kubelet was called");
        assert_eq!(node.cdi("a"), cdi, "the first daemon's file");
        assert_eq!([node.counts(0), node.counts(1)], counts, "the first daemon's devices");
    }
    assert_eq!(node.granted("a").await, answer);
    node.give(&claim("b").on(1));
    node.granted("b").await;
    node.restart().await;
    assert_eq!(node.granted("a").await, answer);
}
