//! The words of this house: plain values that every room shares. Depends on nothing above it.

mod address;
mod allocation;
mod deadline;
mod facts;
mod identity;
mod place;
mod policy;
mod reason;
mod receipt;
mod requirements;
mod roots;
mod token;

pub use address::{AddressError, PciAddress};
pub use allocation::{AllocatedDevice, Allocation, Claim, ClaimRef, ClaimUid, UidError};
pub use deadline::Deadline;
pub use facts::{BarView, Baseline, Counts, Fact, HolderProcess, Inspection, Probe, Reset, Scrub, ScrubPass};
pub use identity::Identity;
pub use place::{DeviceNode, LinkView, Parent, Place, VirtualOf};
pub use policy::{
    CONFIG_FLR, Deadlines, Decision, DeviceRule, Ids, MatchRule, NodeMode, Policy, ReleasePolicy, ScrubRule,
    StepName,
};
pub use reason::{Class, Fault, Reason};
pub use receipt::{Mode, Receipt, StepTime};
pub use requirements::{Offer, Onchip, Requirements};
pub use roots::Roots;
pub use token::Token;
