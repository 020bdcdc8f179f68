//! What claims ask of the ledger: a lease of all their devices, the grant, the undo.

use std::sync::Arc;

use super::device::{By, Device, Event};
use super::record::{ClaimDevice, ClaimRecord, Raised, RecordPhase};
use super::refusal::{LeaseError, refusal};
use super::{Entry, Finish, Lease, Ledger, Proved, State, device_record, put};
use crate::store::{Change, Folder, StoreError};
use crate::types::{AllocatedDevice, Claim, ClaimRef, ClaimUid, Fault, Identity, PciAddress, Token};

/// A device that a claim wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its place in the allocation.
    pub allocated: AllocatedDevice,
    /// Who it is.
    pub identity: Identity,
    /// Where it is.
    pub address: PciAddress,
}

/// A lease that stands in memory and not yet on the disk.
struct Begun {
    record: ClaimRecord,
    /// Its devices as they were.
    before: Vec<Device>,
    /// What the claim had before.
    former: Option<Entry>,
}

impl Ledger {
    /// The record of a claim that we prepare or have granted.
    #[must_use]
    pub fn claim(&self, uid: &ClaimUid) -> Option<ClaimRecord> {
        self.lock().claims.get(uid).map(|entry| entry.record.clone())
    }

    /// Every claim that has a record.
    #[must_use]
    pub fn claims(&self) -> Vec<ClaimRef> {
        self.lock().claims.values().map(|entry| entry.record.claim.clone()).collect()
    }

    /// Leases all devices of a claim or none, under new epochs, durably.
    ///
    /// # Errors
    /// One of them cannot be had, or the record could not be written.
    pub async fn lease(self: &Arc<Self>, claim: &Claim, wanted: &[Wanted]) -> Result<Vec<Lease>, LeaseError> {
        let Begun { record, before, former } = match self.begin(claim, wanted) {
            Ok(begun) => begun,
            Err((refusal, changes)) => {
                self.note(changes).await;
                return Err(refusal);
            }
        };
        self.signal();
        let uid = &claim.reference.uid;
        if let Err(source) = self.store.apply(vec![put(Folder::Claims, uid.as_str(), &record)]).await {
            let owed = {
                let mut state = self.lock();
                state.unlease(before);
                match former {
                    Some(entry) => {
                        let owed = put(Folder::Claims, uid.as_str(), &entry.record);
                        state.claims.insert(uid.clone(), entry);
                        owed
                    }
                    None => {
                        state.claims.remove(uid);
                        Change::Remove(Folder::Claims, uid.as_str().to_owned())
                    }
                }
            };
            self.signal();
            let _ = self.write_or_owe(vec![owed]).await;
            return Err(LeaseError::Store { fault: Fault::Store, source });
        }
        let lease = |device: ClaimDevice| self.lease_of(device.identity, device.address, device.token);
        Ok(record.devices.into_iter().map(lease).collect())
    }

    /// A prepare is refused for what the device at this address is, before it could ask for a lease.
    pub async fn turned_away(&self, address: PciAddress) {
        let Some(identity) = self.at(address) else { return };
        let changes = self.lock().met(&identity);
        self.note(changes).await;
    }

    async fn note(&self, changes: Vec<Change>) {
        // Where nothing changed nobody is woken: who waits for his lease would wake himself.
        if !changes.is_empty() {
            self.signal();
            // What cannot be written is owed: memory is right already.
            let _ = self.write_or_owe(changes).await;
        }
    }

    /// Leases in memory, or refuses with what is to be written of it.
    fn begin(&self, claim: &Claim, wanted: &[Wanted]) -> Result<Begun, (LeaseError, Vec<Change>)> {
        let mut state = self.lock();
        for want in wanted {
            match state.devices.get(&want.identity) {
                Some(device) if device.can_lease(&claim.reference) => {
                    let token = device.token;
                    if next_token(token, self.term) <= token {
                        let device = want.address.device_name();
                        return Err((LeaseError::Spent { device, token }, Vec::new()));
                    }
                }
                Some(device) => {
                    let refusal = refusal(device);
                    return Err((refusal, state.met(&want.identity)));
                }
                None => return Err((LeaseError::Unknown(want.address.device_name()), Vec::new())),
            }
            if let Some(other) = state.claim_at(want.address, &want.identity) {
                let refusal = LeaseError::Held {
                    device: want.address.device_name(),
                    phase: "another card than the one that is granted to",
                    holder: Box::new(other.clone()),
                };
                return Err((refusal, Vec::new()));
            }
        }
        let mut devices = Vec::new();
        let mut before = Vec::new();
        for want in wanted {
            let Some(device) = state.devices.get(&want.identity) else { continue };
            let token = next_token(device.token, self.term);
            let (by, was) = (By::Claim(claim.reference.clone()), device.clone());
            if let Err(misfit) = state.apply(&want.identity, Event::Lease { by, token }) {
                state.unlease(before);
                return Err((misfit.into(), Vec::new()));
            }
            before.push(was);
            devices.push(ClaimDevice {
                allocated: want.allocated.clone(),
                identity: want.identity.clone(),
                address: want.address,
                token,
                receipt: None,
                nodes: Vec::new(),
            });
        }
        let record = ClaimRecord {
            claim: claim.reference.clone(),
            allocation: claim.allocation.clone(),
            phase: RecordPhase::Preparing,
            boot_id: self.boot_id.clone(),
            devices,
            other: serde_json::Map::new(),
        };
        let entry = Entry { record: record.clone(), stop: false };
        let former = state.claims.insert(claim.reference.uid.clone(), entry);
        Ok(Begun { record, before, former })
    }

    /// Grants a claim its proved devices, durably.
    ///
    /// # Errors
    /// The record could not be written: the proofs come back, nothing is granted.
    pub async fn commit(
        &self,
        uid: &ClaimUid,
        proved: Vec<Proved>,
    ) -> Result<ClaimRecord, (Vec<Proved>, StoreError)> {
        let granted = {
            let state = self.lock();
            state.claims.get(uid).filter(|entry| !entry.stop).map(|entry| {
                let mut record = entry.record.clone();
                record.phase = RecordPhase::Granted;
                for device in &mut record.devices {
                    let proof = proved.iter().find(|p| *p.lease().identity() == device.identity);
                    device.receipt = proof.map(|p| p.receipt().clone());
                    device.nodes = proof.map(|p| p.nodes().to_vec()).unwrap_or_default();
                }
                record
            })
        };
        let gone = || StoreError::Write {
            record: uid.to_string(),
            source: std::io::Error::other("its claim was released meanwhile"),
        };
        let Some(record) = granted else { return Err((proved, gone())) };
        if record.devices.iter().any(|device| device.receipt.is_none()) {
            return Err((proved, gone()));
        }
        if let Err(error) = self.store.apply(vec![put(Folder::Claims, uid.as_str(), &record)]).await {
            return Err((proved, error));
        }
        let mut state = self.lock();
        if let Some(entry) = state.claims.get_mut(uid) {
            entry.record = record.clone();
        }
        for proof in &proved {
            state.force(proof.lease().identity(), Event::Grant);
        }
        drop(state);
        for proof in proved {
            proof.give_up().0.settle();
        }
        self.signal();
        Ok(record)
    }

    /// Ends a prepare that did not succeed: what went bad is quarantined, the rest is free, the record is gone.
    pub async fn undo(&self, uid: &ClaimUid, ends: Vec<(Lease, Finish)>) {
        let changes = {
            let mut state = self.lock();
            let mut changes = Vec::new();
            for (lease, finish) in &ends {
                if let Finish::Bad(reason, evidence) = finish {
                    let (token, raised) = (Some(lease.token()), Raised::Prepare);
                    changes.extend(state.quarantine(
                        lease.identity(),
                        *reason,
                        evidence.clone(),
                        token,
                        raised,
                    ));
                }
            }
            for (lease, finish) in &ends {
                state.force(lease.identity(), Event::Finish(finish.proof(&self.boot_id)));
                let device = state.devices.get(lease.identity());
                changes.extend(device.map(|d| put(Folder::Devices, d.identity.as_str(), &device_record(d))));
            }
            state.claims.remove(uid);
            changes.push(Change::Remove(Folder::Claims, uid.as_str().to_owned()));
            changes
        };
        for (lease, _) in ends {
            lease.settle();
        }
        self.signal();
        // What cannot be written is owed: memory is right, and after a crash the record leads to a cleaning.
        let _ = self.write_or_owe(changes).await;
    }

    /// Asks a prepare that is under way to end at its next step.
    pub fn stop(&self, uid: &ClaimUid) {
        if let Some(entry) = self.lock().claims.get_mut(uid) {
            entry.stop = true;
        }
        self.signal();
    }

    /// Whether a claim must be released before it can be prepared again: its release was asked for and has not
    /// begun, or a card of it is not there any more.
    #[must_use]
    pub fn must_go(&self, uid: &ClaimUid) -> bool {
        let state = self.lock();
        let gone =
            |device: &ClaimDevice| state.devices.get(&device.identity).is_none_or(Device::was_replaced);
        state.claims.get(uid).is_some_and(|entry| entry.stop || entry.record.devices.iter().any(gone))
    }
}

impl State {
    /// A prepare meets this quarantine: where no pod has the device, the one that wants it must go elsewhere.
    fn met(&mut self, identity: &Identity) -> Vec<Change> {
        let Some(device) = self.devices.get_mut(identity) else { return Vec::new() };
        let is_granted = device.is_granted();
        let quarantine =
            device.quarantine.as_mut().filter(|now| !is_granted && now.raised != Raised::Prepare);
        let Some(quarantine) = quarantine else { return Vec::new() };
        quarantine.raised = Raised::Prepare;
        vec![put(Folder::Quarantine, identity.as_str(), quarantine)]
    }

    /// Takes back what a lease did that has not become durable. The tokens stay used: a write that fails late may
    /// still reach the disk.
    fn unlease(&mut self, before: Vec<Device>) {
        for device in before {
            if let Some(now) = self.devices.get_mut(&device.identity) {
                now.holder = device.holder;
                now.proof = device.proof.filter(|_| now.quarantine.is_none());
            }
        }
    }
}

/// The token of the next lease; one that is no higher, since no epoch is left, is no lease.
pub(super) fn next_token(last: Token, term: u64) -> Token {
    let epoch = if last.term == term { last.epoch.saturating_add(1) } else { 1 };
    Token { term, epoch }
}
