//! The one reconciler between what we know and what the API server has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::device;
use super::features::Features;
use super::mirror::Mirror;
use super::pool::Pool;
use super::view::{Failure, PublishView};
use super::writes::{PublishError, Step};
use crate::api::{Client, Slices};
use crate::inventory::{Inventory, Known, State};
use crate::ledger::Ledger;

/// What happens within this time is written at once: the devices of a claim change side by side.
const GATHER: Duration = Duration::from_millis(50);
/// How often what was written is looked at anew, before somebody else is taken to be writing too.
const ROUNDS: usize = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps the API server's slices of this node as they should be.
#[derive(Debug)]
pub struct Publisher {
    pub(super) slices: Slices,
    pub(super) pool: Pool,
    pub(super) mirror: Mirror,
    pub(super) features: Features,
    /// The node's object was looked up in this pass.
    pub(super) owner_is_fresh: bool,
    ledger: Arc<Ledger>,
    inventory: Arc<Inventory>,
    simulated: bool,
    view: watch::Sender<PublishView>,
    /// The watch broke: what we have heard may be old.
    unsure: bool,
    failures: u32,
}

impl Publisher {
    /// A publisher that has not begun.
    #[must_use]
    pub fn new(
        client: &Client,
        (driver, node): (&str, &str),
        ledger: Arc<Ledger>,
        inventory: Arc<Inventory>,
        simulated: bool,
    ) -> Self {
        Self {
            slices: client.slices(driver, node),
            pool: Pool { driver: driver.to_owned(), node: node.to_owned(), owner: String::new() },
            mirror: Mirror::default(),
            features: Features::default(),
            owner_is_fresh: false,
            ledger,
            inventory,
            simulated,
            view: watch::Sender::default(),
            unsure: false,
            failures: 0,
        }
    }

    /// What is published, as it changes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<PublishView> {
        self.view.subscribe()
    }

    /// Publishes until `stop`. The slices stay then: the next instance finds them, or the kubelet wipes them.
    ///
    /// Nothing is written before the devices have been looked at once, so that the first slice of all shows what the
    /// ledger knows against each.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.ledger.watch();
        let mut looks = self.inventory.watch();
        let mut events = std::pin::pin!(self.slices.watch());
        let mut retry: Option<Instant> = None;
        loop {
            let again = retry.unwrap_or_else(Instant::now);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => match event {
                    Ok(event) => self.mirror.hear(event),
                    Err(error) => {
                        self.unsure = true;
                        retry.get_or_insert(Instant::now() + self.failed(&error.into()));
                    }
                },
                _ = changes.changed() => {}
                _ = looks.changed() => {}
                () = tokio::time::sleep_until(again), if retry.is_some() => {}
            }
            if retry.is_some_and(|at| at > Instant::now()) {
                continue;
            }
            tokio::time::sleep(GATHER).await;
            changes.mark_unchanged();
            let look = looks.borrow_and_update().clone();
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.pass(look) => ended,
            };
            retry = match ended {
                Ok(()) => None,
                Err(error) => Some(Instant::now() + self.failed(&error)),
            };
        }
    }

    async fn pass(&mut self, look: State) -> Result<(), PublishError> {
        let known = match look {
            State::Unread => return Ok(()),
            State::Failed(why) => return Err(PublishError::Unread(why)),
            State::Read(known) => known,
        };
        if self.unsure {
            self.mirror.replace(self.slices.list().await?);
            self.unsure = false;
        }
        if self.mirror.slices().is_none() {
            return Ok(());
        }
        self.owner_is_fresh = false;
        let devices = self.devices(&known);
        for _ in 0..ROUNDS {
            if let Step::Done { left_out } = self.write(&devices).await? {
                self.succeeded(left_out);
                return Ok(());
            }
        }
        Err(PublishError::Unsettled)
    }

    fn devices(&self, known: &BTreeMap<String, Result<Arc<Known>, String>>) -> Vec<Device> {
        if self.inventory.observes() {
            return Vec::new();
        }
        device::devices(&self.ledger.snapshot(), known, self.simulated)
    }

    fn succeeded(&mut self, left_out: Vec<String>) {
        let slices = self.mirror.slices().into_iter().flat_map(BTreeMap::values);
        let devices = slices.clone().map(|slice| slice.spec.devices.iter().flatten().count()).sum();
        let slices = slices.count();
        let was_failing = self.view.borrow().failing().is_some();
        if std::mem::take(&mut self.failures) > 0 || was_failing {
            tracing::info!(slices, devices, "the API server has what it should again");
        }
        let generation = self.mirror.generation();
        self.view.send_modify(|view| {
            let (last_error, last_success) = (view.last_error.take(), Some(Timestamp::now()));
            *view = PublishView { slices, devices, generation, last_success, last_error, left_out };
        });
    }

    /// Notes an error, tells it if it is another than before, and says how long to wait.
    fn failed(&mut self, error: &PublishError) -> Duration {
        let text = error.to_string();
        let told = self.view.borrow().failing().is_some_and(|failure| failure.error == text);
        let pause = pause(self.failures, &self.pool.node).max(error.pause());
        if !told {
            tracing::warn!(error = %text, "the API server has not what it should; it is tried again");
        }
        self.failures += 1;
        self.view.send_modify(|view| {
            view.last_error = Some(Failure { at: Timestamp::now(), error: text });
        });
        pause
    }
}

/// Longer with each failure, and another on each node: a whole fleet waits for the same server.
fn pause(failures: u32, node: &str) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
    let share = crc32fast::hash(format!("{node} {failures}").as_bytes()) % 1000;
    whole / 2 + whole * share / 2000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ_between_nodes() {
        let ms = |failures, node| pause(failures, node).as_millis();
        for failures in 0..40 {
            let whole = (200 << failures.min(16)).min(30_000);
            assert!((whole / 2..whole).contains(&ms(failures, "a")), "{failures}");
        }
        assert_ne!(ms(20, "a"), ms(20, "b"));
    }
}
