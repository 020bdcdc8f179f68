use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

use super::*;
use crate::unix::Socket;
use crate::wire::dra::dra_plugin_client::DraPluginClient;
use crate::wire::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use crate::wire::dra::{
    NodePrepareResourcesRequest as PrepareRequest, NodePrepareResourcesResponse as PrepareResponse,
    NodeUnprepareResourcesRequest as UnprepareRequest, NodeUnprepareResourcesResponse as UnprepareResponse,
};

/// Answers a prepare once it is let go, and an unprepare at once.
struct Slow {
    calls: TaskTracker,
    go: Arc<Semaphore>,
}

#[tonic::async_trait]
impl DraPlugin for Slow {
    async fn node_prepare_resources(
        &self,
        _: Request<PrepareRequest>,
    ) -> Result<Response<PrepareResponse>, Status> {
        let _call = self.calls.token();
        let _permit = self.go.acquire().await;
        Ok(Response::new(PrepareResponse::default()))
    }

    async fn node_unprepare_resources(
        &self,
        _: Request<UnprepareRequest>,
    ) -> Result<Response<UnprepareResponse>, Status> {
        Ok(Response::new(UnprepareResponse::default()))
    }
}

struct Running {
    socket: Socket,
    calls: TaskTracker,
    go: Arc<Semaphore>,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(drain: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&dir.path().join("x.sock")).unwrap();
        let (calls, go, stop) = (TaskTracker::new(), Arc::new(Semaphore::new(0)), CancellationToken::new());
        let service = DraPluginServer::new(Slow { calls: calls.clone(), go: go.clone() });
        let services = Routes::new(service);
        let serving =
            tokio::spawn(serve(socket.connections().unwrap(), services, calls.clone(), stop.clone(), drain));
        Self { socket, calls, go, stop, serving, _dir: dir }
    }

    /// A prepare that has reached the service.
    async fn call(&self) -> JoinHandle<Result<Response<PrepareResponse>, Status>> {
        let uri = format!("unix:{}", self.socket.path().display());
        let mut client = DraPluginClient::connect(uri).await.unwrap();
        let call =
            tokio::spawn(async move { client.node_prepare_resources(PrepareRequest::default()).await });
        while self.calls.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        call
    }

    async fn stopped(self) -> Duration {
        let begun = Instant::now();
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
        begun.elapsed()
    }
}

#[tokio::test]
async fn a_call_in_flight_is_answered_after_the_stop() {
    let running = Running::start(Duration::from_secs(60));
    let call = running.call().await;
    running.stop.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!running.serving.is_finished());
    running.go.add_permits(1);
    call.await.unwrap().unwrap();
    assert!(running.stopped().await < Duration::from_secs(5));
}

#[tokio::test]
async fn a_call_that_does_not_end_costs_the_drain_and_no_more() {
    let running = Running::start(Duration::from_millis(300));
    let _call = running.call().await;
    let took = running.stopped().await;
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn connections_that_never_spoke_hold_up_nothing() {
    let running = Running::start(Duration::from_secs(60));
    let silent: Vec<_> = (0..50).map(|_| StdStream::connect(running.socket.path()).unwrap()).collect();
    let call = running.call().await;
    running.go.add_permits(1);
    call.await.unwrap().unwrap();
    assert!(running.stopped().await < Duration::from_secs(5));
    drop(silent);
}

#[tokio::test]
async fn a_call_that_its_caller_gave_up_is_not_waited_for() {
    let running = Running::start(Duration::from_secs(60));
    let call = running.call().await;
    call.abort();
    assert!(call.await.is_err());
    assert!(running.stopped().await < Duration::from_secs(5));
}
