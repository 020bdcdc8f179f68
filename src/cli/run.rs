//! `cleanslate run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{USAGE, fail};
use crate::app::{self, Options};
use crate::observe::logging::{self, Format};
use crate::types::Roots;

const EXAMPLES: &str = "\
Examples:
  cleanslate run --node-name worker-7 --policy /etc/cleanslate/policy.yaml
      as in deploy/minimal.yaml: claims are read from the API server of the cluster
  cleanslate run --node-name worker-7 --policy policy.yaml --claims ./claims
      claims are read from files, one ResourceClaim each, YAML or JSON: for nodes without an API server
  cleanslate run --node-name worker-7
      without a policy no device is ours: nothing is touched

Stop it with SIGTERM: calls and work under way are finished first, for 40 s at most.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    /// Name of this node, also the name of its pool
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: String,
    /// Name of the driver, as in ResourceSlices and DeviceClasses
    #[arg(long, value_name = "NAME", default_value = "cleanslate.dev")]
    driver_name: String,
    /// UID of our own pod; names our sockets, so that an upgrade can run beside the old instance
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pod_uid: Option<String>,
    /// Policy file: which devices are ours and how each is cleaned
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Read claims from the files of this folder, not from the API server
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    claims: Option<PathBuf>,
    /// How to reach the API server from outside a pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// sysfs
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys: PathBuf,
    /// Device nodes
    #[arg(long, value_name = "DIR", default_value = "/dev")]
    dev: PathBuf,
    /// procfs of the host
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    /// Durable records; must survive reboots and be on a local disk
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cleanslate")]
    state: PathBuf,
    /// Locks and the control socket; must not survive a reboot
    #[arg(long, value_name = "DIR", default_value = "/run/cleanslate")]
    run: PathBuf,
    /// CDI files, as the container runtime reads them
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    cdi: PathBuf,
    /// The kubelet's folder of registration sockets; the same path inside and outside of the container
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins_registry")]
    registry: PathBuf,
    /// The kubelet's folder of plugins; the same path inside and outside of the container
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins")]
    plugins: PathBuf,
    /// How much to log: off, error, warn, info, debug, trace, or by module
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "CLEANSLATE_LOG")]
    log_level: String,
    /// How to log; JSON unless standard error is a terminal
    #[arg(long, value_enum)]
    log_format: Option<Format>,
}

pub(super) fn run(args: RunArgs) -> ExitCode {
    if let Err(error) = logging::init(args.log_format, &args.log_level) {
        fail(error);
        return ExitCode::from(USAGE);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format!("cannot start: {error}")),
    };
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(stop_on_signal(stop.clone()));
        app::run(args.options(), stop).await
    });
    // A worker that is stuck in the kernel must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

impl RunArgs {
    fn options(self) -> Options {
        Options {
            driver: self.driver_name,
            node: self.node_name,
            pod_uid: self.pod_uid,
            policy: self.policy,
            claims: self.claims,
            kubeconfig: self.kubeconfig,
            roots: Roots { sys: self.sys, dev: self.dev, proc: self.proc },
            state: self.state,
            run: self.run,
            cdi: self.cdi,
            registry: self.registry,
            plugins: self.plugins,
        }
    }
}

async fn stop_on_signal(stop: CancellationToken) {
    let signal = signalled().await;
    tracing::info!("{signal}: draining");
    stop.cancel();
}

/// Waits for a signal that asks this process to end; its name.
pub(super) async fn signalled() -> &'static str {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => signals.recv().await,
            Err(error) => {
                tracing::error!(%error, "a signal cannot be waited for");
                std::future::pending().await
            }
        }
    };
    tokio::select! {
        _ = wait(SignalKind::terminate()) => "SIGTERM",
        _ = wait(SignalKind::interrupt()) => "SIGINT",
    }
}
