//! Rules of style that a compiler does not check: parameters have names, modules import one another
//! in one direction, comment lines are at most 100 columns wide, names say what a thing is, and
//! documentation begins with its subject.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::workspace::{is_test_file, rust_files};

/// Columns that a comment may take, indentation included.
const COMMENT_COLUMNS: usize = 100;

/// First words of a riddle: the reader learns what is spoken of at the sentence's end.
const RIDDLES: [&str; 5] = ["Of", "That", "Those", "What", "Whether"];

/// Circles one level below the top that stand. The number may fall only.
const DEEPER_CIRCLES: usize = 2;

/// Violations in one crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Parameters whose pattern is a tuple, an array or a slice, except in closures.
    unnamed_parameters: usize,
    /// Modules beside one another that import one another in a circle.
    circles: Vec<String>,
    /// Comment lines wider than [`COMMENT_COLUMNS`], as `file:line`.
    long_comments: Vec<String>,
    /// Names that are `of` or begin with `of_`, as `file: name`.
    prepositions: Vec<String>,
    /// Documentation that begins with one of [`RIDDLES`], as `file:line`.
    riddles: Vec<String>,
}

impl Counts {
    /// Violations in words.
    fn faults(&self) -> impl Iterator<Item = String> {
        let counted = (self.unnamed_parameters > 0).then(|| format!("{} unnamed parameters", self.unnamed_parameters));
        let placed = [
            ("modules in a circle:", &self.circles),
            ("a long comment at", &self.long_comments),
            ("not the name of a thing:", &self.prepositions),
            ("documentation that does not begin with its subject at", &self.riddles),
        ];
        let placed =
            placed.into_iter().flat_map(|(rule, places)| places.iter().map(move |place| format!("{rule} {place}")));
        counted.into_iter().chain(placed)
    }
}

/// The counts of every folder of the workspace that has Rust sources of ours.
fn count_workspace(root: &Path) -> Result<BTreeMap<String, Counts>> {
    let mut crates: Vec<PathBuf> =
        std::fs::read_dir(root.join("crates"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    crates.extend(["benches", "bindings/python", "xtask", "fuzz"].map(|name| root.join(name)));
    crates.into_iter().filter(|folder| folder.is_dir()).map(|folder| count_crate(root, &folder)).collect()
}

fn count_crate(root: &Path, folder: &Path) -> Result<(String, Counts)> {
    let mut counts = Counts::default();
    let mut imports = Imports::default();
    for file in rust_files(folder)? {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        counts.unnamed_parameters += unnamed_parameters(&syntax);
        let path = file.strip_prefix(root).unwrap_or(&file).display();
        counts.long_comments.extend(long_comments(&text).map(|line| format!("{path}:{line}")));
        counts.riddles.extend(riddles(&text).into_iter().map(|line| format!("{path}:{line}")));
        let code: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("cannot read {path}: {error}"))?;
        counts.prepositions.extend(prepositions(code).into_iter().map(|name| format!("{path}: {name}")));
        if let Some(module) = file.strip_prefix(folder.join("src")).ok().and_then(module_in) {
            imports.add(module, &syntax);
        }
    }
    counts.circles = imports.circles().into_iter().map(|circle| circle.join(", ")).collect();
    let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    Ok((name, counts))
}

/// The module that a file, relative to `src`, holds; `None` for tests.
fn module_in(file: &Path) -> Option<ModulePath> {
    let is_root = |name: &str| ["lib", "main", "mod"].contains(&name);
    let path: ModulePath = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let path = if is_root(path.last()?) { path[..path.len() - 1].to_vec() } else { path };
    (!is_test_file(file)).then_some(path)
}

fn unnamed_parameters(file: &syn::File) -> usize {
    #[derive(Default)]
    struct Parameters(usize);
    impl<'ast> Visit<'ast> for Parameters {
        fn visit_signature(&mut self, signature: &'ast syn::Signature) {
            self.0 += signature.inputs.iter().filter(|input| is_unnamed(input)).count();
            visit::visit_signature(self, signature);
        }
    }
    fn is_unnamed(input: &syn::FnArg) -> bool {
        let syn::FnArg::Typed(typed) = input else { return false };
        let mut pattern = &*typed.pat;
        while let syn::Pat::Reference(reference) = pattern {
            pattern = &reference.pat;
        }
        matches!(pattern, syn::Pat::Tuple(_) | syn::Pat::Slice(_))
    }
    let mut parameters = Parameters::default();
    parameters.visit_file(file);
    parameters.0
}

/// Lines, counted from 1, whose comment is too wide.
fn long_comments(text: &str) -> impl Iterator<Item = usize> {
    let is_long_comment = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS;
    text.lines().zip(1..).filter(move |(line, _)| is_long_comment(line)).map(|(_, number)| number)
}

/// Lines, counted from 1, of documentation whose first word is one of [`RIDDLES`].
fn riddles(text: &str) -> Vec<usize> {
    let mut is_continued = false;
    let lines = text.lines().zip(1..).filter_map(|(line, number)| {
        let line = line.trim_start();
        let documentation = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let begins = !std::mem::replace(&mut is_continued, documentation.is_some());
        let first = documentation?.split_whitespace().next()?;
        (begins && RIDDLES.contains(&first)).then_some(number)
    });
    lines.collect()
}

/// Names that are `of` or begin with `of_`, each once.
fn prepositions(code: TokenStream) -> BTreeSet<String> {
    code.into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                BTreeSet::from_iter((name == "of" || name.starts_with("of_")).then_some(name))
            }
            TokenTree::Group(group) => prepositions(group.stream()),
            _ => BTreeSet::new(),
        })
        .collect()
}

/// A module's path from the crate's root.
type ModulePath = Vec<String>;

/// The modules of one crate and what each of them imports.
#[derive(Default)]
struct Imports {
    /// Paths that the file of a module names, as they would begin at the crate's root.
    named: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    /// Modules whose items a module exports under their own names.
    exported: BTreeMap<ModulePath, ModulePath>,
}

impl Imports {
    /// Adds what the file of `module` names outside its tests.
    fn add(&mut self, module: ModulePath, file: &syn::File) {
        let mut paths = Paths { module: &module, named: BTreeSet::new(), exported: BTreeMap::new() };
        paths.visit_file(file);
        let Paths { named, exported, .. } = paths;
        self.exported.extend(exported);
        self.named.insert(module, named);
    }

    /// Groups of modules beside one another, at most two levels below the root, each of which leads
    /// to all others of its group.
    fn circles(&self) -> Vec<Vec<String>> {
        let parents: BTreeSet<&[String]> =
            self.named.keys().flat_map(|module| (0..module.len().min(2)).map(|depth| &module[..depth])).collect();
        parents.into_iter().flat_map(|parent| self.circles_below(parent)).collect()
    }

    fn circles_below(&self, parent: &[String]) -> Vec<Vec<String>> {
        let depth = parent.len();
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, named) in
            self.named.iter().filter(|(module, _)| module.len() > depth && module.starts_with(parent))
        {
            let places = named.iter().map(|path| self.exported.get(path).unwrap_or(path));
            let inside = places.filter(|path| path.len() > depth && path.starts_with(parent));
            let siblings = inside.filter(|path| path[depth] != module[depth] && self.is_module(&path[..=depth]));
            arrows.entry(&module[depth]).or_default().extend(siblings.map(|path| path[depth].as_str()));
        }
        let mut circles: Vec<Vec<String>> = Vec::new();
        for module in arrows.keys() {
            let reached = reached_from(module, &arrows);
            let circle = reached.iter().filter(|other| reached_from(other, &arrows).contains(module));
            let circle: Vec<String> = circle.map(|name| [parent, &[(*name).to_owned()]].concat().join("::")).collect();
            if circle.len() > 1 && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }

    fn is_module(&self, path: &[String]) -> bool {
        self.named.keys().any(|module| module.starts_with(path))
    }
}

/// Modules that the arrows lead to from `module`, itself among them if they lead back.
fn reached_from<'a>(module: &str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let next = |module: &str| arrows.get(module).into_iter().flatten().copied();
    let mut open: Vec<&str> = next(module).collect();
    let mut reached = BTreeSet::new();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(next(module));
        }
    }
    reached
}

/// True for an item that only tests have.
pub(crate) fn is_for_tests(item: &syn::Item) -> bool {
    attributes(item).iter().any(is_test_condition)
}

/// Attributes of an item that has a name, of an import or an implementation.
pub(crate) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// True for `#[cfg(test)]`, and for the feature of plain forms that tests compare with.
pub(crate) fn is_test_condition(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    let mut words = condition.split(|c: char| !c.is_alphanumeric());
    list.path.is_ident("cfg")
        && !condition.starts_with("not")
        && words.any(|word| ["test", "conformance"].contains(&word))
}

/// Collects the paths that begin with `crate`, `self` or `super` outside tests, as they would begin
/// at the crate's root.
struct Paths<'a> {
    module: &'a ModulePath,
    named: BTreeSet<ModulePath>,
    exported: BTreeMap<ModulePath, ModulePath>,
}

impl Paths<'_> {
    /// `path` as it begins at the crate's root; `None` for one into another crate.
    fn path_from_root(&self, path: &[String]) -> Option<ModulePath> {
        let above = path.iter().take_while(|segment| *segment == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            // Alone it is a method's value.
            "self" if path.len() > 1 => Some([self.module, &path[1..]].concat()),
            "super" => Some([&self.module[..self.module.len().checked_sub(above)?], &path[above..]].concat()),
            _ => None,
        }
    }

    fn use_tree(&mut self, tree: &syn::UseTree, before: &[String], is_exported: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                return self.use_tree(&path.tree, &[before, &[path.ident.to_string()]].concat(), is_exported);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.use_tree(tree, before, is_exported));
            }
            syn::UseTree::Name(name) => ([before, &[name.ident.to_string()]].concat(), name.ident.to_string()),
            syn::UseTree::Rename(name) => ([before, &[name.ident.to_string()]].concat(), name.rename.to_string()),
            syn::UseTree::Glob(_) => (before.to_vec(), String::new()),
        };
        match self.path_from_root(&path) {
            Some(path) => _ = self.named.insert(path),
            // A module exports what its own module has: `pub use child::Item`.
            None if is_exported => {
                let path = [self.module.as_slice(), &path].concat();
                self.exported.insert([self.module.as_slice(), &[name]].concat(), path);
            }
            None => {}
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let is_exported = !matches!(import.vis, syn::Visibility::Inherited);
        self.use_tree(&import.tree, &[], is_exported);
    }

    // `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.named.extend(self.path_from_root(&segments));
        visit::visit_path(self, path);
    }
}

/// Violations by crate, in words.
fn faults(crates: &BTreeMap<String, Counts>) -> Vec<String> {
    crates.iter().flat_map(|(name, counts)| counts.faults().map(move |fault| format!("{name}: {fault}"))).collect()
}

#[test]
fn no_crate_breaks_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates = count_workspace(&root).unwrap();
    let mut deeper = Vec::new();
    for (name, counts) in &mut crates {
        let circles = counts.circles.extract_if(.., |circle| circle.contains("::"));
        deeper.extend(circles.map(|circle| format!("{name}: {circle}")));
    }
    let faults = faults(&crates);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(deeper.len() <= DEEPER_CIRCLES, "a circle is new among these:\n{}", deeper.join("\n"));
}

#[test]
fn unnamed_parameters_are_found_in_functions_and_not_in_closures() {
    let cases = [
        ("fn f(a: u8, b: (u8, u8)) {}", 0),
        ("fn f((a, b): (u8, u8)) {}", 1),
        ("impl S { fn f(&self, [a, b]: [u8; 2], &(c, d): &(u8, u8)) {} }", 2),
        ("trait T { fn f((a, _): (u8, u8)) {} }", 1),
        ("fn f(S { a, b }: S) { g(|(a, b)| a + b); }", 0),
    ];
    for (source, expected) in cases {
        assert_eq!(unnamed_parameters(&syn::parse_file(source).unwrap()), expected, "{source}");
    }
}

#[test]
fn comments_are_measured_in_characters() {
    let comment = |columns: usize| format!("\n    // {}", "ä".repeat(columns - 7));
    assert_eq!(long_comments(&comment(COMMENT_COLUMNS)).next(), None);
    assert!(long_comments(&comment(COMMENT_COLUMNS + 1)).eq([2]));
    assert_eq!(long_comments(&format!("let a = \"{}\";", "a".repeat(200))).next(), None);
}

#[test]
fn names_that_are_prepositions_are_found() {
    let names = |source: &str| prepositions(source.parse().unwrap()).into_iter().collect::<Vec<_>>();
    assert_eq!(names("fn of_rank(of: u8) { f(of, \"of\") } // of"), ["of", "of_rank"]);
    assert!(names("/// of_rank\nfn office(profile: u8) {}").is_empty());
}

#[test]
fn documentation_begins_with_its_subject() {
    let source = "/// What it is.\nfn f() {}\n    /// The one.\n    /// That is why.\n\n//! Of all.\n// What of it?\n";
    assert_eq!(riddles(source), [1, 6]);
}

#[test]
fn circles_are_found_at_two_levels() {
    let circles = |files: &[(&str, &str)]| {
        let mut imports = Imports::default();
        for (file, source) in files {
            imports.add(module_in(Path::new(file)).unwrap(), &syn::parse_file(source).unwrap());
        }
        imports.circles()
    };
    assert!(circles(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::{C, D};"), ("c.rs", "")]).is_empty());
    let beside = [("a.rs", "use crate::{b::B, c};"), ("b.rs", "fn f() { crate::a::g() }"), ("c.rs", "")];
    assert_eq!(circles(&beside), [["a", "b"]]);
    assert!(circles(&[("a.rs", "use crate::a::inner::A;"), ("b.rs", "")]).is_empty());
    let by_test = [("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }")];
    assert!(circles(&by_test).is_empty());
    let below = [("m/mod.rs", ""), ("m/a.rs", "use super::b::B;"), ("m/b/c.rs", "use super::super::a::A;")];
    assert_eq!(circles(&below), [["m::a", "m::b"]]);
    let exported = [("m.rs", "pub(crate) use b::B;"), ("m/a.rs", "use super::B;"), ("m/b.rs", "use crate::m::a::A;")];
    assert_eq!(circles(&exported), [["m::a", "m::b"]]);
}

#[test]
fn violations_are_named_by_crate_and_rule() {
    let counts = Counts { unnamed_parameters: 2, ..Counts::default() };
    let crates = [("crates/a".to_owned(), counts), ("crates/b".to_owned(), Counts::default())];
    assert_eq!(faults(&BTreeMap::from(crates)), ["crates/a: 2 unnamed parameters"]);
}
