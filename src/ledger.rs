//! Sole owner of device state and epochs. Everyone else reads a snapshot or asks here.
//!
//! State lives in memory under one mutex, under which nothing is awaited; what must outlive us is written by
//! [`crate::store`]. Order: what restricts is written before what restricts is removed, and memory is restricted
//! before the disk, freed after it.

mod breaker;
mod claims;
mod device;
mod found;
mod lease;
mod maintenance;
mod record;
mod recover;
mod refusal;
mod release;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::store::{Change, Folder, Store, StoreError};
use crate::types::{Baseline, ClaimRef, ClaimUid, Counts, Identity, PciAddress, Reason, Token};

pub use breaker::Withheld;
pub use claims::Wanted;
pub use device::{Cause, Misfit, Phase};
use device::{Device, Event};
pub use lease::{Evidence, Finish, Lease, Proved, Unsealed};
pub use maintenance::Chore;
use record::DeviceRecord;
pub use record::{ClaimDevice, ClaimRecord, LastProof, Quarantine, Raised, RecordPhase};
pub use recover::{LedgerError, Recovered};
pub use refusal::LeaseError;
pub use release::Released;
use snapshot::Doing;
pub use snapshot::{ClaimView, DeviceView, QuarantineView, Snapshot, Unverified};

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<State>,
    store: Store,
    changed: watch::Sender<u64>,
    boot_id: String,
    term: u64,
}

#[derive(Debug, Default)]
struct State {
    devices: BTreeMap<Identity, Device>,
    claims: BTreeMap<ClaimUid, Entry>,
    /// Releasing records and the devices that keep each on the disk.
    releasing: BTreeMap<String, BTreeSet<Identity>>,
    /// Devices whose cleaning a call of the kubelet waits for: nobody else can be offered them meanwhile.
    awaited: BTreeSet<Identity>,
    /// What a working device's worker is doing, for people.
    steps: BTreeMap<Identity, Doing>,
    /// When a granted device was last looked at and found well.
    checked: BTreeMap<Identity, jiff::Timestamp>,
    /// Devices that failed and are not in quarantine for it, since too many others are; until they are proved.
    withheld: BTreeMap<Identity, Withheld>,
    /// When the loop that looks after devices last went round.
    maintained: Option<jiff::Timestamp>,
    /// Records that could not be read.
    damaged: Vec<String>,
    /// Moves of damaged records to where a person finds them.
    aside: Vec<Change>,
    /// A damaged claim may have had any device: those that turn up free are nobody's to give.
    suspect: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    record: ClaimRecord,
    /// Its release was asked for while it was being prepared.
    stop: bool,
}

impl Ledger {
    /// Signals every change of state.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The boot that this process runs on.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Puts a device in quarantine, whoever holds it; a worse reason stands.
    ///
    /// # Errors
    /// It could not be written; it holds in memory and is written as soon as the disk allows.
    pub async fn quarantine(
        &self,
        identity: &Identity,
        reason: Reason,
        evidence: String,
        token: Option<Token>,
    ) -> Result<(), StoreError> {
        let changes = {
            let mut state = self.lock();
            let mut changes = state.quarantine(identity, reason, evidence, token, Raised::Elsewhere);
            changes.extend(state.settled(identity));
            changes
        };
        self.signal();
        self.write_or_owe(changes).await
    }

    /// Ends a quarantine on an operator's word. The device has no proof then, so it is proved before anyone gets it;
    /// what was counted before is held against it no more.
    ///
    /// # Errors
    /// There is no such device in quarantine, or the record could not be removed.
    pub async fn lift(&self, device: &str, why: &str) -> Result<Quarantine, LiftError> {
        let (identity, quarantine, record) = {
            let mut state = self.lock();
            let named = |d: &&mut Device| {
                [d.identity.as_str(), &d.address.to_string(), &d.address.device_name()].contains(&device)
            };
            // A card that was replaced and its successor share an address: the one in quarantine is meant.
            let mut found: Vec<_> = state.devices.values_mut().filter(named).collect();
            found.sort_by_key(|found| found.quarantine.is_none());
            let found = found.into_iter().next().ok_or_else(|| LiftError::Unknown(device.to_owned()))?;
            let quarantine = found.quarantine.clone().ok_or_else(|| LiftError::Not(device.to_owned()))?;
            let at = jiff::Timestamp::now();
            found.kept.lifted =
                Some(record::Lifted { quarantine: quarantine.clone(), why: why.to_owned(), at });
            found.kept.baseline = None;
            (found.identity.clone(), quarantine, device_record(found))
        };
        let changes = vec![put(Folder::Devices, identity.as_str(), &record), remove_quarantine(&identity)];
        self.store.apply(changes).await?;
        let worse = {
            let mut state = self.lock();
            let now = state.devices.get(&identity).and_then(|device| device.quarantine.clone());
            // What was raised while the disk was written was not what the operator meant.
            let worse = now.filter(|now| *now != quarantine);
            if worse.is_none() {
                state.apply(&identity, Event::Lift)?;
            }
            worse
        };
        self.signal();
        if let Some(worse) = worse {
            self.write_or_owe(vec![put(Folder::Quarantine, identity.as_str(), &worse)]).await?;
            return Err(LiftError::Changed(device.to_owned(), worse.reason));
        }
        Ok(quarantine)
    }

    /// Tries once more to write what could not be written.
    ///
    /// # Errors
    /// The disk still refuses.
    pub async fn settle(&self) -> Result<(), StoreError> {
        self.write_or_owe(Vec::new()).await
    }

    /// Keeps what a proof counted, for later ones to be held against; it reaches the disk with the device's next
    /// record.
    fn remember(&self, identity: &Identity, counts: Counts, degraded: Option<String>) {
        if let Some(device) = self.lock().devices.get_mut(identity) {
            let (boot_id, at) = (self.boot_id.clone(), jiff::Timestamp::now());
            device.kept.baseline = Some(Baseline { boot_id, at, counts });
            device.kept.degraded = degraded;
        }
    }

    async fn write_or_owe(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        if changes.is_empty() && self.store.unwritten() == 0 {
            return Ok(());
        }
        let result = self.store.owe(changes).await;
        if let Err(error) = &result {
            tracing::error!(%error, "a record could not be written; it will be tried again");
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // State is only ever replaced whole, so a panic elsewhere cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    fn lease_of(self: &Arc<Self>, identity: Identity, address: PciAddress, token: Token) -> Lease {
        Lease::new(Arc::clone(self), identity, address, token)
    }
}

impl State {
    fn apply(&mut self, identity: &Identity, event: Event) -> Result<(), Misfit> {
        let Some(device) = self.devices.get_mut(identity) else { return Ok(()) };
        *device = device.on(event)?;
        if !device.is_worked_on() {
            self.steps.remove(identity);
        }
        if !device.is_granted() {
            self.checked.remove(identity);
        }
        if device.proof.is_some() || device.quarantine.is_some() || device.is_granted() {
            self.withheld.remove(identity);
        }
        Ok(())
    }

    /// The event, where it is already known to fit; if it does not, the state stays and the log says so.
    fn force(&mut self, identity: &Identity, event: Event) {
        if let Err(error) = self.apply(identity, event) {
            tracing::error!(%error, "stale or wrong event ignored");
        }
    }

    fn quarantine(
        &mut self,
        identity: &Identity,
        reason: Reason,
        evidence: String,
        token: Option<Token>,
        raised: Raised,
    ) -> Vec<Change> {
        let Some(device) = self.devices.get(identity) else { return Vec::new() };
        if let Some(alike) = self.too_many(identity, reason) {
            tracing::error!(
                device = %device.address, %reason, evidence, alike,
                "not put in quarantine, since so many others are for the same reason; it stays refused until it is proved"
            );
            let at = jiff::Timestamp::now();
            if let Some(device) = self.devices.get_mut(identity) {
                device.proof = None;
            }
            self.withheld.insert(identity.clone(), Withheld { reason, evidence, at, alike });
            return Vec::new();
        }
        let attempts = device.quarantine.as_ref().map_or(0, |now| now.attempts);
        let quarantine = Quarantine {
            identity: identity.clone(),
            address: device.address,
            reason,
            evidence,
            token,
            since: jiff::Timestamp::now(),
            attempts,
            raised,
            other: serde_json::Map::new(),
        };
        self.force(identity, Event::Quarantine(quarantine));
        let now = self.devices.get(identity).and_then(|device| device.quarantine.as_ref());
        now.map(|now| put(Folder::Quarantine, identity.as_str(), now)).into_iter().collect()
    }

    /// Releasing records that this device no longer keeps on the disk; to be removed after what replaces them is
    /// written.
    fn settled(&mut self, identity: &Identity) -> Vec<Change> {
        let waits = self.devices.get(identity).is_some_and(|device| device.holder != device::Holder::Free);
        if waits {
            return Vec::new();
        }
        let mut done = Vec::new();
        self.releasing.retain(|name, devices| {
            devices.remove(identity);
            if devices.is_empty() {
                done.push(Change::Remove(Folder::Releasing, name.clone()));
            }
            !devices.is_empty()
        });
        done
    }
}

/// Why an operator's word did not end a quarantine.
#[derive(Debug, thiserror::Error)]
pub enum LiftError {
    /// No such device.
    #[error("{0}: no device of ours has this address, name or serial; `cleanslate status` lists them")]
    Unknown(String),
    /// It is not in quarantine.
    #[error("{0} is not in quarantine; `cleanslate quarantine list` has those that are")]
    Not(String),
    /// It got another quarantine meanwhile, which stands.
    #[error("{0} has just got another quarantine, {1}, which stands")]
    Changed(String, Reason),
    /// The disk refused; the quarantine stands.
    #[error("{0}; the quarantine stands")]
    Store(#[from] StoreError),
    /// The state changed in between.
    #[error("{0}")]
    Misfit(#[from] Misfit),
}

fn device_record(device: &Device) -> DeviceRecord {
    DeviceRecord {
        identity: device.identity.clone(),
        address: device.address,
        token: device.token,
        proof: device.proof.clone(),
        kept: device.kept.clone(),
    }
}

fn remove_quarantine(identity: &Identity) -> Change {
    Change::Remove(Folder::Quarantine, identity.as_str().to_owned())
}

fn put(folder: Folder, name: &str, record: &impl serde::Serialize) -> Change {
    // Records hold strings, numbers and maps with string keys only: they always serialize.
    let value = serde_json::to_value(record).unwrap_or_default();
    Change::Put(folder, name.to_owned(), value)
}

fn same(a: &ClaimRef, b: &ClaimRef) -> bool {
    a.uid == b.uid
}

#[cfg(test)]
mod tests;
