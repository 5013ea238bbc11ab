//! Proof that no sample sees a bar that had not closed.

mod comparison;
mod moments;
mod provenance;
mod split_proof;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use megabatch_atomic_file::folder_of;
use megabatch_bars::{
    Moment, Proof, Scalers, SeriesHeader, SeriesPlan, SeriesSpec, SpooledBars, StreamedInstrument, TargetKind,
    bar_files, estimated_rows, prove_samples, prove_scalers,
};
use megabatch_chunk_io::{SeriesColumn, SeriesFile, SeriesSource, Source};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::adapters::data::refuse_graphs;
use crate::adapters::purge_basis::purge_basis;
use crate::adapters::series::{Origin, series_description};
use crate::adapters::split::split_source;
use crate::command_report::CommandReport;
use crate::config::{Config, SettingSources};
use crate::error::{Context as _, Error, Kind, Result};
use crate::host::{Host, PATIENCE, Work};
use crate::ingest::disk::{require_free, share_under_way};
use crate::ingest::implausible;
use crate::ingest::provenance::{KeptScaler, listed};
use crate::ingest::recipe::provenance::{SeriesProvenance, provenance_json};
use crate::ingest::spool::{SpoolFolder, parsed_row_bytes};
use crate::ingest::work::Pass;
use crate::ingest::{
    ContextFile, FunctionUse, ReadBars, Recipe, StreamedRecordings, fit, instruments_of, open_through_cache,
};
use crate::text::{shown, utc};
use crate::usage::peak_rss_bytes;
use comparison::{Comparison, KnownColumns, different_attribute, is_same_bits};
use moments::{Moments, sample_time};
use provenance::Provenance;
use split_proof::{ExactSpans, LabelEnds, SplitProof, SplitSource, prove_splits};

/// Options of a proof.
#[derive(Clone, Debug)]
pub struct Options {
    /// The files of bars that the series was made of, or folders with them, where they are not
    /// where they were.
    pub source: Vec<PathBuf>,
    /// New files of the context, for those that were moved.
    pub context: Vec<ContextFile>,
    /// True if the columns of functions are left unproven where the host has no functions; false if
    /// that is an error.
    pub leaves_functions: bool,
    /// Samples drawn at random, 1 or more.
    pub samples: usize,
    /// Seed of the random samples and of the replacement bars.
    pub seed: u64,
    /// The configuration whose split is proven; the default split where none is given.
    pub settings: SettingSources,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            source: Vec::new(),
            context: Vec::new(),
            leaves_functions: true,
            samples: 32,
            seed: 0,
            settings: SettingSources::default(),
        }
    }
}

/// Proves that no sample of the series file at `path` sees a bar that had not closed.
///
/// The series is made again from its bars and compared with the file, byte for byte. Then, for
/// samples at random and at every change of the clocks, every bar that had not closed by the
/// sample's time is replaced: by other prices, and also by bars at other times. What the sample
/// sees must stay the same to the last bit. Last, the file is split as training would split it, and
/// no sample of a later part may look back to before the end of a label of an earlier one.
///
/// Memory does not grow with bars or instruments: parsed bars lie in a folder beside the file, or
/// in the cache folder where that cannot be written, and the series is made and read in pieces.
///
/// # Errors
/// [`Kind::Usage`] for no samples to prove, [`Kind::Data`] where the proof fails, also the verdict
/// of findings without a proven split, [`Kind::Capacity`] for a disk without room for the bars,
/// [`Kind::Cancelled`] where the host ended it.
pub fn prove(path: &Path, options: &Options, host: &Host<'_>) -> Result<CommandReport> {
    host.cancel.watch(PATIENCE)?;
    if options.samples == 0 {
        return Err(Error::usage("samples is 0: expected 1 or more samples to prove"));
    }
    refuse_graphs(path)?;
    match prove_file(path, options, host) {
        Err(error) if error.kind() == Kind::Cancelled => {
            Err(Error::new(Kind::Cancelled, "interrupted; nothing is proven"))
        }
        proven => proven,
    }
}

fn prove_file(path: &Path, options: &Options, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    let source = open_through_cache(path, "leak")?;
    let Some(file) = source.series() else { return Err(windows_unproven(&source, options, host)?) };
    let provenance = Provenance::read(path, file.file().attribute("source")?.as_ref())?;
    let moved = options.source.iter().map(|path| bar_files(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let mut recipe = provenance.recipe_with(&moved)?;
    recipe.context = recipe.context_with(&options.context, path)?;
    let scratch = scratch_folder(path, host)?;
    let spool = SpoolFolder::open(&scratch.path().join("series"))?;
    require_room_for_bars(&recipe, spool.path())?;
    let unproven = match (host.functions, recipe.context.is_empty()) {
        (None, true) if options.leaves_functions => recipe.function_names(),
        _ => Vec::new(),
    };
    let ReadBars { recipe, recordings, functions } = match unproven.is_empty() {
        true => recipe.read_with_functions(FunctionUse::Proven(path, options.seed), &spool, host)?,
        false => recipe.read_without_functions(path, &provenance.json, &spool, host)?,
    };
    let known = if unproven.is_empty() { KnownColumns::All } else { KnownColumns::WithoutFunctions };
    let StreamedRecordings { mut recordings, bars, fingerprints } = recordings;
    let (spec, symbols) = (recipe.spec(), recordings.symbols());
    let kept_scaler = KeptScaler::recorded(&provenance.json);
    let instruments = instruments_of(&symbols, &bars, &recordings.pip_sizes, kept_scaler.as_ref());
    let plan = recordings.plan(&recipe, &instruments, &spec, kept_scaler.as_ref(), &spool, host)?;
    // Features of two fits at once, of one timeframe each bar and a little of the longer ones, of
    // the instruments under way.
    let fitted_bytes =
        plan.bars_to_fit()? as f64 * (4 * spec.features.len() * 3) as f64 * share_under_way(symbols.len());
    require_free(spool.path(), fitted_bytes as u64, "features that scalers are fitted on")?;
    let header = fit(&plan, host)?;
    let series = SeriesProvenance {
        segments: &header.segments,
        excluded: &header.excluded,
        warnings: &header.warnings,
        kept_scaler: kept_scaler.as_ref(),
    };
    provenance.require_same_provenance(provenance_json(&recipe, &recordings, series, &fingerprints)?, known)?;
    let origin = Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source: String::new() };
    if let Some(object) = difference(file, &plan, &header, origin, known, host)? {
        let context = functions.as_ref().map_or_else(BTreeSet::new, |own| own.changed_context(&provenance.json));
        return Err(provenance.difference(&object, &context, &recipe.context));
    }

    let kept = |one: &&StreamedInstrument<'_>| header.instruments().iter().any(|name| name == one.name);
    let instruments: Vec<StreamedInstrument<'_>> = instruments.iter().filter(kept).copied().collect();
    let moments = Moments::choose(options.samples, options.seed, file, &header, &provenance.zones())?;
    let proofs =
        Proofs { file, seed: options.seed, instruments: &instruments, spec: &spec, header: &header, known, host };
    let fit_end_proven = proofs.prove_scalers(spool.path())?;
    let bars_replaced = proofs.prove(&moments)?;
    let (config, asked) = split_config(&options.settings, spec.train_fraction, host)?;
    let ends = match spec.target_kind {
        TargetKind::TripleBarrier(_) => LabelEnds::Stored,
        _ if spec.target_kind.label_end().is_some() => LabelEnds::Stored,
        _ => LabelEnds::Horizon(spec.horizon),
    };
    let exact = ExactSpans { file: file.file(), instruments: &instruments, segments: &header.segments, ends };
    let split = prove_splits(&source, &config, &exact, asked)?;
    spool.remove();
    let mut warnings = if unproven.is_empty() { implausible::warnings(&instruments, &spec)? } else { Vec::new() };
    for name in functions.iter().flat_map(|functions| functions.changed(&provenance.json)) {
        warnings.push(format!(
            "the source of the function {name} is another one than when the file was made, and gives the same values"
        ));
    }
    let mut facts = json!({
        "file": shown(path),
        "instruments": header.instruments(),
        "samples": header.samples,
        "warnings": warnings,
        "columns_taken_as_known": BTreeSet::from_iter(spec.columns()),
        "functions_not_proven": unproven,
        "target_columns": spec.target_kind.file_columns(),
        "label_end_column": spec.target_kind.label_end(),
        "weight_column": spec.weight,
        "horizon": spec.horizon,
        "scalers_proven": fit_end_proven,
        "bars_replaced": bars_replaced,
        "split": split,
        "seconds": start.elapsed().as_secs_f64(),
        "peak_rss_bytes": peak_rss_bytes(),
    });
    if let Some(functions) = &functions {
        facts["functions"] = functions.proven_facts();
    }
    Ok(describe(path, &moments, &split, &facts))
}

/// The refusal of a windows file, with the origin of the purge of its splits.
fn windows_unproven(source: &Source, options: &Options, host: &Host<'_>) -> Result<Error> {
    let config = options.settings.load(&host.environment)?;
    let purge = match split_source(source, &config) {
        Ok(_) => purge_basis(source, &config)?.map_or(String::new(), |basis| format!(" {basis}")),
        Err(error) => format!(" {}", error.exact_message()),
    };
    Ok(Error::data(format!(
        "{}: /@layout: expected a series, as `ingest` writes it, found windows: nothing is proven without the bars that they are of.{purge}",
        source.path().display()
    )))
}

/// A folder for temporary files as large as the bars: beside the file at `path`, or in the cache
/// folder where that one cannot be written.
fn scratch_folder(path: &Path, host: &Host<'_>) -> Result<TempDir> {
    let own_folder = folder_of(path);
    let folder_in = |folder: &Path| tempfile::Builder::new().prefix(".leak-").tempdir_in(folder);
    let elsewhere = |error| {
        let folder = host.cache_folder.as_deref().ok_or(error)?;
        std::fs::create_dir_all(folder)?;
        folder_in(folder)
    };
    let found: std::io::Result<TempDir> = folder_in(own_folder).or_else(elsewhere);
    found.with_context(|| format!("cannot keep parsed bars beside {}, nor in the cache folder", path.display()))
}

/// Refuses a disk that cannot take the parsed bars, as far as the files' first lines tell how many
/// there are.
fn require_room_for_bars(recipe: &Recipe, folder: &Path) -> Result<()> {
    // Files that cannot be read have their errors when they are.
    let rows: u64 = recipe.files().iter().filter_map(|file| estimated_rows(file).ok()).sum();
    let spec = recipe.spec();
    let columns = spec.all_columns();
    require_free(folder, rows * (SpooledBars::bar_bytes(columns) as u64 + parsed_row_bytes(columns)), "parsed bars")
}

/// Refuses a series that was converted from windows, which its attribute tells: it has no bars that
/// no window shows.
fn refuse_converted(file: &SeriesFile) -> Result<()> {
    match file.attribute("time_kind")? {
        None => Ok(()),
        Some(_) => Err(Error::data(format!(
            "{}: it was converted from windows, which have not all bars and times of their series (/@time_kind): prove the series that `ingest` made",
            file.path().display()
        ))),
    }
}

/// Makes the series again; the first object of the file that is another one.
fn difference(
    file: &SeriesSource,
    plan: &SeriesPlan<'_>,
    header: &SeriesHeader,
    origin: Origin<'_>,
    known: KnownColumns,
    host: &Host<'_>,
) -> Result<Option<String>> {
    refuse_converted(file.file())?;
    let expected = series_description(header, origin);
    if let Some(name) = different_attribute(file.file(), &expected)? {
        return Ok(Some(format!("the attribute {name}")));
    }
    let comparison = Comparison::begin(file, &expected, known);
    let comparing = Pass::begin(host, "compare", "bars", plan.bars() as u64);
    plan.write(header, &|bars| comparing.advance(bars as u64), &|piece| comparison.compare(piece))?;
    Ok(comparison.difference())
}

/// The configuration whose split is proven. Unless the user gives one, training ends where the
/// scalers were fitted up to.
fn split_config(settings: &SettingSources, train_fraction: f64, host: &Host<'_>) -> Result<(Config, SplitSource)> {
    let asked = if *settings == SettingSources::default() { SplitSource::ByDefault } else { SplitSource::ByTheUser };
    let mut settings = settings.clone();
    if asked == SplitSource::ByDefault {
        let rest = (1.0 - train_fraction) / 2.0;
        settings.set.push(format!("data.split=[{train_fraction}, {rest}, {rest}]"));
    }
    Ok((settings.load(&host.environment)?, asked))
}

fn describe(path: &Path, moments: &Moments, split: &SplitProof, facts: &Value) -> CommandReport {
    let changes: Vec<String> = moments.changes.iter().map(|&time| utc(time)).collect();
    let mut json = facts.clone();
    json["random_samples"] = moments.random.into();
    json["clock_changes"] = changes.clone().into();
    json["samples_proven"] = moments.samples.len().into();
    let scalers = match facts["scalers_proven"].as_bool() {
        Some(true) => "The scalers do not change with any bar after the span that they were fitted on.\n",
        _ => "The scalers were fitted on everything: no bar comes after it.\n",
    };
    let around = match changes.len() {
        0 => "no change of the clocks lies in it".to_owned(),
        count => format!("around {count} changes of the clocks ({})", changes.join(", ")),
    };
    let functions = functions_text(facts);
    let text = format!(
        "{}: made of its source, byte for byte.\n{functions}{}{scalers}{} samples, {} at random and {around}: each is the same, bit for bit, whatever follows it \
         ({} bars replaced in {:.1} s).\n{}",
        path.display(),
        taken_as_known(facts),
        moments.samples.len(),
        moments.random,
        facts["bars_replaced"],
        facts["seconds"].as_f64().unwrap_or_default(),
        split_text(split),
    );
    let report = CommandReport::new(text, &json);
    // A file without a proven split is not one that was found good.
    if split.none_because.is_some() { report.with_verdict(Kind::Data) } else { report }
}

/// A sentence about functions that were replayed.
fn functions_text(facts: &Value) -> String {
    let unproven: Vec<&str> = listed(facts, "functions_not_proven").filter_map(Value::as_str).collect();
    if !unproven.is_empty() {
        return format!(
            "Not proven, for want of their functions: the columns {}. In Python, mb.leak replays them, given as features=[function] and target=function.\n",
            unproven.join(", ")
        );
    }
    let facts = &facts["functions"];
    let names: Vec<&str> = facts["columns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "The columns {} of functions stay the same where bars after them are missing or others ({} comparisons, {} calls).\n",
            names.join(", "),
            facts["cuts"],
            facts["calls"]
        ),
    }
}

/// Sentences about columns and targets that are not proven, and doubts about them.
fn taken_as_known(facts: &Value) -> String {
    let named = |list: &str| {
        let names: Vec<&str> = listed(facts, list).filter_map(Value::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let columns = named("columns_taken_as_known")
        .map(|names| format!("Taken as known when their bars close, not proven: the columns {names}.\n"));
    let targets = named("target_columns").map(|names| {
        let decided = match facts["label_end_column"].as_str() {
            Some(column) => format!("when the column {column} says"),
            None => format!("by the {} bars after a sample", facts["horizon"]),
        };
        format!("Taken as decided {decided}, not proven: the targets {names}.\n")
    });
    let doubts: String =
        listed(facts, "warnings").filter_map(Value::as_str).map(|doubt| format!("warning: {doubt}\n")).collect();
    columns.unwrap_or_default() + &targets.unwrap_or_default() + &doubts
}

fn split_text(split: &SplitProof) -> String {
    match &split.none_because {
        Some(reason) => format!("No split is proven: {reason}."),
        None => {
            let folds = if split.splits == 1 { String::new() } else { format!(" in each of {} folds", split.splits) };
            format!("No label of training or validation ends after the first bar that a later part looks at{folds}.")
        }
    }
}

/// Inputs of proofs.
struct Proofs<'a> {
    file: &'a SeriesSource,
    seed: u64,
    instruments: &'a [StreamedInstrument<'a>],
    spec: &'a SeriesSpec,
    header: &'a SeriesHeader,
    known: KnownColumns,
    host: &'a Host<'a>,
}

impl Proofs<'_> {
    fn scalers(&self) -> &Scalers {
        &self.header.scalers
    }

    /// True if any bar follows the span that the scalers were fitted on; then, that none of them
    /// has a part in the scalers. Temporary files lie in `folder`.
    fn prove_scalers(&self, folder: &Path) -> Result<bool> {
        let time = self.scalers().fit_end_time;
        let (mut follows, mut last) = (false, Vec::new());
        for StreamedInstrument { bars, .. } in self.instruments {
            bars.read_open_times(bars.len() - 1..bars.len(), &mut last)?;
            follows |= last[0] > time;
        }
        if follows {
            let moment = Moment { time, seed: self.seed };
            // Each instrument is fitted on the bars up to there, and on two other futures.
            let bars: usize = self.instruments.iter().map(|one| one.bars.len()).sum();
            let pass = Pass::begin(self.host, "refit", "bars", 3 * bars as u64);
            let observe = |bars: usize| pass.advance(bars as u64);
            prove_scalers(self.instruments, self.spec, self.scalers(), moment, folder, &observe)?;
        }
        Ok(follows)
    }

    /// Proves every sample, on all CPUs; how many bars were replaced in all.
    fn prove(&self, moments: &Moments) -> Result<usize> {
        let replaced = AtomicUsize::new(0);
        let work = Work { label: "prove", total: moments.samples.len() as u64, unit: "samples" };
        let progress = Mutex::new((self.host.observer.begin(work), 0));
        for (place, &instrument) in self.instruments.iter().enumerate() {
            let own = moments.samples.iter().filter(|(instrument, _)| *instrument == place);
            let samples: Vec<usize> = own.map(|&(_, n)| n).collect();
            let moment =
                |&n: &usize| Ok(Moment { time: sample_time(self.file, n)?, seed: self.seed.wrapping_add(n as u64) });
            let own = samples.iter().map(moment).collect::<Result<Vec<Moment>>>()?;
            let each = |place: usize, proof: Proof| {
                self.require_windows(samples[place], &proof)?;
                replaced.fetch_add(proof.replaced, Ordering::Relaxed);
                let mut progress = progress.lock().expect("no thread panics while it shows progress");
                progress.1 += 1;
                let done = progress.1;
                progress.0.at(done, "");
                match self.host.cancel.is_requested() {
                    true => Err(megabatch_bars::Error::Interrupted.into()),
                    false => Ok::<(), Error>(()),
                }
            };
            prove_samples(instrument, self.spec, self.scalers(), &own, &each)?;
        }
        Ok(replaced.into_inner())
    }

    /// The windows of sample `n` in the file are those that were proven.
    fn require_windows(&self, n: usize, proof: &Proof) -> Result<()> {
        let file = self.file.file();
        for (k, (timeframe, proven)) in file.timeframes().iter().zip(&proof.windows).enumerate() {
            let mut end = [0];
            file.read_column(SeriesColumn::SampleEnd(k), n..n + 1, &mut end)?;
            let end_row = end[0] as usize + 1;
            let mut seen = vec![0.0; proven.len()];
            let rows = proven.len() / timeframe.feature_names().len();
            self.file.read_bars(k, std::slice::from_ref(&(end_row - rows..end_row)), &mut seen)?;
            if !is_same_bits(&seen, proven, self.known.mask(timeframe.feature_names()).as_deref()) {
                return Err(Error::data(format!(
                    "{}: sample {n}: its window of {} is not the one that was proven",
                    file.path().display(),
                    timeframe.name()
                )));
            }
        }
        Ok(())
    }
}
