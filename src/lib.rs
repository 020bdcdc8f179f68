//! cleanslate
pub mod api;
pub mod cdi;
pub mod claims;
pub mod config;
pub mod types;
pub mod wire;
