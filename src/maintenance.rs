//! What nobody asked for: first proofs, cleaning after a release or a crash, re-sanitization of quarantined
//! devices: each a lease and a proof like a claim's, under an epoch of its own. And looks at devices in use.

mod monitor;
mod observer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use monitor::Monitor;
pub use observer::Observation;
use tokio::sync::Notify;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::inventory::{Inventory, Known};
use crate::ledger::{Cause, Chore, Ledger};
use crate::proof::{Patience, prove};
use crate::types::{Identity, Policy, Reason};
use crate::worker::Bench;

/// Between two looks at what is due when nothing changes.
const TICK: Duration = Duration::from_secs(1);
/// Before a chore that was not done, and cost nobody a quarantine, is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two looks for devices that came, went or were replaced.
const LOOK: Duration = Duration::from_secs(60);
/// The same while one of them could not be read: an earlier worker may just be letting go of it.
const LOOK_SOON: Duration = Duration::from_secs(2);

/// The maintenance of a node.
#[derive(Debug)]
pub struct Maintenance {
    /// The sole owner of device state.
    pub ledger: Arc<Ledger>,
    /// Which devices are ours.
    pub inventory: Arc<Inventory>,
    /// Where workers run.
    pub bench: Bench,
    /// How the node is run.
    pub policy: Arc<Policy>,
    /// What would be done, while the policy only observes.
    pub observed: watch::Sender<Vec<Observation>>,
}

#[derive(Debug, Default)]
struct Agenda {
    running: BTreeSet<Identity>,
    /// When the next try of a device's chore is due; another cause is another chore.
    due: BTreeMap<Identity, (Cause, Instant)>,
    /// A chore has ended: another may be due before anything else happens.
    ended: Arc<Notify>,
}

impl Agenda {
    /// When the next chore will be due, of those that were not.
    fn next_after(&self, now: Instant) -> Option<Instant> {
        let waiting = self.due.iter().filter(|(identity, _)| !self.running.contains(*identity));
        waiting.map(|(_, (_, due))| *due).filter(|due| *due > now).min()
    }
}

impl Maintenance {
    /// Works until it is stopped; then ends once every chore under way has ended.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let agenda = Arc::new(Mutex::new(Agenda::default()));
        let tasks = TaskTracker::new();
        let mut changes = self.ledger.watch();
        self.inventory.rescan().await;
        let mut looked = Instant::now();
        let ended = Arc::clone(&lock(&agenda).ended);
        let mut monitor = Monitor::default();
        let mut observe = tokio::time::interval(observer::INTERVAL);
        let mut ticks = tokio::time::interval(TICK);
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            self.ledger.maintained();
            let now = Instant::now();
            if !self.policy.observes() {
                self.start_due(&agenda, &tasks);
            }
            monitor.go_round(&self, &tasks);
            let next = lock(&agenda).next_after(now);
            tokio::select! {
                _ = changes.changed() => {}
                () = ended.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or(now + TICK).into()) => {}
                _ = ticks.tick() => {
                    // What fails again is logged where it fails.
                    let _ = self.ledger.settle().await;
                    let pause = if self.inventory.is_incomplete() { LOOK_SOON } else { LOOK };
                    if looked.elapsed() > pause {
                        self.inventory.rescan().await;
                        looked = Instant::now();
                    }
                }
                _ = observe.tick(), if self.policy.observes() => {
                    tasks.spawn(observer::look(Arc::clone(&self)));
                }
                () = stop.cancelled() => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    fn start_due(self: &Arc<Self>, agenda: &Arc<Mutex<Agenda>>, tasks: &TaskTracker) {
        let usable = self.inventory.usable();
        for chore in self.ledger.chores() {
            let Some(known) = usable.iter().find(|known| known.subject.identity == chore.identity) else {
                continue;
            };
            if !self.is_due(&chore, agenda) {
                continue;
            }
            let (this, agenda, known) = (Arc::clone(self), Arc::clone(agenda), Arc::clone(known));
            tasks.spawn(async move {
                let again = this.chore(&chore, &known).await;
                let mut agenda = lock(&agenda);
                agenda.running.remove(&chore.identity);
                match again {
                    Some(pause) => agenda.due.insert(chore.identity, (chore.cause, Instant::now() + pause)),
                    None => agenda.due.remove(&chore.identity),
                };
                agenda.ended.notify_one();
            });
        }
    }

    fn is_due(&self, chore: &Chore, agenda: &Mutex<Agenda>) -> bool {
        if chore.cause == Cause::Resanitization && chore.attempts >= self.policy.release.attempts {
            return false;
        }
        let mut agenda = lock(agenda);
        if agenda.running.contains(&chore.identity) {
            return false;
        }
        let now = Instant::now();
        let wait = match chore.cause {
            Cause::FirstProof => jitter(&chore.identity, self.policy.release.first_proof_within),
            Cause::Resanitization => self.policy.release.retry,
            Cause::AfterRelease(_) | Cause::AfterCrash(_) => Duration::ZERO,
        };
        let fresh = (chore.cause.clone(), now + wait);
        let entry = agenda.due.entry(chore.identity.clone()).or_insert_with(|| fresh.clone());
        if entry.0 != chore.cause {
            *entry = fresh;
        }
        let due = entry.1 <= now;
        if due {
            agenda.running.insert(chore.identity.clone());
        }
        due
    }

    /// Does a chore; the time to wait before another try, if there is to be one.
    async fn chore(&self, chore: &Chore, known: &Known) -> Option<Duration> {
        let lease = match self.ledger.maintain(chore).await {
            Ok(Some(lease)) => lease,
            // Somebody was faster; or the ledger cannot, and said why.
            Ok(None) => return Some(AGAIN),
            Err(error) => {
                tracing::error!(device = %chore.address, %error, "maintenance cannot begin");
                return Some(AGAIN);
            }
        };
        let patience = match chore.cause {
            Cause::AfterRelease(_) | Cause::AfterCrash(_) => self.policy.release.patience,
            Cause::FirstProof | Cause::Resanitization => Duration::ZERO,
        };
        match prove(lease, &known.subject, Patience(patience), &self.bench, None).await {
            Ok(proved) => {
                let (lease, finish) = proved.give_up();
                tracing::info!(device = %chore.address, token = %lease.token(), cause = %chore.cause, "proved");
                self.ledger.finish(lease, finish).await;
                None
            }
            Err(unproved) => {
                let (lease, finish, verdict) = unproved.end();
                tracing::warn!(device = %chore.address, token = %lease.token(), cause = %chore.cause, ?verdict, "not proved");
                if matches!(verdict.device, Some((Reason::IdentityChanged, _))) {
                    self.inventory.forget(lease.address());
                }
                self.ledger.finish(lease, finish).await;
                let quarantined = chore.cause == Cause::Resanitization || verdict.device.is_some();
                if self.ledger.is_withheld(&chore.identity) {
                    return Some(self.policy.release.retry);
                }
                (!quarantined).then_some(AGAIN)
            }
        }
    }
}

fn lock(agenda: &Mutex<Agenda>) -> MutexGuard<'_, Agenda> {
    agenda.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fixed part of the span, by who the device is: a fleet's devices do not all start at once.
fn jitter(identity: &Identity, span: Duration) -> Duration {
    let share = f64::from(crc32fast::hash(identity.as_str().as_bytes())) / f64::from(u32::MAX);
    span.mul_f64(share)
}
