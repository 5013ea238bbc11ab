//! Model for streaming, and the recipe of its data.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use megabatch_amp::Precision;
use megabatch_bars::{
    BarFunctions, Bars, DateOrder, Feature, FormatName, FunctionBars, FunctionColumn, FunctionStream, Instrument,
    OnError, ReadOptions, ReadSummary, Scalers, SeriesSpec, SeriesStream, TargetKind, Timeframe, Zone, bar_files,
    likely_symbol, named_symbol, pair_without_ending, read,
};
use megabatch_chunk_io::{SeriesColumn, SeriesFile};
use megabatch_gpu_core::Device;
use megabatch_nn::model::Model;
use serde_json::Value;

use super::bar_stream::Streaming;
use crate::adapters::data_schema::DataSchema;
use crate::adapters::series::scalers_of;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ingest::{
    Calendar, Recipe, age_column, changed_functions, context_symbol, missing_context, open_through_cache,
};
use crate::run_folder::RunFolder;
use crate::setup::settings::{precision, streams};
use crate::text::utc;
use crate::trained::{
    CheckpointChoice, Instruments, doubts_on_opening, meaning_in_training, own_data_path, require_meaning,
    trained_model, weights_file,
};

/// Rows of each timeframe whose values of functions are compared with those of the data.
const COMPARED_ROWS: usize = 64;
/// Part of their spread by which values may differ from those of the data.
const SPREAD_TOLERANCE: f64 = 1e-3;
/// Part of a value by which it may differ: the data have single precision.
const VALUE_TOLERANCE: f64 = 1e-6;
/// Part of a feature's scale by which its values may differ, for those that do not vary.
const SCALE_TOLERANCE: f64 = 1e-9;

/// A model that follows bars.
#[derive(Clone, Debug)]
pub struct FollowRequest {
    /// Folder of the run.
    pub run: PathBuf,
    /// Data file, whose recipe, scalers and clock hold for the bars; the one trained on if `None`.
    pub data: Option<PathBuf>,
    /// Which checkpoint.
    pub checkpoint: CheckpointChoice,
    /// `cpu` or `auto`.
    pub device: String,
    /// Treatment of instruments that the model was not trained on.
    pub instruments: Instruments,
    /// Bars before those that come.
    pub history: History,
    /// Instrument of the bars, if the data file has several; the one that the followed file is
    /// named after if `None`.
    pub symbol: Option<String>,
    /// Format of the lines; that of the files that the data file was made of if `None`.
    pub format: Option<FormatName>,
    /// Order of day and month where the year comes last.
    pub date_order: Option<DateOrder>,
    /// Zone of the timestamps. If `None`, that which a header names, or else that of the files that
    /// the data file was made of.
    pub zone: Option<Zone>,
    /// Rule for lines that cannot be used. `None` is the rule that the data file was made by.
    pub on_error: Option<OnError>,
}

/// Earlier bars, from whose states the model starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// The bars that the data file was made of.
    OfTheData,
    /// The bars of these files.
    Files(Vec<PathBuf>),
    /// None: predictions begin once features have warmed up and windows are full.
    Cold,
}

impl FollowRequest {
    /// The best checkpoint of the run in `run`, after the bars that its data were made of.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        FollowRequest {
            run: run.into(),
            data: None,
            checkpoint: CheckpointChoice::default(),
            device: "auto".to_owned(),
            instruments: Instruments::default(),
            history: History::OfTheData,
            symbol: None,
            format: None,
            date_order: None,
            zone: None,
            on_error: None,
        }
    }
}

/// A model, and one instrument of a series file. The bars to come have the recipe, scalers and
/// clock of the file.
pub(super) struct StreamingModel {
    folder: RunFolder,
    pub(super) config: Config,
    pub(super) step: u64,
    pub(super) weights: PathBuf,
    /// The series file.
    pub(super) data: PathBuf,
    pub(super) symbol: String,
    pub(super) base: Timeframe,
    pub(super) spec: SeriesSpec,
    pub(super) scalers: Scalers,
    pub(super) recipe: Recipe,
    pip_size: f64,
    /// True if bars of the instrument have a volume.
    has_volume: bool,
    /// Zone of the files of the instrument.
    zone: Option<Zone>,
    /// True if the files have several zones, so that each has to give its own.
    has_several_zones: bool,
    format: Option<FormatName>,
    horizons: usize,
    outputs: usize,
}

impl StreamingModel {
    /// Opens the run for bars from what is called `name`.
    pub(super) fn open(request: &FollowRequest, name: &Path, host: &Host<'_>) -> Result<Self> {
        let folder = RunFolder::open(&request.run)?;
        let config = folder.config(&[])?;
        refuse_fp16(&config)?;
        let model = trained_model(&folder)?;
        if model.config().is_over_graphs() {
            return Err(refuse(
                "a model over graphs predicts whole graphs, and bars that arrive are of one instrument, so that it cannot follow them; `megabatch predict --data FILE` predicts the graphs or the samples of another file",
            ));
        }
        let (step, weights) = weights_file(&folder, request.checkpoint)?;
        let data = own_data_path(&folder, &config, request.data.as_deref())?;
        let file = SeriesFile::open(&data, &Device::cpu().scope("follow"))?;
        let meaning = DataSchema::from_series(&file)?;
        require_meaning(&folder, &data, &meaning)?;
        let in_training = meaning_in_training(&folder);
        let doubts = doubts_on_opening(&folder, step, &in_training, &meaning, &data, request.instruments);
        doubts.iter().for_each(|doubt| host.observer.note(doubt));
        let (provenance, recipe) = Recipe::recorded(&data, file.attribute("source")?.as_ref())?;
        recipe.refuse_own_bars(&data, "following makes them of the shortest")?;
        let spec = recipe.spec();
        if spec.features.contains(&Feature::SpreadPips) {
            return Err(refuse(
                "spread_pips is a feature of the model, and the unit of spreads is told by whole files alone; train without it",
            ));
        }
        require_functions(&recipe, &provenance, request, host)?;
        let given = host.functions.map_or_else(Vec::new, BarFunctions::fingerprints);
        for name in changed_functions(&provenance, &given.into_iter().collect()) {
            host.observer.note(&format!(
                "note: the source of the function {name} is another one than when {} was made: if its values are others, the model sees other features than in training",
                data.display()
            ));
        }
        if recipe.calendar == Calendar::Common {
            return Err(refuse(
                "the data were made with `--calendar common`, and bars of one instrument do not show which times are common; make them with `--calendar all`",
            ));
        }
        let instruments = provenance["instruments"].as_array().map_or(&[][..], Vec::as_slice);
        let own = chosen(instruments, &data, request.symbol.as_deref(), name)?;
        let (names, files) = (names(instruments), own["files"].as_array().map_or(&[][..], Vec::as_slice));
        // Files may have several clocks; the last one's goes on.
        let told = |key: &str| files.iter().rev().find_map(|file| file[key].as_str());
        let zones: BTreeSet<&str> = files.iter().filter_map(|file| file["zone"].as_str()).collect();
        Ok(StreamingModel {
            symbol: own["symbol"].as_str().unwrap_or_default().to_owned(),
            base: own["base"].as_str().unwrap_or_default().parse()?,
            pip_size: own["pip_size"].as_f64().unwrap_or(1.0),
            has_volume: own["bars"]["without_volume"] != own["bars"]["all"],
            zone: told("zone").map(str::parse).transpose()?,
            has_several_zones: zones.len() > 1,
            format: told("format").map(str::parse).transpose()?,
            scalers: scalers_of(&data, &file, names, &spec)?,
            horizons: model.shape().outputs,
            outputs: model.outputs(),
            folder,
            config,
            step,
            weights,
            data,
            spec,
            recipe,
        })
    }

    /// Treatment of states, as in training: carried, or zeros at the beginning of each window.
    pub(super) fn streaming(&self) -> Streaming {
        if streams(&self.config) { Streaming::Carried } else { Streaming::Windows }
    }

    /// The precision that the model was trained in.
    pub(super) fn precision(&self) -> Precision {
        precision(&self.config)
    }

    /// The model without its weights.
    pub(super) fn model(&self) -> Result<Model> {
        trained_model(&self.folder)
    }

    /// Horizons K, and numbers [K, M] that the model gives.
    pub(super) fn outputs(&self) -> (usize, usize) {
        (self.horizons, self.outputs)
    }

    /// True if bars of the instrument have a volume.
    pub(super) fn has_volume(&self) -> bool {
        self.has_volume
    }

    /// True if features are computed from the volume, and it is known.
    pub(super) fn needs_volume(&self) -> bool {
        self.has_volume && self.spec.features.iter().any(Feature::reads_volume)
    }

    /// The instrument's name, if the file has several.
    pub(super) fn name_told(&self) -> Option<String> {
        (self.scalers.instruments.len() > 1).then(|| self.symbol.clone())
    }

    /// The instrument, whose bars are of the timeframe `base`.
    pub(super) fn instrument(&self, base: Timeframe) -> Instrument<'_> {
        Instrument { name: &self.symbol, base, pip_size: self.pip_size }
    }

    /// The bars of the history, and how they were read; none for a cold start.
    pub(super) fn history(&self, history: &History) -> Result<(Bars, Option<ReadSummary>)> {
        let given = match history {
            History::Cold => return Ok((Bars::with_capacity(self.base, 0), None)),
            History::OfTheData => Vec::new(),
            History::Files(paths) => paths.iter().map(|path| bar_files(path)).collect::<Result<Vec<_>, _>>()?.concat(),
        };
        if given.is_empty() && !self.recipe.bid.is_empty() {
            return Err(refuse(
                "the data were made of bid and ask; give bars of their means with --history, or begin with --cold",
            ));
        }
        let own = || self.recipe.files_by_symbol().remove(&self.symbol).unwrap_or_default();
        let is_own = given.is_empty();
        let files: Vec<PathBuf> = if is_own { own() } else { given };
        let zone = self.zone.clone();
        let reading = match (is_own, self.has_several_zones) {
            (true, true) => self.reading(),
            (true, false) => ReadOptions { zone, ..self.reading() },
            // They may name another clock, where the data have no stated one.
            (false, _) => ReadOptions { fallback_zone: zone, ..self.reading() },
        };
        // Its own files are read as when the series was made of them.
        let base = if is_own { self.recipe.base } else { reading.base };
        let symbol = if is_own { Some(self.symbol.clone()) } else { reading.symbol.clone() };
        let reading = ReadOptions { base, symbol, ..reading };
        let recording = read(&files, &reading).map_err(|error| match error {
            error @ megabatch_bars::Error::Open { .. } => Error::data(format!(
                "{error}; say with --history where bars before those that come are, or begin without any with --cold"
            )),
            error => error.into(),
        })?;
        Ok((recording.bars, Some(recording.summary)))
    }

    /// The series before its first bar.
    pub(super) fn series(&self, base: Timeframe) -> Result<SeriesStream> {
        let further = &self.recipe.function_columns;
        Ok(SeriesStream::with_columns(self.instrument(base), &self.spec, &self.scalers, further)?)
    }

    /// The `bars` of `history` with the columns of `functions`, and these as they go on.
    pub(super) fn with_functions<'a>(
        &self,
        bars: &Bars,
        history: &History,
        functions: &'a dyn BarFunctions,
    ) -> Result<(Bars, FunctionStream<'a>)> {
        let plain =
            SeriesSpec { target_kind: TargetKind::default(), weight: None, ..self.recipe.without_functions().spec() };
        let seen = FunctionBars::read(&self.symbol, bars, &plain, &self.recipe.function_columns)?;
        let features = seen.call(functions)?.features;
        let names: Vec<String> = features[0].iter().map(|column| column.name.clone()).collect();
        if names != self.spec.functions() {
            return Err(Error::data(format!(
                "{}: its features are the columns {} of functions, and the ones given have {}: give the functions that it was made with, in the same order",
                self.data.display(),
                self.spec.functions().join(", "),
                names.join(", ")
            )));
        }
        if *history == History::OfTheData {
            self.require_recorded_values(&seen, &features, functions)?;
        }
        let stream = FunctionStream::new(&seen, &features, functions);
        Ok((seen.followed(&features, &plain, self.recipe.on_error)?, stream))
    }

    /// Refuses columns that have other values than the data at the last bars of these.
    fn require_recorded_values(
        &self,
        seen: &FunctionBars,
        features: &[Vec<FunctionColumn>],
        functions: &dyn BarFunctions,
    ) -> Result<()> {
        let source = open_through_cache(&self.data, "follow")?;
        let Some(series) = source.series() else { return Ok(()) };
        let (file, width) = (series.file(), self.spec.features.len());
        let instrument = self.scalers.instruments.iter().position(|name| *name == self.symbol).unwrap_or(0);
        for (k, columns) in features.iter().enumerate() {
            let all = match file.timeframes()[k].instrument_starts() {
                [] => 0..file.bars(k),
                starts => starts[instrument] as usize..starts[instrument + 1] as usize,
            };
            // The last bar may have been unfinished then.
            let end = all.end.saturating_sub(1);
            let rows = all.start.max(end.saturating_sub(COMPARED_ROWS))..end;
            if rows.is_empty() {
                continue;
            }
            let (mut times, mut values) = (vec![0; rows.len()], vec![0.0; rows.len() * width]);
            file.read_column(SeriesColumn::CloseTime(k), rows.clone(), &mut times)?;
            series.read_bars(k, std::slice::from_ref(&rows), &mut values)?;
            let close_times = seen.close_times(k);
            let scaler = &self.scalers.timeframes[k];
            let recorded_of = |column: &FunctionColumn| {
                let is_own = |feature: &Feature| feature.as_function() == Some(column.name.as_str());
                let place = self.spec.features.iter().position(is_own)?;
                let (center, scale) =
                    (scaler.center[instrument * width + place], scaler.scale[instrument * width + place]);
                let recorded: Vec<f64> =
                    values.chunks_exact(width).map(|row| f64::from(row[place]) * scale + center).collect();
                Some((center, scale, recorded))
            };
            for column in columns {
                let Some((center, scale, recorded)) = recorded_of(column) else { continue };
                let ages = age_column(&column.function)
                    .and_then(|name| columns.iter().find(|own| own.function == column.function && own.name == name));
                let compared = match ages.and_then(|ages| recorded_of(ages).zip(Some(ages))) {
                    Some(((.., then), now)) => {
                        let last = times.last().and_then(|time| close_times.binary_search(time).ok());
                        let now = last.and_then(|bar| now.values.get(bar).copied());
                        before_last_bar(&times, &then, now, scaler.timeframe)
                    }
                    None => times.len(),
                };
                let extremes = (f64::INFINITY, f64::NEG_INFINITY);
                let (lowest, highest) =
                    recorded.iter().fold(extremes, |(low, high), &own| (low.min(own), high.max(own)));
                let tolerance = SPREAD_TOLERANCE * (highest - lowest) + SCALE_TOLERANCE * scale;
                for (&recorded, &time) in recorded.iter().zip(&times).take(compared) {
                    let Ok(bar) = close_times.binary_search(&time) else { continue };
                    let Some(&found) = column.values.get(bar) else { continue };
                    let size = recorded.abs().max((recorded - center).abs());
                    if found.is_nan() {
                        let first = close_times[0] - scaler.timeframe.duration_ns();
                        self.require_context_bars(column, functions, scaler.timeframe, first..time)?;
                    }
                    if found.is_nan() || (found - recorded).abs() > tolerance + VALUE_TOLERANCE * size {
                        return Err(Error::data(format!(
                            "{}: {}: column {} is {found} at the {} bar that closes at {}, where the data have {recorded}: give the functions and the bars of other instruments that it was made with; if these are they, ingest and train anew",
                            self.data.display(),
                            column.function,
                            column.name,
                            scaler.timeframe,
                            utc(time)
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses the bars of another instrument that are too few for a value of `column` at the end
    /// of `times`, which begin with the data.
    fn require_context_bars(
        &self,
        column: &FunctionColumn,
        functions: &dyn BarFunctions,
        timeframe: Timeframe,
        times: Range<i64>,
    ) -> Result<()> {
        let Some(symbol) = context_symbol(&column.function) else { return Ok(()) };
        let reach = functions.context_reach(timeframe, &self.spec.bins)?;
        let Some(own) = reach.iter().find(|own| own.symbol() == symbol) else { return Ok(()) };
        let (bars, needed) = (own.bars_until(times.end), own.bars_needed());
        if bars >= needed {
            return Ok(());
        }
        Err(Error::data(format!(
            "{}: {}: column {} has no value at the {timeframe} bar that closes at {}, where the data have one: {symbol} has {bars} {timeframe} bars up to there, and {needed} or more are needed; give all of its bars from {} on, where the data begin, and those before that its features read",
            self.data.display(),
            column.function,
            column.name,
            utc(times.end),
            utc(times.start)
        )))
    }

    /// Options of reading the lines that come.
    pub(super) fn line_options(&self, options: &FollowRequest) -> ReadOptions {
        let reading = self.reading();
        let fallback_zone = match options.format {
            None => self.zone.clone(),
            // The clock of another vendor is not known.
            Some(format) => (format == FormatName::Iso).then(Zone::utc),
        };
        ReadOptions {
            format: options.format.or(reading.format).or(self.format),
            date_order: options.date_order.or(reading.date_order),
            on_error: options.on_error.unwrap_or(reading.on_error),
            // A clock that was stated for the data counts before that of a header, as in `append`.
            zone: options.zone.clone().or_else(|| reading.zone.clone().filter(|_| options.format.is_none())),
            fallback_zone,
            ..reading
        }
    }

    fn reading(&self) -> ReadOptions {
        ReadOptions {
            symbol: Some(self.symbol.clone()),
            symbol_pattern: None,
            base: Some(self.base),
            target_columns: self.recipe.function_columns.iter().map(|column| column.column().to_owned()).collect(),
            ..self.recipe.read_options().without_targets()
        }
    }

    /// Refuses a series whose windows are not the model's.
    pub(super) fn require_same_windows(&self, series: &SeriesStream) -> Result<()> {
        let model = self.model()?;
        let model_windows = model
            .shape()
            .timeframes
            .iter()
            .map(|timeframe| (timeframe.name.clone(), timeframe.steps, timeframe.features));
        let features = self.spec.features.len();
        let series_windows = series.windows().map(|window| (window.timeframe.to_string(), window.seq_len, features));
        if model_windows.eq(series_windows) {
            return Ok(());
        }
        let (data, run) = (self.data.display(), self.folder.root().display());
        Err(Error::data(format!(
            "{data}: the model of {run} takes {}; name the data that it was trained on with --data",
            model.shape()
        )))
    }
}

/// Rows whose values of another instrument are compared: all, or those before the last bar that the
/// data had of it, where the bars that are given go on. At that bar they had ended, and it may have
/// been unfinished. `ages` are those of the data at the closes `times` of bars of `timeframe`, and
/// `now` is the last of them by the bars that are given.
fn before_last_bar(times: &[i64], ages: &[f64], now: Option<f64>, timeframe: Timeframe) -> usize {
    let (Some(now), Some(&last)) = (now, ages.last()) else { return times.len() };
    // Ages are in bars, in single precision.
    if now.is_nan() || last - now < 0.5 {
        return times.len();
    }
    let bar_ns = timeframe.duration_ns() as f64;
    let closed: Vec<f64> = times.iter().zip(ages).map(|(&time, age)| time as f64 - age * bar_ns).collect();
    let last = closed[closed.len() - 1];
    closed.iter().rposition(|time| last - time > bar_ns / 2.0).map_or(times.len(), |row| row + 1)
}

/// Refuses to follow without the functions that features are columns of, or the bars of other
/// instruments, or without the bars that these need.
fn require_functions(recipe: &Recipe, provenance: &Value, request: &FollowRequest, host: &Host<'_>) -> Result<()> {
    let (names, is_given) = (recipe.spec().functions(), host.functions.is_some());
    if let Some(reason) = missing_context(provenance, host.functions, "run.follow(…") {
        return Err(refuse(&reason));
    }
    match (names.is_empty(), is_given) {
        (true, false) => Ok(()),
        (true, true) => Err(refuse("no feature of the data is a column of a function, and functions were given")),
        (false, false) => Err(refuse(&format!(
            "the features {} are columns of functions: give these in Python, as run.follow(…, features=[function])",
            names.join(", ")
        ))),
        (false, true) if request.history == History::Cold => {
            Err(refuse("functions among the features need the bars before those that come, and a cold start has none"))
        }
        (false, true) => Ok(()),
    }
}

/// Refuses a model that is computed otherwise than following does.
fn refuse_fp16(config: &Config) -> Result<()> {
    match precision(config) {
        Precision::Fp16 => {
            Err(refuse("the run was trained with training.precision fp16, and following computes in fp32 or bf16"))
        }
        _ => Ok(()),
    }
}

fn names(instruments: &[Value]) -> Vec<String> {
    instruments.iter().map(|instrument| instrument["symbol"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The account of the instrument of a symbol, else of the only one, or of the one that a file is
/// named after.
fn chosen<'a>(instruments: &'a [Value], data: &Path, symbol: Option<&str>, name: &Path) -> Result<&'a Value> {
    let known = names(instruments);
    let (data, list) = (data.display(), known.join(", "));
    match (symbol, instruments) {
        (None, [only]) => Ok(only),
        (None, _) => {
            let named = named_symbol(name);
            let is_named = |(symbol, _): &(&String, &Value)| {
                named.as_ref().is_some_and(|named| likely_symbol(named, std::slice::from_ref(*symbol)).is_some())
            };
            let mut found = known.iter().zip(instruments).filter(is_named);
            match (found.next(), found.next()) {
                (Some((_, only)), None) => Ok(only),
                _ => {
                    let first = known.first().map_or("NAME", String::as_str);
                    let advice = format!("`--symbol {first}` follows the bars of {first}");
                    Err(Error::usage(format!("{data}: whose bars are followed? {advice}; there are {list}")))
                }
            }
        }
        (Some(symbol), _) => {
            let own = instruments.iter().find(|instrument| instrument["symbol"] == symbol);
            let own = own.or_else(|| only_in_any_case(instruments, symbol));
            own.or_else(|| only_of_pair(instruments, symbol)).ok_or_else(|| {
                let meant = likely_symbol(symbol, &known).map(|name| format!("; did you mean {name}?"));
                Error::usage(format!("--symbol {symbol}: {data} has {list}{}", meant.unwrap_or_default()))
            })
        }
    }
}

/// The account of the only instrument whose symbol has the letters of `symbol`, in upper or lower
/// case.
fn only_in_any_case<'a>(instruments: &'a [Value], symbol: &str) -> Option<&'a Value> {
    let has_its_letters = |own: &&Value| own["symbol"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(symbol));
    let mut found = instruments.iter().filter(has_its_letters);
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

/// The account of the currency pair that `symbol` is with a broker's ending, such as `EURUSD.r`.
/// `None` if several instruments are that pair.
fn only_of_pair<'a>(instruments: &'a [Value], symbol: &str) -> Option<&'a Value> {
    let pair = pair_without_ending(symbol)?;
    let is_form = |own: &str| likely_symbol(&pair, &[own.to_owned()]).is_some();
    let mut found = instruments.iter().filter(|own| own["symbol"].as_str().is_some_and(is_form));
    let only = found.next()?;
    (found.next().is_none() && only["symbol"] == pair.as_str()).then_some(only)
}

/// The error for a model that cannot follow bars, with the reason and a remedy.
pub(super) fn refuse(reason: &str) -> Error {
    Error::usage(format!("--follow: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `--symbol EURUSD.r` was refused with the question whether EURUSD was meant.
    #[test]
    fn a_pair_with_the_ending_of_a_broker_is_found() {
        for (symbols, symbol, expected) in [
            (&["EURUSD", "USDJPY"][..], "EURUSD.r", Some("EURUSD")),
            (&["EURUSD", "USDJPY"], "usdjpym", Some("USDJPY")),
            (&["EURUSD", "EURUSDm"], "EURUSD.r", None),
            (&["EURUSD"], "GBPUSD.r", None),
            // Rows of that name would be passed over.
            (&["EURUSD"], "EURUSD.pro", None),
            (&["AAPL"], "AAPL.r", None),
        ] {
            let accounts: Vec<Value> = symbols.iter().map(|symbol| json!({ "symbol": symbol })).collect();
            let found = only_of_pair(&accounts, symbol).and_then(|own| own["symbol"].as_str());
            assert_eq!(found, expected, "{symbol}");
        }
    }

    #[test]
    fn rows_after_the_end_of_another_instrument_are_not_compared() {
        let minute = Timeframe::M1.duration_ns();
        let times: Vec<i64> = (1..=6).map(|row| row * minute).collect();
        let compared = |ages: [f64; 6], now| before_last_bar(&times, &ages, now, Timeframe::M1);
        // Its last bar closed with the third row, and those that are given go on.
        let ended = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0];
        assert_eq!(compared(ended, Some(0.0)), 2);
        for now in [Some(3.0), Some(4.0), Some(f64::NAN), None] {
            assert_eq!(compared(ended, now), 6, "{now:?}");
        }
        // Bars of another length are other ones.
        assert_eq!(compared([4.0, 5.0, 6.0, 7.0, 8.0, 9.0], Some(0.0)), 6);
    }
}
