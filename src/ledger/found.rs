//! Which cards are where: what the ledger makes of a device that was found on the bus, and of those that were there
//! before.

use super::device::{Device, Event, Holder};
use super::record::{Quarantine, Raised};
use super::{Ledger, State, device_record, put, remove_quarantine};
use crate::store::{Change, Folder, StoreError};
use crate::types::{ClaimRef, Identity, PciAddress, Reason, Token};

impl Ledger {
    /// Who was last seen at an address.
    #[must_use]
    pub fn at(&self, address: PciAddress) -> Option<Identity> {
        let state = self.lock();
        let here = |device: &&Device| device.address == address && !device.kept.gone;
        state.devices.values().find(here).map(|device| device.identity.clone())
    }

    /// Whether somebody has the device or works on it.
    #[must_use]
    pub fn is_held(&self, identity: &Identity) -> bool {
        self.lock().devices.get(identity).is_some_and(|device| device.holder != Holder::Free)
    }

    /// A device was found on the bus. What a damaged record may have granted is quarantined at once.
    ///
    /// # Errors
    /// The quarantine could not be written; it holds in memory and is written as soon as the disk allows.
    pub async fn found(&self, identity: &Identity, address: PciAddress) -> Result<(), StoreError> {
        let changes = {
            let mut state = self.lock();
            let token = Token { term: self.term, epoch: 0 };
            let device = state
                .devices
                .entry(identity.clone())
                .or_insert_with(|| Device::new(identity.clone(), address, token));
            (device.address, device.kept.gone) = (address, false);
            let mut changes = state.displace_others(identity, address);
            let Some(device) = state.devices.get(identity) else { return Ok(()) };
            let free = device.holder == Holder::Free && device.quarantine.is_none();
            if state.suspect && free {
                let evidence = format!("damaged records: {}", state.damaged.join("; "));
                changes.extend(state.quarantine(
                    identity,
                    Reason::UnknownOwner,
                    evidence,
                    None,
                    Raised::Elsewhere,
                ));
            }
            changes
        };
        self.signal();
        self.write_or_owe(changes).await
    }

    /// Every device of the node was found once, and what damaged records may have been about is quarantined on the
    /// disk: they are moved to where a person finds them.
    pub async fn accounted(&self) {
        if self.store.unwritten() > 0 {
            return;
        }
        let aside = {
            let mut state = self.lock();
            let mut aside = std::mem::take(&mut state.aside);
            aside.retain(|change| !state.is_overwritten(change));
            aside
        };
        // What cannot be moved is owed; it restricts as long as it stands.
        let _ = self.write_or_owe(aside).await;
    }
}

impl State {
    /// Those who were at this address before are not there any more. One that a claim has on this boot is
    /// quarantined: its pod may have the other card's device nodes.
    fn displace_others(&mut self, identity: &Identity, address: PciAddress) -> Vec<Change> {
        let here = |device: &&Device| device.address == address && device.identity != *identity;
        let others: Vec<_> =
            self.devices.values().filter(here).filter(|other| !other.kept.gone).cloned().collect();
        let mut changes = Vec::new();
        for other in others {
            tracing::warn!(device = %address, was = %other.identity, is = %identity, "another card answers");
            // Before it said who it is, a device is known by its place: that was this very card, or an earlier one.
            let place = other.identity == Identity::from_address(address);
            match (&other.quarantine, other.claim()) {
                (Some(quarantine), None) if place => {
                    // It only gets another name, so the breaker has no say, and its attempts are not begun anew.
                    let moved = Quarantine { identity: identity.clone(), address, ..quarantine.clone() };
                    self.force(identity, Event::Quarantine(moved));
                    let now = self.devices.get(identity).and_then(|device| device.quarantine.as_ref());
                    changes.extend(now.map(|now| put(Folder::Quarantine, identity.as_str(), now)));
                    changes.push(remove_quarantine(&other.identity));
                    self.devices.remove(&other.identity);
                    continue;
                }
                (_, Some(claim)) if !other.is_lapsed() => {
                    let evidence =
                        format!("{identity} answers at {address} while claim {claim} has this one");
                    let token = Some(other.token);
                    changes.extend(self.quarantine(
                        &other.identity,
                        Reason::IdentityChanged,
                        evidence,
                        token,
                        Raised::Elsewhere,
                    ));
                }
                _ => {}
            }
            self.force(&other.identity, Event::Gone);
            let record = self.devices.get(&other.identity).map(device_record);
            changes.extend(record.map(|record| put(Folder::Devices, other.identity.as_str(), &record)));
            changes.extend(self.settled(&other.identity));
        }
        changes
    }

    /// Whether a claim of the same name has taken the place of the damaged record that this would move.
    fn is_overwritten(&self, change: &Change) -> bool {
        let name = match change {
            Change::Move((Folder::Claims, name), _) => name,
            _ => return false,
        };
        self.claims.keys().any(|uid| uid.as_str() == name)
    }

    /// The claim that has another card at this address.
    pub(super) fn claim_at(&self, address: PciAddress, besides: &Identity) -> Option<&ClaimRef> {
        let others =
            self.devices.values().filter(|device| device.address == address && device.identity != *besides);
        others.filter_map(Device::claim).next()
    }
}
