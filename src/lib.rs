//! cleanslate
pub mod api;
pub mod cdi;
pub mod claims;
pub mod config;
pub mod inventory;
pub mod ledger;
pub mod maintenance;
pub mod pci;
pub mod proof;
pub mod sim;
pub mod steps;
pub mod store;
pub mod types;
pub mod wire;
pub mod worker;
