//! cleanslate
pub mod cdi;
pub mod config;
pub mod types;
pub mod wire;
