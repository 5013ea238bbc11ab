//! Sources of settings: YAML file < environment < `--set`. Each setting keeps its origin for error
//! messages.

use std::ffi::OsString;
use std::path::Path;

use saphyr::{MarkedYaml, YamlData};

use super::error::{ConfigError, Result};
use super::keys::{self, keys};
use super::value::Kind;
use super::written::{Origin, Written};
use super::yaml::{flow, parse, scalar};

/// The settings of a YAML file: nested sections, or keys with dots.
pub(crate) fn from_yaml(file: &Path, text: &str) -> Result<Vec<Written>> {
    let fault = |line: usize, message: String| ConfigError::Yaml { file: file.to_owned(), line, message };
    let documents = parse(text).map_err(|error| fault(error.marker().line(), error.info().to_owned()))?;
    if let [_, second, ..] = documents.as_slice() {
        return Err(fault(second.span.start.line(), "a second document; expected one".to_owned()));
    }
    let mut written = Vec::new();
    for document in &documents {
        flatten(document, "", &mut |path, text, line| {
            let origin = Origin::File { file: file.to_owned(), line };
            written.push(Written { path, text, origin });
        })
        .map_err(|(line, message)| fault(line, message))?;
    }
    Ok(written)
}

type Fault = (usize, String);

fn flatten(node: &MarkedYaml<'_>, path: &str, found: &mut dyn FnMut(String, String, usize)) -> Result<(), Fault> {
    let line = node.span.start.line();
    match &node.data {
        YamlData::Mapping(sections) => {
            for (name, value) in sections {
                let name = scalar(name).ok_or_else(|| (line, "a key is not plain text".to_owned()))?;
                let dot = if path.is_empty() { "" } else { "." };
                flatten(value, &format!("{path}{dot}{name}"), found)?;
            }
        }
        _ if path.is_empty() && scalar(node).is_some_and(is_null) => {}
        _ if path.is_empty() => return Err((line, "expected sections such as `training:` with keys below".to_owned())),
        YamlData::Sequence(_) if keys::find(path).is_some_and(|key| matches!(key.kind, Kind::Tasks)) => {
            let text = flow(node).ok_or_else(|| (line, format!("{path}: expected a list of tasks")))?;
            found(path.to_owned(), text, line);
        }
        YamlData::Sequence(items) => {
            let items: Option<Vec<&str>> = items.iter().map(scalar).collect();
            let items =
                items.ok_or_else(|| (line, format!("{path}: a list of lists or sections is not understood")))?;
            found(path.to_owned(), format!("[{}]", items.join(", ")), line);
        }
        _ => match scalar(node) {
            Some(text) if is_null(text) => {}
            Some(text) => found(path.to_owned(), text.to_owned(), line),
            None => return Err((line, format!("{path}: expected a value"))),
        },
    }
    Ok(())
}

/// True for a key without a value, which counts as absent.
fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

/// The settings among the environment's variables: `MEGABATCH_TRAINING__LR`, or
/// `MEGABATCH_TRAINING_LR`, is `training.lr`. A variable that names no section is none of the
/// configuration's.
///
/// # Errors
/// A setting whose value is not UTF-8. Names that are not are none of the configuration's.
pub(crate) fn from_environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<Written>> {
    let settings = variables.filter_map(|(variable, text)| {
        let variable = variable.into_string().ok()?;
        let name = variable.strip_prefix("MEGABATCH_")?.to_lowercase();
        let (section, key) =
            sections().find_map(|section| Some((section, name.strip_prefix(section)?.strip_prefix('_')?)))?;
        let path = format!("{section}.{}", key.trim_start_matches('_'));
        let Ok(text) = text.into_string() else { return Some(Err(ConfigError::NotText { variable })) };
        Some(Ok(Written { path, text, origin: Origin::Environment { variable } }))
    });
    settings.collect()
}

fn sections() -> impl Iterator<Item = &'static str> {
    keys().filter_map(|key| key.path.split('.').next())
}

/// The settings `found`, by key, that the weights in `file` tell.
pub(crate) fn from_weights(file: &Path, found: &[(&str, String)]) -> Vec<Written> {
    let setting = |(path, text): &(&str, String)| {
        let origin = Origin::Weights { file: file.to_owned() };
        Written { path: (*path).to_owned(), text: text.clone(), origin }
    };
    found.iter().map(setting).collect()
}

/// The settings among the arguments of `--set`.
pub(crate) fn from_arguments(arguments: &[String]) -> Result<Vec<Written>> {
    let setting = |argument: &String| {
        let (path, text) =
            argument.split_once('=').ok_or_else(|| ConfigError::NotAnAssignment { argument: argument.clone() })?;
        let origin = Origin::Argument { argument: argument.clone() };
        Ok(Written { path: path.trim().to_owned(), text: text.to_owned(), origin })
    };
    arguments.iter().map(setting).collect()
}
