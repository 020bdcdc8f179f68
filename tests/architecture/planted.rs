//! What the checker finds in trees with one fault planted, and that it finds nothing in a clean one.

use std::fs::{self, File};
use std::io::Write;

use crate::rules::{House, Line, check};
use crate::{FLOORS, GUARDS};

/// The real floors, with lines of their own: what is planted here does not depend on what the house allows today.
const HOUSE: House = House {
    floors: FLOORS,
    guards: GUARDS,
    lines: &[
        Line { from: "cli", to: "app", why: "planted" },
        Line { from: "app", to: "config", why: "planted" },
        Line { from: "inventory", to: "pci::sysfs", why: "planted" },
    ],
    unsafe_files: &[("pci/bar.rs", "planted")],
    most_lines: 400,
};

/// A clean tree: every kind of path, all pointing down.
const CLEAN: &[(&str, &str)] = &[
    ("main.rs", "mod own { pub fn f() {} } use cleanslate::cli; fn main() { cli::run(); crate::own::f(); }"),
    (
        "lib.rs",
        "pub mod cli; pub mod app; pub mod claims; pub mod ledger; pub mod steps; pub mod pci; pub mod vendor; pub mod types;",
    ),
    (
        "cli.rs",
        "pub mod demo; use serde::de::*; use super::app; pub fn run() { app::start(Default::default()) }",
    ),
    ("cli/demo.rs", "use crate::sim::{self as twins, Folder}; fn f(_: Folder) { twins::go() }"),
    (
        "app.rs",
        "use crate::claims::{Claims, self}; pub fn start(_: Claims) { claims::go(); let _ = Claims::new(); }",
    ),
    (
        "claims.rs",
        "pub use crate::ledger::Lease; pub struct Claims; impl Claims { fn f(_: crate::types::Id) {} }",
    ),
    ("ledger.rs", "mod record; pub use record::Lease; #[cfg(test)] mod tests { use crate::claims::Claims; }"),
    ("ledger/record.rs", "use super::super::types; pub struct Lease(types::Id); #[cfg(test)] mod tests;"),
    ("ledger/record/tests.rs", "use crate::app; use crate::claims;"),
    (
        "steps.rs",
        "pub(in crate::steps) fn f() { println!(\"{:?}\", crate::pci::read(std::mem::take(&mut 0))) }",
    ),
    (
        "pci.rs",
        "mod bar; use crate::types::Id as _; pub fn read(_: u8) {} // claims::x is only a word, so is unsafe",
    ),
    ("pci/bar.rs", "#![allow(unsafe_code)] unsafe fn f() {}"),
    ("vendor.rs", "pub mod nvidia {}"),
    ("sim.rs", "pub struct Folder; use crate::types::Id; pub fn go() {}"),
    ("types.rs", "pub use id::Id; mod id { pub struct Id; }"),
];

/// The problems of the clean tree after `text` is put in place of, or added as, `path`.
fn problems(path: &str, text: &str) -> Vec<String> {
    both((path, text), (path, text))
}

/// The same with two files.
fn both(one: (&str, &str), other: (&str, &str)) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in CLEAN.iter().copied().chain([one, other]) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }
    check(&HOUSE, folder.path())
}

/// Asserts that `text` in `path` breaks exactly one rule, in the words `problem`.
#[track_caller]
fn breaks(path: &str, text: &str, problem: &str) {
    let problems = problems(path, text);
    assert!(matches!(&problems[..], [only] if only.contains(problem)), "{problems:#?}");
}

fn added(path: &str, text: &str) -> String {
    let (_, clean) = CLEAN.iter().find(|(clean, _)| *clean == path).unwrap();
    format!("{clean}\n{text}")
}

#[test]
fn a_clean_tree_has_no_problem() {
    let (path, text) = CLEAN[0];
    assert_eq!(problems(path, text), [""; 0]);
}

#[test]
fn an_upward_edge_in_every_spelling() {
    let up = "src/ledger.rs:2: ledger → claims goes up from ledger to decisions";
    for text in [
        "use crate::claims::Claims;",
        "use crate::claims;",
        "use crate::claims::*;",
        "use crate::{types::Id, claims::{Claims as C}};",
        "use super::claims as c;",
        "use self::super::claims::Claims;",
        "fn f(_: crate::claims::Claims) {}",
        "fn f() { super::claims::go() }",
        "fn f() { let _ = Vec::<crate::claims::Claims>::new(); }",
        "impl From<crate::claims::Claims> for u8 {}",
        "fn f() { println!(\"{}\", crate::claims::go()) }",
        "macro_rules! m { () => { $crate::claims::go() } }",
        "#[derive(crate::claims::Derive)] struct S;",
        "mod inner { fn f() { super::super::claims::go() } }",
        "fn f() { use crate::claims::Claims; }",
    ] {
        breaks("ledger.rs", &added("ledger.rs", text), up);
    }
}

#[test]
fn a_super_chain_from_deep_inside() {
    let text = added("ledger/record.rs", "use super::super::super::ledger::super::claims as c;");
    breaks("ledger/record.rs", &text, "ledger → claims goes up");
    breaks(
        "ledger/record.rs",
        &added("ledger/record.rs", "fn f() { super::super::app::x() }"),
        "ledger → app goes up",
    );
}

#[test]
fn a_sideways_edge_needs_a_line() {
    let sideways = "pci → vendor goes sideways within matter, without a line";
    breaks("pci.rs", &added("pci.rs", "use crate::vendor::nvidia;"), sideways);
    breaks("app.rs", &added("app.rs", "fn f() { crate::cli::run() }"), "app → cli goes sideways");
}

#[test]
fn a_line_that_nothing_needs_has_to_go() {
    breaks("cli.rs", "mod demo;", "nothing needs the line cli → app");
}

#[test]
fn a_re_export_does_not_hide_where_it_leads() {
    breaks("ledger.rs", &added("ledger.rs", "pub use crate::claims::Claims;"), "ledger → claims goes up");
    let found = problems("lib.rs", &added("lib.rs", "pub use claims::Claims; pub use types::Id;"));
    assert_eq!(found, [""; 0]);

    let hidden = added("steps.rs", "pub use crate::pci as bus; pub mod face { pub use super::bus::*; }");
    assert_eq!(problems("steps.rs", &hidden), [""; 0]);
    for text in [
        "use crate::steps::bus::read;",
        "use crate::steps::face::read;",
        "use crate::steps::face as f; fn g() { f::read(1) }",
    ] {
        let found = both(("steps.rs", &hidden), ("claims.rs", &added("claims.rs", text)));
        assert!(
            matches!(&found[..], [only] if only.contains("claims → pci is not for `claims`")),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn the_root_is_no_way_around() {
    let root = added("lib.rs", "pub use claims::Claims;");
    let found = both(("lib.rs", &root), ("ledger.rs", &added("ledger.rs", "use crate::Claims;")));
    let [first, second] = &found[..] else { panic!("{found:#?}") };
    assert!(
        first.contains("ledger → claims goes up") && second.contains("ledger → lib goes up"),
        "{found:#?}"
    );
    for text in ["use crate as root;", "use crate::*;", "use super::*;"] {
        breaks("ledger.rs", &added("ledger.rs", text), "ledger → lib goes up");
    }
}

#[test]
fn guarded_rooms_are_for_their_users_only() {
    breaks("claims.rs", &added("claims.rs", "use crate::pci::read;"), "`pci` is only for steps");
    breaks("cli.rs", &added("cli.rs", "use crate::sim::Folder;"), "`sim` is only for cli::demo");
    breaks("sim.rs", &added("sim.rs", "use crate::pci::read;"), "sim → pci goes up");
    breaks("lib.rs", &added("lib.rs", "pub use pci::read;"), "`pci` is only for steps");
}

#[test]
fn a_line_allows_what_it_names_and_nothing_else() {
    assert_eq!(problems("inventory.rs", "use crate::pci::sysfs::cached;"), [""; 0]);
    let found = problems("inventory.rs", "use crate::pci::sysfs::cached; fn f() { crate::pci::read(1) }");
    assert!(matches!(&found[..], [only] if only.contains("inventory → pci is not for")), "{found:#?}");
}

#[test]
fn what_a_file_may_not_be() {
    breaks("attic.rs", "", "room `attic` is on no floor");
    breaks("pci/link/mod.rs", "", "not mod.rs");
    breaks("ledger/big.rs", &"\n".repeat(401), "has 401 lines, at most 400");
    breaks("steps/map.rs", "fn f() { g!(unsafe { 1 }) }", "src/steps/map.rs says `unsafe`");
    breaks("pci/bar.rs", "", "says no `unsafe` any more");
}
