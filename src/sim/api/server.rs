use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::objects::Objects;
use super::refusal::Refusal;
use super::route::Route;
use super::{Call, Kind, Shared, Verb, lock};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Takes connections until `stop`.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            taken = listener.accept() => {
                let (stream, _) = taken?;
                if !*shared.down.borrow() {
                    tokio::spawn(talk(stream, Arc::clone(&shared)));
                }
            }
        }
    }
}

async fn talk(stream: TcpStream, shared: Arc<Shared>) {
    let mut down = shared.down.subscribe();
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // However it ends, the other side knows why.
        _ = connection => {}
        _ = down.wait_for(|down| *down) => {}
    }
}

async fn answer(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let route = match Route::of(request.method(), request.uri()) {
        Ok(route) => route,
        Err(refusal) => return respond(refusal.code, &refusal.status()),
    };
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let scripted = (route.kind == Kind::Slices).then(|| shared.scripted(route.verb)).flatten();
    let done = {
        // Whoever sees what a call did finds it counted.
        let mut objects = shared.objects();
        let done = match scripted {
            Some(code) => Err(Refusal::scripted(code)),
            None => act(&route, &body, shared, &mut objects),
        };
        let code = done.as_ref().map_or_else(|refusal| refusal.code, |(code, _)| *code);
        let (verb, kind, name, dry) = (route.verb, route.kind, named(&route, &body), route.is_dry());
        lock(&shared.calls).push(Call { verb, kind, name, dry, code });
        done
    };
    shared.signal();
    match done {
        Ok((code, body)) => {
            Response::builder().status(code).header("content-type", "application/json").body(body)
        }
        Err(refusal) => return respond(refusal.code, &refusal.status()),
    }
    .unwrap_or_else(|_| respond(500, &Value::Null))
}

fn act(
    route: &Route,
    body: &Bytes,
    shared: &Arc<Shared>,
    objects: &mut Objects,
) -> Result<(u16, Body), Refusal> {
    let object = || serde_json::from_slice::<Value>(body).map_err(Refusal::bad_request);
    let (space, fields, dry) = (route.namespace.as_deref(), route.fields(), route.is_dry());
    let done = match route.verb {
        Verb::Get => (200, objects.get(&route.key())?),
        Verb::List => {
            let (version, kind) = route.kind.list();
            let items = objects.list(route.kind, space, &fields);
            let metadata = json!({"resourceVersion": objects.version.to_string()});
            (200, json!({"apiVersion": version, "kind": kind, "metadata": metadata, "items": items}))
        }
        Verb::Create => {
            let mut key = route.key();
            let object = object()?;
            key.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (201, objects.create(&key, object, dry)?)
        }
        Verb::Update => (200, objects.update(&route.key(), object()?, dry)?),
        Verb::Delete => {
            objects.delete(&route.key(), &object().unwrap_or_default())?;
            (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        Verb::Watch => {
            let version = route.version().unwrap_or(objects.version);
            let changes = changes(route.clone(), Arc::clone(shared), version);
            return Ok((200, StreamBody::new(changes).boxed_unsync()));
        }
    };
    Ok((done.0, full(&done.1)))
}

struct Watching {
    route: Route,
    fields: String,
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    version: u64,
    end: Instant,
    over: bool,
}

/// One line of JSON for each change, until the client's own limit.
fn changes(
    route: Route,
    shared: Arc<Shared>,
    version: u64,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let watching = Watching {
        fields: route.fields(),
        changed: shared.changed.subscribe(),
        version,
        end: Instant::now() + Duration::from_secs(route.seconds()),
        over: false,
        route,
        shared,
    };
    stream::unfold(watching, |mut watching| async move {
        let event = watching.next().await?;
        Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), watching))
    })
}

impl Watching {
    async fn next(&mut self) -> Option<Value> {
        while !self.over {
            self.changed.mark_unchanged();
            if let Some(event) = self.event() {
                return Some(event);
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.end) => return None,
            }
        }
        None
    }

    fn event(&mut self) -> Option<Value> {
        let (kind, space) = (self.route.kind, self.route.namespace.as_deref());
        let event =
            self.shared.objects().after(self.version, kind, space, &self.fields).map(Option::<&_>::cloned);
        match event {
            Ok(event) => {
                let event = event?;
                self.version = event.version;
                Some(json!({"type": event.what, "object": event.object}))
            }
            Err(refusal) => {
                self.over = true;
                Some(json!({"type": "ERROR", "object": refusal.status()}))
            }
        }
    }
}

fn named(route: &Route, body: &Bytes) -> String {
    if route.verb != Verb::Create {
        return route.name.clone();
    }
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn respond(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value));
    if let Ok(code) = hyper::StatusCode::from_u16(code) {
        *response.status_mut() = code;
    }
    response
}

fn full(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}
