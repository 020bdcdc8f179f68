//! The kubelet's calls.

use std::fs;
use std::path::PathBuf;

use cleanslate::sim::kubelet::Kubelet;
use cleanslate::wire::dra::{Claim, Device, NodePrepareResourceResponse};
use tokio::task::JoinHandle;

use super::{ClaimFile, DRIVER, Killer, Node, claim_of, reference, uid, write};

impl Node {
    /// Writes a claim's file, as the API server would show the claim.
    pub(crate) fn give(&self, claim: &ClaimFile) {
        let path = self.path("claims").join(format!("{}.json", claim.name()));
        let draft = path.with_extension("draft");
        write(&draft, &claim.object().to_string());
        fs::rename(draft, path).unwrap();
    }

    fn kubelet(&self) -> &Kubelet {
        self.kubelet.as_ref().unwrap()
    }

    /// What the kubelet gets for one claim.
    pub(crate) async fn prepare(&self, name: &str) -> NodePrepareResourceResponse {
        ask(self.kubelet().clone(), reference(name)).await
    }

    /// The same, going on beside the test.
    pub(crate) fn preparing(&self, name: &str) -> JoinHandle<NodePrepareResourceResponse> {
        tokio::spawn(ask(self.kubelet().clone(), reference(name)))
    }

    /// Several claims in one call, in this order; `None` for a call that broke off.
    pub(crate) async fn call(&self, claims: Vec<Claim>) -> Option<Vec<NodePrepareResourceResponse>> {
        let uids: Vec<_> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let mut answers = self.kubelet().prepare(claims).await.ok()?;
        Some(uids.iter().map(|uid| answers.remove(uid).unwrap()).collect())
    }

    /// It must be granted; its devices as the kubelet is told of them.
    pub(crate) async fn granted(&self, name: &str) -> Vec<Device> {
        self.is_granted(name, self.prepare(name).await)
    }

    pub(crate) fn is_granted(&self, name: &str, answer: NodePrepareResourceResponse) -> Vec<Device> {
        assert_eq!(answer.error, "", "{}", self.told());
        assert!(!answer.devices.is_empty() && self.cdi(name).is_some(), "{answer:?}");
        answer.devices
    }

    /// It must be refused, which leaves neither CDI file nor lease; the words.
    pub(crate) async fn refused(&self, name: &str) -> String {
        self.is_refused(name, self.prepare(name).await).await
    }

    pub(crate) async fn is_refused(&self, name: &str, answer: NodePrepareResourceResponse) -> String {
        assert!(!answer.error.is_empty() && answer.devices.is_empty(), "{answer:?}");
        assert_eq!(self.cdi(name), None, "{}", answer.error);
        let status = self.status().await;
        let left = claim_of(&status, name);
        assert!(left.is_none() && !self.record("claims", &uid(name)).exists(), "{left:?}");
        answer.error
    }

    /// It must succeed, as it always can, and leaves no CDI file.
    pub(crate) async fn unprepared(&self, name: &str) {
        self.unprepared_only(name).await;
        assert_eq!(self.cdi(name), None);
    }

    /// The same, for a claim that is prepared again at once.
    pub(crate) async fn unprepared_only(&self, name: &str) {
        let claim = reference(name);
        let mut answers = self.kubelet().unprepare(vec![claim.clone()]).await.unwrap();
        assert_eq!(answers.remove(&claim.uid).unwrap().error, "");
    }

    /// Prepared and unprepared by a daemon that may be shot meanwhile; whoever asks finds out from the records.
    pub(crate) async fn used_by(&self, name: &str, killer: &mut Killer) {
        let kubelet = self.kubelet();
        let prepared = kubelet.prepare(vec![reference(name)]).await.is_ok();
        if prepared && !killer.has_shot() {
            let _ = kubelet.unprepare(vec![reference(name)]).await;
        }
    }

    /// Prepared and, where it is granted, unprepared by a daemon that may die meanwhile.
    pub(crate) async fn used(&self, name: &str) {
        let answers = self.call(vec![reference(name)]).await;
        if answers.is_some_and(|answers| answers[0].error.is_empty()) {
            let _ = self.kubelet().unprepare(vec![reference(name)]).await;
        }
    }

    pub(crate) fn cdi_path(&self, name: &str) -> PathBuf {
        self.path("cdi").join(format!("{DRIVER}-claim-{}.json", uid(name)))
    }

    /// What stands in the claim's CDI file.
    pub(crate) fn cdi(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.cdi_path(name)).ok()
    }
}

async fn ask(kubelet: Kubelet, claim: Claim) -> NodePrepareResourceResponse {
    let mut answers = kubelet.prepare(vec![claim.clone()]).await.unwrap();
    answers.remove(&claim.uid).unwrap()
}
