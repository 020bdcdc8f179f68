//! cleanslate
pub mod api;
pub mod cdi;
pub mod claims;
pub mod config;
pub mod ledger;
pub mod pci;
pub mod steps;
pub mod store;
pub mod types;
pub mod wire;
pub mod worker;
