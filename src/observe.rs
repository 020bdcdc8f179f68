//! What people see of a running daemon, and the little they can ask of it.

pub mod control;
pub mod logging;
pub mod status;
