use std::path::PathBuf;

use cleanslate::ledger::{Lease, Proved};
use cleanslate::types::Receipt;

fn prove_by_hand(lease: Lease, receipt: Receipt, nodes: Vec<PathBuf>) -> Option<Proved> {
    Some(Proved { lease, receipt, nodes })
}

fn main() {}
