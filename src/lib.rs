//! cleanslate
pub mod wire;
