//! cleanslate: a Kubernetes DRA kubelet plugin that hands out a PCIe accelerator only after it has just proved it.
//!
//! The map of this house; arrows point down only, and `tests/architecture.rs` holds them.
//!
//! ```text
//!   cli  app  config                         commands · composition and drain · the policy file
//!   kubelet  publish  observe                faces: the kubelet's contract · slices · status, control socket, log
//!   claims  maintenance                      decisions: what a claim asks · what nobody asked for
//!   inventory  proof  ledger                 which devices · Lease → Proved · sole owner of device state
//!   worker  steps  store  cdi  api  unix     hands: processes for what can hang, files, sockets
//!   pci                                      matter: what the kernel shows of a function
//!   types  wire                              words
//!   sim                                      twins, for the demo and tests only
//! ```
//!
//! One prepare: `kubelet::plugin` → `claims` (fetch, queue) → `ledger::lease` → `proof::prove`, which orders the
//! steps of a `worker` process one by one → `ledger::commit` → `cdi` → the answer.

pub mod api;
pub mod app;
pub mod cdi;
pub mod claims;
pub mod cli;
pub mod config;
pub mod inventory;
pub mod kubelet;
pub mod ledger;
pub mod maintenance;
pub mod observe;
pub mod pci;
pub mod proof;
pub mod publish;
pub mod sim;
pub mod steps;
pub mod store;
pub mod types;
pub mod unix;
pub mod wire;
pub mod worker;
