//! What a pod's status says of its device.

use serde_json::Value;

use crate::node::{node, until};
use crate::tenant::Tenant;
use crate::twin::ADDRESS;

#[test]
fn a_pod_shows_the_health_of_its_device() {
    let node = node();
    let tenant = Tenant::new(&node, "health");
    tenant.pod("pod");
    let token = tenant.running("pod", 60);
    // What the kubelet knows of the one device of the one claim of the one container.
    let shown = |pod: &str| -> Option<(String, String)> {
        let pod = tenant.kubectl(&format!("get pod {pod} -o yaml"));
        let pod: Value = serde_saphyr::from_str(&pod).expect("kubectl prints YAML");
        let claim = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
        let device = &claim["resources"][0];
        let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        claim["name"].as_str().filter(|name| name.starts_with("claim:accelerator"))?;
        device["resourceID"].as_str().filter(|id| id.starts_with("cleanslate.dev/claim="))?;
        Some((words(&device["health"]), words(&device["message"])))
    };
    let becomes = |pod: &str, health: &str| {
        let what = format!("kubectl get pod {pod} -o yaml says {health}");
        until(&what, 60, || shown(pod).filter(|(now, _)| now == health))
    };
    becomes("pod", "Healthy");

    node.twin.fault("dead");
    let (_, message) = becomes("pod", "Unhealthy");
    println!("  {message}");
    assert!(message.contains("fell_off_bus (needs_power_cycle)"), "{message}");
    let container = tenant.container("pod").expect("a pod that runs on it goes on");
    assert_eq!(tenant.token(&container), token);

    node.twin.fault("none");
    tenant.kubectl("delete pod pod --timeout=60s");
    node.cleanslate(&format!("quarantine release {ADDRESS} --reason tested"));
    until("the device is offered again", 60, || {
        node.devices().iter().all(|(_, taints)| taints.is_empty()).then_some(())
    });
    tenant.pod("next");
    tenant.running("next", 60);
    becomes("next", "Healthy");
}
