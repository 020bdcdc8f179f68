//! Reads a source tree: which modules there are, what they import, and every path that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Spacing, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Meta, UseTree, VisRestricted};

/// Segments from the crate's root; `[]` is `lib.rs`, `["main"]` is `main.rs`.
pub(crate) type Module = Vec<String>;

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) modules: BTreeMap<Module, Names>,
    pub(crate) mentions: Vec<Mention>,
}

pub(crate) struct SourceFile {
    /// Relative to the source folder.
    pub(crate) path: PathBuf,
    pub(crate) module: Module,
    pub(crate) text: String,
}

/// What a module's names stand for.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) children: BTreeSet<String>,
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    pub(crate) globs: Vec<Vec<String>>,
}

impl Names {
    /// Whether a path that begins with `first` can be one inside the crate.
    pub(crate) fn leads_inside(&self, first: &str) -> bool {
        matches!(first, "crate" | "cleanslate" | "self" | "super")
            || self.children.contains(first)
            || self.imports.contains_key(first)
    }
}

/// A path that a module names, as it is written.
pub(crate) struct Mention {
    pub(crate) module: Module,
    pub(crate) segments: Vec<String>,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

impl Tree {
    pub(crate) fn read(source: &Path) -> Self {
        let mut tree = Self::default();
        let mut test_modules = BTreeSet::new();
        for path in rust_files(source) {
            let text = fs::read_to_string(&path).unwrap();
            let parsed =
                syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display())).unwrap();
            let path = path.strip_prefix(source).unwrap().to_owned();
            let module = module_of(&path);
            let mut collector = Collector { tree, test_modules, file: path.clone(), module: module.clone() };
            collector.module_names();
            collector.visit_file(&parsed);
            Collector { tree, test_modules, .. } = collector;
            tree.files.push(SourceFile { path, module, text });
        }
        let is_test = |module: &Module| test_modules.iter().any(|test: &Module| module.starts_with(test));
        tree.mentions.retain(|mention| !is_test(&mention.module));
        tree
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

fn module_of(path: &Path) -> Module {
    let mut module: Module =
        path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
        module.pop();
    }
    module
}

struct Collector {
    tree: Tree,
    test_modules: BTreeSet<Module>,
    file: PathBuf,
    module: Module,
}

impl Collector {
    /// The names of the module that is being read; makes it known to its parent, too.
    fn module_names(&mut self) -> &mut Names {
        if let [parents @ .., name] = &self.module[..] {
            self.tree.modules.entry(parents.to_vec()).or_default().children.insert(name.clone());
        }
        self.tree.modules.entry(self.module.clone()).or_default()
    }

    fn mention(&mut self, segments: Vec<String>, span: Span) {
        let (module, file) = (self.module.clone(), self.file.clone());
        self.tree.mentions.push(Mention { module, segments, file, line: span.start().line });
    }

    fn import(&mut self, before: &[String], tree: &UseTree) {
        let join = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&join(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(before, tree)),
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.bind(last, before.to_vec(), tree.span());
            }
            UseTree::Name(name) => self.bind(name.ident.to_string(), join(&name.ident), tree.span()),
            UseTree::Rename(rename) if rename.ident == "self" => {
                self.bind(rename.rename.to_string(), before.to_vec(), tree.span());
            }
            UseTree::Rename(rename) => {
                self.bind(rename.rename.to_string(), join(&rename.ident), tree.span());
            }
            UseTree::Glob(_) => {
                self.module_names().globs.push(before.to_vec());
                self.mention(before.to_vec(), tree.span());
            }
        }
    }

    fn bind(&mut self, name: String, path: Vec<String>, span: Span) {
        self.module_names().imports.insert(name, path.clone());
        self.mention(path, span);
    }

    /// Macros and attributes take tokens, not paths: here everything of the shape `a::b` is one.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<(String, Span)> = Vec::new();
        let mut colons = 0;
        for token in tokens.into_iter().map(Some).chain([None]) {
            match &token {
                Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && colons < 2 => {
                    colons = if punct.spacing() == Spacing::Joint || colons == 1 { colons + 1 } else { 0 };
                    continue;
                }
                Some(TokenTree::Ident(ident)) if colons == 2 && !path.is_empty() => {
                    path.push((ident.to_string(), ident.span()));
                    colons = 0;
                    continue;
                }
                _ => {}
            }
            if let [(_, span), _, ..] = path[..] {
                self.mention(path.iter().map(|(name, _)| name.clone()).collect(), span);
            }
            path.clear();
            colons = 0;
            match token {
                Some(TokenTree::Ident(ident)) => path.push((ident.to_string(), ident.span())),
                Some(TokenTree::Group(group)) => self.tokens(group.stream()),
                _ => {}
            }
        }
    }
}

impl Visit<'_> for Collector {
    fn visit_item(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = name {
            self.module_names().items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        self.module.push(item.ident.to_string());
        if item.attrs.iter().any(is_test_only) {
            self.test_modules.insert(self.module.clone());
        } else {
            self.module_names();
            visit::visit_item_mod(self, item);
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        self.import(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.mention(segments, path.span());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    /// `pub(crate)` and `pub(in …)` open a door to the inside, they use nothing.
    fn visit_vis_restricted(&mut self, _: &VisRestricted) {}
}

fn is_test_only(attribute: &Attribute) -> bool {
    matches!(&attribute.meta, Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}
