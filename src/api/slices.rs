//! The slices of one driver on one node: read, watched and written.

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
pub use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};

use super::{ApiError, Client, innermost};

/// Seconds that a watch lasts: load balancers cut connections that are quiet for 240.
const WATCH: u32 = 200;

/// The slices of one driver on one node, which are all that we may touch.
#[derive(Clone, Debug)]
pub struct Slices {
    client: Client,
    driver: String,
    node: String,
}

/// How a write is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It happens.
    Real,
    /// The server only says what it would store.
    Dry,
}

impl Client {
    /// The slices of a driver on a node.
    #[must_use]
    pub fn slices(&self, driver: &str, node: &str) -> Slices {
        Slices { client: self.clone(), driver: driver.to_owned(), node: node.to_owned() }
    }
}

impl Slices {
    /// What happens to them, beginning with a list; never ends, and tries again after an error by itself.
    pub fn watch(&self) -> impl Stream<Item = Result<Event<ResourceSlice>, ApiError>> + Send + use<> {
        let config = watcher::Config::default().fields(&self.fields()).timeout(WATCH);
        watcher(self.api(), config).default_backoff().map(|event| event.map_err(of_watch))
    }

    /// All of them, as the server has them now.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn list(&self) -> Result<Vec<ResourceSlice>, ApiError> {
        let (api, params) = (self.api(), ListParams::default().fields(&self.fields()));
        Ok(self.client.call("LIST ResourceSlices".to_owned(), api.list(&params)).await?.items)
    }

    /// The slice of this name, whoever's it is.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn get(&self, name: &str) -> Result<Option<ResourceSlice>, ApiError> {
        self.client.call(format!("GET ResourceSlice {name}"), self.api().get_opt(name)).await
    }

    /// Creates a slice; what the server made of it.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn create(&self, slice: &ResourceSlice, run: Run) -> Result<ResourceSlice, ApiError> {
        let call = format!("CREATE ResourceSlice {}", name(slice));
        self.client.call(call, self.api().create(&run.params(), slice)).await
    }

    /// Replaces a slice, if it still is as it was read; what the server made of it.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn update(&self, slice: &ResourceSlice, run: Run) -> Result<ResourceSlice, ApiError> {
        let call = format!("UPDATE ResourceSlice {}", name(slice));
        self.client.call(call, self.api().replace(name(slice), &run.params(), slice)).await
    }

    /// Deletes a slice, if it still is as it was read.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn delete(&self, slice: &ResourceSlice) -> Result<(), ApiError> {
        let call = format!("DELETE ResourceSlice {}", name(slice));
        let metadata = &slice.metadata;
        let preconditions =
            Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
        let params = DeleteParams::default().preconditions(preconditions);
        self.client.call(call, self.api().delete(name(slice), &params)).await.map(drop)
    }

    /// The UID of this node's object; `None` while there is none.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn node_uid(&self) -> Result<Option<String>, ApiError> {
        let api = Api::<Node>::all(self.client.plain.clone());
        let call = format!("GET Node {}", self.node);
        let node = self.client.call(call, api.get_metadata_opt(&self.node)).await?;
        Ok(node.and_then(|node| node.metadata.uid))
    }

    fn api(&self) -> Api<ResourceSlice> {
        Api::all(self.client.plain.clone())
    }

    fn fields(&self) -> String {
        format!("spec.driver={},spec.nodeName={}", self.driver, self.node)
    }
}

impl Run {
    fn params(self) -> PostParams {
        PostParams { dry_run: self == Self::Dry, field_manager: Some("cleanslate".to_owned()) }
    }
}

fn name(slice: &ResourceSlice) -> &str {
    slice.metadata.name.as_deref().unwrap_or_default()
}

fn of_watch(error: watcher::Error) -> ApiError {
    let call = "WATCH ResourceSlices".to_owned();
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => ApiError::of(call, error),
        watcher::Error::WatchError(status) => ApiError::of(call, kube::Error::Api(status)),
        error => ApiError::Failed { call, problem: innermost(&error) },
    }
}
