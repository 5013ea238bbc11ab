//! New bars are appended to a series, which keeps its scalers and its recipe.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use megabatch_bars::{
    BarFunctions, Error as BarsError, Overlaps, ReadOptions, Zone, likely_symbol, listed as listed_names, named_symbol,
    pair_without_ending, wanted_symbol,
};
use serde_json::{Value, json};

use super::context_timing::{CONTEXT, recorded_timing};
use super::existing_series::ExistingSeries;
use super::folder_files::FolderFiles;
use super::function_account::CONTEXT_BARS;
use super::function_inputs::changed_context;
use super::functions::FunctionUse;
use super::provenance::{CONTEXT_LIST, LISTS, fingerprint, listed};
use super::recipe::recorded_clock;
use super::series::{SeriesReport, in_folder, require_text, unlike_names, write};
use super::source_files::SourceFiles;
use super::spool::SpoolFolder;
use super::{ContextFile, Recipe};
use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Result};
use crate::host::Host;
use crate::output;
use crate::text::{plural, shown, utc};

/// Adds the bars of the files of `new` to the series at `out`. `stated` names the options of `new`
/// that the user stated; they must be those by which the series was made, and none need be. A zone
/// may be the clock by which its files were read. Names that are no options of a recipe count for
/// nothing.
///
/// The files that the series was made of are read again, together with the new ones, and the series
/// is made anew with its scalers. They may have grown since. It becomes a new file, which replaces
/// the old one when it is whole. All rows and samples of the old one are in it, bit for bit, except
/// for values that its last bar decides, where the files have more of that bar now, and features of
/// other instruments from their last bar on, where these have later bars now.
///
/// All bars are read as bars of the timeframe that the series was made of. Nothing is written if
/// all files, those of other instruments among them, have the bytes of then.
///
/// # Errors
/// [`Kind::Usage`](crate::Kind::Usage) for stated options that contradict the series,
/// [`Kind::Data`](crate::Kind::Data) for files that are not there, bars of another symbol or
/// timeframe, and bars that change what the series holds; those of [`ingest`](super::ingest).
pub fn append(new: &Recipe, stated: &[String], out: &Path, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    output::require_ending(out, &["h5", "hdf5"])?;
    if !out.is_file() {
        return Err(Error::usage(format!(
            "{}: there is no series to append to; without --append, `ingest` makes one",
            out.display()
        )));
    }
    in_folder(out, host, |folder| append_in(folder, new, stated, out, host, start))
}

fn append_in(
    folder: &SpoolFolder,
    given: &Recipe,
    stated: &[String],
    out: &Path,
    host: &Host<'_>,
    start: Instant,
) -> Result<CommandReport> {
    let mut kept = ExistingSeries::open(out)?;
    kept.recipe.require_one_context(FunctionUse::Kept(out), host)?;
    let base = kept.base()?;
    let given = &with_own_symbol(&kept, given)?;
    take_stated_symbol(&mut kept, given, stated, out)?;
    take_stated_zone(&mut kept, given, stated);
    let given = &Recipe { bins: kept.recipe.named_bins(given, &kept.provenance)?, ..given.clone() };
    require_same_choices(&Recipe { base: Some(base), ..kept.recipe.clone() }, given, stated, out)?;
    let new = Recipe { symbol: kept.recipe.symbol.clone(), ..given.clone() };
    let mut new = new.with_files_of_folders(host.observer)?;
    for path in new.files() {
        // The name of a file that is not there would be taken for a symbol.
        path.metadata().map_err(|source| BarsError::Open { path: path.to_owned(), source })?;
    }
    let before = kept.recipe.read_options();
    for path in [&mut new.bars, &mut new.bid, &mut new.ask].into_iter().flatten() {
        let absolute = std::path::absolute(&*path)?;
        // Without a symbol all rows are asked for, where those of some were read before.
        if !new.file_symbols.contains_key(&absolute) && kept.recipe.file_symbols.remove(&absolute).is_some() {
            *path = absolute;
        }
    }
    for (path, symbols) in &new.file_symbols {
        let known = kept.recipe.file_symbols.entry(path.clone()).or_default();
        known.extend(symbols.iter().cloned());
        known.sort_unstable();
        known.dedup();
    }
    require_known_symbols(&kept, given, &new, out)?;
    kept.files = SourceFiles::find(&kept.recipe, &kept.provenance, out)?;
    let added = kept.files.without_these(&before, &kept.recipe, &new)?;
    kept.recipe.context = kept.recipe.context_with(&new.context, out)?;
    let context = other_context(&kept, host)?;
    let previous = PreviousSeries::new(&kept, &added);
    if added.files().is_empty() && kept.files.are_unchanged() && context.is_empty() {
        let text = format!("{}: the bars of these files are in it already; nothing was written", out.display());
        let nothing = PreviousSeries { files_read_again: 0, ..previous }.json(&BTreeMap::new(), 0);
        return Ok(CommandReport::new(
            text,
            &json!({ "out": shown(out), "samples": kept.samples(), "appended": nothing }),
        ));
    }
    let mut recipe = kept.recipe.clone();
    for (files, more) in [(&mut recipe.bars, &added.bars), (&mut recipe.bid, &added.bid), (&mut recipe.ask, &added.ask)]
    {
        // Of a file of before, rows of one symbol more may be read.
        let new: Vec<PathBuf> = more.iter().filter(|path| !files.contains(path)).cloned().collect();
        files.extend(new);
    }
    // Few bars do not show their timeframe.
    recipe.base = Some(base);
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
    if let Some(symbol) = &recipe.symbol {
        let mut files = kept.recipe.files();
        for path in added.files() {
            if let NewName::Unlike(earlier) = NewName::new(path, symbol, &files) {
                return Err(unlike_names(symbol, earlier, path));
            }
            files.push(path);
        }
    }
    for file in recipe.files() {
        require_text(file, "the account of its bars that the series file keeps")?;
    }
    output::check(out, &recipe.files())?;
    let mut report = write(&recipe, out, folder, host, Some(kept))?;
    let told = previous.told(&report.json);
    if told.bars == 0 {
        let notes = context.iter().map(|symbol| previous.context_note(symbol, &report, out));
        notes.for_each(|note| host.observer.note(&note));
    }
    report.text = format!("{}\n{}", report.text, told.text);
    report.json["appended"] = told.json;
    report.finish(start, std::fs::metadata(out)?.len());
    Ok(CommandReport::new(report.text, &report.json))
}

/// Other instruments whose bars are others than when the series was made: their files have other
/// bytes, or the host has other bars of them.
fn other_context(kept: &ExistingSeries, host: &Host<'_>) -> Result<BTreeSet<String>> {
    if let Some(functions) = host.functions {
        functions.read_context(&recorded_timing(&kept.provenance))?;
    }
    let given = host.functions.map_or_else(Vec::new, BarFunctions::fingerprints);
    let mut changed = changed_context(&kept.provenance, &given.into_iter().collect());
    for ContextFile { symbol, path } in &kept.recipe.context {
        let found = fingerprint(path).map_err(|source| BarsError::Open { path: path.clone(), source });
        let found = found.with_context(|| format!("{CONTEXT}{symbol}"))?;
        let mut recorded = listed(&kept.provenance, CONTEXT_LIST);
        let then = recorded.find(|file| file["symbol"].as_str() == Some(symbol.as_str()));
        if then.and_then(|file| file["xxh3_128"].as_str()) != Some(found.as_str()) {
            changed.insert(symbol.clone());
        }
    }
    Ok(changed)
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
        "bars" | "bid" | "ask" | "context" => true,
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

/// The recipe `given` with the symbol of the series that it states, if that is the same in upper or
/// lower case, or the same currency pair without the ending of a broker. One of several symbols is
/// stated no longer if each file tells it by itself, or has rows of several symbols: of those the
/// ones of this symbol are read.
fn with_own_symbol(kept: &ExistingSeries, given: &Recipe) -> Result<Recipe> {
    let Some(stated) = &given.symbol else { return Ok(given.clone()) };
    let symbols = kept.symbols();
    let Some(own) = own_among(&symbols, stated) else { return Ok(given.clone()) };
    if symbols.len() == 1 {
        return Ok(Recipe { symbol: Some(own.clone()), ..given.clone() });
    }
    let (recorded, known) = (kept.recipe.files(), &kept.recipe.file_symbols);
    let options = ReadOptions { file_symbols: BTreeMap::new(), ..kept.recipe.read_options() };
    let mut told = Recipe { symbol: None, ..given.clone() };
    for path in [&mut told.bars, &mut told.bid, &mut told.ask].into_iter().flatten() {
        let found = if path.is_file() { options.symbols_of(path).unwrap_or_default() } else { Vec::new() };
        match &found[..] {
            [only] if only == own || only.eq_ignore_ascii_case(stated) => {}
            [_, _, ..] if wanted_symbol(&found, own).is_some() => {
                *path = std::path::absolute(&*path)?;
                // All rows of a file of before may be in the series.
                if !recorded.contains(&path.as_path()) || known.contains_key(path.as_path()) {
                    told.file_symbols.insert(path.clone(), vec![own.clone()]);
                }
            }
            _ => return Ok(given.clone()),
        }
    }
    Ok(told)
}

/// The one of `symbols` that is `stated` in upper or lower case, or else its currency pair without
/// the ending of a broker.
fn own_among<'s>(symbols: &'s [String], stated: &str) -> Option<&'s String> {
    let pair = pair_without_ending(stated);
    let same = symbols.iter().find(|own| own.eq_ignore_ascii_case(stated));
    same.or_else(|| symbols.iter().find(|own| pair.as_ref() == Some(*own)))
}

/// Takes the stated symbol for that of all files, if it is the one that the series has. The new
/// files may have other names than those of before.
fn take_stated_symbol(kept: &mut ExistingSeries, new: &Recipe, stated: &[String], out: &Path) -> Result<()> {
    let Some(symbol) = new.symbol.as_ref().filter(|_| stated.iter().any(|name| name == "symbol")) else {
        return Ok(());
    };
    if kept.recipe.symbol.is_some() {
        return Ok(());
    }
    let symbols = kept.symbols();
    let told = match &symbols[..] {
        [only] if only == symbol => {
            (kept.recipe.symbol, kept.recipe.symbol_pattern) = (Some(symbol.clone()), None);
            return Ok(());
        }
        [only] => format!("has bars of {only}; a new symbol needs a scaler of its own: ingest all files anew"),
        several if own_among(several, symbol).is_none() => format!(
            "has bars of {}; a new symbol needs a scaler of its own: ingest all files anew",
            listed_names(several)
        ),
        several => format!(
            "has several symbols ({}), which its files tell by their names or rows; leave the option out, and name the new file after its symbol, as those of before are named",
            listed_names(several)
        ),
    };
    let meant = likely_symbol(symbol, &symbols).filter(|_| own_among(&symbols, symbol).is_none());
    let meant = meant.map_or_else(String::new, |own| format!("; did you mean {own}?"));
    Err(Error::usage(format!("--symbol {symbol}: {} {told}{meant}", out.display())).with_field("key", "symbol"))
}

/// Takes the stated zone for that of all files, if it is the clock by which those of before were
/// read.
fn take_stated_zone(kept: &mut ExistingSeries, new: &Recipe, stated: &[String]) {
    let known: Option<Zone> = recorded_clock(&kept.provenance).and_then(|zone| zone.parse().ok());
    let is_stated = new.zone.is_some() && stated.iter().any(|name| name == "zone");
    if is_stated && kept.recipe.zone.is_none() && new.zone == known {
        kept.recipe.zone.clone_from(&new.zone);
    }
}

/// Refuses bars of symbols that the series does not have. The files of `new` are those of `given`,
/// which may have folders in their place.
fn require_known_symbols(kept: &ExistingSeries, given: &Recipe, new: &Recipe, out: &Path) -> Result<()> {
    let (options, symbols, files) = (kept.recipe.read_options(), kept.symbols(), kept.recipe.files());
    let folders: Vec<&Path> = given.files().into_iter().filter(|path| path.is_dir()).collect();
    for path in new.files() {
        let fix = match &symbols[..] {
            [only] if is_left_out(path, only, &folders)? => {
                format!("; `--symbol {only}` reads the files of {only} in its folder alone")
            }
            [only] if matches!(NewName::new(path, only, &files), NewName::Unlike(_)) => {
                format!("; if bars of {only} are meant, name the file after {only}")
            }
            [only] => format!("; if bars of {only} are meant, add `--symbol {only}`"),
            _ => String::new(),
        };
        let found = options.symbols_of(path).map_err(|error| match error {
            BarsError::UnlikeName { .. } => Error::data(format!("{error}{fix}")),
            other => other.into(),
        })?;
        if let Some(symbol) = found.iter().find(|symbol| !symbols.contains(symbol)) {
            let told_by = if found.len() > 1 { "rows" } else { "name" };
            let meant = likely_symbol(symbol, &symbols).filter(|_| symbols.len() > 1);
            let fix =
                meant.map_or(fix, |own| format!("; if bars of {own} are meant, write this symbol in its {told_by}"));
            return Err(Error::data(format!(
                "{}: bars of {symbol} by its {told_by}, and {} has {}{fix}; a new symbol needs a scaler of its own: ingest all files anew",
                path.display(),
                out.display(),
                listed_names(&kept.scalers.instruments)
            )));
        }
    }
    Ok(())
}

/// True if `path` is a file of one of `folders` that is not read where `symbol` is stated.
fn is_left_out(path: &Path, symbol: &str, folders: &[&Path]) -> Result<bool> {
    let Some(folder) = folders.iter().find(|folder| path.starts_with(folder)) else { return Ok(false) };
    Ok(!FolderFiles::find(folder, Some(symbol))?.read.iter().any(|file| file == path))
}

/// Name of a new file beside the symbol of a series and the names of its files.
enum NewName<'a> {
    /// It tells no symbol, or that of the series, or one that a file of before is named after.
    Fits,
    /// It tells another symbol than this file of before: to state one symbol for both is refused.
    Unlike(&'a Path),
}

impl<'a> NewName<'a> {
    fn new(path: &Path, symbol: &str, files: &[&'a Path]) -> Self {
        let Some(name) = named_symbol(path).filter(|name| !name.eq_ignore_ascii_case(symbol)) else {
            return NewName::Fits;
        };
        let mut earlier = None;
        for file in files {
            match named_symbol(file) {
                Some(other) if other == name => return NewName::Fits,
                Some(_) => earlier = earlier.or(Some(*file)),
                None => {}
            }
        }
        earlier.map_or(NewName::Fits, NewName::Unlike)
    }
}

/// Numbers of the series before bars were appended.
struct PreviousSeries {
    files: Vec<String>,
    grown: Vec<String>,
    rewritten: Vec<String>,
    files_read_again: usize,
    bars: BTreeMap<String, u64>,
    /// Bars of other instruments, where they are known.
    context_bars: BTreeMap<String, u64>,
    samples: usize,
}

/// Bars of other instruments in files by symbol, as the account of a series has them.
fn context_bars(provenance: &Value) -> BTreeMap<String, u64> {
    let counts = provenance["functions"][CONTEXT_BARS].as_object().into_iter().flatten();
    counts.filter_map(|(symbol, bars)| Some((symbol.clone(), bars.as_u64()?))).collect()
}

/// The appended bars and samples, in words and as JSON.
struct Told {
    text: String,
    json: Value,
    /// Bars of all instruments.
    bars: u64,
}

impl PreviousSeries {
    fn new(kept: &ExistingSeries, added: &Recipe) -> Self {
        let names = &kept.scalers.instruments;
        let all = |paths: &[PathBuf]| paths.iter().map(|path| shown(path)).collect();
        PreviousSeries {
            files: added.files().into_iter().map(shown).collect(),
            grown: all(&kept.files.grown),
            rewritten: all(&kept.files.rewritten),
            files_read_again: kept.recipe.files().len(),
            bars: names.iter().map(|name| (name.clone(), kept.bars_of(name))).collect(),
            context_bars: context_bars(&kept.provenance),
            samples: kept.samples(),
        }
    }

    /// Compares with the answer about the new series.
    fn told(&self, now: &Value) -> Told {
        let mut bars: BTreeMap<&str, u64> = BTreeMap::new();
        for instrument in listed(&now["source"], LISTS[0]) {
            let symbol = instrument["symbol"].as_str().unwrap_or_default();
            let all = instrument["bars"]["all"].as_u64().unwrap_or(0);
            bars.insert(symbol, all - self.bars.get(symbol).copied().unwrap_or(0).min(all));
        }
        let samples = now["samples"].as_u64().unwrap_or(0) - self.samples as u64;
        let (all, with): (u64, usize) = (bars.values().sum(), bars.values().filter(|bars| **bars > 0).count());
        let mut text = format!(
            "appended {} of {with} of {} and {}; the scalers are those of before. Features, cleaning and open bars go on from the bars of before, read again from {}",
            plural(all as usize, "bar"),
            plural(bars.len(), "instrument"),
            plural(samples as usize, "sample"),
            plural(self.files_read_again, "file")
        );
        for (files, said) in [
            (&self.grown, "has grown: it begins with the bytes of before"),
            (&self.rewritten, "was written anew: the series still has each bar and sample of before"),
        ] {
            files.iter().for_each(|file| text.push_str(&format!("\n{file} {said}")));
        }
        Told { text, json: self.json(&bars, samples), bars: all }
    }

    /// A note on the bars of another instrument, `symbol`, which are others now, while no bar of
    /// the series at `out` is new.
    fn context_note(&self, symbol: &str, report: &SeriesReport, out: &Path) -> String {
        let now = context_bars(&report.json["source"]).get(symbol).copied();
        let more = now.zip(self.context_bars.get(symbol)).map_or(0, |(now, then)| now.saturating_sub(*then));
        let bars = if more == 0 { "other bars".to_owned() } else { plural(more as usize, "more bar") };
        let effect = match report.renewed.get(symbol) {
            Some(time) => format!("its features from {} on are those of its bars now", utc(*time)),
            None => "no row has changed".to_owned(),
        };
        format!("note: no bar of {} is new; {symbol} has {bars} than when it was made: {effect}", out.display())
    }

    /// The account of `bars` by symbol and of `samples` that were appended.
    fn json(&self, bars: &BTreeMap<&str, u64>, samples: u64) -> Value {
        json!({
            "files": self.files,
            "grown": self.grown,
            "rewritten": self.rewritten,
            "bars": bars,
            "samples": samples,
            "files_read_again": self.files_read_again,
        })
    }
}
