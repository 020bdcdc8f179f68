//! What the scheduler sees of this node: one pool of ResourceSlices, kept as the ledger and the inventory have it.
//!
//! ```text
//!   ledger ──▶ snapshot ─┐
//!                        ├─▶ device ─▶ pool: slices, and what is to be written ─▶ publisher ─▶ API server
//!   inventory ──▶ known ─┘                    ▲                                       │
//!                                             └──── mirror: what the server has ◀─────┘ watch, answers
//! ```
//!
//! A slice change wakes every scheduler of the cluster, so nothing that changes with each claim stands in one, and
//! nothing is written that the server has already.

mod device;
mod features;
mod mirror;
mod pool;
mod publisher;
mod view;
mod writes;

pub use publisher::Publisher;
pub use view::{Failure, PublishView};
