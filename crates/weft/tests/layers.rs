//! A test of the crate's layers: a module may name only modules of the layers below its own.
//!
//! The test follows what the compiler would follow: `use` declarations, paths in code and in the arguments of
//! macros, and the names that `lib.rs` and its modules re-export at the root of the crate. It ignores modules that
//! only tests compile, because a test of a low layer may use the whole database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// The layers, from the lowest to the highest. Add a new module at its place: it may name only the modules before
/// it.
const LAYERS: &[&str] = &[
    "index",
    "sync",
    "step",
    "row",
    "error",
    "history",
    "durability",
    "store",
    "plan",
    "commit",
    "transaction",
    "snapshot",
    "database",
    "raw_tree",
];

/// The arrows of the dependency graph. Maps (naming module, named module) to the places in the code: file and path.
type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// The names that `lib.rs` re-exports at the root, each with the module that it comes from.
#[derive(Default)]
struct Exports(BTreeMap<String, String>);

impl Exports {
    fn of(lib: &syn::File) -> Exports {
        let mut exports = Exports::default();
        for item in &lib.items {
            match item {
                syn::Item::Use(item) => exports.add(&item.tree, &mut Vec::new()),
                syn::Item::Mod(syn::ItemMod { ident, content: Some((_, items)), .. }) => {
                    exports.add_module(ident.to_string(), items);
                }
                _ => {}
            }
        }
        exports
    }

    /// Adds a module that `lib.rs` defines inline to re-export names. It belongs to the highest module of those
    /// names.
    fn add_module(&mut self, name: String, items: &[syn::Item]) {
        let mut inner = Exports::default();
        for item in items {
            if let syn::Item::Use(item) = item {
                inner.add(&item.tree, &mut Vec::new());
            }
        }
        if let Some(highest) = inner.0.into_values().max_by_key(|module| layer(module)) {
            self.0.insert(name, highest);
        }
    }

    fn add(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.add(&part.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add(tree, path));
            }
            syn::UseTree::Name(name) => self.insert(name.ident.to_string(), path),
            syn::UseTree::Rename(rename) => self.insert(rename.rename.to_string(), path),
            syn::UseTree::Glob(_) => self.insert("*".to_owned(), path),
        }
    }

    fn insert(&mut self, name: String, path: &[String]) {
        if let Some(module) = path.iter().find(|part| *part != "crate") {
            self.0.insert(name, module.clone());
        }
    }

    /// Returns the top-level module that a name at the root comes from.
    fn module<'n>(&'n self, name: &'n str) -> &'n str {
        if LAYERS.contains(&name) { name } else { self.0.get(name).map_or(name, String::as_str) }
    }
}

/// Returns whether a condition can be true, and whether it can be false, in a build for neither tests nor model
/// checkers.
fn outcomes(condition: &syn::Meta) -> (bool, bool) {
    let nested = |list: &syn::MetaList| {
        let parse = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
        list.parse_args_with(parse).expect("a condition has conditions in it")
    };
    match condition {
        syn::Meta::Path(path) => {
            let is_for_tests =
                ["test", "doctest", "loom", "shuttle"].iter().any(|name| path.is_ident(name));
            (!is_for_tests, true)
        }
        syn::Meta::List(list) if list.path.is_ident("not") => {
            let (is_true, is_false) = outcomes(&nested(list)[0]);
            (is_false, is_true)
        }
        syn::Meta::List(list) => {
            let is_any = list.path.is_ident("any");
            nested(list).iter().map(outcomes).fold((!is_any, is_any), |all, one| match is_any {
                true => (all.0 | one.0, all.1 & one.1),
                false => (all.0 & one.0, all.1 | one.1),
            })
        }
        syn::Meta::NameValue(_) => (true, true),
    }
}

/// Returns whether attributes restrict their item to builds for tests or model checkers.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions
        .map(|cfg| cfg.parse_args().expect("`cfg` has a condition"))
        .any(|condition| !outcomes(&condition).0)
}

/// A walk through the code of one top-level module.
struct Walk<'w> {
    exports: &'w Exports,
    /// The top-level module.
    module: String,
    /// The path of the current module from the root.
    path: Vec<String>,
    file: PathBuf,
    /// The directory of the current module's submodules.
    directory: PathBuf,
    arrows: &'w mut Arrows,
}

impl Walk<'_> {
    /// Records that the module uses a name at the root of the crate.
    fn note(&mut self, name: &str) {
        let named = self.exports.module(name).to_owned();
        if named == self.module {
            return;
        }
        let place = format!("{}: crate::{name}", self.file.display());
        self.arrows.entry((self.module.clone(), named)).or_default().insert(place);
    }

    /// Follows a path, if it leads out of the top-level module.
    fn follow(&mut self, parts: &[String]) {
        let mut parts = parts.iter().map(String::as_str).peekable();
        match parts.next() {
            Some("crate") => {
                if let Some(name) = parts.next() {
                    self.note(name);
                }
            }
            Some("super") => {
                let mut depth = self.path.len() - 1;
                while parts.next_if(|part| *part == "super").is_some() {
                    depth = depth.saturating_sub(1);
                }
                if depth == 0
                    && let Some(name) = parts.next()
                {
                    self.note(name);
                }
            }
            _ => {}
        }
    }

    fn follow_use(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.follow_use(&part.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.follow_use(tree, path));
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                path.push(ident.to_string());
                self.follow(path);
                path.pop();
            }
            syn::UseTree::Glob(_) => self.follow(path),
        }
    }

    /// Follows the paths in the arguments of a macro, which are tokens without syntax.
    fn follow_tokens(&mut self, tokens: &proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        for token in tokens.clone() {
            match token {
                proc_macro2::TokenTree::Ident(ident) => {
                    path.push(ident.to_string());
                    continue;
                }
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' => continue,
                // The path of a called macro. Macros are at the root of the crate, wherever they are defined.
                proc_macro2::TokenTree::Punct(punct)
                    if punct.as_char() == '!' && punct.spacing() == proc_macro2::Spacing::Alone =>
                {
                    path.clear();
                }
                proc_macro2::TokenTree::Group(group) => self.follow_tokens(&group.stream()),
                _ => {}
            }
            self.follow_parts(&path);
            path.clear();
        }
        self.follow_parts(&path);
    }

    /// Follows all paths in a sequence of names, such as `match crate::row::Key`.
    fn follow_parts(&mut self, parts: &[String]) {
        for (position, part) in parts.iter().enumerate() {
            if part == "crate" {
                self.follow(&parts[position..]);
            }
        }
    }

    fn file(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let syntax = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("cannot parse {}: {error}", file.display()));
        let before = std::mem::replace(&mut self.file, file.to_owned());
        if !is_for_tests(&syntax.attrs) {
            self.visit_file(&syntax);
        }
        self.file = before;
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let name = item.ident.to_string();
        self.path.push(name.clone());
        let directory = self.directory.join(&name);
        let before = std::mem::replace(&mut self.directory, directory.clone());
        match &item.content {
            Some((_, items)) => items.iter().for_each(|item| self.visit_item(item)),
            None => {
                let beside = before.join(format!("{name}.rs"));
                let file = if beside.exists() { beside } else { directory.join("mod.rs") };
                self.file(&file);
            }
        }
        self.directory = before;
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.follow_use(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.follow(&parts);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.follow_tokens(&called.tokens);
    }
}

/// Returns all arrows between the top-level modules of the crate whose `lib.rs` is in `source`.
fn arrows(source: &Path) -> Arrows {
    let text = std::fs::read_to_string(source.join("lib.rs")).expect("the crate has a lib.rs");
    let lib = syn::parse_file(&text).expect("lib.rs is Rust");
    let exports = Exports::of(&lib);
    let mut arrows = Arrows::new();
    for item in &lib.items {
        if let syn::Item::Mod(item) = item
            && item.content.is_none()
        {
            let mut walk = Walk {
                exports: &exports,
                module: item.ident.to_string(),
                path: Vec::new(),
                file: source.join("lib.rs"),
                directory: source.to_owned(),
                arrows: &mut arrows,
            };
            walk.visit_item_mod(item);
        }
    }
    arrows
}

/// Returns the position of a module's layer.
fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

/// Describes the arrows that do not lead downward. The result is empty if all arrows lead downward.
fn upward(arrows: &Arrows) -> String {
    let mut message = String::new();
    for ((from, to), places) in arrows {
        let fault = match (layer(from), layer(to)) {
            (None, _) => format!("`{from}` is missing in LAYERS"),
            (_, None) => format!("`{from}` names `{to}`, which is missing in LAYERS"),
            (Some(above), Some(below)) if below < above => continue,
            _ => format!("`{from}` names `{to}`, which is above it"),
        };
        writeln!(message, "{fault}:").expect("writing to a string succeeds");
        for place in places {
            writeln!(message, "    {place}").expect("writing to a string succeeds");
        }
    }
    message
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn arrows_between_modules_lead_downward() {
    let arrows = arrows(&source());
    assert!(arrows.len() > 45, "only {} arrows were found", arrows.len());
    let upward = upward(&arrows);
    assert!(upward.is_empty(), "{upward}");
}

#[test]
fn every_layer_is_a_module() {
    let arrows = arrows(&source());
    let named: BTreeSet<&str> =
        arrows.keys().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    assert_eq!(named, LAYERS.iter().copied().collect());
}

/// Writes a crate with `text` as the code of a submodule of `store`, and returns the upward arrows in it.
fn planted(name: &str, text: &str) -> String {
    let directory = std::env::temp_dir().join(format!("weft-layers-{}-{name}", std::process::id()));
    let nested = directory.join("store");
    std::fs::create_dir_all(&nested).expect("the directory for temporary files can be written");
    let write = |path: &str, text: &str| {
        std::fs::write(directory.join(path), text).expect("a file can be written");
    };
    write(
        "lib.rs",
        "mod store;\nmod database;\npub use database::metrics::{Metrics as Numbers};\n",
    );
    write("database.rs", "use crate::store;");
    write("store/mod.rs", "mod record;");
    write("store/record.rs", text);
    let upward = upward(&arrows(&directory));
    std::fs::remove_dir_all(&directory).expect("the directory exists");
    upward
}

#[test]
fn a_planted_arrow_is_found() {
    let upward = "`store` names `database`, which is above it";
    for (name, text) in [
        ("use", "use crate::database::Database;"),
        ("group", "use crate::{store, database::{self, Database}};"),
        ("super", "use super::super::database::Database;"),
        ("inline", "mod inner { fn f() { crate::database::open(); } }"),
        ("type", "struct Row(Box<crate::database::Database>);"),
        ("re-exported", "fn f(numbers: &crate::Numbers) {}"),
        ("in-a-macro", "fn f() { assert!(crate::database::is_open()); }"),
        ("not-in-tests", "#[cfg(not(any(test, loom)))] use crate::database::Database;"),
        ("feature", "#[cfg(any(test, feature = \"history\"))] use crate::database::Database;"),
    ] {
        let found = planted(name, text);
        assert!(found.starts_with(upward), "{name}: {found}");
    }
}

#[test]
fn code_for_tests_does_not_count() {
    for (name, text) in [
        ("module", "#[cfg(test)] mod tests { use crate::database::Database; }"),
        ("use", "#[cfg(all(test, not(loom)))] use crate::database::Database;"),
        ("function", "#[cfg(loom)] fn f() { crate::database::open(); }"),
        ("comment", "// crate::database\n/// [`crate::database`]\nstruct Row;"),
        ("within", "use super::record; mod inner { use super::super::record; }"),
    ] {
        assert_eq!(planted(name, text), "", "{name}");
    }
}
