//! cleanslate
pub mod types;
pub mod wire;
