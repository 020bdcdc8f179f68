//! The kubelet's side of the contract: finds a registration socket, asks it as the kubelet does, and calls the
//! service that it names.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::types::Deadline;
use crate::wire::dra::dra_plugin_client::DraPluginClient;
use crate::wire::dra::{
    Claim, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodeUnprepareResourceResponse,
    NodeUnprepareResourcesRequest,
};
use crate::wire::registration::registration_client::RegistrationClient;
use crate::wire::registration::{InfoRequest, PluginInfo, RegistrationStatus};

/// The kubelet's limits: for `GetInfo`, for the notification, for a call of the service.
const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(45);

/// A kubelet with one registered driver.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// What the driver said of itself.
    pub info: PluginInfo,
    plugin: DraPluginClient<Channel>,
}

/// What went wrong, as a kubelet would log it.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// No registration socket appeared.
    #[error("no registration socket has appeared in {}", .0.display())]
    NoSocket(PathBuf),
    /// A connection could not be made.
    #[error("cannot dial {}: {source}", path.display())]
    Dial {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: tonic::transport::Error,
    },
    /// A call failed as a whole.
    #[error("{call}: {status}")]
    Call {
        /// Which call.
        call: &'static str,
        /// The answer.
        status: Box<Status>,
    },
}

impl Kubelet {
    /// Waits for a driver's registration socket, asks it who it is, and tells it that it is registered.
    ///
    /// # Errors
    /// No socket, or a call that a kubelet would give up on.
    pub async fn register(registry: &Path, patience: Duration) -> Result<Self, KubeletError> {
        let deadline = Deadline::after(patience);
        let mut registration = loop {
            let found = match find(registry) {
                Some(socket) => dial(&socket, &authority(&socket)).await,
                None => Err(KubeletError::NoSocket(registry.to_owned())),
            };
            match found {
                Ok(channel) => break RegistrationClient::new(channel),
                // A dead instance may have left it, or its owner does not listen yet.
                Err(error) if deadline.left().is_zero() => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        };
        let info = limited("GetInfo", GET_INFO, registration.get_info(InfoRequest {})).await?;
        let told = RegistrationStatus { plugin_registered: true, error: String::new() };
        limited("NotifyRegistrationStatus", NOTIFY, registration.notify_registration_status(told)).await?;
        let plugin = DraPluginClient::new(dial(Path::new(&info.endpoint), "localhost").await?);
        Ok(Self { info, plugin })
    }

    /// Calls `NodePrepareResources` for the claims of a pod.
    ///
    /// # Errors
    /// The call failed as a whole; a claim's own error stands in its answer.
    pub async fn prepare(
        &self,
        claims: Vec<Claim>,
    ) -> Result<HashMap<String, NodePrepareResourceResponse>, KubeletError> {
        let mut plugin = self.plugin.clone();
        let call = plugin.node_prepare_resources(Request::new(NodePrepareResourcesRequest { claims }));
        Ok(limited("NodePrepareResources", CALL, call).await?.claims)
    }

    /// Calls `NodeUnprepareResources` for the claims of a pod.
    ///
    /// # Errors
    /// The call failed as a whole; a claim's own error stands in its answer.
    pub async fn unprepare(
        &self,
        claims: Vec<Claim>,
    ) -> Result<HashMap<String, NodeUnprepareResourceResponse>, KubeletError> {
        let mut plugin = self.plugin.clone();
        let call = plugin.node_unprepare_resources(Request::new(NodeUnprepareResourcesRequest { claims }));
        Ok(limited("NodeUnprepareResources", CALL, call).await?.claims)
    }
}

/// The kubelet's plugin watcher takes any socket whose name does not start with a dot.
fn find(registry: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(registry).ok()?.flatten();
    let socket = |entry: &std::fs::DirEntry| {
        !entry.file_name().to_string_lossy().starts_with('.')
            && entry.file_type().is_ok_and(|kind| kind.is_socket())
    };
    entries.filter(socket).map(|entry| entry.path()).next()
}

/// The kubelet dials a bare path, so gRPC sends that path, escaped, as the authority; `@` stays as it is.
fn authority(socket: &Path) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        b'-' | b'_' | b'.' | b'~' | b'@' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    socket.as_os_str().as_encoded_bytes().iter().copied().map(escape).collect()
}

async fn dial(socket: &Path, authority: &str) -> Result<Channel, KubeletError> {
    let failed = |source| KubeletError::Dial { path: socket.to_owned(), source };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(failed)?;
    let origin = format!("http://{authority}").parse();
    let endpoint = match origin {
        Ok(origin) => endpoint.origin(origin),
        Err(_) => endpoint,
    };
    endpoint.connect().await.map_err(failed)
}

async fn limited<T>(
    call: &'static str,
    limit: Duration,
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, KubeletError> {
    let answer = tokio::time::timeout(limit, answer).await;
    let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer in {limit:?}"))));
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| KubeletError::Call { call, status: Box::new(status) })
}
