//! One round: what is to be written, written, and the answers held against what was sent.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

use super::features::{Answer, has_taints};
use super::pool::{Change, name};
use super::publisher::Publisher;
use crate::api::{ApiError, Run};

/// Why the server has not what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    /// It refused, or could not be asked.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// We do not know what there is.
    #[error("the devices of this node cannot be read, so none is published: {0}")]
    Unread(String),
    /// There is nobody to own the slices.
    #[error(
        "the API server has no Node {0}, which is to own our slices: expected the kubelet of this node to have \
         registered under the name that --node-name gives"
    )]
    NoNode(String),
    /// Another driver or node has the name.
    #[error(
        "ResourceSlice {name} is in our way: it is of driver {driver:?} on node {node:?}; expected none of that name, \
         delete it"
    )]
    Foreign {
        /// The slice.
        name: String,
        /// Its driver.
        driver: String,
        /// Its node.
        node: String,
    },
    /// Something between us and the store changes what we write.
    #[error(
        "the API server stored ResourceSlice {0} otherwise than it was sent: expected no webhook to change slices of \
         this driver"
    )]
    Altered(String),
    /// Whatever we write is changed at once.
    #[error("the slices of this node do not stay as we write them: somebody else writes them too")]
    Unsettled,
}

/// How a round ended.
#[derive(Debug)]
pub(super) enum Step {
    /// The server has what it should, but for these devices.
    Done { left_out: Vec<String> },
    /// We know more now than at its begin.
    Again,
}

impl PublishError {
    /// What the server wants us to wait.
    pub(super) fn pause(&self) -> Duration {
        match self {
            Self::Api(error) => error.pause(),
            _ => Duration::ZERO,
        }
    }
}

impl Publisher {
    pub(super) async fn write(&mut self, devices: &[Device]) -> Result<Step, PublishError> {
        let Some(stored) = self.mirror.slices() else { return Ok(Step::Again) };
        let ask = self.features.must_ask(devices);
        let (shown, left_out) = self.features.fit(devices);
        let changes = self.pool.plan(&shown, stored, self.mirror.generation());
        // A new slice needs the node's object as it is now: one with another owner is collected as garbage.
        let creates = changes.iter().any(|change| matches!(change, Change::Create(_)));
        if !self.owner_is_fresh && (creates || self.pool.owner.is_empty()) {
            let uid = self.slices.node_uid().await?;
            self.pool.owner = uid.ok_or_else(|| PublishError::NoNode(self.pool.node.clone()))?;
            self.owner_is_fresh = true;
            return Ok(Step::Again);
        }
        if ask {
            match changes.iter().find(|change| change.written().is_some_and(has_taints)) {
                None => self.features.kept(),
                Some(change) => {
                    if let Step::Again = self.send(change, devices, Run::Dry).await? {
                        return Ok(Step::Again);
                    }
                }
            }
        }
        for change in &changes {
            if let Step::Again = self.send(change, devices, Run::Real).await? {
                return Ok(Step::Again);
            }
        }
        Ok(Step::Done { left_out })
    }

    async fn send(&mut self, change: &Change, devices: &[Device], run: Run) -> Result<Step, PublishError> {
        let (sent, answer) = match change {
            Change::Create(slice) => (slice, self.slices.create(slice, run).await),
            Change::Update(slice) => (slice, self.slices.update(slice, run).await),
            Change::Delete(slice) => return self.delete(slice).await,
        };
        let got = match answer {
            Ok(got) => got,
            // Somebody was faster: what there is now counts.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                return self.look(name(sent)).await;
            }
            Err(error) if error.code() == Some(422) && self.features.refused(sent) => {
                tracing::info!(%error, "this API server knows no taints without effect; they are left out");
                return Ok(Step::Again);
            }
            Err(error) => return Err(error.into()),
        };
        if run == Run::Real {
            let (pool, devices) = (&got.spec.pool, got.spec.devices.as_ref().map_or(0, Vec::len));
            tracing::info!(slice = name(&got), generation = pool.generation, devices, "slice written");
            self.mirror.put(got.clone());
        }
        match self.features.learn(devices, sent, &got) {
            Answer::Same => Ok(Step::Done { left_out: Vec::new() }),
            Answer::Untainted => {
                tracing::warn!(
                    "this API server drops taints; devices that need one are left out of the slices"
                );
                Ok(Step::Again)
            }
            Answer::Other => Err(PublishError::Altered(name(sent).to_owned())),
        }
    }

    async fn delete(&mut self, slice: &ResourceSlice) -> Result<Step, PublishError> {
        match self.slices.delete(slice).await {
            Ok(()) => {
                tracing::info!(slice = name(slice), "slice that is none of ours deleted");
                self.mirror.remove(name(slice));
                Ok(Step::Done { left_out: Vec::new() })
            }
            Err(error) if matches!(error.code(), Some(404 | 409)) => self.look(name(slice)).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Reads one slice anew, whatever the watch has told of it so far.
    async fn look(&mut self, name: &str) -> Result<Step, PublishError> {
        match self.slices.get(name).await? {
            None => self.mirror.remove(name),
            Some(slice) => {
                let spec = &slice.spec;
                let node = spec.node_name.clone().unwrap_or_default();
                if spec.driver != self.pool.driver || node != self.pool.node {
                    let (name, driver) = (name.to_owned(), spec.driver.clone());
                    return Err(PublishError::Foreign { name, driver, node });
                }
                self.mirror.put(slice);
            }
        }
        Ok(Step::Again)
    }
}
