//! Serves one socket until it is told to stop, and then for no longer than its calls take.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::transport::Server;
use tracing::warn;

use super::layers;

/// For the last answers to reach the caller, and for connections that were told to go away to go.
const FLUSH: Duration = Duration::from_millis(200);

/// Ends by itself only with an error. After `stop`, no connection is waited for, only `calls`, and those for
/// `drain` at most: a connection that never spoke would hold up a graceful end for ever.
pub(super) async fn serve(
    connections: impl Stream<Item = UnixStream>,
    services: Routes,
    calls: TaskTracker,
    stop: CancellationToken,
    drain: Duration,
) -> Result<(), tonic::transport::Error> {
    let connections = connections.map(Ok::<_, Infallible>);
    let router =
        Server::builder().layer(layers::traced()).layer(layers::health_by_both_names()).add_routes(services);
    let serving = router.serve_with_incoming_shutdown(connections, stop.cancelled());
    let finish = async {
        stop.cancelled().await;
        calls.close();
        if tokio::time::timeout(drain, calls.wait()).await.is_err() {
            warn!(calls = calls.len(), "calls are still in flight after the time to finish them");
        }
        tokio::time::sleep(FLUSH).await;
    };
    tokio::select! {
        ended = serving => ended,
        () = finish => Ok(()),
    }
}

#[cfg(test)]
mod tests;
