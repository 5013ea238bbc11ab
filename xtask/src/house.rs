//! Rules of style that a compiler does not check: parameters have names, modules import one another
//! in one direction, comment lines are at most 100 columns wide.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

/// Columns that a comment may take, indentation included.
const COMMENT_COLUMNS: usize = 100;

/// Violations in one crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Parameters whose pattern is a tuple, an array or a slice, except in closures.
    unnamed_parameters: usize,
    /// Top-level modules that import one another in a circle.
    modules_in_circles: usize,
    /// Comment lines wider than [`COMMENT_COLUMNS`], as `file:line`.
    long_comments: Vec<String>,
}

impl Counts {
    /// Violations in words.
    fn faults(&self) -> impl Iterator<Item = String> {
        let counted =
            [("unnamed parameters", self.unnamed_parameters), ("modules in circles", self.modules_in_circles)];
        let counted =
            counted.into_iter().filter(|(_, count)| *count > 0).map(|(rule, count)| format!("{count} {rule}"));
        counted.chain(self.long_comments.iter().map(|place| format!("a long comment at {place}")))
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
        if let Some(module) = file.strip_prefix(folder.join("src")).ok().and_then(top_level_module) {
            imports.add(&module, &syntax);
        }
    }
    counts.modules_in_circles = imports.modules_in_circles();
    let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    Ok((name, counts))
}

/// Every `.rs` below `folder`, in order, without build outputs.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The top-level module that a file, relative to `src`, belongs to; `None` for the crate's root and
/// for tests.
fn top_level_module(file: &Path) -> Option<String> {
    if file.iter().any(|part| part == "tests" || part == "tests.rs") {
        return None;
    }
    let first = Path::new(file.components().next()?.as_os_str());
    let name = first.file_stem()?.to_str()?;
    (!["lib", "main"].contains(&name) || first.extension().is_none()).then(|| name.to_owned())
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

/// The arrows between the top-level modules of one crate.
#[derive(Default)]
struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Adds the arrows from `module` for every path of `file` that begins with `crate`, except in
    /// tests.
    fn add(&mut self, module: &str, file: &syn::File) {
        let mut paths = Paths { found: self.0.entry(module.to_owned()).or_default() };
        paths.visit_file(file);
    }

    /// Number of modules from which a path along the arrows leads back to them.
    fn modules_in_circles(&self) -> usize {
        self.0.keys().filter(|module| self.leads_back(module)).count()
    }

    fn leads_back(&self, module: &str) -> bool {
        let mut open: Vec<&str> = self.from(module).filter(|next| *next != module).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while let Some(next) = open.pop() {
            if next == module {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.from(next).filter(|further| *further != next));
            }
        }
        false
    }

    /// Modules that `module` imports; an item at the crate's root has no arrows.
    fn from<'a>(&'a self, module: &str) -> impl Iterator<Item = &'a str> {
        self.0.get(module).into_iter().flatten().map(String::as_str)
    }
}

/// True for a module, an import or a function that only tests have.
pub(crate) fn is_of_tests(item: &syn::Item) -> bool {
    let is_test = |attribute: &syn::Attribute| {
        matches!(&attribute.meta, syn::Meta::List(list)
            if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    };
    let attributes = match item {
        syn::Item::Mod(module) => &module.attrs,
        syn::Item::Use(import) => &import.attrs,
        syn::Item::Fn(function) => &function.attrs,
        _ => return false,
    };
    attributes.iter().any(is_test)
}

/// Collects the first segment behind `crate::` of every path outside tests.
struct Paths<'a> {
    found: &'a mut BTreeSet<String>,
}

impl Paths<'_> {
    fn use_tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.found.insert(path.ident.to_string());
            }
            syn::UseTree::Name(name) => {
                self.found.insert(name.ident.to_string());
            }
            syn::UseTree::Rename(rename) => {
                self.found.insert(rename.ident.to_string());
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree)),
            syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &import.tree
            && path.ident == "crate"
        {
            self.use_tree(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.first().is_some_and(|first| first.ident == "crate") {
            self.found.extend(path.segments.iter().nth(1).map(|second| second.ident.to_string()));
        }
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
    let faults = faults(&count_workspace(&root).unwrap());
    assert!(faults.is_empty(), "name the parameter, cut the circle or wrap the comment:\n{}", faults.join("\n"));
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
fn circles_are_counted_by_their_modules() {
    let count = |modules: &[(&str, &str)]| {
        let mut imports = Imports::default();
        modules.iter().for_each(|(module, source)| imports.add(module, &syn::parse_file(source).unwrap()));
        imports.modules_in_circles()
    };
    assert_eq!(count(&[("a", "use crate::b::B;"), ("b", "use crate::c::{C, D};"), ("c", "")]), 0);
    assert_eq!(count(&[("a", "use crate::{b::B, c};"), ("b", "fn f() { crate::a::g() }"), ("c", "")]), 2);
    assert_eq!(count(&[("a", "use crate::a::inner::A;"), ("b", "")]), 0);
    assert_eq!(count(&[("a", "use crate::b::B;"), ("b", "#[cfg(test)] mod tests { use crate::a::A; }")]), 0);
}

#[test]
fn violations_are_named_by_crate_and_rule() {
    let counts = Counts { unnamed_parameters: 2, ..Counts::default() };
    let crates = [("crates/a".to_owned(), counts), ("crates/b".to_owned(), Counts::default())];
    assert_eq!(faults(&BTreeMap::from(crates)), ["crates/a: 2 unnamed parameters"]);
}
