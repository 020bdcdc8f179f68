//! Holds the source tree to the house of DESIGN section 4: arrows point down only.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "architecture/collect.rs"]
mod collect;
#[path = "architecture/planted.rs"]
mod planted;
#[path = "architecture/resolve.rs"]
mod resolve;
#[path = "architecture/rules.rs"]
mod rules;

use std::path::Path;

use rules::{Floor, Guard, House, Line, check};

/// Top to bottom. A room uses those on lower floors; on its own floor it needs a line in [`LINES`].
const FLOORS: &[Floor] = &[
    Floor { name: "main", rooms: &["main"] },
    Floor { name: "lib", rooms: &["lib"] },
    Floor { name: "commands", rooms: &["cli", "app"] },
    Floor { name: "config", rooms: &["config"] },
    Floor { name: "faces", rooms: &["kubelet", "publish", "observe"] },
    Floor { name: "decisions", rooms: &["claims", "ownership", "maintenance"] },
    Floor { name: "inventory", rooms: &["inventory"] },
    Floor { name: "proof", rooms: &["proof"] },
    Floor { name: "ledger", rooms: &["ledger"] },
    Floor { name: "hands", rooms: &["worker", "steps", "store", "cdi", "api", "unix"] },
    Floor { name: "matter", rooms: &["pci", "vendor"] },
    Floor { name: "twins", rooms: &["sim"] },
    Floor { name: "words", rooms: &["types", "wire"] },
];

/// Rooms that not everybody above them may use.
const GUARDS: &[Guard] = &[
    Guard { room: "pci", users: &["steps"] },
    Guard { room: "vendor", users: &["steps"] },
    Guard { room: "sim", users: &["cli::demo"] },
];

/// What is allowed beyond floors and guards, each with its reason. A line that nothing needs has to go.
const LINES: &[Line] = &[
    Line { from: "cli", to: "app", why: "`run` starts the composition" },
    Line { from: "observe", to: "kubelet", why: "`status` shows what the kubelet said of our registration" },
    Line { from: "observe", to: "publish", why: "`status` shows what the API server has of this node" },
    Line { from: "steps", to: "worker", why: "parent and child speak one protocol and take one lock" },
];

/// Files that may say `unsafe`, each with its reason.
const UNSAFE: &[(&str, &str)] = &[("pci/bar/map.rs", "a BAR is mapped, written and read by address")];

const HOUSE: House =
    House { floors: FLOORS, guards: GUARDS, lines: LINES, unsafe_files: UNSAFE, most_lines: 400 };

#[test]
fn the_house_stands() {
    let problems = check(&HOUSE, &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
