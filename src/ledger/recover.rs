//! From records to state, at start: reads no hardware and asks nobody, so it takes milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::device::{By, Cause, Device, Holder, Phase};
use super::record::{ClaimDevice, ClaimRecord, DeviceRecord, OwnRecord, Quarantine, Raised, RecordPhase};
use super::{Entry, Ledger, State, device_record, put};
use crate::store::{Change, Contents, Damage, Folder, Found, Store, StoreError};
use crate::types::{Deadline, Identity, PciAddress, Reason, Token};

/// Why there is no ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The state folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the start has to know.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Grants of this boot, whose derived files must exist.
    pub granted: Vec<ClaimRecord>,
    /// Records that could not be believed, with why.
    pub damaged: Vec<String>,
}

impl Ledger {
    /// Opens the state folder and rebuilds the state from its records.
    ///
    /// A claim that was being prepared goes to cleaning; one granted on an earlier boot keeps its devices until it
    /// is proved again or released; a damaged record quarantines whatever it may have been about.
    ///
    /// # Errors
    /// The folder cannot be used. A record that cannot be believed is no error.
    pub async fn open(state: &Path, boot_id: String) -> Result<(Arc<Self>, Recovered), LedgerError> {
        let (store, contents) = open_store(state).await?;
        let mut build = Build { boot_id, ..Build::default() };
        for found in contents.records {
            build.read(found);
        }
        let own = match contents.own {
            None => None,
            Some(Ok(value)) => serde_json::from_value::<OwnRecord>(value).ok(),
            Some(Err(damage)) => {
                build.damaged.push(format!("store {damage}"));
                None
            }
        };
        let highest = build.highest_term().max(own.as_ref().map_or(0, |own| own.term));
        let term = match own.filter(|_| !build.epochs_lost) {
            Some(own) if own.term >= highest => own.term,
            _ => {
                // No believable record of an earlier term: one that is above any that may have been given.
                let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
                let term = now.max(highest.saturating_add(1));
                let own = OwnRecord { term, other: serde_json::Map::new() };
                let value = serde_json::to_value(own).unwrap_or_default();
                store.put_own(value).await?;
                term
            }
        };
        let boot_id = build.boot_id.clone();
        let (state, recovered, changes) = build.settle(term);
        let ledger = Self { state: Mutex::new(state), store, changed: watch::Sender::new(0), boot_id, term };
        // What the disk refuses now is owed: memory restricts already.
        let _ = ledger.write_or_owe(changes).await;
        Ok((Arc::new(ledger), recovered))
    }
}

/// A worker that a killed daemon was just starting has its descriptors until it executes: the lock is free in a
/// moment, or another daemon has it.
async fn open_store(state: &Path) -> Result<(Store, Contents), StoreError> {
    let deadline = Deadline::after(Duration::from_secs(1));
    loop {
        match Store::open(state) {
            Err(StoreError::InUse(_)) if !deadline.left().is_zero() => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened,
        }
    }
}

#[derive(Default)]
struct Build {
    boot_id: String,
    /// A device's record cannot be read, so its last epoch is not known.
    epochs_lost: bool,
    devices: BTreeMap<Identity, DeviceRecord>,
    claims: Vec<ClaimRecord>,
    releasing: Vec<(String, ClaimRecord)>,
    quarantines: Vec<Quarantine>,
    damaged: Vec<String>,
    /// Moves of damaged records, once nothing depends on them any more.
    aside: Vec<Change>,
    suspect: bool,
}

impl Build {
    fn read(&mut self, found: Found) {
        let name = found.name.clone();
        match found.folder {
            Folder::Devices => {
                match self.parse(found, |record: &DeviceRecord| record.identity.as_str() == name) {
                    Ok(record) => drop(self.devices.insert(record.identity.clone(), record)),
                    Err(_) => self.epochs_lost = true,
                }
            }
            Folder::Claims => {
                match self.parse(found, |record: &ClaimRecord| record.claim.uid.as_str() == name) {
                    Ok(record) => self.claims.push(record),
                    Err(_) => self.suspect = true,
                }
            }
            Folder::Releasing => {
                let belongs =
                    |record: &ClaimRecord| name == format!("{}.{}", record.claim.uid, record.grant_id());
                match self.parse(found, belongs) {
                    Ok(record) => self.releasing.push((name, record)),
                    Err(_) => self.suspect = true,
                }
            }
            Folder::Quarantine => {
                match self.parse(found, |record: &Quarantine| record.identity.as_str() == name) {
                    Ok(record) => self.quarantines.push(record),
                    Err(damage) => self.lost_quarantine(&name, &damage),
                }
            }
            Folder::Damaged => {}
        }
    }

    /// The record, or a note of its damage; the file is kept aside for a person.
    fn parse<T: DeserializeOwned>(
        &mut self,
        found: Found,
        belongs: impl Fn(&T) -> bool,
    ) -> Result<T, Damage> {
        let Found { folder, name, content } = found;
        let parsed = content.and_then(|value| Ok(serde_json::from_value::<T>(value)?));
        let parsed = parsed.and_then(|record| belongs(&record).then_some(record).ok_or(Damage::Name));
        parsed.inspect_err(|damage| {
            let label = format!("{}/{name}", folder.name());
            tracing::error!(record = %label, %damage, "damaged record");
            self.damaged.push(format!("{label} {damage}"));
            let aside = (Folder::Damaged, format!("{}.{name}", folder.name()));
            self.aside.push(Change::Move((folder, name), aside));
        })
    }

    /// The file's name still says whose quarantine it was.
    fn lost_quarantine(&mut self, name: &str, damage: &Damage) {
        // Unless its content says another's, whose own record may be gone: then it may be anybody's.
        self.suspect |= matches!(damage, Damage::Name);
        let Ok(identity) = serde_json::from_value::<Identity>(name.into()) else { return };
        let known = self.devices.get(&identity).map(|record| record.address);
        let Some(address) = known.or_else(|| PciAddress::from_device_name(name)) else {
            // Nobody can say where it is: whatever turns up free is suspect.
            self.suspect = true;
            return;
        };
        // Its successor takes the file's place at once: moving it aside first would leave a moment without any.
        self.aside.pop();
        self.quarantines.push(unknown_owner(identity, address));
    }

    fn highest_term(&self) -> u64 {
        let claims = self.claims.iter().chain(self.releasing.iter().map(|(_, record)| record));
        let leases = claims.flat_map(|record| &record.devices).map(|device| device.token);
        let devices = self.devices.values().map(|record| record.token);
        let quarantines = self.quarantines.iter().filter_map(|record| record.token);
        leases.chain(devices).chain(quarantines).map(|token| token.term).max().unwrap_or(0)
    }

    fn settle(mut self, term: u64) -> (State, Recovered, Vec<Change>) {
        let mut state = State::default();
        let mut changes = Vec::new();
        for record in std::mem::take(&mut self.devices).into_values() {
            let mut device = Device::new(record.identity.clone(), record.address, record.token);
            device.proof = record.proof.filter(|proof| proof.holds(&self.boot_id));
            device.kept = record.kept;
            state.devices.insert(record.identity, device);
        }
        for (name, record) in std::mem::take(&mut self.releasing) {
            for device in &record.devices {
                // However old the record is: as long as it stands, nobody has shown the device clean.
                wait(&mut state, device, &Cause::AfterRelease(record.claim.clone()), &name);
            }
        }
        // The same device in several records: the latest lease is the one that counts.
        let mut claims = std::mem::take(&mut self.claims);
        claims
            .sort_by_key(|record| std::cmp::Reverse(record.devices.iter().map(|device| device.token).max()));
        let mut taken = BTreeSet::new();
        let mut granted = Vec::new();
        for record in claims {
            let uid = record.claim.uid.clone();
            let (fit, stale): (Vec<_>, Vec<_>) = record.devices.iter().cloned().partition(|device| {
                let last = state.devices.get(&device.identity).map(|known| known.token);
                last.is_none_or(|last| device.token >= last) && !taken.contains(&device.identity)
            });
            taken.extend(fit.iter().map(|device| device.identity.clone()));
            if record.phase == RecordPhase::Granted && stale.is_empty() {
                let phase = if record.boot_id == self.boot_id { Phase::Granted } else { Phase::Lapsed };
                for device in &fit {
                    let holder = Holder::Held { by: By::Claim(record.claim.clone()), phase };
                    place(&mut state, device, holder);
                }
                if phase == Phase::Granted {
                    granted.push(record.clone());
                }
                state.claims.insert(uid, Entry { record, stop: false });
                continue;
            }
            let here = (Folder::Claims, uid.as_str().to_owned());
            if record.phase == RecordPhase::Granted {
                self.contradicts(&mut state, &record, fit, &stale, &mut changes);
                continue;
            }
            if fit.is_empty() {
                changes.push(Change::Remove(here.0, here.1));
                continue;
            }
            let name = format!("{uid}.{}", record.grant_id());
            for device in &fit {
                wait(&mut state, device, &Cause::AfterCrash(record.claim.clone()), &name);
            }
            changes.push(Change::Move(here, (Folder::Releasing, name)));
        }
        for quarantine in std::mem::take(&mut self.quarantines) {
            let token = Token { term, epoch: 0 };
            let device = state
                .devices
                .entry(quarantine.identity.clone())
                .or_insert_with(|| Device::new(quarantine.identity.clone(), quarantine.address, token));
            if device.wants_cleaning().is_some() {
                device.holder = Holder::Free;
            }
            device.proof = None;
            if self.damaged.iter().any(|label| label.contains(quarantine.identity.as_str())) {
                changes.push(put(Folder::Quarantine, quarantine.identity.as_str(), &quarantine));
            }
            let identity = quarantine.identity.clone();
            match &device.quarantine {
                Some(worse) if worse.reason <= quarantine.reason => {}
                _ => device.quarantine = Some(quarantine),
            }
            changes.extend(state.let_go(&identity));
        }
        state.aside = self.aside;
        state.damaged.clone_from(&self.damaged);
        state.suspect = self.suspect;
        (state, Recovered { granted, damaged: self.damaged }, changes)
    }
}

impl Build {
    /// A grant that other records deny in part. Whoever wrote them, a pod may be using what nobody else claims: it
    /// is left alone and handed to nobody. So is what two grants claim alike.
    fn contradicts(
        &mut self,
        state: &mut State,
        record: &ClaimRecord,
        fit: Vec<ClaimDevice>,
        stale: &[ClaimDevice],
        changes: &mut Vec<Change>,
    ) {
        let label = format!("claims/{}", record.claim.uid);
        let evidence = format!("{label} contradicts a later record of the same devices");
        tracing::error!(record = %label, "contradictory records");
        let alike = |device: &&ClaimDevice| {
            state.devices.get(&device.identity).is_some_and(|known| known.token == device.token)
        };
        let doubtful: Vec<_> = stale.iter().filter(alike).cloned().collect();
        for device in &fit {
            place(state, device, Holder::Free);
        }
        for device in fit.into_iter().chain(doubtful) {
            let quarantine = Quarantine {
                token: Some(device.token),
                evidence: evidence.clone(),
                ..unknown_owner(device.identity, device.address)
            };
            changes.push(put(Folder::Quarantine, quarantine.identity.as_str(), &quarantine));
            self.quarantines.push(quarantine);
        }
        let (name, aside) = (record.claim.uid.to_string(), format!("claims.{}", record.claim.uid));
        changes.push(Change::Move((Folder::Claims, name), (Folder::Damaged, aside)));
        self.damaged.push(evidence);
    }
}

impl State {
    /// A device in quarantine keeps no record of a former claim: nobody is about to clean it. Its epoch is written
    /// before that record may go.
    fn let_go(&mut self, identity: &Identity) -> Vec<Change> {
        if !self.releasing.values().any(|devices| devices.contains(identity)) {
            return Vec::new();
        }
        let record = self.devices.get(identity).map(device_record);
        let mut changes: Vec<_> =
            record.map(|record| put(Folder::Devices, identity.as_str(), &record)).into_iter().collect();
        changes.extend(self.settled(identity));
        changes
    }
}

fn unknown_owner(identity: Identity, address: PciAddress) -> Quarantine {
    Quarantine {
        identity,
        address,
        reason: Reason::UnknownOwner,
        evidence: "its quarantine record is damaged".to_owned(),
        token: None,
        since: jiff::Timestamp::now(),
        attempts: 0,
        raised: Raised::Elsewhere,
        other: serde_json::Map::new(),
    }
}

/// Lets a device of a former claim wait for cleaning.
fn wait(state: &mut State, claimed: &ClaimDevice, cause: &Cause, releasing: &str) {
    place(state, claimed, Holder::Held { by: By::Maintenance(cause.clone()), phase: Phase::Waiting });
    state.releasing.entry(releasing.to_owned()).or_default().insert(claimed.identity.clone());
}

fn place(state: &mut State, claimed: &ClaimDevice, holder: Holder) {
    let fresh = || Device::new(claimed.identity.clone(), claimed.address, claimed.token);
    let device = state.devices.entry(claimed.identity.clone()).or_insert_with(fresh);
    device.token = device.token.max(claimed.token);
    (device.holder, device.proof) = (holder, None);
}
