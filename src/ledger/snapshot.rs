//! The state as others see it: `status`, slices, metrics.

use std::fmt;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::device::{By, Cause, Device, Holder, Phase};
use super::record::{ClaimRecord, LastProof, Raised, RecordPhase};
use super::{Ledger, State, Withheld};
use crate::types::{Class, Identity, PciAddress, Reason, StepName, Token};

/// Everything at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Devices by address.
    pub devices: Vec<DeviceView>,
    /// Claims that have or get devices.
    pub claims: Vec<ClaimView>,
    /// Records that could not be read at start.
    pub damaged: Vec<String>,
    /// Durable changes that the disk still owes us.
    pub unwritten: usize,
    /// When the loop that looks after devices last went round.
    #[serde(default)]
    pub maintained: Option<Timestamp>,
}

/// One device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its name in slices.
    pub name: String,
    /// Where it is.
    pub address: PciAddress,
    /// Who it is.
    pub identity: Identity,
    /// `free`, `granted`, `preparing`, `maintenance`, `lapsed`.
    pub state: String,
    /// What the state is about: the claim, the cause, the step.
    pub detail: String,
    /// The last token issued.
    pub token: Token,
    /// Whether a new allocation may be offered it.
    pub schedulable: bool,
    /// Its quarantine.
    pub quarantine: Option<QuarantineView>,
    /// The quarantine that it would have if not so many others had the same.
    #[serde(default)]
    pub withheld: Option<Withheld>,
    /// Why it counts as degraded though it is handed out.
    #[serde(default)]
    pub degraded: Option<String>,
    /// When a granted device was last looked at and found well.
    #[serde(default)]
    pub checked: Option<Timestamp>,
    /// The proof of its present state.
    pub proof: Option<LastProof>,
    /// Why it must not be offered to new claims though nothing is known against it.
    #[serde(default)]
    pub unverified: Option<Unverified>,
}

/// What a device lacks that nobody holds on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unverified {
    /// A proof on this boot.
    FirstProof,
    /// The cleaning after its last claim, which the kubelet's call did not see the end of.
    Release,
}

impl Unverified {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstProof => "first_proof",
            Self::Release => "release",
        }
    }
}

/// A quarantine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuarantineView {
    /// Why.
    pub reason: Reason,
    /// What ends it.
    pub class: Class,
    /// What was seen.
    pub evidence: String,
    /// Since when.
    pub since: Timestamp,
    /// The lease under which it was seen.
    pub token: Option<Token>,
    /// Re-sanitizations tried.
    pub attempts: u32,
    /// Where it was raised.
    #[serde(default)]
    pub raised: Raised,
}

/// A claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimView {
    /// Its record, with the receipts.
    #[serde(flatten)]
    pub record: ClaimRecord,
    /// The grant's short name.
    pub grant: Option<String>,
}

impl Ledger {
    /// Everything at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let mut devices: Vec<_> = state.devices.values().map(|device| view(&state, device)).collect();
        devices.sort_by_key(|device| device.address);
        let claim = |record: &ClaimRecord| ClaimView {
            grant: (record.phase == RecordPhase::Granted).then(|| record.grant_id()),
            record: record.clone(),
        };
        Snapshot {
            devices,
            claims: state.claims.values().map(|entry| claim(&entry.record)).collect(),
            damaged: state.damaged.clone(),
            unwritten: self.store.unwritten(),
            maintained: state.maintained,
        }
    }

    /// What is being done to a claim's devices now: `pci-0000-3b-00-0 scrub 12 of 80 GiB for 3.2 s`.
    #[must_use]
    pub fn doing(&self, devices: &[Identity]) -> String {
        let state = self.lock();
        let working = devices.iter().filter_map(|identity| {
            let device = state.devices.get(identity)?;
            step(&state, device).map(|step| format!("{} {step}", device.address.device_name()))
        });
        let working: Vec<_> = working.collect();
        if working.is_empty() { "waiting for its turn".to_owned() } else { working.join(", ") }
    }
}

fn step(state: &State, device: &Device) -> Option<String> {
    state.steps.get(&device.identity).map(Doing::to_string)
}

/// What a device's worker is doing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doing {
    step: StepName,
    since: Instant,
    /// Bytes done of bytes in all.
    progress: Option<(u64, u64)>,
}

impl Doing {
    pub(super) fn new(step: StepName) -> Self {
        Self { step, since: Instant::now(), progress: None }
    }

    pub(super) fn goes_on(&mut self, done: u64, of: u64) {
        self.progress = Some((done, of));
    }
}

impl fmt::Display for Doing {
    /// `scrub 12 of 80 GiB for 3.2 s`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step.as_str())?;
        if let Some((done, of)) = self.progress {
            let (unit, name) = if of >= 8 << 30 { (30, "GiB") } else { (20, "MiB") };
            write!(f, " {} of {} {name}", done >> unit, of >> unit)?;
        }
        write!(f, " for {:.1} s", self.since.elapsed().as_secs_f64())
    }
}

fn view(state: &State, device: &Device) -> DeviceView {
    let (name, mut detail) = match &device.holder {
        Holder::Free => ("free", String::new()),
        Holder::Held { by: By::Claim(claim), phase } => match phase {
            Phase::Granted => ("granted", claim.to_string()),
            Phase::Lapsed => ("lapsed", format!("{claim}, granted before the reboot")),
            Phase::Waiting | Phase::Working => ("preparing", claim.to_string()),
        },
        Holder::Held { by: By::Maintenance(cause), .. } => ("maintenance", cause.to_string()),
    };
    if let Some(step) = step(state, device) {
        detail = if detail.is_empty() { step } else { format!("{detail}; {step}") };
    }
    DeviceView {
        name: device.address.device_name(),
        address: device.address,
        identity: device.identity.clone(),
        state: name.to_owned(),
        detail,
        token: device.token,
        schedulable: device.is_schedulable(),
        quarantine: device.quarantine.as_ref().map(|quarantine| QuarantineView {
            reason: quarantine.reason,
            class: quarantine.reason.class(),
            evidence: quarantine.evidence.clone(),
            since: quarantine.since,
            token: quarantine.token,
            attempts: quarantine.attempts,
            raised: quarantine.raised,
        }),
        withheld: state.withheld.get(&device.identity).cloned(),
        degraded: device.kept.degraded.clone(),
        checked: state.checked.get(&device.identity).copied(),
        proof: device.proof.clone(),
        unverified: unverified(state, device),
    }
}

/// In the normal life of a claim this never changes: its device is proved when it is leased, granted, and cleaned
/// while the kubelet's call waits. One that was without a proof before a prepare began keeps this until it is granted.
fn unverified(state: &State, device: &Device) -> Option<Unverified> {
    if device.proof.is_some() || device.is_granted() {
        return None;
    }
    match device.holder.by() {
        Some(By::Maintenance(Cause::AfterRelease(_) | Cause::AfterCrash(_))) => {
            (!state.awaited.contains(&device.identity)).then_some(Unverified::Release)
        }
        _ => Some(Unverified::FirstProof),
    }
}
