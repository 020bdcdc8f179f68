//! The registration service: how the kubelet finds us.
//!
//! On a thread and a runtime of its own, so that no load and no hanging device delays `GetInfo`, for which the
//! kubelet waits one second.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::{error, info, warn};

use super::server;
use crate::unix::Socket;
use crate::wire::registration as wire;
use wire::registration_server::{Registration as Service, RegistrationServer};

/// Both calls answer from memory.
const DRAIN: Duration = Duration::from_millis(500);
const LONGEST_STOP: Duration = Duration::from_secs(2);

/// What the service socket serves, newest first: the kubelet takes the first of each kind that it knows.
const SERVICES: [&str; 3] = ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// What the kubelet made of our registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KubeletVerdict {
    /// It has not said yet.
    Waiting,
    /// It calls us from now on.
    Registered,
    /// It does not, with its words.
    Refused(String),
}

impl std::fmt::Display for KubeletVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting => f.write_str("has not called yet"),
            Self::Registered => f.write_str("registered"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

/// A registration service that is not served any more.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Its thread or runtime could not be started.
    #[error("cannot start the registration service: {0}")]
    Start(io::Error),
    /// It ended with an error.
    #[error("the registration service ended: {0}")]
    Serve(tonic::transport::Error),
    /// Its thread is gone without a word.
    #[error("the registration service ended by a panic; its words stand in the log")]
    Panicked,
}

/// The registration service, running.
#[derive(Debug)]
pub struct Registration {
    stop: CancellationToken,
    verdict: watch::Receiver<KubeletVerdict>,
    ended: oneshot::Receiver<Result<(), RegistrationError>>,
}

/// Serves `socket`; the kubelet is told to dial `endpoint` for the driver's service.
///
/// # Errors
/// When the thread cannot be started.
pub fn serve(socket: Socket, driver: &str, endpoint: &Path) -> Result<Registration, RegistrationError> {
    let (verdict, seen) = watch::channel(KubeletVerdict::Waiting);
    let (end, ended) = oneshot::channel();
    let stop = CancellationToken::new();
    let info = Info {
        answer: wire::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: SERVICES.iter().map(|&service| service.to_owned()).collect(),
        },
        verdict,
    };
    let token = stop.clone();
    std::thread::Builder::new()
        .name("registration".to_owned())
        .spawn(move || {
            let result = run(socket, info, &token);
            if end.send(result).is_err() {
                warn!("the registration service ended and nobody waits for it");
            }
        })
        .map_err(RegistrationError::Start)?;
    Ok(Registration { stop, verdict: seen, ended })
}

fn run(socket: Socket, info: Info, stop: &CancellationToken) -> Result<(), RegistrationError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RegistrationError::Start)?;
    runtime.block_on(async {
        let connections = socket.connections().map_err(RegistrationError::Start)?;
        let service = Routes::new(RegistrationServer::new(info));
        let mut serving = pin!(server::serve(connections, service, TaskTracker::new(), stop.clone(), DRAIN));
        let served = tokio::select! {
            served = &mut serving => served,
            // The file goes first: that it is gone is what tells the kubelet.
            () = stop.cancelled() => {
                drop(socket);
                serving.await
            }
        };
        served.map_err(RegistrationError::Serve)
    })
}

impl Registration {
    /// What the kubelet said last, and every change of it.
    #[must_use]
    pub fn verdict(&self) -> watch::Receiver<KubeletVerdict> {
        self.verdict.clone()
    }

    /// Waits until the service has ended, which it never does by itself but for an error.
    ///
    /// # Errors
    /// With why it ended.
    pub async fn ended(&mut self) -> Result<(), RegistrationError> {
        (&mut self.ended).await.unwrap_or(Err(RegistrationError::Panicked))
    }

    /// Removes the socket, by which the kubelet takes us out, and ends the service.
    pub async fn stop(mut self) {
        self.stop.cancel();
        match tokio::time::timeout(LONGEST_STOP, self.ended()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(%error, "registration stopped"),
            Err(_) => error!("the registration service did not end in time"),
        }
    }
}

struct Info {
    answer: wire::PluginInfo,
    verdict: watch::Sender<KubeletVerdict>,
}

#[tonic::async_trait]
impl Service for Info {
    async fn get_info(&self, _: Request<wire::InfoRequest>) -> Result<Response<wire::PluginInfo>, Status> {
        Ok(Response::new(self.answer.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> Result<Response<wire::RegistrationStatusResponse>, Status> {
        let wire::RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            info!("registered with the kubelet");
            self.verdict.send_replace(KubeletVerdict::Registered);
        } else {
            error!(%error, "the kubelet refused the registration");
            self.verdict.send_replace(KubeletVerdict::Refused(error));
        }
        Ok(Response::new(wire::RegistrationStatusResponse {}))
    }
}
