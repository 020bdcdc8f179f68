//! The words of this house: plain values that every room shares. Depends on nothing above it.

mod address;
mod roots;

pub use address::{AddressError, PciAddress};
pub use roots::Roots;
