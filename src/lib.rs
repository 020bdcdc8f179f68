//! cleanslate
pub mod ledger;
pub mod store;
pub mod types;
pub mod wire;
