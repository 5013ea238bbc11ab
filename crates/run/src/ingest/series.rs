//! Bars as text become aligned multi-timeframe series in one HDF5 file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use megabatch_bars::{
    Overlaps, RowError, SeriesHeader, SeriesPiece, SeriesSpec, SpooledBars, Universe, estimated_rows,
    folders_with_bars, listed, named_pair, named_symbol,
};
use megabatch_chunk_io::{BarRows, SampleRows, SeriesWriter, WindowEnds, write_series_in_pieces};
use rayon::ThreadPoolBuilder;
use serde_json::{Value, json};

use super::disk::{require_free, share_under_way};
use super::existing_series::{ExistingSeries, PrefixCheck};
use super::functions::{FunctionUse, ReadBars};
use super::new_bars::{
    changed_clocks, continued_bars, other_weeks, require_fitting, without_common_bars, without_volume,
};
use super::provenance::KeptScaler;
use super::recipe::provenance::{SeriesProvenance, provenance_json};
use super::recipe::{StreamedRecordings, fit, instruments_of};
use super::spool::{SpoolFolder, parsed_row_bytes};
use super::work::Pass;
use super::{Bins, Recipe, Recordings, implausible, universe, warm_up};
use crate::adapters::series::{Origin, series_description};
use crate::command_report::CommandReport;
use crate::error::{Error, Kind, Result};
use crate::host::{Host, PATIENCE};
use crate::output;
use crate::text::{bytes, plural, shown, utc};

/// Reads bars and writes aligned series to `out`: closed bars only, features, targets, scaled on
/// the training span.
///
/// Memory does not grow with bars or instruments. Parsed bars are kept in a folder beside `out`
/// while the work goes on; after an interruption, the same call reads them there.
///
/// # Errors
/// [`Kind::Usage`] for a recipe that contradicts itself or an output that cannot be written,
/// [`Kind::Data`] for bars that cannot be used, [`Kind::Capacity`] for a disk that is too full,
/// [`Kind::Cancelled`] where the host ended it.
pub fn ingest(recipe: &Recipe, out: &Path, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    output::require_ending(out, &["h5", "hdf5"])?;
    recipe.check()?;
    let unread: Vec<String> =
        [&recipe.bars, &recipe.bid, &recipe.ask].into_iter().flatten().filter_map(|path| unread(path)).collect();
    let recipe = recipe.clone().with_files_of_folders(host.observer)?;
    require_one_named_symbol(&recipe)?;
    let clocks = behind_or_ahead(&recipe);
    unread.iter().chain(&other_pair(&recipe)).chain(&clocks).for_each(|note| host.observer.note(note));
    output::check(out, &recipe.files())?;
    for file in recipe.files() {
        require_text(file, "the account of its bars that the series file keeps")?;
    }
    let replaced = replaced(&recipe, out);
    let report = in_folder(out, host, |folder| {
        let mut report = write(&recipe, out, folder, host, None)?;
        report.finish(start, std::fs::metadata(out)?.len());
        Ok(CommandReport::new(report.text, &report.json))
    })?;
    replaced.iter().for_each(|note| host.observer.note(note));
    Ok(report)
}

/// A note on a series at `out` that was made by another recipe. Columns of functions are not
/// compared: they are known once the functions were called.
fn replaced(recipe: &Recipe, out: &Path) -> Option<String> {
    let (provenance, before) = Recipe::from_file(out).ok()?;
    let words = |recipe: &Recipe| -> BTreeSet<String> {
        let recipe = Recipe { function_columns: Vec::new(), ..recipe.without_functions() };
        recipe.to_words().into_iter().collect()
    };
    let mut now = recipe.with_absolute_paths().ok()?;
    // The clock of an exchange is known once the bars are read.
    if now.bins == Bins::Exchange {
        now.bins = before.bins.clone();
    }
    // These are stated by `append`.
    if KeptScaler::recorded(&provenance).is_some() {
        now.base = now.base.or(before.base);
        if now.overlaps == Overlaps::Refuse {
            now.overlaps = before.overlaps;
        }
    }
    let (before, now) = (words(&before), words(&now));
    let differing: Vec<&String> = before.symmetric_difference(&now).collect();
    if differing.is_empty() {
        return None;
    }
    let option = |word: &&String| Some(word.strip_prefix("--")?.split_once('=')?.0.to_owned());
    let options: BTreeSet<String> = differing.iter().filter_map(option).collect();
    let other = match options.is_empty() {
        true => "of other files".to_owned(),
        false => format!("with other options ({})", listed(&options.into_iter().collect::<Vec<_>>())),
    };
    Some(format!(
        "{}: a series {other} was replaced, and with it the scalers that runs were trained with; --append adds bars and keeps them",
        out.display()
    ))
}

/// A note on the folders in a folder of bars whose files are not read.
fn unread(path: &Path) -> Option<String> {
    let folders = folders_with_bars(path);
    let first = folders.first()?.display();
    let names = folders.iter().filter_map(|folder| folder.file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    Some(format!(
        "{}: bars in its folders {} are not read; name those that are meant, such as {first}",
        path.display(),
        listed(&names)
    ))
}

/// Refuses files that are named after different symbols where one is stated for all.
///
/// # Errors
/// A usage error that names two of the files.
fn require_one_named_symbol(recipe: &Recipe) -> Result<()> {
    let Some(stated) = &recipe.symbol else { return Ok(()) };
    let mut named = recipe.files().into_iter().filter_map(|file| Some((file, named_symbol(file)?)));
    let Some((first, symbol)) = named.next() else { return Ok(()) };
    let second = named.find(|(_, other)| *other != symbol);
    second.map_or(Ok(()), |(second, _)| Err(unlike_names(stated, first, second)))
}

/// The error of two files that are named after different symbols where one is stated for both.
pub(super) fn unlike_names(stated: &str, first: &Path, second: &Path) -> Error {
    let [first_symbol, second_symbol] = [first, second].map(|file| named_symbol(file).unwrap_or_default());
    Error::usage(format!(
        "--symbol {stated}: {} is named after {first_symbol}, and {} after {second_symbol}; give the files of one symbol, or leave the option out, and each file keeps the symbol of its name",
        first.display(),
        second.display()
    ))
    .with_field("key", "symbol")
}

/// Notes on clocks such as `Etc/GMT+2`, whose sign is the reverse of that of an offset.
fn behind_or_ahead(recipe: &Recipe) -> BTreeSet<String> {
    let names = [recipe.zone.as_ref().map(ToString::to_string), Some(recipe.bins.to_string())];
    let note = |name: String| {
        let hours: i64 = name.strip_prefix("Etc/GMT")?.parse().ok().filter(|hours: &i64| *hours != 0)?;
        let side = if hours > 0 { "behind" } else { "ahead of" };
        let apart = plural(hours.unsigned_abs() as usize, "hour");
        Some(format!("{name} is {apart} {side} UTC: the sign of such a name is the reverse of that of {hours:+03}:00"))
    };
    names.into_iter().flatten().filter_map(note).collect()
}

/// A note on files whose names have another currency pair than the one that was stated.
fn other_pair(recipe: &Recipe) -> Option<String> {
    let stated = recipe.symbol.as_ref()?;
    let pair = named_pair(Path::new(stated))?;
    let files = recipe.files().into_iter().filter_map(|file| Some((file, named_pair(file)?)));
    let others: Vec<(&Path, String)> = files.filter(|(_, named)| *named != pair).collect();
    let (file, named) = others.first()?;
    let more = match others.len() - 1 {
        0 => String::new(),
        more => format!(", and so are the bars of {}", plural(more, "other file")),
    };
    Some(taken_for(file, named, stated) + &more)
}

/// A note on a file that is named after another `pair` than the `symbol` that was stated for it.
pub(crate) fn taken_for(file: &Path, pair: &str, symbol: &str) -> String {
    format!("{} is named after {pair}, and its bars are taken for those of {symbol}", file.display())
}

/// Calls `work` with the folder of parsed bars beside `out`. The folder is removed unless the host
/// ends the work.
pub(super) fn in_folder<T: Send>(
    out: &Path,
    host: &Host<'_>,
    work: impl FnOnce(&SpoolFolder) -> Result<T> + Send,
) -> Result<T> {
    // What is in the folder is safe at any moment.
    host.cancel.watch(PATIENCE)?;
    let folder = SpoolFolder::open(out)?;
    let threads = ThreadPoolBuilder::new().num_threads(rayon::current_num_threads().min(THREADS_MAX)).build()?;
    let written = threads.install(|| work(&folder));
    if written.as_ref().err().is_some_and(|error| error.kind() == Kind::Cancelled) {
        return Err(Error::new(
            Kind::Cancelled,
            format!(
                "interrupted; the bars that were read are kept in {}, and the same command goes on from them",
                folder.path().display()
            ),
        ));
    }
    folder.remove();
    written
}

/// Most threads of ingest: each has pieces of some 10 MB.
const THREADS_MAX: usize = 32;

/// Writes the series of a recipe. With `kept` it has those scalers, and its bars come after that
/// series.
pub(super) fn write(
    recipe: &Recipe,
    out: &Path,
    folder: &SpoolFolder,
    host: &Host<'_>,
    mut kept: Option<ExistingSeries>,
) -> Result<SeriesReport> {
    let needed = room_needed(recipe).saturating_sub(folder.bytes());
    require_free(folder.path(), needed, "parsed bars and the series")?;
    let usage = kept.as_ref().map_or(FunctionUse::New, |_| FunctionUse::Kept(out));
    let ReadBars { recipe, recordings, functions } = recipe.read_with_functions(usage, folder, host)?;
    let StreamedRecordings { mut recordings, bars, fingerprints } = recordings;
    let (spec, symbols) = (recipe.spec(), recordings.symbols());
    // Remarks on a file that is made; one that is not has its error alone.
    let mut notes = Vec::new();
    let mut continued = BTreeMap::new();
    if let (Some(kept), Some(functions)) = (&mut kept, &functions) {
        kept.context_remedy = functions.remedy_of_other_timing(&kept.provenance);
    }
    if let Some(kept) = &kept {
        if let Some(functions) = &functions {
            functions.require_whole_context(&kept.provenance, out)?;
        }
        require_fitting(&recordings.universe.recordings, &bars, kept)?;
        notes.extend(changed_clocks(&recordings.universe.recordings, kept));
        continued = continued_bars(&recordings.universe.recordings, &bars, kept)?;
        notes.extend(continued.iter().map(|(symbol, close_time)| {
            format!(
                "{symbol}: the bar that closes at {} was unfinished when {} was made; it is as the files have it now, and so is what it decides",
                utc(*close_time),
                out.display()
            )
        }));
    }
    let kept_scaler = kept.as_ref().map(ExistingSeries::kept_scaler);
    let instruments = instruments_of(&symbols, &bars, &recordings.pip_sizes, kept_scaler.as_ref());
    let plan = recordings.plan(&recipe, &instruments, &spec, kept_scaler.as_ref(), folder, host)?;
    // Beside the series, the features that scalers are fitted on, of the instruments under way.
    let share = share_under_way(recordings.pip_sizes.len());
    let to_fit = if kept.is_some() { 0 } else { plan.bars_to_fit()? };
    let scratch = to_fit as f64 * (4 * spec.features.len()) as f64 * share * 1.5;
    require_free(folder.path(), plan.array_bytes() as u64 + scratch as u64, "the series")?;
    let header = match &kept {
        None => fit(&plan, host)?,
        Some(kept) => {
            kept.require_same_instruments(&recordings.symbols())?;
            plan.with_scalers(&kept.scalers, kept.constant_warnings())?
        }
    };
    if kept.is_none() {
        notes.extend(warm_up::note(&plan.warm_ups(), &spec.features));
    }
    let series = SeriesProvenance {
        segments: &header.segments,
        excluded: &header.excluded,
        warnings: &header.warnings,
        kept_scaler: kept_scaler.as_ref(),
    };
    let mut source = provenance_json(&recipe, &recordings, series, &fingerprints)?;
    let mut doubts = implausible::warnings(&instruments, &spec)?;
    if let Some(kept) = &kept {
        doubts.extend(without_common_bars(&recordings.universe.recordings, kept));
        doubts.extend(without_volume(&recordings.universe.recordings, kept, &spec.features));
        doubts.extend(other_weeks(&recordings.universe.recordings, &bars, kept)?);
    }
    let mut report = SeriesReport::new(out, &recordings, &spec, &header, doubts);
    if let Some(functions) = &functions {
        source["functions"] = functions.provenance();
        report.json["functions"] = functions.facts();
        report.text.insert_str(0, &functions.text());
        if let Some(kept) = &kept {
            let changed = functions.changed(&kept.provenance);
            changed.iter().for_each(|name| host.observer.note(&changed_note(name, out)));
        }
    }
    let origin = Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source: source.to_string() };
    report.json["source"] = source;
    let description = series_description(&header, origin);
    let prefix = kept.map(|kept| PrefixCheck::begin(kept, continued, &header)).transpose()?;
    let writing = Pass::begin(host, "write", "bars", plan.bars() as u64);
    write_series_in_pieces(out, &description, |writer| {
        let written = plan.write(&header, &|bars| writing.advance(bars as u64), &|piece| {
            prefix.as_ref().map_or(Ok(()), |prefix| prefix.check(piece))?;
            write_piece(writer, piece)
        });
        let written = written.and_then(|()| prefix.as_ref().map_or(Ok(()), PrefixCheck::end));
        report.renewed = prefix.as_ref().map(PrefixCheck::renewed).unwrap_or_default();
        // The file is closed before another takes its place.
        drop(prefix);
        written
    })?;
    notes.extend(report.renewed.iter().map(|(symbol, time)| {
        format!(
            "the bars of {symbol} had ended when {} was made; its features from {} on are those of its bars now",
            out.display(),
            utc(*time)
        )
    }));
    notes.iter().for_each(|note| host.observer.note(note));
    Ok(report)
}

/// The remark on a function whose source is not that of when the file at `path` was made.
fn changed_note(function: &str, path: &Path) -> String {
    format!(
        "warning: the source of the function {function} is another one than when {} was made; its values are compared",
        path.display()
    )
}

fn write_piece(writer: &SeriesWriter<'_>, piece: &SeriesPiece) -> Result<()> {
    let first = piece.first_sample;
    writer.write_samples(&SampleRows {
        first,
        time: &piece.sample_time,
        reach_time: &piece.receptive_start,
        label_end_time: &piece.label_end_time,
        weight: &piece.weight,
        targets: &piece.targets,
        instrument: &piece.sample_instrument,
    })?;
    for (timeframe, rows) in piece.timeframes.iter().enumerate() {
        let (values, close_time) = (&rows.values, &rows.close_time);
        writer.write_bars(&BarRows { timeframe, first: rows.first_row, values, close_time })?;
        writer.write_ends(&WindowEnds {
            timeframe,
            first,
            ends: &rows.end,
            time: &piece.sample_time,
            instrument: if writer.names_instruments() { &piece.sample_instrument } else { &[] },
        })?;
    }
    Ok(())
}

/// Bytes of the parsed bars and the series, estimated from the files' first lines.
fn room_needed(recipe: &Recipe) -> u64 {
    let files = recipe.files();
    // Files that cannot be read have their errors when they are.
    let bars: u64 = files.iter().filter_map(|file| estimated_rows(file).ok()).sum();
    let bars = bars as f64;
    let spec = recipe.spec();
    let shortest = spec.windows.iter().map(|window| window.timeframe.duration_ns()).min().unwrap_or(1) as f64;
    let row_bytes = (4 * spec.features.len() + 8) as f64;
    let rows: f64 = spec.windows.iter().map(|window| shortest / window.timeframe.duration_ns() as f64).sum();
    let weights = usize::from(spec.weight.is_some());
    let sample_bytes =
        (28 + 8 * spec.windows.len() + 4 * (weights + spec.targets())) as f64 / spec.stride.max(1) as f64;
    let share = share_under_way(files.len());
    // The last bars have no whole horizon.
    let samples = (bars - spec.horizon as f64).max(0.0);
    let series = bars * rows * row_bytes + samples * sample_bytes;
    let columns = spec.all_columns();
    let spool = bars * (SpooledBars::bar_bytes(columns) as f64 + parsed_row_bytes(columns) as f64 * share);
    // The estimate is a tenth too high where gaps and warm-ups take many bars.
    (0.9 * (series + spool)) as u64
}

pub(super) struct SeriesReport {
    pub(super) text: String,
    pub(super) json: Value,
    /// By other instrument, when the first row of before closes whose features of it have changed.
    pub(super) renewed: BTreeMap<String, i64>,
}

impl SeriesReport {
    fn new(out: &Path, recordings: &Recordings, spec: &SeriesSpec, header: &SeriesHeader, doubts: Vec<String>) -> Self {
        let (first, last, instants) = (header.instants.first, header.instants.last, header.instants.count);
        let universe = &recordings.universe;
        let mut text = universe::describe(universe);
        let mut warnings = universe::file_warnings(&universe.recordings);
        let unused = unused_columns(universe);
        if !unused.is_empty() {
            text.push_str(&format!(
                "columns that are not used: {}; `--features \"default,column:{}\"` makes a feature of the first\n",
                listed(&unused),
                unused[0]
            ));
        }
        // The universe's text has the warnings of its files in it.
        let others: Vec<String> = few_kept(recordings)
            .into_iter()
            .chain(alone(header))
            .chain(header.warnings.iter().cloned())
            .chain(doubts)
            .collect();
        others.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
        warnings.extend(others);
        for timeframe in &header.timeframes {
            text.push_str(&format!(
                "{:>4}: {} bars, windows of {}, {}\n",
                timeframe.window.timeframe.name(),
                timeframe.rows,
                timeframe.window.seq_len,
                plural(header.features().len(), "feature")
            ));
        }
        text.push_str(&targets_text(spec));
        text.push_str(&format!("{} from {} to {}", plural(header.samples, "sample"), utc(first), utc(last)));
        match header.instruments().len() {
            1 => {}
            count if count > universe::ONE_BY_ONE_MAX => {
                text.push_str(&format!(" of {count} instruments at {instants} instants"));
            }
            _ => text.push_str(&format!(" of {}", header.instruments().join(", "))),
        }
        let mut json = json!({
            "out": shown(out),
            "symbols": header.instruments(),
            "samples": header.samples,
            "instants": instants,
            "first_sample_time_ns": first,
            "last_sample_time_ns": last,
            "warnings": warnings,
        });
        json["unused_columns"] = unused.into();
        json["universe"] = universe::facts(universe);
        SeriesReport { text, json, renewed: BTreeMap::new() }
    }

    pub(super) fn finish(&mut self, start: Instant, size: u64) {
        let seconds = start.elapsed().as_secs_f64();
        let out = self.json["out"].as_str().unwrap_or("-");
        self.text.push_str(&format!("\n{out}: {} in {seconds:.2} s", bytes(size as usize)));
        self.json["bytes"] = size.into();
        self.json["seconds"] = seconds.into();
    }
}

/// A line on targets that are columns: their names, and what decides them.
fn targets_text(spec: &SeriesSpec) -> String {
    if spec.target_kind.columns().is_empty() {
        return String::new();
    }
    let decided = match spec.target_kind.label_end() {
        Some(column) => format!("when the column {column} says"),
        None => format!("by the {} after its sample", plural(spec.horizon, "bar")),
    };
    format!("targets {}, each taken as decided {decided}\n", spec.target_kind)
}

/// `path` as text, to be kept in `holder`, which another process takes it from.
///
/// # Errors
/// A usage failure where the path is not UTF-8.
pub(super) fn require_text<'p>(path: &'p Path, holder: &str) -> Result<&'p str> {
    path.to_str().ok_or_else(|| {
        Error::usage(format!(
            "{}: this path is not UTF-8, and {holder} can hold text only; rename it, or give another path to it",
            path.display()
        ))
    })
}

/// A warning if so many rows were dropped that the format of the files was probably mistaken.
/// Repeated and unfinished rows, fillers of a closed market and rows of a column's warm-up do not
/// count.
fn few_kept(recordings: &Recordings) -> Vec<String> {
    let few = recordings.universe.recordings.iter().filter_map(|recording| {
        let summary = &recording.summary;
        let expected_drops: u64 = [RowError::Copy, RowError::Filler, RowError::WarmUp, RowError::Unfinished]
            .map(|kind| summary.dropped(kind))
            .iter()
            .sum();
        let (rows, kept) = (summary.rows() - expected_drops, summary.kept());
        (kept < rows - rows / 20).then(|| {
            format!(
                "{}: only {kept} of {rows} rows were kept; are these files of bars of one symbol?",
                recording.symbol
            )
        })
    });
    few.collect()
}

/// Columns that headers name and that are not read, each once.
fn unused_columns(universe: &Universe) -> Vec<String> {
    let files = universe.recordings.iter().flat_map(|recording| &recording.summary.files);
    let mut names: Vec<String> = Vec::new();
    for name in files.flat_map(|file| &file.unused_columns) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Smallest share of instants with samples of one instrument alone that gives a warning.
const ALONE_SHARE_MIN: f64 = 0.01;
/// Fewest instruments for that warning.
const ALONE_OF_MIN: usize = 3;

/// A warning if instruments have samples at instants at which no other has one. A graph would have
/// a single node there.
fn alone(header: &SeriesHeader) -> Option<String> {
    let (instants, count) = (&header.instants.alone, header.instants.count);
    let all: usize = instants.iter().sum();
    if all == count && instants.len() > 1 {
        return Some(format!(
            "no two of {} have a sample at the same time: a split by time trains on some and validates on others; give bars of the same days, or ingest them apart",
            listed(header.instruments())
        ));
    }
    if instants.len() < ALONE_OF_MIN || (all as f64) < ALONE_SHARE_MIN * count as f64 || all == 0 {
        return None;
    }
    let mut places: Vec<usize> = (0..instants.len()).filter(|&place| instants[place] > 0).collect();
    places.sort_by_key(|&place| std::cmp::Reverse(instants[place]));
    let named: Vec<String> =
        places.iter().map(|&place| format!("{} {}", header.instruments()[place], instants[place])).collect();
    Some(format!(
        "{all} of {} instants have a sample of one instrument alone ({}): it trades at other times than the others, or its bars begin or end apart from theirs, and a model over graphs sees a single node there; keep the common times with `--calendar common`, or leave its file out",
        count,
        listed(&named)
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use megabatch_bars::Feature;

    use super::{Recipe, behind_or_ahead};

    #[test]
    fn clocks_with_a_reversed_sign_are_noted() {
        for (zone, bins, expected) in [
            ("+02:00", "new-york+7", None),
            ("Etc/GMT", "UTC", None),
            (
                "UTC",
                "Etc/GMT+2",
                Some("Etc/GMT+2 is 2 hours behind UTC: the sign of such a name is the reverse of that of +02:00"),
            ),
            (
                "Etc/GMT-1",
                "exchange",
                Some("Etc/GMT-1 is 1 hour ahead of UTC: the sign of such a name is the reverse of that of -01:00"),
            ),
        ] {
            let recipe = Recipe { zone: Some(zone.parse().unwrap()), bins: bins.parse().unwrap(), ..Recipe::default() };
            let notes: Vec<String> = behind_or_ahead(&recipe).into_iter().collect();
            assert_eq!(notes, Vec::from_iter(expected), "{zone} {bins}");
        }
    }

    #[test]
    fn the_page_of_features_lists_them_all_and_marks_the_defaults() {
        let page = include_str!("../../../../docs/reference/features.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let (mut listed, mut default) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for name in cells[1].split(',').map(|name| name.trim().trim_matches('`')) {
                listed.insert(name);
                if cells[2] == "yes" {
                    default.insert(name);
                }
            }
        }
        assert_eq!(listed, Feature::ALL.each_ref().map(Feature::name).into());
        assert_eq!(default, Feature::DEFAULT.each_ref().map(Feature::name).into());
    }
}
