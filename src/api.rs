//! The API server: a client in which every call ends.

mod slices;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::Limited;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Config};
use tower_http::map_response_body::MapResponseBodyLayer;

pub use slices::{Event, Run, Slices};

/// One call, with the client's own retries of a server that is busy.
const LIMIT: Duration = Duration::from_secs(5);
/// What a quiet connection is given; longer than a watch lasts, so that only one that is dead is cut.
const QUIET: Duration = Duration::from_secs(230);

/// Bytes of an answer about one object, of which etcd takes 1.5 MiB: whatever else stands there must not fill our memory.
const LARGEST: usize = 8 << 20;

/// A client of the API server; clones share its connections.
#[derive(Clone)]
pub struct Client {
    /// For calls that somebody waits for: tries again by itself where the server is busy.
    patient: kube::Client,
    /// For those that have a backoff of their own, and tell what the server said.
    plain: kube::Client,
    limit: Duration,
}

/// A call that failed, or a client that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The kubeconfig file cannot be used.
    #[error(
        "cannot use the kubeconfig {}: {source}; expected a kubeconfig file with a current-context",
        path.display()
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// We are in no cluster.
    #[error(
        "no API server: {0}; expected to run in a pod with a service account, or --kubeconfig with a file"
    )]
    InCluster(InClusterError),
    /// The configuration names no server that can be spoken to.
    #[error("cannot make a client for the API server {server}: {problem}")]
    Client {
        /// Its address.
        server: String,
        /// Why.
        problem: String,
    },
    /// No answer in time.
    #[error("{call}: no answer of the API server within {} ms", limit.as_millis())]
    TimedOut {
        /// What was asked.
        call: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The server said no.
    #[error("{call}: the API server refused: {message} (code {code})")]
    Refused {
        /// What was asked.
        call: String,
        /// Its words.
        message: String,
        /// The HTTP status.
        code: u16,
        /// What it wants us to wait before the next try.
        pause: Duration,
        /// The object that it does not have, where that is its reason.
        missing: Option<String>,
    },
    /// The call did not get through, or its answer made no sense.
    #[error("{call}: {problem}")]
    Failed {
        /// What was asked.
        call: String,
        /// Why.
        problem: String,
    },
}

impl Client {
    /// A client by a kubeconfig file, or by the service account of the pod that we run in. It connects when it is
    /// first used.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub async fn new(kubeconfig: Option<&Path>) -> Result<Self, ApiError> {
        let mut config = match kubeconfig {
            Some(path) => from_file(path)
                .await
                .map_err(|source| ApiError::Kubeconfig { path: path.to_owned(), source })?,
            None => Config::incluster().map_err(ApiError::InCluster)?,
        };
        let server = config.cluster_url.to_string();
        config.read_timeout = Some(QUIET);
        let builder = |config| {
            ClientBuilder::try_from(config)
                .map_err(|error| ApiError::Client { server: server.clone(), problem: innermost(&error) })
        };
        let bounded = MapResponseBodyLayer::new(|body| Limited::new(body, LARGEST));
        let patient = builder(config.clone())?.with_layer(&bounded).build();
        config.default_retry = false;
        Ok(Self { patient, plain: builder(config)?.build(), limit: LIMIT })
    }

    /// A claim as it is now; `None` when there is none of that name.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, ApiError> {
        let api = Api::<ResourceClaim>::namespaced(self.patient.clone(), namespace);
        let call = format!("GET ResourceClaim {namespace}/{name}");
        let object = match self.call(call.clone(), api.get(name)).await {
            Err(error) if error.is_no_such_object(name) => return Ok(None),
            answer => answer?,
        };
        let found = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = &object.metadata;
        let (found, uid) = ((found(&metadata.namespace), found(&metadata.name)), found(&metadata.uid));
        if found != (namespace.to_owned(), name.to_owned()) || uid.is_empty() {
            let problem =
                format!("the answer is no such claim: it is {}/{} with UID {uid:?}", found.0, found.1);
            return Err(ApiError::Failed { call, problem });
        }
        Ok(Some(object))
    }

    async fn call<T>(
        &self,
        call: String,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        match tokio::time::timeout(self.limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ApiError::of(call, error)),
            Err(_) => Err(ApiError::TimedOut { call, limit: self.limit }),
        }
    }
}

impl ApiError {
    fn of(call: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                let pause = Duration::from_secs(seconds.into());
                let missing = status.details.as_ref().map(|details| details.name.clone());
                let missing = missing.filter(|_| status.is_not_found() && status.reason == "NotFound");
                Self::Refused { call, message: status.message.clone(), code: status.code, pause, missing }
            }
            error => Self::Failed { call, problem: innermost(&error) },
        }
    }

    /// Whether the server has no object of this name. A server that does not know the kind, and whatever else answers
    /// in its place, says 404 too, and names none.
    fn is_no_such_object(&self, name: &str) -> bool {
        matches!(self, Self::Refused { missing: Some(missing), .. } if missing == name)
    }

    /// The server's HTTP status, if it said no.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What the server wants us to wait before the next try.
    #[must_use]
    pub fn pause(&self) -> Duration {
        match self {
            Self::Refused { pause, .. } => *pause,
            _ => Duration::ZERO,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("limit", &self.limit).finish_non_exhaustive()
    }
}

async fn from_file(path: &Path) -> Result<Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}

/// The error and what lies below it; the client's own words are mostly "service error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
