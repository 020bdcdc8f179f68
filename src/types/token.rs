use std::fmt;

use serde::{Deserialize, Serialize};

/// Fencing token `<term>.<epoch>`: ordered, and strictly rising for one device over restarts and reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// Counts owners of the device.
    pub term: u64,
    /// Counts leases under that owner.
    pub epoch: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.epoch)
    }
}
