//! The API server: a client in which every call ends.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Config};

/// One call, with the client's own retries of a server that is busy.
const LIMIT: Duration = Duration::from_secs(5);

/// A client of the API server; clones share its connections.
#[derive(Clone)]
pub struct Client {
    client: kube::Client,
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
    #[error(
        "{call}: no answer of the API server within {} ms; the kubelet will try again",
        limit.as_millis()
    )]
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
        let config = match kubeconfig {
            Some(path) => from_file(path)
                .await
                .map_err(|source| ApiError::Kubeconfig { path: path.to_owned(), source })?,
            None => Config::incluster().map_err(ApiError::InCluster)?,
        };
        let server = config.cluster_url.to_string();
        let client = kube::Client::try_from(config)
            .map_err(|error| ApiError::Client { server, problem: innermost(&error) })?;
        Ok(Self { client, limit: LIMIT })
    }

    /// A claim as it is now; `None` when there is none of that name.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, ApiError> {
        let api = Api::<ResourceClaim>::namespaced(self.client.clone(), namespace);
        self.call(format!("GET ResourceClaim {namespace}/{name}"), api.get_opt(name)).await
    }

    async fn call<T>(
        &self,
        call: String,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        match tokio::time::timeout(self.limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(ApiError::Refused { call, message: status.message, code: status.code })
            }
            Ok(Err(error)) => Err(ApiError::Failed { call, problem: innermost(&error) }),
            Err(_) => Err(ApiError::TimedOut { call, limit: self.limit }),
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
fn innermost(error: &kube::Error) -> String {
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
