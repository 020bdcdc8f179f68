//! The health of every device, streamed to the kubelet, which shows it in the status of the pods that have them.
//!
//! What is told is what the ledger has from the last look; a look that is too old is never told as fresh. Streams end
//! at the driver's stop, so that the kubelet takes the devices for unknown and not for what they last were.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::ledger::{DeviceView, Ledger, Snapshot};
use crate::wire::health::dra_resource_health_server::DraResourceHealth;
use crate::wire::health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};

/// Without news the kubelet takes a device for unknown after this.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So often everything is told again, well within the timeout.
const INTERVAL: Duration = Duration::from_secs(10);

/// The service.
#[derive(Clone, Debug)]
pub struct Health {
    /// Whose devices.
    pub ledger: Arc<Ledger>,
    /// Their pool.
    pub pool: String,
    /// Ends every stream.
    pub stop: CancellationToken,
}

#[tonic::async_trait]
impl DraResourceHealth for Health {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(Box::pin(self.stream())))
    }
}

impl Health {
    fn stream(&self) -> impl Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send + use<> {
        // One report waits at most: a kubelet that does not read gets the state of when it does.
        let (reports, stream) = mpsc::channel(1);
        let Self { ledger, pool, stop } = self.clone();
        tokio::spawn(async move {
            let mut changes = ledger.watch();
            let mut last: Option<Vec<DeviceHealth>> = None;
            let mut told = tokio::time::Instant::now();
            loop {
                changes.mark_unchanged();
                let now = report(&ledger.snapshot(), &pool, Timestamp::now());
                let news = now.as_ref().is_some_and(|now| last.as_ref().is_none_or(|last| differ(last, now)));
                if let Some(devices) = now.filter(|_| news || told.elapsed() >= INTERVAL) {
                    (last, told) = (Some(devices.clone()), tokio::time::Instant::now());
                    if reports.send(Ok(NodeWatchResourcesResponse { devices })).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = reports.closed() => return,
                    _ = changes.changed() => {}
                    () = tokio::time::sleep_until(told + INTERVAL) => {}
                }
            }
        });
        ReceiverStream::new(stream)
    }
}

/// Whether a pod's status would read differently; the time of the last look alone is no news.
fn differ(before: &[DeviceHealth], now: &[DeviceHealth]) -> bool {
    let words = |devices: &[DeviceHealth]| {
        let word = |device: &DeviceHealth| (device.device.clone(), device.health, device.message.clone());
        devices.iter().map(word).collect::<Vec<_>>()
    };
    words(before) != words(now)
}

/// Every device as it is now; `None` while nobody looks after devices at all, since a report is a sign of life.
fn report(snapshot: &Snapshot, pool: &str, now: Timestamp) -> Option<Vec<DeviceHealth>> {
    let alive = snapshot.maintained.is_some_and(|at| age(at, now) <= TIMEOUT);
    alive.then(|| snapshot.devices.iter().map(|device| health(device, pool, now)).collect())
}

fn health(device: &DeviceView, pool: &str, now: Timestamp) -> DeviceHealth {
    let (health, message) = match (&device.quarantine, device.state.as_str()) {
        (None, _) if let Some(withheld) = &device.withheld => {
            (HealthStatus::Unhealthy, format!("{}: {}", withheld.reason, withheld.evidence))
        }
        (Some(quarantine), _) => {
            let words = format!("{} ({}): {}", quarantine.reason, quarantine.class, quarantine.evidence);
            (HealthStatus::Unhealthy, words)
        }
        (None, "granted") => match device.checked.map(|at| age(at, now)) {
            Some(age) if age <= TIMEOUT => {
                (HealthStatus::Healthy, device.degraded.clone().unwrap_or_default())
            }
            Some(age) => (HealthStatus::Unknown, format!("not looked at for {} s", age.as_secs())),
            None => (HealthStatus::Unknown, "not looked at yet".to_owned()),
        },
        (None, _) if device.proof.is_some() => {
            (HealthStatus::Healthy, device.degraded.clone().unwrap_or_default())
        }
        (None, state) => (HealthStatus::Unknown, format!("not proved: {state} {}", device.detail)),
    };
    DeviceHealth {
        device: Some(DeviceIdentifier { pool_name: pool.to_owned(), device_name: device.name.clone() }),
        health: health.into(),
        last_updated_time: device.checked.unwrap_or(now).as_second(),
        health_check_timeout_seconds: i64::try_from(TIMEOUT.as_secs()).unwrap_or(0),
        message,
    }
}

fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
