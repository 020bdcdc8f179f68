//! cleanslate
pub mod api;
pub mod cdi;
pub mod claims;
pub mod config;
pub mod kubelet;
pub mod observe;
pub mod types;
pub mod unix;
pub mod wire;
