//! An API server that is not there: the verbs that we use, for nodes, claims and slices, over plain HTTP on loopback.
//!
//! What it cannot do, so that no test here means anything about it: authentication, authorization, admission, other
//! encodings than JSON, pages, patches, finalizers, garbage collection, quantities in another form than they are sent,
//! and what a scheduler or a kubelet makes of an object.

mod objects;
mod refusal;
mod route;
mod server;
mod slice;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use objects::{Key, Objects};

/// What an API server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Nodes,
    /// ResourceClaims.
    Claims,
    /// ResourceSlices.
    Slices,
}

/// What can be asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the verbs of Kubernetes")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Delete,
}

/// What the server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Taints of devices are kept; without, they are dropped (1.34 and 1.35 by default).
    pub taints: bool,
    /// It knows taints without effect; without, they are refused (1.34).
    pub effect_none: bool,
}

/// A request, as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was asked.
    pub verb: Verb,
    /// Of what.
    pub kind: Kind,
    /// Its name, where one was given.
    pub name: String,
    /// Nothing was to be stored.
    pub dry: bool,
    /// The answer's HTTP status.
    pub code: u16,
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Api {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    objects: Mutex<Objects>,
    calls: Mutex<Vec<Call>>,
    script: Mutex<VecDeque<(Verb, u16)>>,
    changed: watch::Sender<u64>,
    down: watch::Sender<bool>,
}

impl Api {
    /// Starts one that has nothing.
    ///
    /// # Errors
    /// No port or no thread.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            calls: Mutex::default(),
            script: Mutex::default(),
            changed: watch::Sender::new(0),
            down: watch::Sender::new(false),
        });
        let stop = CancellationToken::new();
        let serve = server::serve(listener, Arc::clone(&shared), stop.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = std::thread::Builder::new().name("api".into()).spawn(move || {
            // With the runtime go all connections.
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(%error, "the simulated API server ended");
            }
        })?;
        Ok(Self { shared, address, stop, server: Some(server) })
    }

    /// Writes a kubeconfig file that leads here.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "sim",
            "clusters": [{"name": "sim", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "sim", "user": {}}],
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
        });
        std::fs::File::create(path)?.write_all(config.to_string().as_bytes())
    }

    /// Stores an object, new or in place of the one of its name; as an administrator does, unasked and uncounted.
    ///
    /// # Errors
    /// In the server's words.
    pub fn put(&self, kind: Kind, object: &Value) -> Result<Value, String> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key { kind, namespace: text("namespace"), name: text("name") };
        self.change(|objects| match objects.get(&key) {
            Ok(_) => objects.update(&key, object.clone(), false),
            Err(_) => objects.create(&key, object.clone(), false),
        })
    }

    /// Deletes an object, as somebody does by hand.
    ///
    /// # Errors
    /// In the server's words.
    pub fn delete(&self, kind: Kind, name: &str) -> Result<(), String> {
        let key = Key { kind, namespace: String::new(), name: name.to_owned() };
        self.change(|objects| objects.delete(&key, &Value::Null))
    }

    /// All objects of a kind.
    #[must_use]
    pub fn list(&self, kind: Kind) -> Vec<Value> {
        self.shared.objects().list(kind, None, "")
    }

    /// Everything that an object has been, the oldest first.
    #[must_use]
    pub fn past(&self, kind: Kind, name: &str) -> Vec<Value> {
        self.shared.objects().past(kind, name)
    }

    /// What was asked so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }

    /// The next requests of this kind for slices are refused, with these HTTP statuses in turn.
    pub fn refuse(&self, verb: Verb, codes: &[u16]) {
        lock(&self.shared.script).extend(codes.iter().map(|code| (verb, *code)));
    }

    /// Refusals that nobody has met yet.
    #[must_use]
    pub fn refusals_left(&self) -> usize {
        lock(&self.shared.script).len()
    }

    /// Another version of the server, from now on.
    pub fn set_features(&self, features: Features) {
        self.shared.objects().features = features;
    }

    /// Cuts all connections and takes none, or takes them again.
    pub fn set_down(&self, down: bool) {
        self.shared.down.send_replace(down);
    }

    /// Forgets the past: who wants to go on watching from there has to list anew.
    pub fn compact(&self) {
        self.shared.objects().compact();
    }

    fn change<T>(&self, act: impl FnOnce(&mut Objects) -> Result<T, refusal::Refusal>) -> Result<T, String> {
        let result = act(&mut self.shared.objects()).map_err(|refusal| refusal.status().to_string());
        self.shared.signal();
        result
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(server) = self.server.take() {
            // It has logged what ended it.
            let _ = server.join();
        }
    }
}

impl Shared {
    fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }

    fn signal(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// The next scripted refusal, if it is for this.
    fn scripted(&self, verb: Verb) -> Option<u16> {
        let mut script = lock(&self.script);
        let place = script.iter().position(|(refused, _)| *refused == verb)?;
        script.remove(place).map(|(_, code)| code)
    }
}

impl Kind {
    fn what(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Claims => "resourceclaims.resource.k8s.io",
            Self::Slices => "resourceslices.resource.k8s.io",
        }
    }

    /// `apiVersion` and `kind` of a list.
    fn list(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => ("v1", "NodeList"),
            Self::Claims => ("resource.k8s.io/v1", "ResourceClaimList"),
            Self::Slices => ("resource.k8s.io/v1", "ResourceSliceList"),
        }
    }
}

impl Default for Features {
    /// As since 1.36.
    fn default() -> Self {
        Self { taints: true, effect_none: true }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
