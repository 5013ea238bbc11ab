//! Public code that the product never runs. An item is alive if the program, the Python module or
//! the example of a crate's README leads to its name; a public item that is not fails. Names stand
//! for items, so that two items of one name live and die together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use crate::house::{attributes, is_for_tests, is_test_condition};
use crate::workspace::{TEST_CRATES, is_test_file, rust_files};

/// Attributes whose items are called from outside.
const CALLED_FROM_OUTSIDE: [&str; 5] = ["no_mangle", "pyclass", "pyfunction", "pymethods", "pymodule"];

type Names = BTreeSet<String>;

/// The product's code, read once for all tests.
static PRODUCT: LazyLock<Product> = LazyLock::new(|| Product::read(&workspace()));

/// A function, a type, an implementation or another piece of code.
struct Item {
    file: PathBuf,
    /// Its name, and its type's in front of a method's.
    title: String,
    is_public: bool,
    /// It is alive from the start.
    is_root: bool,
    /// It is alive once all of these names are.
    needs: Vec<String>,
    /// Every name in it. They are alive once it is.
    uses: Names,
}

/// The items of the product.
#[derive(Default)]
struct Product {
    items: Vec<Item>,
    /// Names of the types and traits that the product declares.
    declared: Names,
}

impl Product {
    fn read(root: &Path) -> Self {
        let mut product = Product::default();
        let mut folders: Vec<PathBuf> =
            std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
        folders.retain(|folder| !TEST_CRATES.iter().any(|name| folder.ends_with(name)));
        folders.push(root.join("bindings/python"));
        for folder in folders {
            let text = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
            let example = names_in_text(&code_blocks(&text));
            product.items.push(Item {
                file: folder.join("README.md"),
                title: "example".to_owned(),
                is_public: false,
                is_root: true,
                needs: Vec::new(),
                uses: example,
            });
            product.add_crate(root, &folder.join("src"));
        }
        product
    }

    fn add_crate(&mut self, root: &Path, source: &Path) {
        let files = rust_files(source).unwrap();
        let parsed = files.iter().map(|file| syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap());
        let parsed: Vec<(&PathBuf, syn::File)> = files.iter().zip(parsed).collect();
        let for_tests: Vec<PathBuf> =
            parsed.iter().flat_map(|(file, syntax)| modules_for_tests(file, &syntax.items)).collect();
        let is_for_tests = |file: &Path| {
            let is_below = |module: &PathBuf| file.with_extension("").starts_with(module);
            for_tests.iter().any(is_below) || is_test_file(file)
        };
        for (file, syntax) in parsed.iter().filter(|(file, _)| !is_for_tests(file)) {
            self.add_items(file.strip_prefix(root).unwrap(), &syntax.items);
        }
    }

    fn add_items(&mut self, file: &Path, items: &[syn::Item]) {
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                syn::Item::Mod(module) => {
                    self.add_items(file, module.content.as_ref().map_or(&[], |(_, items)| items));
                }
                syn::Item::Impl(implementation) => self.add_implementation(file, implementation),
                syn::Item::Use(import) => self.add_aliases(file, import.to_token_stream()),
                _ => {
                    let Some((name, is_public)) = declaration(item) else {
                        // Code without a name of its own, such as a macro that is called.
                        self.add(file, "", false, Vec::new(), true, item);
                        continue;
                    };
                    let is_root = is_called_from_outside(attributes(item)) || name == "main";
                    if !matches!(item, syn::Item::Fn(_) | syn::Item::Const(_) | syn::Item::Static(_)) {
                        self.declared.insert(name.clone());
                    }
                    self.add(file, &name, is_public, vec![name.clone()], is_root, item);
                }
            }
        }
    }

    fn add(
        &mut self,
        file: &Path,
        title: &str,
        is_public: bool,
        needs: Vec<String>,
        is_root: bool,
        code: &impl ToTokens,
    ) {
        let mut uses = Names::new();
        collect_names(code.to_token_stream(), &mut uses);
        self.items.push(Item { file: file.to_owned(), title: title.to_owned(), is_public, is_root, needs, uses });
    }

    /// A method of a type is alive once its name and the type are. What a trait asks for is alive
    /// once the trait and the type are.
    fn add_implementation(&mut self, file: &Path, implementation: &syn::ItemImpl) {
        let on = last_name(&implementation.self_ty.to_token_stream());
        let is_root = is_called_from_outside(&implementation.attrs);
        if let Some((_, path, _)) = &implementation.trait_ {
            let needs = [on.clone(), path.segments.last().map(|last| last.ident.to_string())];
            let title = on.unwrap_or_default();
            self.add(file, &title, false, needs.into_iter().flatten().collect(), is_root, implementation);
            return;
        }
        let owner = on.unwrap_or_default();
        for member in &implementation.items {
            let (name, is_public) = match member {
                syn::ImplItem::Fn(method) if !method.attrs.iter().any(is_test_condition) => {
                    (method.sig.ident.to_string(), is_public(&method.vis))
                }
                syn::ImplItem::Const(constant) => (constant.ident.to_string(), is_public(&constant.vis)),
                _ => continue,
            };
            let title = format!("{owner}::{name}");
            self.add(file, &title, is_public, vec![owner.clone(), name], is_root, member);
        }
    }

    /// `use a as b` makes `a` alive once `b` is. Other imports use nothing.
    fn add_aliases(&mut self, file: &Path, import: TokenStream) {
        let mut names = Vec::new();
        flatten(import, &mut names);
        for alias in names.windows(3).filter(|names| names[1] == "as" && names[2] != "_") {
            let uses = Names::from([alias[0].clone()]);
            let (title, needs) = (alias[2].clone(), vec![alias[2].clone()]);
            self.items.push(Item { file: file.to_owned(), title, is_public: false, is_root: false, needs, uses });
        }
    }

    /// For each item whether it is alive.
    fn alive(&self) -> Vec<bool> {
        let mut alive = vec![false; self.items.len()];
        let mut names = Names::new();
        let is_known = |name: &str, names: &Names| names.contains(name) || !self.is_item(name);
        loop {
            let before = names.len();
            for (item, alive) in self.items.iter().zip(&mut alive) {
                if !*alive && (item.is_root || item.needs.iter().all(|name| is_known(name, &names))) {
                    *alive = true;
                    names.extend(item.uses.iter().cloned());
                }
            }
            if names.len() == before {
                return alive;
            }
        }
    }

    /// A name of a foreign type or trait is always alive.
    fn is_item(&self, name: &str) -> bool {
        self.declared.contains(name) || name.starts_with(|first: char| first.is_lowercase() || first == '_') || {
            name.chars().all(|c| c.is_uppercase() || c.is_ascii_digit() || c == '_')
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files and folders of the modules that `file` declares for tests alone.
fn modules_for_tests(file: &Path, items: &[syn::Item]) -> Vec<PathBuf> {
    let is_root = ["lib", "main", "mod"].iter().any(|name| file.file_stem().is_some_and(|stem| stem == *name));
    let folder = if is_root { file.parent().unwrap().to_owned() } else { file.with_extension("") };
    let modules = items.iter().filter(|item| is_for_tests(item)).filter_map(|item| match item {
        syn::Item::Mod(module) => Some(folder.join(module.ident.to_string())),
        _ => None,
    });
    modules.collect()
}

fn is_called_from_outside(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut names = Vec::new();
        flatten(attribute.to_token_stream(), &mut names);
        names.iter().any(|name| CALLED_FROM_OUTSIDE.contains(&name.as_str()))
    })
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// The name that an item declares, and whether it is public.
fn declaration(item: &syn::Item) -> Option<(String, bool)> {
    let (name, visibility) = match item {
        syn::Item::Const(item) => (&item.ident, &item.vis),
        syn::Item::Enum(item) => (&item.ident, &item.vis),
        syn::Item::Fn(item) => (&item.sig.ident, &item.vis),
        syn::Item::Macro(item) => return item.ident.as_ref().map(|name| (name.to_string(), false)),
        syn::Item::Static(item) => (&item.ident, &item.vis),
        syn::Item::Struct(item) => (&item.ident, &item.vis),
        syn::Item::Trait(item) => (&item.ident, &item.vis),
        syn::Item::Type(item) => (&item.ident, &item.vis),
        syn::Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    (name != "_").then(|| (name.to_string(), is_public(visibility)))
}

/// The type that an implementation is for: the last name in front of its generic arguments.
fn last_name(on: &TokenStream) -> Option<String> {
    let mut last = None;
    for token in on.clone() {
        match token {
            TokenTree::Ident(name) if !["dyn", "mut"].contains(&name.to_string().as_str()) => {
                last = Some(name.to_string());
            }
            TokenTree::Punct(mark) if mark.as_char() == '<' => break,
            _ => {}
        }
    }
    last
}

/// Names of some code, in order.
fn flatten(code: TokenStream, names: &mut Vec<String>) {
    for token in code {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string().trim_start_matches("r#").to_owned()),
            TokenTree::Group(group) => flatten(group.stream(), names),
            _ => {}
        }
    }
}

/// Names of some code, those in the texts of attributes such as `#[serde(default = "name")]` among
/// them; not those in documentation.
fn collect_names(code: TokenStream, names: &mut Names) {
    let mut in_attribute = false;
    for token in code {
        match token {
            TokenTree::Group(group) if in_attribute => {
                let attribute = Some(group.stream().to_string()).filter(|text| !text.starts_with("doc"));
                names.extend(attribute.iter().flat_map(|text| names_in_text(text)));
            }
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Ident(name) => {
                names.insert(name.to_string().trim_start_matches("r#").to_owned());
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                in_attribute = true;
                continue;
            }
            TokenTree::Literal(text) => names.extend(names_in_format(&text.to_string())),
            TokenTree::Punct(_) => {}
        }
        in_attribute = false;
    }
}

/// Names in braces, as `format!` has them.
fn names_in_format(text: &str) -> Vec<String> {
    let inside = text.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    inside.filter(is_name).map(str::to_owned).collect()
}

fn names_in_text(text: &str) -> Names {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The Rust code in a page.
fn code_blocks(page: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2).filter(|block| block.starts_with("rust"));
    blocks.collect::<Vec<_>>().join("\n")
}

/// Public items that nothing leads to, by file.
fn orphans(product: &Product) -> BTreeMap<&Path, Vec<&str>> {
    let mut orphans: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for (item, alive) in product.items.iter().zip(product.alive()) {
        if item.is_public && !alive {
            orphans.entry(&item.file).or_default().push(&item.title);
        }
    }
    orphans
}

#[test]
fn every_public_item_is_used_by_the_product() {
    let orphans = orphans(&PRODUCT);
    let list = orphans.iter().map(|(file, names)| format!("{}: {}", file.display(), names.join(", ")));
    let list: Vec<String> = list.collect();
    assert!(list.is_empty(), "delete these, or move them to their tests:\n{}", list.join("\n"));
}

#[test]
fn architecture_names_files_that_the_product_uses() {
    let items: Vec<(&Item, bool)> = PRODUCT.items.iter().zip(PRODUCT.alive()).collect();
    let page = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let files = page.split('`').skip(1).step_by(2).filter(|path| path.ends_with(".rs") && !path.contains(['{', '<']));
    let unused = files.filter(|path| {
        let mut inside = items.iter().filter(|(item, _)| item.file == Path::new("crates").join(path)).peekable();
        inside.peek().is_some() && !inside.any(|(_, alive)| *alive)
    });
    let unused: Vec<&str> = unused.collect();
    assert!(unused.is_empty(), "ARCHITECTURE.md names files that the product does not run: {unused:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans_of_source(source: &str) -> Vec<String> {
        let mut product = Product::default();
        product.add_items(Path::new("a.rs"), &syn::parse_file(source).unwrap().items);
        orphans(&product).into_values().flatten().map(str::to_owned).collect()
    }

    #[test]
    fn callers_are_followed_from_the_program() {
        let called = "fn main() { a() } pub fn a() { b() } pub fn b() {}";
        assert!(orphans_of_source(called).is_empty());
        let circle = "fn main() {} pub fn a() { b() } pub fn b() { a() }";
        assert_eq!(orphans_of_source(circle), ["a", "b"]);
        let imported = "pub use m::a; fn main() {} pub fn a() {}";
        assert_eq!(orphans_of_source(imported), ["a"]);
        let renamed = "use m::a as b; fn main() { b() } pub fn a() {}";
        assert!(orphans_of_source(renamed).is_empty());
    }

    #[test]
    fn methods_need_their_name_and_their_type() {
        let source = "fn main() { S.a() } pub struct S; impl S { pub fn a(&self) {} pub fn b(&self) {} }
            pub struct T; impl T { pub fn a(&self) {} }";
        assert_eq!(orphans_of_source(source), ["S::b", "T", "T::a"]);
    }

    #[test]
    fn traits_attributes_and_macros_lead_on() {
        let by_trait = "fn main() { S; } pub struct S; impl Drop for S { fn drop(&mut self) { a() } } pub fn a() {}";
        assert!(orphans_of_source(by_trait).is_empty());
        let by_attribute = "fn main() { S; } #[serde(default = \"a\")] pub struct S; pub fn a() {}";
        assert!(orphans_of_source(by_attribute).is_empty());
        let by_macro = "macro_rules! m { () => { a() } } fn main() { m!() } pub fn a() {}";
        assert!(orphans_of_source(by_macro).is_empty());
        let by_text = "fn main() { f!(\"{A:>3}\") } pub const A: u8 = 1;";
        assert!(orphans_of_source(by_text).is_empty());
        let by_python = "#[pyfunction] fn a() { b() } pub fn b() {}";
        assert!(orphans_of_source(by_python).is_empty());
    }

    #[test]
    fn tests_and_documentation_use_nothing() {
        let source = "/// See a.
            fn main() {} pub fn a() {} #[cfg(test)] mod tests { fn main() { a() } }
            #[cfg(any(test, feature = \"conformance\"))] pub fn b() {}";
        assert_eq!(orphans_of_source(source), ["a"]);
    }
}
