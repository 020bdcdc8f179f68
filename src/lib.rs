//! cleanslate
pub mod ledger;
pub mod pci;
pub mod steps;
pub mod store;
pub mod types;
pub mod wire;
pub mod worker;
