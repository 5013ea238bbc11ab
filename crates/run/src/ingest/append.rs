//! Bars that came since are added to a series, which keeps its scalers and every choice.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use megabatch_bars::Overlaps;
use serde_json::{Value, json};

use super::Recipe;
use super::kept_series::KeptSeries;
use super::provenance::{fingerprint, recorded_files};
use super::series::{counted, in_folder, require_text, write};
use super::spool::SpoolFolder;
use crate::error::{Context as _, Error, Result};
use crate::findings::Findings;
use crate::host::Host;
use crate::output;
use crate::text::shown;

/// Adds the bars of the files of `new` to the series at `out`. `stated` names the options of `new`
/// that the user stated; they must be those by which the series was made, and none need be.
///
/// The files that the series was made of are read again, together with the new ones, and the series
/// is made anew with its scalers. It becomes a new file, which replaces the old one when it is
/// whole. All rows and samples of the old one are in it, bit for bit.
///
/// # Errors
/// [`Kind::Usage`](crate::Kind::Usage) for stated options that contradict the series,
/// [`Kind::Data`](crate::Kind::Data) for files of then that are gone or have changed, bars of
/// another symbol, and bars that change what the series holds; those of [`ingest`](super::ingest).
pub fn append(new: &Recipe, stated: &[String], out: &Path, host: &Host<'_>) -> Result<Findings> {
    let start = Instant::now();
    output::require_ending(out, &["h5", "hdf5"])?;
    if !out.is_file() {
        return Err(Error::usage(format!(
            "{}: there is no series to append to; without --append, `ingest` makes one",
            out.display()
        )));
    }
    let new = new.clone().with_files_of_folders()?;
    in_folder(out, host, |folder| append_in(folder, &new, stated, out, host, start))
}

fn append_in(
    folder: &SpoolFolder,
    new: &Recipe,
    stated: &[String],
    out: &Path,
    host: &Host<'_>,
    start: Instant,
) -> Result<Findings> {
    let kept = KeptSeries::open(out)?;
    require_same_choices(&kept.recipe, new, stated, out)?;
    require_known_symbols(&kept, new, out)?;
    let recorded = unchanged_files(&kept, out)?;
    let added = without_recorded(&kept, &recorded, new)?;
    if added.files().is_empty() {
        let text = format!("{}: the bars of these files are in it already; nothing was written", out.display());
        let appended = json!({ "files": [], "bars": {}, "samples": 0, "files_read_again": 0 });
        return Ok(Findings::new(text, &json!({ "out": shown(out), "samples": kept.samples(), "appended": appended })));
    }
    let mut recipe = kept.recipe.clone();
    recipe.bars.extend(added.bars.iter().cloned());
    recipe.bid.extend(added.bid.iter().cloned());
    recipe.ask.extend(added.ask.iter().cloned());
    if !stated.iter().any(|name| name == "overlaps") {
        recipe.overlaps = Overlaps::EqualOnce;
    }
    if !recipe.is_whole() {
        return Err(Error::usage(format!(
            "{}: it was made of {}; name new files of the same kind",
            out.display(),
            if kept.recipe.bid.is_empty() { "bars, and not of bid and ask" } else { "bid and ask (--bid, --ask)" }
        )));
    }
    for file in recipe.files() {
        require_text(file, "the account of its bars that the series file keeps")?;
    }
    output::check(out, &recipe.files())?;
    let before = Before::of(&kept, &added);
    let mut findings = write(&recipe, out, folder, host, Some(kept))?;
    let told = before.told(&findings.json);
    findings.text = format!("{}\n{}", findings.text, told.text);
    findings.json["appended"] = told.json;
    findings.finish(start, std::fs::metadata(out)?.len());
    Ok(Findings::new(findings.text, &findings.json))
}

/// Choices of a recipe by their names, as `ingest` has them.
fn choices(recipe: &Recipe) -> BTreeMap<String, String> {
    let words = recipe.to_words();
    let options = words.iter().filter_map(|word| word.strip_prefix("--")?.split_once('='));
    options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Refuses stated options that are not those of the series.
fn require_same_choices(recorded: &Recipe, new: &Recipe, stated: &[String], out: &Path) -> Result<()> {
    let (was, given) = (choices(recorded), choices(new));
    // Files that may overlap do when bars are appended.
    let is_free = |name: &str| match name {
        "bars" | "bid" | "ask" => true,
        "overlaps" => new.overlaps == Overlaps::EqualOnce,
        _ => false,
    };
    for name in stated.iter().filter(|name| !is_free(name)) {
        if was.get(name) != given.get(name) {
            let option = |value: Option<&String>| {
                value.map_or_else(|| format!("without --{name}"), |value| format!("with --{name}={value}"))
            };
            return Err(Error::usage(format!(
                "--{name}: {} was made {} and is kept so; leave the option out, or ingest all files anew",
                out.display(),
                option(was.get(name))
            ))
            .with_field("key", name.as_str()));
        }
    }
    Ok(())
}

/// Refuses bars of symbols that the series does not have.
fn require_known_symbols(kept: &KeptSeries, new: &Recipe, out: &Path) -> Result<()> {
    let (options, symbols) = (kept.recipe.read_options(), kept.symbols());
    for path in new.files() {
        let symbol = options.symbol_of(path)?;
        if !symbols.contains(&symbol) {
            return Err(Error::data(format!(
                "{}: bars of {symbol}, and {} has {}; a new symbol needs a scaler of its own: ingest all files anew",
                path.display(),
                out.display(),
                kept.scalers.instruments.join(", ")
            )));
        }
    }
    Ok(())
}

/// Fingerprints of the files of then; refuses those that are gone or whose bytes are others.
fn unchanged_files(kept: &KeptSeries, out: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let said: BTreeSet<&str> = recorded_files(&kept.account).filter_map(|file| file["xxh3_128"].as_str()).collect();
    let mut files = BTreeMap::new();
    for path in kept.recipe.files() {
        let found = fingerprint(path).map_err(|error| {
            Error::data(format!(
                "{}: {error}; {} was made of it, and its bars are read again when others are appended: put it back, or ingest anew",
                path.display(),
                out.display()
            ))
        })?;
        if !said.contains(found.as_str()) {
            return Err(Error::data(format!(
                "{}: these are not the bytes that {} was made of; put those back and give new bars in a file of their own, or ingest anew",
                path.display(),
                out.display()
            )));
        }
        files.insert(path.to_owned(), found);
    }
    Ok(files)
}

/// The new files but for those whose bytes the series was made of, of the same symbol;
/// `fingerprints` are those of the files that it was made of.
fn without_recorded(kept: &KeptSeries, fingerprints: &BTreeMap<PathBuf, String>, new: &Recipe) -> Result<Recipe> {
    let options = kept.recipe.read_options();
    let left = |new: &[PathBuf], recorded: &[PathBuf]| -> Result<Vec<PathBuf>> {
        let mut known = BTreeSet::new();
        for path in recorded {
            known.insert((options.symbol_of(path)?, fingerprints[path].clone()));
        }
        let mut left = Vec::new();
        for path in new {
            let found = fingerprint(path).with_context(|| format!("cannot read {}", path.display()))?;
            if known.insert((options.symbol_of(path)?, found)) {
                left.push(path.clone());
            }
        }
        Ok(left)
    };
    let recorded = &kept.recipe;
    Ok(Recipe {
        bars: left(&new.bars, &recorded.bars)?,
        bid: left(&new.bid, &recorded.bid)?,
        ask: left(&new.ask, &recorded.ask)?,
        ..new.clone()
    })
}

/// Numbers of the series before bars were appended.
struct Before {
    files: Vec<String>,
    files_read_again: usize,
    bars: BTreeMap<String, u64>,
    samples: usize,
}

/// What was appended, in words and as JSON.
struct Told {
    text: String,
    json: Value,
}

impl Before {
    fn of(kept: &KeptSeries, added: &Recipe) -> Self {
        let names = &kept.scalers.instruments;
        Before {
            files: added.files().into_iter().map(|path| path.display().to_string()).collect(),
            files_read_again: kept.recipe.files().len(),
            bars: names.iter().map(|name| (name.clone(), kept.bars_of(name))).collect(),
            samples: kept.samples(),
        }
    }

    /// Compares with the answer about the new series.
    fn told(&self, now: &Value) -> Told {
        let accounts = now["source"]["instruments"].as_array().into_iter().flatten();
        let mut bars: BTreeMap<&str, u64> = BTreeMap::new();
        for account in accounts {
            let symbol = account["symbol"].as_str().unwrap_or_default();
            let all = account["bars"]["all"].as_u64().unwrap_or(0);
            bars.insert(symbol, all - self.bars.get(symbol).copied().unwrap_or(0).min(all));
        }
        let samples = now["samples"].as_u64().unwrap_or(0) - self.samples as u64;
        let (all, with): (u64, usize) = (bars.values().sum(), bars.values().filter(|bars| **bars > 0).count());
        let text = format!(
            "appended {} of {with} of {} and {}; the scalers are those of before. Features, cleaning and open bars go on from the bars of before, read again from {}",
            counted(all as usize, "bar"),
            counted(bars.len(), "instrument"),
            counted(samples as usize, "sample"),
            counted(self.files_read_again, "file")
        );
        let json =
            json!({ "files": self.files, "bars": bars, "samples": samples, "files_read_again": self.files_read_again });
        Told { text, json }
    }
}
