//! The files that a series was made of, to which bars are appended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use megabatch_bars::ReadOptions;
use serde_json::Value;

use super::Recipe;
use super::provenance::{begins_with, fingerprint, recorded_files};
use crate::error::{Context as _, Error, Result};
use crate::text::shown;

/// The files that a series was made of.
#[derive(Default)]
pub(super) struct SourceFiles {
    /// Fingerprints of their present contents.
    fingerprints: BTreeMap<PathBuf, String>,
    /// Files that begin with the recorded bytes and have grown.
    pub(super) grown: Vec<PathBuf>,
    /// Files that hold other bytes.
    pub(super) rewritten: Vec<PathBuf>,
}

impl SourceFiles {
    /// Compares the files of `recipe` with the provenance of the series at `out`.
    ///
    /// # Errors
    /// A data error for a file that is missing.
    pub(super) fn find(recipe: &Recipe, provenance: &Value, out: &Path) -> Result<Self> {
        let recorded: BTreeMap<&str, &Value> =
            recorded_files(provenance).filter_map(|file| Some((file["file"].as_str()?, file))).collect();
        let mut files = SourceFiles::default();
        for path in recipe.files() {
            let gone = |error: io::Error| {
                Error::data(format!(
                    "{}: {error}; {} was made of it, and its bars are read again when others are appended: put it back, or ingest anew",
                    path.display(),
                    out.display()
                ))
            };
            let then = recorded.get(shown(path).as_str());
            let hash = then.and_then(|file| file["xxh3_128"].as_str()).unwrap_or_default();
            let found = fingerprint(path).map_err(gone)?;
            if found != hash {
                let rows = then.and_then(|file| file["rows"].as_u64()).unwrap_or(0);
                let group = match begins_with(path, hash, rows).map_err(gone)? {
                    true => &mut files.grown,
                    false => &mut files.rewritten,
                };
                group.push(path.to_owned());
            }
            files.fingerprints.insert(path.to_owned(), found);
        }
        Ok(files)
    }

    /// True if each file has the recorded bytes.
    pub(super) fn are_unchanged(&self) -> bool {
        self.grown.is_empty() && self.rewritten.is_empty()
    }

    /// `new` without files whose bytes the series has already for the same symbols, which the
    /// options of `recipe` tell of new files, and those of `before` of the others.
    pub(super) fn without_these(&self, before: &ReadOptions, recipe: &Recipe, new: &Recipe) -> Result<Recipe> {
        let options = recipe.read_options();
        let left = |new: &[PathBuf], recorded: &[PathBuf]| -> Result<Vec<PathBuf>> {
            let mut known = BTreeSet::new();
            for path in recorded {
                known.insert((before.symbols_of(path)?, self.fingerprints[path].clone()));
            }
            let mut left = Vec::new();
            for path in new {
                let found = fingerprint(path).with_context(|| format!("cannot read {}", path.display()))?;
                if known.insert((options.symbols_of(path)?, found)) {
                    left.push(path.clone());
                }
            }
            Ok(left)
        };
        Ok(Recipe {
            bars: left(&new.bars, &recipe.bars)?,
            bid: left(&new.bid, &recipe.bid)?,
            ask: left(&new.ask, &recipe.ask)?,
            ..new.clone()
        })
    }
}
