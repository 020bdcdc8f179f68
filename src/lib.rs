//! cleanslate
pub mod sim;
pub mod types;
pub mod wire;
