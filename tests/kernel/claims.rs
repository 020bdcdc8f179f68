//! A client that plays the kubelet, and claims as files.

use std::fs;

use cleanslate::types::Receipt;
use cleanslate::wire::dra::{Claim, NodePrepareResourceResponse};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::function::Function;
use crate::node::{NODE, Node};

impl Node {
    /// The scheduler gives a claim this device.
    pub(crate) fn give(&self, claim: &str, function: Function) {
        let result =
            json!({"request": "r", "driver": "cleanslate.dev", "pool": NODE, "device": function.device()});
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim, "namespace": "tests", "uid": uid(claim)},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "npu.cleanslate.dev"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        });
        fs::write(self.path("claims").join(format!("{claim}.json")), object.to_string()).unwrap();
    }

    /// The kubelet's call for a claim, going on beside the test; `None` where the daemon ends meanwhile.
    pub(crate) fn preparing(&self, claim: &str) -> JoinHandle<Option<NodePrepareResourceResponse>> {
        let (kubelet, claim) = (self.kubelet.clone().unwrap(), reference(claim));
        tokio::spawn(async move { kubelet.prepare(vec![claim.clone()]).await.ok()?.remove(&claim.uid) })
    }

    /// The same, waited for: `Ok` where it was granted, else the words of the refusal.
    pub(crate) async fn prepare(&self, claim: &str) -> Result<(), String> {
        self.answered(claim, self.preparing(claim).await.unwrap().expect("the daemon answers"))
    }

    pub(crate) fn answered(&self, claim: &str, answer: NodePrepareResourceResponse) -> Result<(), String> {
        let cdi = self.path("cdi").join(format!("cleanslate.dev-claim-{}.json", uid(claim)));
        match (answer.error.is_empty(), answer.devices.len(), cdi.exists()) {
            (true, 1, true) => Ok(()),
            (false, 0, false) => Err(answer.error),
            other => panic!("{other:?} {answer:?}"),
        }
    }

    pub(crate) async fn unprepare(&self, claim: &str) {
        let claim = reference(claim);
        let mut answers = self.kubelet.as_ref().unwrap().unprepare(vec![claim.clone()]).await.unwrap();
        assert_eq!(answers.remove(&claim.uid).unwrap().error, "");
    }

    /// What was proved for a granted claim.
    pub(crate) async fn receipt(&self, claim: &str) -> Option<Receipt> {
        let claims = self.status().await.ledger.claims;
        claims.into_iter().find(|view| view.record.claim.name == claim)?.record.devices.pop()?.receipt
    }
}

fn uid(claim: &str) -> String {
    format!("{claim}-4000-8000")
}

fn reference(claim: &str) -> Claim {
    Claim { namespace: "tests".to_owned(), name: claim.to_owned(), uid: uid(claim) }
}
