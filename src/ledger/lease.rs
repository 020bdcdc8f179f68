//! The way from a lease to a grant, in types: a proof owns its lease, and only a proof can be granted.
//!
//! ```text
//!   Ledger::lease ─▶ Lease ──seal(Evidence)──▶ Proved ──Ledger::commit──▶ granted record
//!                      └───────────────── Finish ─────────────────┘ (every other end)
//! ```
//!
//! None of these types can be made from text, so nothing but a run of this process under this very lease is a
//! proof.

use std::path::PathBuf;
use std::sync::Arc;

use super::device::{By, Event};
use super::record::LastProof;
use super::snapshot::Doing;
use super::{Cause, Ledger};
use crate::types::{
    Baseline, Counts, Identity, PciAddress, Probe, Reason, Receipt, Reset, Scrub, StepName, Token,
};

/// The right to work on one device, under one token. Dropped without an end, its device waits for cleaning.
#[derive(Debug)]
pub struct Lease {
    ledger: Arc<Ledger>,
    identity: Identity,
    address: PciAddress,
    token: Token,
    /// Whether its end is still to come.
    open: bool,
}

/// A device that was just proved, under the lease that it owns.
#[derive(Debug)]
pub struct Proved {
    lease: Lease,
    receipt: Receipt,
    nodes: Vec<PathBuf>,
}

/// Everything a run must show to be a proof.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The token that the worker was given.
    pub token: Token,
    /// The probe after the reset.
    pub after_reset: Probe,
    /// The reset.
    pub reset: Reset,
    /// The scrub.
    pub scrub: Scrub,
    /// The probe at the very end.
    pub last: Probe,
    /// What is told to people.
    pub receipt: Receipt,
    /// Device nodes found at the very end.
    pub nodes: Vec<PathBuf>,
}

/// The evidence is no proof; the lease comes back.
#[derive(Debug, thiserror::Error)]
#[error("no proof: {why}")]
pub struct Unsealed {
    /// The lease.
    pub lease: Lease,
    /// What is missing.
    pub why: String,
}

/// How work on a device ends when it does not end in a grant.
#[derive(Clone, Debug)]
pub enum Finish {
    /// It was proved and nobody has used it since.
    Clean(Receipt),
    /// It was not proved; nothing is known against it.
    Unproved,
    /// It went bad.
    Bad(Reason, String),
}

impl Lease {
    pub(super) fn new(ledger: Arc<Ledger>, identity: Identity, address: PciAddress, token: Token) -> Self {
        Self { ledger, identity, address, token, open: true }
    }

    /// Whose lease it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the device was when it was leased.
    #[must_use]
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// What an earlier proof on this boot saw.
    fn baseline(&self) -> Option<Baseline> {
        let state = self.ledger.lock();
        let baseline = state.devices.get(&self.identity)?.kept.baseline.clone();
        baseline.filter(|baseline| baseline.boot_id == self.ledger.boot_id)
    }

    /// What this proof's probes are held against, after its first one. One that is to end a quarantine cures what was
    /// counted before it began, and not how wide the link was.
    #[must_use]
    pub fn baseline_after(&self, first: &Counts) -> Option<Baseline> {
        let mut baseline = self.baseline()?;
        let state = self.ledger.lock();
        let by = state.devices.get(&self.identity).and_then(|device| device.holder.by());
        if matches!(by, Some(By::Maintenance(Cause::Resanitization))) {
            baseline.at = jiff::Timestamp::now();
            baseline.counts = Counts { width: baseline.counts.width, ..first.clone() };
        }
        Some(baseline)
    }

    /// Tells people which step runs now.
    pub fn begins(&self, step: StepName) {
        self.ledger.lock().steps.insert(self.identity.clone(), Doing::new(step));
    }

    /// Tells people how far that step is: bytes done of bytes in all. It is no change of state, so nobody is woken.
    pub fn goes_on(&self, done: u64, of: u64) {
        if let Some(doing) = self.ledger.lock().steps.get_mut(&self.identity) {
            doing.goes_on(done, of);
        }
    }

    /// Whether the claim that this is for has been let go: the work ends at the next step.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let state = self.ledger.lock();
        state.claims.values().any(|entry| {
            entry.stop && entry.record.devices.iter().any(|device| device.identity == self.identity)
        })
    }

    /// Makes a proof of this lease, if the evidence is whole and was made under it.
    ///
    /// # Errors
    /// Something is missing or was made under another token; the lease comes back.
    pub fn seal(self, evidence: Evidence) -> Result<Proved, Box<Unsealed>> {
        match evidence.gap(self.token) {
            None => {
                let counts = evidence.last.counts;
                let receipt = evidence.receipt.sealed();
                self.ledger.remember(&self.identity, counts, receipt.degraded.clone());
                Ok(Proved { lease: self, receipt, nodes: evidence.nodes })
            }
            Some(why) => Err(Box::new(Unsealed { lease: self, why })),
        }
    }

    /// Ends the lease without what its drop does: the ledger has settled the device.
    pub(super) fn settle(mut self) {
        self.open = false;
    }
}

impl Proved {
    /// Gives the proof up: the device is clean, and free again unless it is granted.
    #[must_use]
    pub fn give_up(self) -> (Lease, Finish) {
        (self.lease, Finish::Clean(self.receipt))
    }

    /// The lease's device.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    pub(super) fn nodes(&self) -> &[PathBuf] {
        &self.nodes
    }
}

impl Evidence {
    /// What is missing for a proof under this token.
    fn gap(&self, token: Token) -> Option<String> {
        if self.token != token || self.receipt.token != token {
            return Some(format!("it was made under token {}, the lease has {token}", self.token));
        }
        self.after_reset.fault().or_else(|| self.last.fault()).or_else(|| self.scrub.gap())
    }
}

impl Finish {
    pub(super) fn proof(&self, boot_id: &str) -> Option<LastProof> {
        match self {
            Self::Clean(receipt) => Some(LastProof {
                token: receipt.token,
                at: receipt.at,
                boot_id: boot_id.to_owned(),
                digest: receipt.digest.clone(),
            }),
            Self::Unproved | Self::Bad(..) => None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let mut state = self.ledger.lock();
        let Some(device) = state.devices.get(&self.identity) else { return };
        if device.token != self.token {
            return;
        }
        let event = match device.holder.by() {
            Some(By::Claim(claim)) => Event::Release(Cause::AfterCrash(claim.clone())),
            _ => Event::Again,
        };
        tracing::error!(device = %self.address, token = %self.token, "a lease was dropped; the device waits for cleaning");
        state.force(&self.identity, event);
        drop(state);
        self.ledger.signal();
    }
}
