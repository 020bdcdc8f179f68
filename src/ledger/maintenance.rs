//! What the ledger wants done that nobody asked for, and how such work begins and ends.

use std::sync::Arc;

use super::device::{By, Cause, Device, Event, Holder};
use super::record::{LastProof, Raised};
use super::{Finish, Lease, Ledger, State, claims::next_token, device_record, put, remove_quarantine};
use crate::store::{Folder, StoreError};
use crate::types::{Baseline, Identity, PciAddress, Reason};

/// A device that should be proved without a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chore {
    /// Which device.
    pub identity: Identity,
    /// Where it is.
    pub address: PciAddress,
    /// What for.
    pub cause: Cause,
    /// For a re-sanitization: attempts so far.
    pub attempts: u32,
}

impl Ledger {
    /// Every device that waits for cleaning, has no proof on this boot, or may leave its quarantine by one.
    #[must_use]
    pub fn chores(&self) -> Vec<Chore> {
        let state = self.lock();
        state.devices.values().filter_map(|device| chore(&state, device)).collect()
    }

    /// The loop that looks after devices went round.
    pub fn maintained(&self) {
        self.lock().maintained = Some(jiff::Timestamp::now());
    }

    /// Devices that pods have, with the earlier look that the next is held against.
    #[must_use]
    pub fn granted(&self) -> Vec<(Identity, Option<Baseline>)> {
        let state = self.lock();
        let granted =
            state.devices.values().filter(|device| device.is_granted() && device.quarantine.is_none());
        granted.map(|device| (device.identity.clone(), device.kept.baseline.clone())).collect()
    }

    /// Whether a device was looked at under its present grant.
    #[must_use]
    pub fn is_checked(&self, identity: &Identity) -> bool {
        self.lock().checked.contains_key(identity)
    }

    /// A granted device was looked at and found well.
    pub fn checked(&self, identity: &Identity) {
        let mut state = self.lock();
        if state.devices.get(identity).is_some_and(Device::is_granted) {
            state.checked.insert(identity.clone(), jiff::Timestamp::now());
        }
        drop(state);
        self.signal();
    }

    /// Leases the device of a chore under a new epoch, durably; `None` if it is not to be done any more.
    ///
    /// # Errors
    /// The epoch could not be written; the device is as before.
    pub async fn maintain(self: &Arc<Self>, due: &Chore) -> Result<Option<Lease>, StoreError> {
        let (lease, record, before) = {
            let mut state = self.lock();
            let Some(device) = state.devices.get(&due.identity).cloned() else { return Ok(None) };
            if chore(&state, &device).is_none_or(|now| now.cause != due.cause) {
                return Ok(None);
            }
            let token = next_token(device.token, self.term);
            let by = By::Maintenance(due.cause.clone());
            if let Err(error) = state.apply(&due.identity, Event::Lease { by, token }) {
                tracing::error!(%error, "maintenance cannot begin");
                return Ok(None);
            }
            let Some(now) = state.devices.get(&due.identity) else { return Ok(None) };
            (self.lease_of(due.identity.clone(), now.address, token), device_record(now), device)
        };
        self.signal();
        match self.store.apply(vec![put(Folder::Devices, due.identity.as_str(), &record)]).await {
            Ok(()) => Ok(Some(lease)),
            Err(error) => {
                if let Some(now) = self.lock().devices.get_mut(&due.identity) {
                    now.holder = before.holder;
                }
                lease.settle();
                self.signal();
                Err(error)
            }
        }
    }

    /// Ends a maintenance lease. A proof makes the device free, and ends the quarantine that the lease was for.
    pub async fn finish(&self, lease: Lease, finish: Finish) {
        let identity = lease.identity().clone();
        let changes = {
            let mut state = self.lock();
            let mut changes = Vec::new();
            if let Finish::Bad(reason, evidence) = &finish {
                changes.extend(state.quarantine(
                    &identity,
                    *reason,
                    evidence.clone(),
                    Some(lease.token()),
                    Raised::Elsewhere,
                ));
            }
            let cause = match state.devices.get(&identity).and_then(|device| device.holder.by()) {
                Some(By::Maintenance(cause)) => Some(cause.clone()),
                _ => None,
            };
            let proof = finish.proof(&self.boot_id);
            let dirty = matches!(cause, Some(Cause::AfterRelease(_) | Cause::AfterCrash(_)));
            let quarantined = state.devices.get(&identity).is_some_and(|device| device.quarantine.is_some());
            match (&proof, cause) {
                (None, Some(_)) if dirty && !quarantined => state.force(&identity, Event::Again),
                (Some(_), Some(Cause::Resanitization)) => {
                    state.force(&identity, Event::Lift);
                    state.force(&identity, Event::Finish(proof));
                }
                (None, Some(Cause::Resanitization)) => {
                    // What says nothing against the device is no attempt: a lock that is held, a fault of the node.
                    let tried = matches!(finish, Finish::Bad(..));
                    let quarantine = state.devices.get_mut(&identity).and_then(|d| d.quarantine.as_mut());
                    if let Some(now) = quarantine.filter(|_| tried) {
                        now.attempts += 1;
                        changes.push(put(Folder::Quarantine, identity.as_str(), now));
                    }
                    state.force(&identity, Event::Finish(None));
                }
                _ => state.force(&identity, Event::Finish(proof)),
            }
            if let Some(device) = state.devices.get(&identity) {
                changes.push(put(Folder::Devices, identity.as_str(), &device_record(device)));
                if device.quarantine.is_none() {
                    changes.push(remove_quarantine(&identity));
                }
            }
            changes.extend(state.settled(&identity));
            changes
        };
        lease.settle();
        self.signal();
        // What cannot be written is owed; memory is right meanwhile.
        let _ = self.write_or_owe(changes).await;
    }
}

fn chore(state: &State, device: &Device) -> Option<Chore> {
    // A card that is not there, or whose predecessor a pod may still have, is left alone.
    if device.kept.gone || state.claim_at(device.address, &device.identity).is_some() {
        return None;
    }
    let cause = match (&device.holder, &device.quarantine, &device.proof) {
        (Holder::Held { .. }, _, _) => device.wants_cleaning()?.clone(),
        (Holder::Free, Some(quarantine), _) => {
            may_be_tried(quarantine.reason).then_some(Cause::Resanitization)?
        }
        (Holder::Free, None, Some(_)) => return None,
        (Holder::Free, None, None) => Cause::FirstProof,
    };
    let attempts = device.quarantine.as_ref().map_or(0, |quarantine| quarantine.attempts);
    Some(Chore { identity: device.identity.clone(), address: device.address, cause, attempts })
}

/// Whether a verified re-sanitization may end a quarantine for this reason without a person: not where a person
/// asked for it, nor where somebody unknown may still be using the device. Whatever else it was, a device that
/// answers, resets and reads back right is good again; one that does not stays where it is.
fn may_be_tried(reason: Reason) -> bool {
    !matches!(reason, Reason::Operator | Reason::UnknownOwner | Reason::IdentityChanged)
}

impl LastProof {
    /// Whether it still says something on this boot.
    pub(super) fn holds(&self, boot_id: &str) -> bool {
        self.boot_id == boot_id
    }
}
