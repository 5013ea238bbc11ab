//! The gate `alone`: each library compiles by itself, with the features that it asks for.
//!
//! A build of the workspace unifies features, and so hides one that a library forgot to enable. A
//! library's code depends on its own features and on those of the packages that it names. Libraries
//! that leave each other's as they are alone are checked together, which compiles what they have in
//! common once.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::limits::{self, succeed};
use crate::session::Session;
use crate::sources::hash_of;
use crate::workspace::{Package, cargo};

/// Packages with their features, a line each.
type Features = BTreeSet<String>;

/// A library, and the features of it and of the packages that it names.
struct Library<'a> {
    package: &'a Package,
    features: Features,
}

pub(crate) fn each_library(session: &Session) -> Result<()> {
    let workspace = &session.workspace;
    let mut groups: Vec<Vec<Library<'_>>> = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.is_published_library) {
        let features = resolved(session, &[&package.name], &["--depth", "1"])?;
        let library = Library { package, features };
        let mut place = groups.len();
        for (index, group) in groups.iter().enumerate() {
            if go_together(session, group, &library)? {
                place = index;
                break;
            }
        }
        match groups.get_mut(place) {
            Some(group) => group.push(library),
            None => groups.push(vec![library]),
        }
    }
    for group in groups {
        check(session, &group)?;
    }
    Ok(())
}

/// True if `library` beside `group` changes no features of any of them.
fn go_together(session: &Session, group: &[Library<'_>], library: &Library<'_>) -> Result<bool> {
    let all = || group.iter().chain([library]);
    let names: Vec<&str> = all().map(|one| one.package.name.as_str()).collect();
    let together = resolved(session, &names, &[])?;
    Ok(all().all(|one| one.features.is_subset(&together)))
}

fn check(session: &Session, group: &[Library<'_>]) -> Result<()> {
    let keys: Vec<u64> = group.iter().map(|one| session.sources.package_key(&session.workspace, one.package)).collect();
    let names: Vec<&str> = group.iter().map(|one| one.package.name.as_str()).collect();
    session.passed.unless_unchanged(&format!("alone {}", names[0]), hash_of(&keys), || {
        let mut check = session.cargo(&["check", "--locked"])?;
        succeed(check.args(names.iter().flat_map(|name| ["--package", name])))
    })
}

/// Features of the packages that a build of `packages` has, or of some of these by `options`.
fn resolved(session: &Session, packages: &[&str], options: &[&str]) -> Result<Features> {
    let mut tree = cargo(&session.workspace.root, &["tree", "--locked", "--edges", "normal,build", "--prefix", "none"]);
    tree.args(["--format", "{p} [{f}]"]).args(options);
    tree.args(packages.iter().flat_map(|name| ["--package", name]));
    let text = String::from_utf8(limits::stdout(&mut tree)?).context("cargo tree writes UTF-8")?;
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).filter(|line| !line.is_empty()).collect())
}
