use std::pin::Pin;
use std::time::Duration;

use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use super::super::server;
use crate::unix::Socket;
use crate::wire::health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use crate::wire::health::{DeviceHealth, NodeWatchResourcesRequest, NodeWatchResourcesResponse};

/// Tells one device, and of none that it is not implemented.
struct Told;

#[tonic::async_trait]
impl DraResourceHealth for Told {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let devices = vec![DeviceHealth { message: "hot".to_owned(), ..DeviceHealth::default() }];
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(NodeWatchResourcesResponse { devices })))))
    }
}

/// What a kubelet reads that asks by this path.
async fn watch(channel: Channel, path: &'static str) -> Result<String, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<NodeWatchResourcesRequest, NodeWatchResourcesResponse>::default();
    let request = Request::new(NodeWatchResourcesRequest {});
    let stream = client.server_streaming(request, PathAndQuery::from_static(path), codec).await?;
    let report = stream.into_inner().message().await?.ok_or_else(|| Status::internal("no report"))?;
    Ok(report.devices[0].message.clone())
}

#[tokio::test]
async fn health_answers_by_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::bind(&dir.path().join("x.sock")).unwrap();
    let stop = CancellationToken::new();
    let services = Routes::new(DraResourceHealthServer::new(Told));
    let connections = socket.connections().unwrap();
    let serving =
        server::serve(connections, services, TaskTracker::new(), stop.clone(), Duration::from_secs(5));
    let calls = async {
        let uri = format!("unix:{}", socket.path().display());
        let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
        for version in
            ["/v1.DRAResourceHealth/NodeWatchResources", "/v1alpha1.DRAResourceHealth/NodeWatchResources"]
        {
            assert_eq!(watch(channel.clone(), version).await.unwrap(), "hot", "{version}");
        }
        for path in ["/v1beta1.DRAResourceHealth/NodeWatchResources", "/v1alpha1.DRAResourceHealth/Other"] {
            let status = watch(channel.clone(), path).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}");
        }
        stop.cancel();
    };
    let (served, ()) = tokio::join!(serving, calls);
    served.unwrap();
}
