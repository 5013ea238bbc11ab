//! No library speaks the language of the program: its texts name neither sections of the
//! configuration nor flags nor commands. `crates/run` adds those, in `src/error`.

use std::path::Path;

use syn::visit::{self, Visit};

use crate::house::is_for_tests;
use crate::workspace::{is_test_file, rust_files};

/// Libraries whose texts are held to the rule.
const LIBRARIES: [&str; 8] = ["bars", "chunk-io", "graph-cache", "nn", "nn-cpu", "nn-cuda", "order", "trainer"];

/// Sections of the configuration.
const SECTIONS: [&str; 5] = ["data", "gpu_optimization", "model", "output", "training"];

/// Libraries that name settings in backticks, by the part of their key after the section.
const WITH_SETTINGS: [&str; 4] = ["nn", "nn-cpu", "nn-cuda", "trainer"];

/// Functions whose first argument is the name of a setting, or words.
const NAMING: [&str; 4] = ["check_heads", "check_rate_of", "refuse_on_gpu", "setting"];

/// Text of a library outside its tests.
#[derive(Default)]
struct Texts {
    /// String literals, those of errors and macros among them; no documentation.
    literals: Vec<String>,
    /// Settings that calls of [`NAMING`] and fields called `setting` name, and words.
    named: Vec<String>,
}

impl Texts {
    fn read(library: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(library).join("src");
        let mut texts = Texts::default();
        for file in rust_files(&root).unwrap().into_iter().filter(|file| !is_test_file(file)) {
            texts.visit_file(&syn::parse_file(&std::fs::read_to_string(&file).unwrap()).unwrap());
        }
        texts
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let (syn::Expr::Path(function), Some(syn::Expr::Lit(first))) = (&*call.func, call.args.first())
            && let (Some(name), syn::Lit::Str(field)) = (function.path.segments.last(), &first.lit)
            && NAMING.iter().any(|naming| name.ident == naming)
        {
            self.named.push(field.value());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if let (syn::Member::Named(name), syn::Expr::Lit(value)) = (&field.member, &field.expr)
            && let syn::Lit::Str(setting) = &value.lit
            && name == "setting"
        {
            self.named.push(setting.value());
        }
        visit::visit_field_value(self, field);
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.literals.push(literal.value());
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.literals.extend(literals_in(&called.tokens.to_string()));
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
        {
            self.literals.extend(literals_in(&list.tokens.to_string()));
        }
    }
}

/// Contents of the string literals of some tokens, without documentation.
fn literals_in(tokens: &str) -> Vec<String> {
    let without_escapes = tokens.replace("\\\\", "").replace("\\\"", "").replace("'\"'", "");
    let parts: Vec<&str> = without_escapes.split('"').collect();
    let is_doc = |before: &str| before.trim_end_matches('r').ends_with("doc = ");
    parts.chunks_exact(2).filter(|pair| !is_doc(pair[0])).map(|pair| pair[1].to_owned()).collect()
}

/// A setting with its section, a flag or a command that `text` names.
fn foreign_words(text: &str) -> Option<String> {
    // The name of a file.
    let text = text.replace("model.safetensors", "");
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '[' | ']');
    let is_setting = |word: &str| {
        let key = word.split_once('.').filter(|(section, _)| SECTIONS.contains(section)).map(|(_, key)| key);
        key.is_some_and(|key| key.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let is_flag =
        |word: &str| word.strip_prefix("--").is_some_and(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()));
    let words = text.split(|c| !is_of_word(c)).filter(|word| is_setting(word) || is_flag(word));
    let command = text.split_once("megabatch ").filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    words.map(str::to_owned).next().or_else(|| command.map(|_| text.clone()))
}

/// Paths in backticks, with `[]` for every index.
fn quoted_paths(text: &str) -> Vec<String> {
    let is_path = |part: &&str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c))
    };
    let without_indices = |path: &str| path.chars().filter(|c| !c.is_ascii_digit() || !path.contains('[')).collect();
    text.split('`').skip(1).step_by(2).filter(is_path).map(without_indices).collect()
}

#[test]
fn libraries_name_no_settings_flags_or_commands() {
    let faults = LIBRARIES.iter().flat_map(|library| {
        let texts = Texts::read(library).literals;
        texts.into_iter().filter_map(move |text| Some(format!("{library}: {} in {text:?}", foreign_words(&text)?)))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "name the setting; crates/run adds the rest:\n{}", faults.join("\n"));
}

#[test]
fn every_setting_that_a_text_names_is_one_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| key | default |"));
    let rows = table.take_while(|line| line.starts_with('|')).filter_map(|line| line.strip_prefix("| `"));
    let keys: Vec<&str> = rows.filter_map(|row| Some(row.split_once('`')?.0.split_once('.')?.1)).collect();
    let texts = WITH_SETTINGS.map(Texts::read);
    let named = texts.iter().flat_map(|texts| {
        let quoted = texts.literals.iter().flat_map(|text| quoted_paths(text));
        quoted.chain(texts.named.iter().filter(|name| !name.contains(' ')).cloned())
    });
    let missing: Vec<String> = named.filter(|path| keys.iter().filter(|key| *key == path).count() != 1).collect();
    assert!(missing.is_empty(), "not one key of the configuration: {missing:?}");
    assert!(keys.len() > 50, "{keys:?}");
}

#[test]
fn words_of_the_program_are_found() {
    for (text, expected) in [
        ("training.lr is 0", Some("training.lr")),
        ("set `data.purge`", Some("data.purge")),
        ("gpu_optimization.batch_size=8", Some("gpu_optimization.batch_size")),
        ("use --device cpu", Some("--device")),
        ("megabatch convert does it", Some("megabatch convert does it")),
        ("`lr` is 0", None),
        ("model.safetensors", None),
        ("the model. It", None),
        ("between - and --", None),
        ("of megabatch", None),
    ] {
        assert_eq!(foreign_words(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn texts_of_errors_and_macros_are_read() {
    let source = r#"
        /// Sets training.lr.
        #[error("an error")]
        struct S;
        fn f() { setting("path", 1); E { setting: "own", n: "e" }; format!("a {} \" b", "c"); let d = "d"; }
        macro_rules! m { () => { /// Sets `path`.
            struct T; } }
        #[cfg(test)]
        mod tests { const T: &str = "of tests"; }
    "#;
    let mut texts = Texts::default();
    texts.visit_file(&syn::parse_file(source).unwrap());
    assert_eq!(texts.literals, ["an error", "path", "own", "e", "a {}  b", "c", "d"]);
    assert_eq!(texts.named, ["path", "own"]);
    assert_eq!(quoted_paths("`a.b` and `c[2].d`, `A::b`, `{x}`"), ["a.b", "c[].d"]);
}
