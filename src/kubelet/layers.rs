//! What every call passes through before its service.

use std::time::Duration;

use tonic::codegen::http::{Request, Uri};
use tonic::transport::server::UdsConnectInfo;
use tower::util::MapRequestLayer;
use tower_http::classify::{GrpcErrorsAsFailures, GrpcFailureClass, SharedClassifier};
use tower_http::trace::{MakeSpan, OnFailure, TraceLayer};
use tracing::{Span, info_span, warn};

const OLD_HEALTH: &str = "/v1alpha1.DRAResourceHealth/";
const HEALTH: &str = "/v1.DRAResourceHealth/";
/// Of a caller's path, which has no other bound than HTTP/2's.
const SHOWN: usize = 80;

/// Lets the health service answer under its old name too: kubelets before 1.37 know no other, and both versions are
/// one on the wire.
pub(super) fn health_by_both_names<B>() -> MapRequestLayer<fn(Request<B>) -> Request<B>> {
    MapRequestLayer::new(newest)
}

fn newest<B>(mut request: Request<B>) -> Request<B> {
    let method = request.uri().path().strip_prefix(OLD_HEALTH);
    if let Some(path) = method.and_then(|method| format!("{HEALTH}{method}").parse().ok()) {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

type Traced = TraceLayer<SharedClassifier<GrpcErrorsAsFailures>, Caller, (), (), (), (), Failed>;

/// Says of every line that is logged within a call which one it is and who calls, and of every call that fails as a
/// whole that it did.
pub(super) fn traced() -> Traced {
    TraceLayer::new_for_grpc()
        .make_span_with(Caller)
        .on_request(())
        .on_response(())
        .on_body_chunk(())
        .on_eos(())
        .on_failure(Failed)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Caller;

impl<B> MakeSpan<B> for Caller {
    fn make_span(&mut self, request: &Request<B>) -> Span {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|it| it.peer_cred);
        let rpc: String = request.uri().path().chars().take(SHOWN).collect();
        info_span!("call", %rpc, pid = peer.and_then(|peer| peer.pid()))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Failed;

impl OnFailure<GrpcFailureClass> for Failed {
    fn on_failure(&mut self, class: GrpcFailureClass, took: Duration, span: &Span) {
        span.in_scope(|| warn!(%class, ms = took.as_millis(), "the whole call failed"));
    }
}

#[cfg(test)]
mod tests;
