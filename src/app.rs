//! The daemon: everything put together, started in order, and taken down in order.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiError, Client};
use crate::cdi::CdiError;
use crate::claims::allocation::Scope;
use crate::claims::fetch::ClaimSource;
use crate::claims::{ANSWER, Claims, Queue};
use crate::config::{self, ConfigError};
use crate::inventory::Inventory;
use crate::kubelet::plugin::{self, PluginError};
use crate::kubelet::registration::{self, RegistrationError};
use crate::kubelet::socket::{NameError, Sockets};
use crate::ledger::{Ledger, LedgerError};
use crate::maintenance::Maintenance;
use crate::observe::control::{self, Answer, Request};
use crate::observe::status::Reporter;
use crate::publish::Publisher;
use crate::types::{Policy, Roots};
use crate::unix::{Socket, SocketError};
use crate::worker::{Bench, Program};

/// How long the daemon waits at its end for calls and for work under way; the DaemonSet's grace period is longer.
const DRAIN: Duration = ANSWER;

/// What the daemon is told by its flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver's name.
    pub driver: String,
    /// This node's name, also its pool's.
    pub node: String,
    /// UID of our own pod, which names the sockets.
    pub pod_uid: Option<String>,
    /// The policy file; without one no device is ours.
    pub policy: Option<PathBuf>,
    /// A folder of claim files instead of the API server.
    pub claims: Option<PathBuf>,
    /// How to reach the API server from outside a cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The kernel's views.
    pub roots: Roots,
    /// Durable records.
    pub state: PathBuf,
    /// Locks and the control socket; gone after a reboot.
    pub run: PathBuf,
    /// CDI files.
    pub cdi: PathBuf,
    /// The kubelet's folder of registration sockets.
    pub registry: PathBuf,
    /// The kubelet's folder of plugins.
    pub plugins: PathBuf,
}

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The policy file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The API server's address and credentials.
    #[error("{0}; on a node without an API server give --claims FOLDER")]
    Api(#[from] ApiError),
    /// The folder of claim files.
    #[error(
        "cannot read the claims folder {}: {source}; --claims must name a folder of ResourceClaims, one file each",
        path.display()
    )]
    Claims {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The boot's id.
    #[error("cannot read {}: {source}; --proc must name a procfs", path.display())]
    Boot {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run folder.
    #[error("cannot use the run folder {}: {source}; --run must name a folder that we can write", path.display())]
    Run {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state folder.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The CDI folder.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The sockets' names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The plugin service.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The registration service.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
}

/// Runs the daemon until `stop`; then drains: calls first, then registration, then the service socket, then what
/// still runs, each bounded.
///
/// # Errors
/// It cannot start, or one of its services ended by itself.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), AppError> {
    let Options { driver, node, roots, .. } = options.clone();
    let policy = Arc::new(match &options.policy {
        Some(path) => config::load(path)?,
        None => {
            tracing::warn!("no policy file: no device of this node is ours");
            Policy::default()
        }
    });
    if let Some(folder) = &options.claims {
        fs::read_dir(folder).map_err(|source| AppError::Claims { path: folder.clone(), source })?;
    }
    if policy.observes() {
        tracing::warn!("the policy only observes: nothing is granted, reset, overwritten or published");
    }
    let simulated = roots.are_simulated();
    if simulated {
        tracing::warn!(sys = %roots.sys.display(), "simulated: this is no sysfs, the devices are a twin's");
    }
    let boot_file = roots.boot_id();
    let boot_id =
        fs::read_to_string(&boot_file).map_err(|source| AppError::Boot { path: boot_file, source })?;
    let run_folder = |source| AppError::Run { path: options.run.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&options.run).map_err(run_folder)?;
    let (ledger, recovered) = Ledger::open(&options.state, boot_id.trim().to_owned()).await?;
    let bench = Bench { program: Program::default(), roots, run: options.run.clone() };
    let inventory = Arc::new(Inventory::new(bench.clone(), Arc::clone(&policy), Arc::clone(&ledger)));
    let (source, publisher) = match &options.claims {
        Some(folder) => {
            tracing::warn!("claims are read from files, so there is no API server: no slice is published");
            (ClaimSource::Folder(folder.clone()), None)
        }
        None => {
            let client = Client::new(options.kubeconfig.as_deref()).await?;
            let (ledger, inventory) = (Arc::clone(&ledger), Arc::clone(&inventory));
            let publisher = Publisher::new(&client, (&driver, &node), ledger, inventory, simulated);
            (ClaimSource::Api(client), Some(publisher))
        }
    };
    let claims = Arc::new(Claims {
        ledger: Arc::clone(&ledger),
        inventory: Arc::clone(&inventory),
        source,
        scope: Scope { driver: driver.clone(), pool: node.clone(), node: node.clone() },
        bench: bench.clone(),
        cdi: options.cdi.clone(),
        policy: Arc::clone(&policy),
        queue: Queue::default(),
    });
    // All sockets are ours before anything is touched: a daemon that should not run here leaves no trace.
    let sockets = Sockets::new(&options.registry, &options.plugins, &driver, options.pod_uid.as_deref())?;
    let service = sockets.bind_service()?;
    let control = Socket::bind(&control::path(&options.run))?;
    let found_by = sockets.bind_registration()?;
    claims.rebuild_derived(&recovered.granted)?;
    let mut serving = Box::pin(plugin::serve(&service, Arc::clone(&claims), stop.child_token(), DRAIN));
    // Polled once before registration is served, so that the kubelet never finds us unready.
    if let Poll::Ready(ended) = futures_util::poll!(&mut serving) {
        ended?;
    }
    let mut registration = registration::serve(found_by, &driver, sockets.service())?;
    let observed = watch::Sender::default();
    let reporter = Reporter {
        node: node.clone(),
        driver: driver.clone(),
        simulated,
        ledger: Arc::clone(&ledger),
        inventory: Arc::clone(&inventory),
        observed: observed.subscribe(),
        registration: registration.verdict(),
        publish: publisher.as_ref().map(Publisher::view),
    };
    // Not ended by `stop`: what is found against a device in a last prepare still has to be seen.
    let published = CancellationToken::new();
    let publishing = publisher.map(|publisher| tokio::spawn(publisher.run(published.clone())));
    let commands = tokio::spawn(answer_commands(control, reporter, stop.child_token()));
    let maintenance = Arc::new(Maintenance { ledger, inventory, bench, policy, observed });
    let working = tokio::spawn(maintenance.run(stop.child_token()));
    let orphans = tokio::spawn(Arc::clone(&claims).watch_orphans(stop.child_token()));
    tracing::info!(%node, %driver, socket = %sockets.service().display(), "ready");

    let ended = tokio::select! {
        ended = &mut serving => ended.map_err(AppError::from),
        ended = registration.ended() => {
            stop.cancel();
            ended.map_err(AppError::from).and(serving.as_mut().await.map_err(AppError::from))
        }
    };
    drop(serving);
    stop.cancel();
    registration.stop().await;
    drop(service);
    let _ = tokio::time::timeout(DRAIN, claims.queue.drained()).await;
    published.cancel();
    let tasks = async {
        (working.await, commands.await, orphans.await, futures_util::future::join_all(publishing).await)
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), tasks).await;
    tracing::info!("ended");
    ended
}

/// Answers `cleanslate status` and its like until `stop`.
async fn answer_commands(socket: Socket, reporter: Reporter, stop: CancellationToken) {
    let answer = move |request| {
        let reporter = reporter.clone();
        async move {
            match request {
                Request::Status => match serde_json::to_value(reporter.status()) {
                    Ok(status) => Answer::Done(status),
                    Err(error) => Answer::Refused(error.to_string()),
                },
                Request::QuarantineRelease { device, reason } => {
                    match reporter.ledger.lift(&device, &reason).await {
                        Ok(quarantine) => {
                            tracing::warn!(%device, why = %reason, was = %quarantine.reason, "quarantine ended by an operator");
                            // A record always serializes.
                            Answer::Done(serde_json::to_value(quarantine).unwrap_or_default())
                        }
                        Err(error) => Answer::Refused(error.to_string()),
                    }
                }
            }
        }
    };
    if let Err(error) = control::serve(&socket, answer, stop).await {
        tracing::error!(%error, "the control socket is not served; `cleanslate status` will not work");
    }
}
