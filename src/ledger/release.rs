//! The end of a claim: its devices are taken back, and cleaned while a call of the kubelet waits or after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::device::{By, Cause, Event};
use super::record::RecordPhase;
use super::{Entry, Ledger, device_record, put, same};
use crate::store::{Change, Folder};
use crate::types::{ClaimUid, Identity};

/// A claim's devices, taken back. While this lives, a call of the kubelet waits for their cleaning.
#[derive(Debug)]
#[must_use]
pub struct Released {
    ledger: Arc<Ledger>,
    devices: BTreeSet<Identity>,
}

impl Released {
    /// Those that had to be cleaned; none if the claim had none.
    #[must_use]
    pub fn devices(&self) -> &BTreeSet<Identity> {
        &self.devices
    }

    /// Those that still wait for their cleaning or are in it.
    #[must_use]
    pub fn unclean(&self) -> BTreeSet<Identity> {
        let state = self.ledger.lock();
        let held = |identity: &&Identity| {
            let by = state.devices.get(identity).and_then(|device| device.holder.by());
            matches!(by, Some(By::Maintenance(_)))
        };
        self.devices.iter().filter(held).cloned().collect()
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        state.awaited.retain(|identity| !self.devices.contains(identity));
        drop(state);
        self.ledger.signal();
    }
}

impl Ledger {
    /// Takes a claim's devices back; they wait for cleaning, as somebody waits for it who holds what is returned.
    ///
    /// The devices are taken back in memory whatever the disk says; a move that fails is owed.
    pub async fn release(self: &Arc<Self>, uid: &ClaimUid) -> Released {
        let mut released = Released { ledger: Arc::clone(self), devices: BTreeSet::new() };
        let changes = {
            let mut state = self.lock();
            let Some(Entry { record, .. }) = state.claims.remove(uid) else { return released };
            let cause = match record.phase {
                RecordPhase::Granted => Cause::AfterRelease(record.claim.clone()),
                RecordPhase::Preparing => Cause::AfterCrash(record.claim.clone()),
            };
            for device in &record.devices {
                let held = state.devices.get(&device.identity).and_then(|d| d.holder.by());
                if matches!(held, Some(By::Claim(claim)) if same(claim, &record.claim)) {
                    state.force(&device.identity, Event::Release(cause.clone()));
                }
            }
            let dirty = |identity: &Identity| {
                state.devices.get(identity).is_some_and(|d| d.wants_cleaning().is_some())
            };
            let waiting: BTreeSet<_> =
                record.devices.iter().map(|d| d.identity.clone()).filter(dirty).collect();
            state.awaited.extend(waiting.iter().cloned());
            let here = (Folder::Claims, uid.as_str().to_owned());
            // Those in quarantine keep no record of the claim on the disk: what they were last used for, their
            // epochs, still has to stand somewhere.
            let settled = record.devices.iter().filter(|d| !waiting.contains(&d.identity));
            let settled = settled.filter_map(|d| state.devices.get(&d.identity));
            let mut changes: Vec<_> =
                settled.map(|d| put(Folder::Devices, d.identity.as_str(), &device_record(d))).collect();
            if waiting.is_empty() {
                changes.push(Change::Remove(here.0, here.1));
            } else {
                let name = format!("{uid}.{}", record.grant_id());
                state.releasing.insert(name.clone(), waiting.clone());
                changes.push(Change::Move(here, (Folder::Releasing, name)));
            }
            released.devices = waiting;
            changes
        };
        self.signal();
        let _ = self.write_or_owe(changes).await;
        released
    }
}
