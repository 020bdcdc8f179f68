//! Claims: read, checked, prepared and released.

pub mod allocation;
pub mod fetch;

use std::fmt;

use crate::types::ClaimRef;

/// What the kubelet's calls are about.
#[derive(Debug)]
pub struct Claims;

/// One device of a prepared claim, as the kubelet is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests of the claim that it satisfies, without their subrequest part.
    pub requests: Vec<String>,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// Names for the container runtime.
    pub cdi_ids: Vec<String>,
}

/// Why a claim was not prepared or not released; its text is what the kubelet shows.
#[derive(Debug)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Claims {
    /// Prepares a claim.
    ///
    /// # Errors
    /// When it is not prepared.
    pub async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, Refusal> {
        Err(Refusal(format!("claim {claim}: not built yet")))
    }

    /// Releases a claim.
    ///
    /// # Errors
    /// When it cannot be released.
    pub async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Refusal> {
        Err(Refusal(format!("claim {claim}: not built yet")))
    }
}
