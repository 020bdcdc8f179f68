//! A claim's life: prepared, repeated, released, handed on.

use crate::node::{node, until};
use crate::tenant::{REFUSED, Tenant};

const SECRET: &str = "what the first tenant computed";

#[test]
fn a_pod_runs_with_our_environment() {
    let node = node();
    let before = node.twin.counts();
    let tenant = Tenant::new(&node, "first");
    tenant.pod("pod");
    tenant.running("pod", 60);
    let granted = node.twin.counts();
    assert_eq!(node.cdi_files(), 1);

    node.twin.leave(1 << 20, SECRET);
    assert!(node.memory_holds(SECRET));
    tenant.kubectl("delete pod pod --timeout=60s");
    let released = node.twin.counts();
    println!("  the twin's counts: {before:?}, granted {granted:?}, released {released:?}");
    assert_eq!(granted, before.and(1), "one proof for the grant");
    assert_eq!(released, before.and(2), "one cleaning at release");
    assert!(!node.memory_holds(SECRET), "what the tenant left is gone");
    assert_eq!(node.cdi_files(), 0);
}

#[test]
fn kubelet_restart_and_sandbox_removed_is_the_same_answer() {
    let node = node();
    let tenant = Tenant::new(&node, "again");
    tenant.pod("pod");
    let token = tenant.running("pod", 60);
    let (container, counts, calls) = (tenant.container("pod"), node.twin.counts(), node.prepared());

    node.restart_kubelet();
    let sandbox = node.run("crictl pods --quiet --namespace again --name pod");
    node.run(&format!("crictl stopp {sandbox}"));
    let renewed = until("a new container runs", 120, || {
        tenant.container("pod").filter(|id| Some(id) != container.as_ref())
    });

    let repeated = node.prepared();
    println!("  kubelet log, before: {:?}\n  and again: {:?}", calls.last(), repeated.last());
    assert_eq!(repeated.len(), calls.len() + 1, "prepare was called again");
    assert_eq!(repeated.last(), calls.last(), "with the same answer");
    assert_eq!(tenant.token(&renewed), token);
    assert_eq!(node.twin.counts(), counts, "a device in use is left alone");
}

#[test]
fn second_pod_runs_after_the_first_is_deleted() {
    let node = node();
    let before = node.twin.counts();
    let tenant = Tenant::new(&node, "two");
    tenant.pod("one");
    let first = tenant.running("one", 60);
    tenant.pod("two");
    println!("  {}", tenant.event("two", "cannot allocate all claims", 30));

    tenant.kubectl("delete pod one --wait=false");
    let second = tenant.running("two", 120);
    let counts = node.twin.counts();
    println!("  the twin's counts: {before:?}, then {counts:?}");
    assert!(second > first, "{second:?} is not above {first:?}");
    assert_eq!(counts, before.and(3), "a proof each, and a cleaning in between");
}

#[test]
fn a_force_deleted_pod_is_cleaned_up_after_before_the_next_one_runs() {
    let node = node();
    let before = node.twin.counts();
    let tenant = Tenant::new(&node, "forced");
    tenant.pod("one");
    let first = tenant.running("one", 60);
    node.twin.leave(1 << 20, SECRET);
    tenant.pod("two");

    // The API server forgets the pod while its container still runs, so the scheduler may hand the device on.
    tenant.kubectl("delete pod one --force --grace-period=0 --wait=false");
    let second = tenant.running("two", 240);
    let counts = node.twin.counts();
    println!("  refused meanwhile: {:?}", tenant.events("two", REFUSED));
    println!("  the twin's counts: {before:?}, then {counts:?}");
    assert!(second > first, "{second:?} is not above {first:?}");
    assert_eq!(counts, before.and(3), "a proof each, and a cleaning in between");
    assert!(!node.memory_holds(SECRET), "what the first tenant left is gone");
}

#[test]
fn a_restarted_plugin_knows_what_is_granted() {
    let node = node();
    let before = node.twin.counts();
    let tenant = Tenant::new(&node, "upgrade");
    tenant.pod("pod");
    let token = tenant.running("pod", 60);
    node.restart_plugin();
    assert_eq!(tenant.running("pod", 5), token);
    assert_eq!(node.twin.counts(), before.and(1), "a device in use is left alone");

    tenant.kubectl("delete pod pod --timeout=60s");
    assert_eq!(node.twin.counts(), before.and(2), "the new instance cleans what the old one granted");
}
