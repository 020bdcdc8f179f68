//! Why a claim gets no lease, in the words that the kubelet shows.

use super::device::{By, Device, Holder, Misfit, Phase};
use crate::store::StoreError;
use crate::types::{ClaimRef, Fault, Reason, Token};

/// Why a claim got no lease. No device of it is leased then.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another claim has the device.
    #[error("device {device} is {phase} claim {holder}; it is free once that claim is unprepared")]
    Held {
        /// The device's name.
        device: String,
        /// What it is to that claim: granted to, being prepared for.
        phase: &'static str,
        /// That claim.
        holder: Box<ClaimRef>,
    },
    /// The device is being worked on; it will be free.
    #[error("device {device} is in maintenance: {cause}")]
    Busy {
        /// The device's name.
        device: String,
        /// What is done to it.
        cause: String,
    },
    /// The device is not handed out.
    #[error(
        "device {device} is in quarantine: {reason} ({class}): {evidence}; `cleanslate quarantine list` has the details"
    )]
    Quarantined {
        /// The device's name.
        device: String,
        /// Why.
        reason: Reason,
        /// What ends it.
        class: &'static str,
        /// What was seen.
        evidence: String,
    },
    /// Nobody has reported this device.
    #[error("device {0} is not known to the ledger yet")]
    Unknown(String),
    /// The same device twice under two names.
    #[error("{0}; no device was touched")]
    Misfit(#[from] Misfit),
    /// Its epochs are used up, and a token is never given twice.
    #[error(
        "device {device} has used up its epochs: its last token is {token}, and none may be given twice; with the \
         daemon stopped, removing store.json from the state folder begins a new term"
    )]
    Spent {
        /// The device's name.
        device: String,
        /// The last token.
        token: Token,
    },
    /// The lease could not be made durable.
    #[error("{fault}: {source}; no device was touched")]
    Store {
        /// Always [`Fault::Store`].
        fault: Fault,
        /// What the disk said.
        source: StoreError,
    },
}

pub(super) fn refusal(device: &Device) -> LeaseError {
    let name = device.address.device_name();
    if let Some(quarantine) = &device.quarantine {
        return LeaseError::Quarantined {
            device: name,
            reason: quarantine.reason,
            class: quarantine.reason.class().as_str(),
            evidence: quarantine.evidence.clone(),
        };
    }
    match &device.holder {
        Holder::Held { by: By::Claim(claim), phase } => LeaseError::Held {
            device: name,
            phase: match phase {
                Phase::Granted | Phase::Lapsed => "granted to",
                Phase::Working | Phase::Waiting => "being prepared for",
            },
            holder: Box::new(claim.clone()),
        },
        Holder::Held { by: By::Maintenance(cause), .. } => {
            LeaseError::Busy { device: name, cause: cause.to_string() }
        }
        Holder::Free => LeaseError::Busy { device: name, cause: "its state has just changed".to_owned() },
    }
}
