//! What a source tree has to keep to, and what it breaks.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use crate::collect::{Mention, Module, SourceFile, Tree};
use crate::resolve::resolve;

pub(crate) struct Floor {
    pub(crate) name: &'static str,
    pub(crate) rooms: &'static [&'static str],
}

/// A room that only some modules may use.
pub(crate) struct Guard {
    pub(crate) room: &'static str,
    pub(crate) users: &'static [&'static str],
}

/// An arrow between two modules that is allowed beside the rules.
pub(crate) struct Line {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) why: &'static str,
}

pub(crate) struct House {
    pub(crate) floors: &'static [Floor],
    pub(crate) guards: &'static [Guard],
    pub(crate) lines: &'static [Line],
    pub(crate) unsafe_files: &'static [(&'static str, &'static str)],
    pub(crate) most_lines: usize,
}

/// Everything in `source` that is against the rules of `house`, a line each.
pub(crate) fn check(house: &House, source: &Path) -> Vec<String> {
    let tree = Tree::read(source);
    let rooms: BTreeSet<_> = tree.files.iter().map(|file| room(&file.module)).collect();
    let mut problems = Vec::new();
    for room in rooms.iter().filter(|room| house.floor(room).is_none()) {
        problems.push(format!("room `{room}` is on no floor: say in tests/architecture.rs where it belongs"));
    }
    let mut used = BTreeSet::new();
    for mention in &tree.mentions {
        for to in resolve(&tree, &mention.module, &mention.segments) {
            problems.extend(house.arrow(mention, &to, &mut used));
        }
    }
    for (number, line) in house.lines.iter().enumerate() {
        // A line for a room that is not built yet waits for it.
        let is_built = [line.from, line.to].iter().all(|end| rooms.contains(end.split("::").next().unwrap()));
        if is_built && !used.contains(&number) {
            let Line { from, to, why } = line;
            problems.push(format!("nothing needs the line {from} → {to} ({why}) any more: remove it"));
        }
    }
    for file in &tree.files {
        problems.extend(house.file(file));
    }
    for (path, _) in house.unsafe_files {
        if tree.files.iter().any(|file| file.path == Path::new(path) && !is_unsafe(&file.text)) {
            problems.push(format!("src/{path} says no `unsafe` any more: take it off the list"));
        }
    }
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    problems
}

impl House {
    fn floor(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.rooms.contains(&room))
    }

    /// What is wrong with an arrow, after `used` has taken up the line that allows it.
    fn arrow(&self, mention: &Mention, to: &Module, used: &mut BTreeSet<usize>) -> Option<String> {
        let (from_room, to_room) = (room(&mention.module), room(to));
        let (from, below) = (self.floor(from_room)?, self.floor(to_room)?);
        if from_room == to_room {
            return None;
        }
        let guard = self.guards.iter().find(|guard| guard.room == to_room);
        let is_guarded = guard.is_some_and(|guard| {
            let mut users = guard.users.iter();
            !users.any(|user| is_in(&mention.module, user))
        });
        let (from_floor, to_floor) = (self.floors[from].name, self.floors[below].name);
        let what = if from > below {
            format!("goes up from {from_floor} to {to_floor}")
        } else if from == below {
            format!("goes sideways within {from_floor}, without a line in tests/architecture.rs")
        } else if is_guarded {
            format!("is not for `{from_room}`: `{to_room}` is only for {}", guard?.users.join(", "))
        } else {
            return None;
        };
        let mut lines = self.lines.iter();
        let line = lines.position(|line| is_in(&mention.module, line.from) && is_in(to, line.to));
        if let Some(line) = line.filter(|_| from <= below) {
            used.insert(line);
            return None;
        }
        let (file, line, path) = (mention.file.display(), mention.line, mention.segments.join("::"));
        Some(format!("src/{file}:{line}: {from_room} → {to_room} {what}: `{path}`"))
    }

    fn file(&self, file: &SourceFile) -> Vec<String> {
        let mut problems = Vec::new();
        let path = file.path.display();
        let lines = file.text.lines().count();
        if lines > self.most_lines {
            let most = self.most_lines;
            problems.push(format!(
                "src/{path} has {lines} lines, at most {most}: give a part of it its own file"
            ));
        }
        if file.path.ends_with("mod.rs") {
            problems.push(format!("src/{path}: a module is a file named after it, not mod.rs"));
        }
        let is_listed = self.unsafe_files.iter().any(|(listed, _)| file.path == Path::new(listed));
        if !is_listed && is_unsafe(&file.text) {
            problems.push(format!("src/{path} says `unsafe` and is not on the list of files that may"));
        }
        problems
    }
}

fn room(module: &Module) -> &str {
    module.first().map_or("lib", String::as_str)
}

/// Whether `module` is, or is inside, what `prefix` names.
fn is_in(module: &Module, prefix: &str) -> bool {
    let prefix: Vec<_> = prefix.split("::").collect();
    module.len() >= prefix.len() && module.iter().zip(prefix).all(|(part, wanted)| part == wanted)
}

fn is_unsafe(text: &str) -> bool {
    TokenStream::from_str(text).is_ok_and(has_unsafe)
}

fn has_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "unsafe",
        TokenTree::Group(group) => has_unsafe(group.stream()),
        _ => false,
    })
}
