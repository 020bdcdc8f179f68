//! What `status` shows of publishing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far the API server has what it should. Fields are only added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishView {
    /// Slices of the pool.
    pub slices: usize,
    /// Devices in them.
    pub devices: usize,
    /// The pool's generation.
    pub generation: i64,
    /// When the server last had all of it; `None` if it never had.
    pub last_success: Option<Timestamp>,
    /// What went wrong last; it is over if a success came later.
    pub last_error: Option<Failure>,
    /// Devices in no slice because the server cannot show that they must not be used.
    pub left_out: Vec<String>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When it was seen last.
    pub at: Timestamp,
    /// What it was.
    pub error: String,
}

impl PublishView {
    /// What is wrong now.
    #[must_use]
    pub fn failing(&self) -> Option<&Failure> {
        self.last_error.as_ref().filter(|failure| self.last_success.is_none_or(|good| good < failure.at))
    }
}
