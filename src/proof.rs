//! From a lease to a proof: the order of the steps, and what follows from what they report.

mod pipeline;
mod subject;
pub mod verdict;

pub use pipeline::{Patience, Unproved, prove};
pub use subject::Subject;
