//! What others see of the daemon: its log, and its control socket on the node.

pub mod control;
pub mod logging;
pub mod status;
