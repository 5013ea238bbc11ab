//! `cargo xtask lines`: the size of the product, so that each change shows whether it grew.

use std::fs;
use std::iter::Sum;
use std::ops::Add;

use anyhow::{Context, Result, ensure};

use crate::workspace::{TEST_CRATES, Workspace, is_test_file, rust_files};

/// Lines of Rust, each counted as one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    blank: usize,
}

impl Lines {
    /// The lines of `text` outside the modules that only tests have. Sources are formatted, so such
    /// a module ends at the first closing brace that is indented as its attribute is.
    fn count(text: &str) -> Self {
        let mut lines = Lines::default();
        let mut rest = text.lines().peekable();
        while let Some(line) = rest.next() {
            let trimmed = line.trim_start();
            let begins_tests = trimmed == "#[cfg(test)]" && rest.peek().is_some_and(|next| next.ends_with('{'));
            if begins_tests {
                let end = format!("{}}}", &line[..line.len() - trimmed.len()]);
                rest.by_ref().find(|line| *line == end);
                continue;
            }
            match trimmed {
                "" => lines.blank += 1,
                comment if comment.starts_with("//") => lines.comments += 1,
                _ => lines.code += 1,
            }
        }
        lines
    }

    fn all(self) -> usize {
        self.code + self.comments + self.blank
    }
}

impl Add for Lines {
    type Output = Lines;

    fn add(self, other: Lines) -> Lines {
        let Lines { code, comments, blank } = other;
        Lines { code: self.code + code, comments: self.comments + comments, blank: self.blank + blank }
    }
}

impl Sum for Lines {
    fn sum<I: Iterator<Item = Lines>>(lines: I) -> Lines {
        lines.fold(Lines::default(), Lines::add)
    }
}

/// Prints the lines of each crate, those of tests apart: files and modules of tests, and the crates
/// that tests alone use.
pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`lines` takes no arguments");
    let workspace = Workspace::load()?;
    let mut product = Vec::new();
    let mut tests = 0;
    for package in &workspace.packages {
        let folder = workspace.root.join(&package.folder);
        let name = package.folder.display().to_string();
        let is_product = name.starts_with("crates") || name.starts_with("bindings");
        let is_product = is_product && !TEST_CRATES.iter().any(|name| folder.ends_with(name));
        let mut own = Vec::new();
        for file in rust_files(&folder)? {
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let is_source = file.starts_with(folder.join("src"));
            if is_product && is_source && !is_test_file(&file) {
                let lines = Lines::count(&text);
                tests += text.lines().count() - lines.all();
                own.push(lines);
            } else if name != "xtask" {
                tests += text.lines().count();
            }
        }
        if is_product {
            product.push((name, own.into_iter().sum::<Lines>()));
        }
    }
    product.push(("product".to_owned(), product.iter().map(|(_, lines)| *lines).sum()));
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}", "", "all", "code", "comments", "blank");
    for (name, lines) in product {
        let Lines { code, comments, blank } = lines;
        println!("{name:<24}{:>10}{code:>10}{comments:>10}{blank:>10}", lines.all());
    }
    println!("{:<24}{tests:>10}", "tests and benchmarks");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_and_tests_are_left_out() {
        let source = "/// A.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    // B.\n    fn b() {}\n}\n// C.\nfn c() {}\n";
        assert_eq!(Lines::count(source), Lines { code: 2, comments: 2, blank: 1 });
        let nested = "mod m {\n    #[cfg(test)]\n    fn a() {\n        {\n        }\n    }\n    fn b() {}\n}\n";
        assert_eq!(Lines::count(nested), Lines { code: 3, comments: 0, blank: 0 });
        assert_eq!(Lines::count("#[cfg(test)]\nmod tests;\n").code, 2);
    }
}
