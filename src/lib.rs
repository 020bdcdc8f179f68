//! cleanslate
pub mod cdi;
pub mod types;
pub mod wire;
