//! Links between pages lead to files and headings that exist, sources that pages name exist, and
//! the list of pages is complete.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// The pages below `folder`, in its subfolders too.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// Pages of `docs`, those at the root, and the READMEs of the crates.
fn all_pages() -> Vec<PathBuf> {
    let root = workspace();
    let mut pages = pages_below(&root.join("docs"));
    let at_root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bindings/python/README.md"];
    pages.extend(at_root.map(|page| root.join(page)));
    let readme_paths = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("README.md"));
    pages.extend(readme_paths.filter(|path| path.exists()));
    pages
}

/// The lines of a page outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !is_fence && !in_code
    })
}

/// Targets of the links of a page, without those to other sites.
fn link_targets(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let parts = text.split("](").skip(1).filter_map(|part| part.split_once(')'));
    let targets = parts.map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// The fault of a link, if it has one.
fn fault(page: &Path, target: &str) -> Option<&'static str> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !path.exists() {
        return Some("no such file");
    }
    if heading.is_empty() || path.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let has_heading = anchors(&fs::read_to_string(path).unwrap()).contains(heading);
    (!has_heading).then_some("no such heading")
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut faults = Vec::new();
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in link_targets(&text) {
            if let Some(fault) = fault(&page, &target) {
                faults.push(format!("{}: {target}: {fault}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Rust and CUDA sources that a page names in backticks.
fn named_sources(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let quoted = text.split('`').skip(1).step_by(2);
    let is_source = |name: &&str| {
        let is_plain = name.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        is_plain && name.contains('/') && (name.ends_with(".rs") || name.ends_with(".cu"))
    };
    quoted.filter(is_source).map(str::to_owned).collect()
}

/// From the root, from `crates`, or from the folder of the page. xtask reads those of
/// ARCHITECTURE.md.
#[test]
fn sources_that_pages_name_exist() {
    let root = workspace();
    for page in all_pages() {
        if page.ends_with("CHANGELOG.md") || page.ends_with("ARCHITECTURE.md") {
            continue;
        }
        let folders = [root.clone(), root.join("crates"), page.parent().unwrap().to_owned()];
        for source in named_sources(&fs::read_to_string(&page).unwrap()) {
            let exists = folders.iter().any(|folder| folder.join(&source).exists());
            assert!(exists, "{}: no file {source}", page.display());
        }
    }
}

#[test]
fn the_list_of_pages_is_complete() {
    let docs = workspace().join("docs");
    let list = fs::read_to_string(docs.join("README.md")).unwrap();
    let listed: HashSet<PathBuf> = link_targets(&list).iter().map(|target| docs.join(target)).collect();
    for page in pages_below(&docs) {
        assert!(page.ends_with("docs/README.md") || listed.contains(&page), "docs/README.md lacks {}", page.display());
    }
}

#[test]
fn links_and_headings_are_read() {
    let page = "# A `b` c: d\n[x](y.md#z) [o](https://o.example)\n```\n# no\n[n](n.md)\n```\n## E-f\n";
    assert_eq!(link_targets(page), ["y.md#z"]);
    assert_eq!(anchors(page), ["a-b-c-d", "e-f"].map(str::to_owned).into());
    assert_eq!(named_sources("`nn/src/a.rs` and `a.rs`, `b/{c,d}.cu`"), ["nn/src/a.rs"]);
}
