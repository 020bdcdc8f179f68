//! The DRA plugin service: each claim of a call goes its own way and gets its own answer.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::health::Health;
use super::server;
use crate::claims::{Claims, PreparedDevice};
use crate::types::{ClaimRef, ClaimUid};
use crate::unix::Socket;
use crate::wire::dra as wire;
use crate::wire::health::dra_resource_health_server::DraResourceHealthServer;
use wire::dra_plugin_server::{DraPlugin, DraPluginServer};

/// The kubelet sends the claims of one pod, of which there are a handful.
const MOST_CLAIMS: usize = 1024;
const LONGEST_NAMESPACE: usize = 63;
const LONGEST_NAME: usize = 253;

/// The plugin service could not be served, or is not served any more.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The socket could not be taken into this runtime.
    #[error("cannot serve the plugin's socket: {0}")]
    Start(io::Error),
    /// It ended with an error.
    #[error("the plugin service ended: {0}")]
    Serve(tonic::transport::Error),
}

/// Serves the plugin's socket until `stop`, and then until no call is in flight, for `drain` at most. New
/// connections wait in the socket's queue meanwhile, for as long as the socket is kept.
///
/// # Errors
/// When it cannot be served. Once served it never ends by itself but for an error.
pub async fn serve(
    socket: &Socket,
    claims: Arc<Claims>,
    stop: CancellationToken,
    drain: Duration,
) -> Result<(), PluginError> {
    let connections = socket.connections().map_err(PluginError::Start)?;
    let calls = TaskTracker::new();
    let health =
        Health { ledger: Arc::clone(&claims.ledger), pool: claims.scope.pool.clone(), stop: stop.clone() };
    let service = DraPluginServer::new(Plugin { claims, calls: calls.clone() });
    let services = Routes::new(service).add_service(DraResourceHealthServer::new(health));
    server::serve(connections, services, calls, stop, drain).await.map_err(PluginError::Serve)
}

struct Plugin {
    claims: Arc<Claims>,
    calls: TaskTracker,
}

#[tonic::async_trait]
impl DraPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<wire::NodePrepareResourcesRequest>,
    ) -> Result<Response<wire::NodePrepareResourcesResponse>, Status> {
        let _call = self.calls.token();
        let prepare = |claim| async move { self.claims.prepare(&claim).await };
        let answers = answer_each("prepare", request.into_inner().claims, prepare).await?;
        let claims = answers.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect();
        Ok(Response::new(wire::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<wire::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<wire::NodeUnprepareResourcesResponse>, Status> {
        let _call = self.calls.token();
        let unprepare = |claim| async move { self.claims.unprepare(&claim).await };
        let answers = answer_each("unprepare", request.into_inner().claims, unprepare).await?;
        let unprepared = |answer: Result<(), String>| wire::NodeUnprepareResourceResponse {
            error: answer.err().unwrap_or_default(),
        };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, unprepared(answer))).collect();
        Ok(Response::new(wire::NodeUnprepareResourcesResponse { claims }))
    }
}

fn prepared(answer: Result<Vec<PreparedDevice>, String>) -> wire::NodePrepareResourceResponse {
    let device = |device: PreparedDevice| wire::Device {
        request_names: device.requests,
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: device.cdi_ids,
        share_id: None,
    };
    match answer {
        Ok(devices) => wire::NodePrepareResourceResponse {
            devices: devices.into_iter().map(device).collect(),
            error: String::new(),
        },
        Err(error) => wire::NodePrepareResourceResponse { devices: Vec::new(), error },
    }
}

/// Handles all claims of a call side by side, on the call's own task: when the kubelet gives up the call, each
/// claim's future is dropped, which is how `claims` learns of it. The answers are keyed by the UIDs exactly as
/// they were sent: the kubelet takes an answer without its claim, and a claim without its answer, for an error
/// of the whole call.
async fn answer_each<T, E: Display, F: Future<Output = Result<T, E>>>(
    call: &'static str,
    claims: Vec<wire::Claim>,
    handle: impl Fn(ClaimRef) -> F,
) -> Result<HashMap<String, Result<T, String>>, Status> {
    if claims.len() > MOST_CLAIMS {
        let count = claims.len();
        return Err(Status::invalid_argument(format!("{count} claims in one call: at most {MOST_CLAIMS}")));
    }
    let mut by_uid: HashMap<String, Vec<wire::Claim>> = HashMap::new();
    for claim in claims {
        by_uid.entry(claim.uid.clone()).or_default().push(claim);
    }
    let answers = by_uid.into_iter().map(|(uid, claims)| {
        let handle = &handle;
        async move {
            let answer = match reference(claims) {
                Ok(claim) => guarded(call, &claim, handle(claim.clone())).await,
                Err(problem) => Err(problem),
            };
            if let Err(problem) = &answer {
                warn!(call, %uid, %problem, "claim refused");
            }
            (uid, answer)
        }
    });
    Ok(join_all(answers).await.into_iter().collect())
}

/// A panic is a bug in the handling of one claim; the others, and the process, are not to suffer for it.
async fn guarded<T, E: Display>(
    call: &'static str,
    claim: &ClaimRef,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    let begun = Instant::now();
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Ok(answer)) => {
            info!(call, %claim, ms = begun.elapsed().as_millis(), "done");
            Ok(answer)
        }
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(_) => Err(format!(
            "claim {claim}: internal error in {call}, a panic whose words stand in the log of this driver; \
             the kubelet will try again"
        )),
    }
}

/// The claim that is meant, where what the kubelet sent can be one.
fn reference(claims: Vec<wire::Claim>) -> Result<ClaimRef, String> {
    let times = claims.len();
    let shown = |text: &str| format!("{:?}", text.chars().take(80).collect::<String>());
    let mut claims = claims.into_iter();
    let (Some(wire::Claim { namespace, name, uid }), None) = (claims.next(), claims.next()) else {
        return Err(format!("a claim's UID stands {times} times in this call: expected each claim once"));
    };
    let uid = ClaimUid::try_from(uid).map_err(|error| error.to_string())?;
    if !is_dns(&namespace, LONGEST_NAMESPACE) || namespace.contains('.') {
        return Err(format!(
            "{} is no namespace of a claim: expected 1 to {LONGEST_NAMESPACE} lower-case letters, digits \
             and dashes",
            shown(&namespace)
        ));
    }
    if !is_dns(&name, LONGEST_NAME) {
        return Err(format!(
            "{} is no name of a claim: expected 1 to {LONGEST_NAME} lower-case letters, digits, dashes and \
             dots",
            shown(&name)
        ));
    }
    Ok(ClaimRef { namespace, name, uid })
}

/// Names become parts of a request's path.
fn is_dns(text: &str, longest: usize) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    text.len() <= longest
        && text.bytes().all(plain)
        && text.split('.').all(|label| !label.is_empty() && !label.starts_with('-'))
}

#[cfg(test)]
mod tests;
