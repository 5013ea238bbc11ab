//! Provenance of a series file, compared with that of its bars.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use megabatch_bars::{FUNCTION_PREFIX, Zone};
use megabatch_chunk_io::AttributeValue;
use serde_json::Value;

use super::comparison::{KnownColumns, not_what_its_bars_give};
use crate::error::{Error, Result};
use crate::ingest::provenance::{
    CONTEXT_LIST, LAST_BAR, LAST_OPEN_TIME, LISTS, LONGER_LISTS, begins_with, files_of_instrument, fingerprint, listed,
    recorded_files,
};
use crate::ingest::{ContextFile, Recipe};

/// Clocks whose changes are looked at besides those of the files: the ones that markets keep.
pub(super) const CLOCKS: [&str; 2] = ["America/New_York", "Europe/London"];

/// Provenance in a file.
pub(super) struct Provenance<'a> {
    path: &'a Path,
    pub(super) json: Value,
    recipe: Recipe,
}

impl<'a> Provenance<'a> {
    pub(super) fn read(path: &'a Path, source: Option<&AttributeValue>) -> Result<Self> {
        let (json, recipe) = Recipe::recorded(path, source)?;
        Ok(Provenance { path, json, recipe })
    }

    /// The recipe with the files where they are now, once their bytes are known to be those that
    /// were read.
    pub(super) fn recipe_with(&self, moved: &[PathBuf]) -> Result<Recipe> {
        let mut recipe = self.recipe.clone();
        if !moved.is_empty() {
            recipe = self.place(recipe, moved)?;
        }
        let expected: BTreeSet<&str> = self.files().filter_map(|file| file["xxh3_128"].as_str()).collect();
        for path in recipe.files() {
            let found = fingerprint(path).map_err(|error| {
                Error::data(format!(
                    "{}: {error}; say with --source where the bars of {} are",
                    path.display(),
                    self.path.display()
                ))
            })?;
            if !expected.contains(found.as_str()) {
                return Err(Error::data(format!(
                    "{}: these are not the bytes that {} was made of; give the files of then with --source, or ingest anew",
                    path.display(),
                    self.path.display()
                )));
            }
        }
        Ok(recipe)
    }

    /// The recipe with each file replaced by the one of `moved` that has its bytes.
    fn place(&self, mut recipe: Recipe, moved: &[PathBuf]) -> Result<Recipe> {
        let mut by_bytes = Vec::with_capacity(moved.len());
        for path in moved {
            by_bytes.push((fingerprint(path)?, path));
        }
        for path in recipe.bars.iter_mut().chain(&mut recipe.bid).chain(&mut recipe.ask) {
            let was = self.files().find(|file| file["file"].as_str() == path.to_str());
            let wanted = was.and_then(|file| file["xxh3_128"].as_str()).unwrap_or_default();
            let (_, found) = by_bytes.iter().find(|(bytes, _)| bytes == wanted).ok_or_else(|| {
                Error::data(format!(
                    "--source: none of the files has the bytes of {}, of which {} was made",
                    path.display(),
                    self.path.display()
                ))
            })?;
            (*found).clone_into(path);
        }
        Ok(recipe)
    }

    /// Requires that the file's provenance matches the bars found; the bars' places do not count,
    /// nor do warnings that name a file, or about columns that are not known.
    pub(super) fn require_same_provenance(&self, mut found: Value, known: KnownColumns) -> Result<()> {
        let mut said = self.json.clone();
        for provenance in [&mut said, &mut found] {
            provenance["recipe"] = Value::Null;
            provenance["functions"] = Value::Null;
            // Earlier versions wrote none, and the values of context are compared.
            provenance[CONTEXT_LIST] = Value::Null;
            if let (Some(warnings), KnownColumns::WithoutFunctions) = (provenance["warnings"].as_array_mut(), known) {
                warnings.retain(|warning| !warning.as_str().is_some_and(|text| text.starts_with(FUNCTION_PREFIX)));
            }
            for list in LISTS {
                for instrument in provenance.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    // Why an instrument is left out is told with its path.
                    instrument["reason"] = Value::Null;
                    // Earlier versions wrote none, and its values are compared.
                    instrument[LAST_BAR] = Value::Null;
                    forget_warnings_with_files(instrument);
                    forget_places(instrument);
                    for list in LONGER_LISTS {
                        for longer in instrument[list].as_array_mut().into_iter().flatten() {
                            longer[LAST_OPEN_TIME] = Value::Null;
                            forget_places(longer);
                        }
                    }
                }
            }
        }
        match said == found {
            true => Ok(()),
            false => Err(not_what_its_bars_give(self.path, "the account of the bars in /@source")),
        }
    }

    /// The error of an `object` that is not what the bars give. Those of the instruments `changed`,
    /// whose files are among `context`, are others than then.
    pub(super) fn difference(&self, object: &str, changed: &BTreeSet<String>, context: &[ContextFile]) -> Error {
        if changed.is_empty() {
            return not_what_its_bars_give(self.path, object);
        }
        let named = |symbol: &String| match context.iter().find(|file| file.symbol == *symbol) {
            Some(file) if self.has_grown(file) => format!("{symbol} ({}, which has grown)", file.path.display()),
            Some(file) => format!("{symbol} ({})", file.path.display()),
            None => symbol.clone(),
        };
        Error::data(format!(
            "context {}: these are not the bars that {} was made of, and {object} is not what they give; if bars came since, append to the series, which takes them; else give the bars of then, or ingest anew",
            changed.iter().map(named).collect::<Vec<_>>().join(", "),
            self.path.display()
        ))
    }

    /// True if a file of another instrument begins with the bytes of then, and has more.
    fn has_grown(&self, file: &ContextFile) -> bool {
        let then = listed(&self.json, CONTEXT_LIST).find(|then| then["symbol"].as_str() == Some(file.symbol.as_str()));
        let hash = then.and_then(|then| then["xxh3_128"].as_str()).unwrap_or_default();
        begins_with(&file.path, hash, 0).unwrap_or(false)
    }

    /// The files that were read, those included that were only compared with others.
    fn files(&self) -> impl Iterator<Item = &Value> {
        recorded_files(&self.json)
    }

    /// The zones by which the files were read and bars binned, and those of the markets.
    pub(super) fn zones(&self) -> Vec<TimeZone> {
        let own = self.files().filter_map(|file| file["zone"].as_str());
        let bins = self.recipe.bins.to_string();
        let names: BTreeSet<&str> = CLOCKS.into_iter().chain(own).chain([bins.as_str()]).collect();
        let zones = names.into_iter().filter_map(|name| name.parse::<Zone>().ok());
        zones.map(|zone| zone.rules().clone()).collect()
    }
}

/// Takes the warnings from `instrument` that name one of its files.
fn forget_warnings_with_files(instrument: &mut Value) {
    let paths = files_of_instrument(instrument).filter_map(|file| file["file"].as_str());
    let names = paths.filter_map(|path| Path::new(path).file_name()?.to_str());
    let names: Vec<String> = names.map(str::to_owned).collect();
    if let Some(warnings) = instrument["warnings"].as_array_mut() {
        let names_a_file = |text: &str| names.iter().any(|name| text.contains(name.as_str()));
        warnings.retain(|warning| !warning.as_str().is_some_and(names_a_file));
    }
}

/// Takes the paths from the files of `owner`: an instrument, files that were compared with it, or
/// its own bars of a longer timeframe.
fn forget_places(owner: &mut Value) {
    let files = owner["files"].as_array_mut().into_iter().flatten();
    files.for_each(|file| file["file"] = Value::Null);
}
