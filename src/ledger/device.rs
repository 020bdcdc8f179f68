//! A device's state on two axes, and the one function that changes it.
//!
//! ```text
//!            Lease                Grant
//!   Free ───────────▶ Working ───────────▶ Granted ──(other boot)──▶ Lapsed
//!    ▲                 │   ▲                  │                        │
//!    └──── Finish ─────┘   │ Lease            │ Release                │ Release, Lease (same claim)
//!                        Waiting ◀────────────┴────────────────────────┘
//!
//!   Waiting ──Gone──▶ Free, without a proof
//!
//!   quarantine: None ──Quarantine (join, never milder)──▶ Some ──Lift──▶ None      at any place above
//! ```

use serde::{Deserialize, Serialize};

use super::record::{Kept, LastProof, Quarantine};
use crate::types::{ClaimRef, Identity, PciAddress, Reason, Token};

/// What the ledger knows of one device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) identity: Identity,
    pub(super) address: PciAddress,
    /// The last token issued; the next has a higher epoch.
    pub(super) token: Token,
    pub(super) holder: Holder,
    pub(super) quarantine: Option<Quarantine>,
    /// The proof of its present state, gone as soon as anybody may have used it.
    pub(super) proof: Option<LastProof>,
    /// What else stands in its record.
    pub(super) kept: Kept,
}

/// Who has the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Free,
    Held { by: By, phase: Phase },
}

/// For whom it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    Claim(ClaimRef),
    Maintenance(Cause),
}

/// What a lease without a claim is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It has no proof on this boot.
    FirstProof,
    /// This claim has let go of it.
    AfterRelease(ClaimRef),
    /// We ended in the middle of preparing it for this claim.
    AfterCrash(ClaimRef),
    /// It may leave its quarantine if it can be proved.
    Resanitization,
}

/// How far the holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It must be cleaned; nobody touches it yet.
    Waiting,
    /// A worker may touch it.
    Working,
    /// A pod may use it.
    Granted,
    /// It was granted before the node rebooted; its claim may have it again after a new proof.
    Lapsed,
}

/// What happens to a device.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Somebody begins to work on it under a new token.
    Lease { by: By, token: Token },
    /// Its claim has it, proved.
    Grant,
    /// Its claim lets go; cleaning is due.
    Release(Cause),
    /// The work ends; with a proof it is clean.
    Finish(Option<LastProof>),
    /// The work ends without having cleaned what must be cleaned.
    Again,
    /// Another card answers at its address.
    Gone,
    /// It went bad.
    Quarantine(Quarantine),
    /// The quarantine ends.
    Lift,
}

/// An event that does not fit the state: a stale call, or a mistake of ours. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[error("device {address}: {event} does not fit its state {state}")]
pub struct Misfit {
    address: PciAddress,
    event: String,
    state: String,
}

impl Holder {
    pub(super) fn by(&self) -> Option<&By> {
        match self {
            Self::Free => None,
            Self::Held { by, .. } => Some(by),
        }
    }
}

impl Device {
    pub(super) fn new(identity: Identity, address: PciAddress, token: Token) -> Self {
        Self {
            identity,
            address,
            token,
            holder: Holder::Free,
            quarantine: None,
            proof: None,
            kept: Kept::default(),
        }
    }

    /// Whether this claim may have it now.
    pub(super) fn can_lease(&self, claim: &ClaimRef) -> bool {
        let lapsed = Holder::Held { by: By::Claim(claim.clone()), phase: Phase::Lapsed };
        self.quarantine.is_none() && (self.holder == Holder::Free || self.holder == lapsed)
    }

    /// Whether a new allocation may be offered it.
    pub(super) fn is_schedulable(&self) -> bool {
        self.quarantine.is_none() && self.proof.is_some()
    }

    /// Whether a worker may be touching it.
    pub(super) fn is_worked_on(&self) -> bool {
        matches!(self.holder, Holder::Held { phase: Phase::Working, .. })
    }

    /// The claim that has it.
    pub(super) fn claim(&self) -> Option<&ClaimRef> {
        match self.holder.by() {
            Some(By::Claim(claim)) => Some(claim),
            _ => None,
        }
    }

    /// Whether a pod may be using it.
    pub(super) fn is_granted(&self) -> bool {
        matches!(self.holder, Holder::Held { phase: Phase::Granted, .. })
    }

    /// Whether another card answers where it was, or did when it was last looked at.
    pub(super) fn was_replaced(&self) -> bool {
        let reason = self.quarantine.as_ref().map(|quarantine| quarantine.reason);
        self.kept.gone || reason == Some(Reason::IdentityChanged)
    }

    /// Whether it was granted before a reboot, so that no pod has it.
    pub(super) fn is_lapsed(&self) -> bool {
        matches!(self.holder, Holder::Held { phase: Phase::Lapsed, .. })
    }

    /// Whether it is dirty and nobody works on it.
    pub(super) fn wants_cleaning(&self) -> Option<&Cause> {
        match &self.holder {
            Holder::Held { by: By::Maintenance(cause), phase: Phase::Waiting } => Some(cause),
            _ => None,
        }
    }

    /// The state after an event.
    pub(super) fn on(&self, event: Event) -> Result<Self, Misfit> {
        use Phase::{Granted, Lapsed, Waiting, Working};
        let mut next = self.clone();
        match (event, &self.holder) {
            (Event::Lease { by, token }, Holder::Free) if token > self.token => {
                (next.holder, next.token) = (Holder::Held { by, phase: Working }, token);
            }
            (Event::Lease { by, token }, Holder::Held { by: held, phase: Waiting }) if token > self.token => {
                let By::Maintenance(_) = by else { return Err(self.misfit(&Event::Lease { by, token })) };
                let by = held.clone();
                (next.holder, next.token) = (Holder::Held { by, phase: Working }, token);
            }
            (Event::Lease { by, token }, Holder::Held { by: held, phase: Lapsed })
                if by == *held && token > self.token =>
            {
                (next.holder, next.token) = (Holder::Held { by, phase: Working }, token);
            }
            (Event::Grant, Holder::Held { by: By::Claim(claim), phase: Working }) => {
                next.holder = Holder::Held { by: By::Claim(claim.clone()), phase: Granted };
                next.proof = None;
            }
            (Event::Release(cause), Holder::Held { by: By::Claim(_), .. }) => {
                // What is in quarantine, or gone, is cleaned when it may come back, not before.
                next.holder = match self.quarantine {
                    Some(_) => Holder::Free,
                    None if self.kept.gone => Holder::Free,
                    None => Holder::Held { by: By::Maintenance(cause), phase: Waiting },
                };
                next.proof = None;
            }
            (Event::Finish(proof), Holder::Held { phase: Working, .. }) => {
                (next.holder, next.proof) = (Holder::Free, proof);
            }
            (Event::Again, Holder::Held { by: By::Maintenance(cause), phase: Working }) => {
                next.holder = Holder::Held { by: By::Maintenance(cause.clone()), phase: Waiting };
            }
            (Event::Gone, holder) => {
                (next.kept.gone, next.proof) = (true, None);
                // Nobody can clean what is not there; it has no proof when it comes back.
                if matches!(holder, Holder::Held { phase: Waiting, .. }) {
                    next.holder = Holder::Free;
                }
            }
            (Event::Quarantine(worse), _) => {
                // That a pod waits in vain stays true, whatever is found later.
                let raised =
                    self.quarantine.as_ref().map_or(worse.raised, |now| now.raised.join(worse.raised));
                let mut joined = match &self.quarantine {
                    Some(now) if now.reason <= worse.reason => now.clone(),
                    _ => worse,
                };
                joined.raised = raised;
                (next.quarantine, next.proof) = (Some(joined), None);
                if self.wants_cleaning().is_some() {
                    next.holder = Holder::Free;
                }
            }
            (Event::Lift, _) => next.quarantine = None,
            (event, _) => return Err(self.misfit(&event)),
        }
        Ok(next)
    }

    fn misfit(&self, event: &Event) -> Misfit {
        let state = format!("{:?} under token {}", self.holder, self.token);
        Misfit { address: self.address, event: format!("{event:?}"), state }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FirstProof => write!(f, "its first proof on this boot"),
            Self::AfterRelease(claim) => write!(f, "what claim {claim} left is being cleaned"),
            Self::AfterCrash(claim) => {
                write!(f, "the unfinished preparing for claim {claim} is being cleaned")
            }
            Self::Resanitization => write!(f, "it is being proved again after a quarantine"),
        }
    }
}
