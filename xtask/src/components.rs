//! The crates that are linked into a program: their licences, and a list for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::limits;
use crate::workspace::{Workspace, cargo};

/// Beginnings of the names of files that hold terms, in lower case.
const TERMS: [&str; 6] = ["licen", "copying", "copyright", "notice", "unlicense", "authors"];

/// One crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Component {
    name: String,
    version: String,
    /// SPDX expression, if the crate says one.
    licence: Option<String>,
    folder: PathBuf,
    is_ours: bool,
}

/// The crates that are linked into `package` for `target`, by name: those of its normal
/// dependencies, without procedural macros, which run in the compiler.
///
/// # Errors
/// If cargo cannot tell.
pub(crate) fn linked(workspace: &Workspace, package: &str, target: &str) -> Result<Vec<Component>> {
    let mut metadata = cargo(&workspace.root, &["metadata", "--format-version", "1", "--locked", "--quiet"]);
    let output = limits::output(metadata.args(["--filter-platform", target]))?;
    anyhow::ensure!(output.status.success(), "cargo metadata failed");
    linked_by(&serde_json::from_slice(&output.stdout)?, package)
}

fn linked_by(metadata: &Value, package: &str) -> Result<Vec<Component>> {
    let by_id = |list: &Value| -> BTreeMap<String, Value> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|entry| Some((entry["id"].as_str()?.to_owned(), entry.clone()))).collect()
    };
    let (packages, nodes) = (by_id(&metadata["packages"]), by_id(&metadata["resolve"]["nodes"]));
    let root = packages.iter().find(|(_, entry)| entry["name"] == package);
    let mut found = vec![root.with_context(|| format!("there is no package `{package}`"))?.0.as_str()];
    let mut next = 0;
    while let Some(&id) = found.get(next) {
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        for dependency in dependencies.filter(|dependency| is_normal(dependency)) {
            let id = dependency["pkg"].as_str().context("a dependency has an identity")?;
            if !found.contains(&id) && !is_macro(&packages[id]) {
                found.push(id);
            }
        }
        next += 1;
    }
    let mut components: Vec<Component> = found.into_iter().map(|id| component(&packages[id])).collect();
    components.sort();
    Ok(components)
}

fn is_normal(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().into_iter().flatten().any(|entry| entry["kind"].is_null())
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.flat_map(|target| target["kind"].as_array().into_iter().flatten()).any(|kind| kind == "proc-macro")
}

fn component(package: &Value) -> Component {
    let text = |key: &str| package[key].as_str().map(ToOwned::to_owned);
    Component {
        name: text("name").unwrap_or_default(),
        version: text("version").unwrap_or_default(),
        // The slash is an old form of it.
        licence: text("license").map(|licence| licence.replace('/', " OR ")),
        folder: Path::new(&text("manifest_path").unwrap_or_default()).parent().map(Path::to_owned).unwrap_or_default(),
        is_ours: package["source"].is_null(),
    }
}

/// The terms of all crates but ours: each text once, after the crates that have it.
///
/// # Errors
/// If a file of terms cannot be read.
pub(crate) fn terms(components: &[Component]) -> Result<String> {
    let foreign: Vec<&Component> = components.iter().filter(|component| !component.is_ours).collect();
    let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut without = Vec::new();
    for component in &foreign {
        let files = files_of_terms(&component.folder)?;
        let name = format!("{} {}", component.name, component.version);
        if files.is_empty() {
            without.push(format!("{name} ({})", component.licence.as_deref().unwrap_or("see its repository")));
        }
        for text in files {
            // Copies of one text differ in how its lines are wrapped.
            let key = text.split_whitespace().collect::<Vec<_>>().join(" ");
            texts.entry(key).or_insert_with(|| (text, Vec::new())).1.push(name.clone());
        }
    }
    let mut page = String::from("Crates of Rust that are linked in, and their licences.\n\n");
    for component in &foreign {
        let licence = component.licence.as_deref().unwrap_or("its own terms, below");
        let _ = writeln!(page, "{} {}: {licence}", component.name, component.version);
    }
    if !without.is_empty() {
        let _ = write!(page, "\nThese have no text of their terms in their packages: {}.\n", without.join(", "));
    }
    for (text, names) in texts.values() {
        let _ = write!(page, "\n{}\n== {}\n\n{}\n", "-".repeat(78), names.join(", "), text.trim_end());
    }
    Ok(page)
}

/// Texts of the files of terms in a crate's folder, by name.
fn files_of_terms(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && TERMS.iter().any(|beginning| name.starts_with(beginning)) {
            files.push(path);
        }
    }
    files.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    files.into_iter().map(read).collect()
}

/// The components as a CycloneDX 1.5 document in JSON (ECMA-424), for the program `name`.
pub(crate) fn bill_of_materials(components: &[Component], name: &str, version: &str) -> String {
    let entry = |component: &Component| {
        let Component { name, version, licence, .. } = component;
        let mut entry = json!({
            "type": "library", "name": name, "version": version, "purl": format!("pkg:cargo/{name}@{version}"),
        });
        if let Some(licence) = licence {
            entry["licenses"] = json!([{ "expression": licence }]);
        }
        entry
    };
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": name, "version": version } },
        "components": components.iter().map(entry).collect::<Vec<Value>>(),
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(folder: &Path) -> Value {
        let package = |id: &str, kind: &str, source: Option<&str>| {
            let manifest = folder.join(id).join("Cargo.toml");
            json!({
                "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
                "manifest_path": manifest, "targets": [{ "kind": [kind] }],
            })
        };
        let needs = |id: &str, kind: Option<&str>| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("program", "bin", None), package("linked", "lib", Some("registry")),
                package("below", "lib", Some("registry")), package("macro", "proc-macro", Some("registry")),
                package("built-with", "lib", Some("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "program", "deps": [
                    needs("linked", None), needs("macro", None), needs("built-with", Some("build")),
                ] },
                { "id": "linked", "deps": [needs("below", None), needs("program", Some("dev"))] },
                { "id": "below", "deps": [] },
            ] },
        })
    }

    #[test]
    fn crates_of_builds_tests_and_macros_are_not_linked() {
        let components = linked_by(&metadata(Path::new("/crates")), "program").unwrap();
        let names: Vec<&str> = components.iter().map(|component| component.name.as_str()).collect();
        assert_eq!(names, ["below", "linked", "program"]);
        assert_eq!(components[0].licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert!(components[2].is_ours && !components[0].is_ours);
        assert!(linked_by(&metadata(Path::new("/crates")), "other").is_err());
    }

    #[test]
    fn a_text_that_crates_share_is_there_once() {
        let folder = std::env::temp_dir().join(format!("megabatch-terms-{}", std::process::id()));
        for (crate_name, file, text) in [
            ("linked", "LICENSE-MIT", "Permission is\ngranted."),
            ("linked", "lib.rs", "no terms"),
            ("below", "licence.txt", "Permission is granted."),
            ("program", "LICENSE", "ours"),
        ] {
            fs::create_dir_all(folder.join(crate_name)).unwrap();
            fs::write(folder.join(crate_name).join(file), text).unwrap();
        }
        let page = terms(&linked_by(&metadata(&folder), "program").unwrap()).unwrap();
        assert!(page.ends_with("== below 1.0.0, linked 1.0.0\n\nPermission is granted.\n"), "{page}");
        assert!(!page.contains("ours") && !page.contains("no terms") && !page.contains("have no text"), "{page}");
        fs::remove_file(folder.join("linked/LICENSE-MIT")).unwrap();
        let page = terms(&linked_by(&metadata(&folder), "program").unwrap()).unwrap();
        assert!(page.contains("in their packages: linked 1.0.0 (MIT OR Apache-2.0)."), "{page}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_list_names_each_crate_with_its_address() {
        let components = linked_by(&metadata(Path::new("/crates")), "program").unwrap();
        let document: Value = serde_json::from_str(&bill_of_materials(&components, "megabatch", "2.0.0")).unwrap();
        assert_eq!(document["metadata"]["component"]["version"], "2.0.0");
        assert_eq!(document["components"].as_array().unwrap().len(), 3);
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/below@1.0.0");
        assert_eq!(document["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
