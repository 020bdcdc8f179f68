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
    Floor { name: "commands", rooms: &["cli", "app", "config"] },
    Floor { name: "faces", rooms: &["kubelet", "publish", "observe"] },
    Floor { name: "decisions", rooms: &["claims", "ownership", "maintenance"] },
    Floor { name: "proof", rooms: &["proof", "ledger", "inventory"] },
    Floor { name: "hands", rooms: &["worker", "steps", "store", "cdi", "api", "wire"] },
    Floor { name: "matter", rooms: &["pci", "vendor"] },
    Floor { name: "twins", rooms: &["sim"] },
    Floor { name: "words", rooms: &["types"] },
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
    Line { from: "app", to: "config", why: "the composition is made from the policy file and the flags" },
    Line {
        from: "inventory",
        to: "pci::sysfs",
        why: "reads attributes that the kernel caches, which cannot hang",
    },
];

/// Files that may say `unsafe`, each with its reason.
const UNSAFE: &[(&str, &str)] = &[("pci/bar.rs", "maps a BAR")];

const HOUSE: House =
    House { floors: FLOORS, guards: GUARDS, lines: LINES, unsafe_files: UNSAFE, most_lines: 400 };

#[test]
fn the_house_stands() {
    let problems = check(&HOUSE, &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
