//! From a path as it is written to all modules that it leads through, re-exports and renames included.

use crate::collect::{Module, Tree};

/// Longer chains of re-exports are taken for circles.
const MOST_HOPS: usize = 16;

/// The absolute paths inside the crate that `segments`, written in `module`, leads through; none for another crate's.
pub(crate) fn resolve(tree: &Tree, module: &Module, segments: &[String]) -> Vec<Module> {
    let mut through = Vec::new();
    follow(tree, module, segments, MOST_HOPS, &mut through);
    through
}

fn follow(tree: &Tree, module: &Module, segments: &[String], hops: usize, through: &mut Vec<Module>) -> bool {
    let [first, rest @ ..] = segments else { return false };
    if hops == 0 {
        return false;
    }
    match first.as_str() {
        "crate" if module.first().is_some_and(|first| first == "main") => {
            walk(tree, vec!["main".into()], rest, hops, through)
        }
        "crate" | "cleanslate" => walk(tree, vec![], rest, hops, through),
        "self" => walk(tree, module.clone(), rest, hops, through),
        "super" => walk(tree, parent(module), rest, hops, through),
        _ => lookup(tree, module, first, rest, hops, through),
    }
}

/// Goes from `module` down `segments`.
fn walk(tree: &Tree, module: Module, segments: &[String], hops: usize, through: &mut Vec<Module>) -> bool {
    match segments {
        [] => {
            through.push(module);
            true
        }
        [first, rest @ ..] if first == "super" => walk(tree, parent(&module), rest, hops, through),
        [first, rest @ ..] => {
            if !lookup(tree, &module, first, rest, hops, through) {
                through.push(place(&module, first));
            }
            true
        }
    }
}

/// Looks `name` up in `module`, and goes on from what it stands for; false if it stands for nothing inside the crate.
fn lookup(
    tree: &Tree,
    module: &Module,
    name: &String,
    rest: &[String],
    hops: usize,
    through: &mut Vec<Module>,
) -> bool {
    let Some(names) = tree.modules.get(module) else { return false };
    if names.children.contains(name) {
        let child = [&module[..], std::slice::from_ref(name)].concat();
        return walk(tree, child, rest, hops, through);
    }
    if names.items.contains(name) {
        through.push(place(module, name));
        return true;
    }
    let found = match names.imports.get(name) {
        Some(path) => follow(tree, module, &[path, rest].concat(), hops - 1, through),
        None => names.globs.iter().any(|path| {
            let path = [path, std::slice::from_ref(name), rest].concat();
            // Else a glob of another crate would be looked for behind itself.
            names.leads_inside(&path[0]) && follow(tree, module, &path, hops - 1, through)
        }),
    };
    if found {
        through.push(place(module, name));
    }
    found
}

/// Where `name`, which is no module, stands in `module`; what stands in the root is the root's.
fn place(module: &Module, name: &String) -> Module {
    if module.is_empty() { vec![] } else { [&module[..], std::slice::from_ref(name)].concat() }
}

fn parent(module: &Module) -> Module {
    module[..module.len().saturating_sub(1)].to_vec()
}
