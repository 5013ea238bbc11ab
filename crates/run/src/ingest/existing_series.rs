//! A series to which bars are appended. It keeps its recipe and scalers. The new series must begin
//! with the old one, instrument by instrument; of an unfinished last bar, and of other instruments
//! whose bars had ended before, it may have more where no scaler was fitted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use megabatch_bars::{Feature, Scalers, Scaling, SeriesHeader, SeriesPiece, Timeframe, TimeframePiece};
use megabatch_chunk_io::{SeriesColumn, SeriesSource, Source, SourceOptions};
use megabatch_gpu_core::Device;
use rayon::prelude::*;
use serde_json::Value;

use super::Recipe;
use super::context_timing::CONTEXT;
use super::function_inputs::age_column;
use super::provenance::{KeptScaler, LAST_OPEN_TIME, LISTS, instrument, listed, symbols_in};
use super::source_files::SourceFiles;
use crate::adapters::series::scalers_of;
use crate::error::{Error, Result};
use crate::text::{shown, utc};

/// Opens the file at `path`, which is not held in memory: a series is read through a small cache.
pub(crate) fn open_through_cache(path: &Path, scope: &str) -> Result<Source> {
    let series_cache_bytes = Some(16 << 20);
    let reading = SourceOptions { resident_bytes_max: 0, series_cache_bytes, ..SourceOptions::default() };
    Ok(Source::open_with(path, &Device::cpu().scope(scope), reading)?)
}

/// The series that is in the file.
pub(super) struct ExistingSeries {
    source: Source,
    /// The account of its bars.
    pub(super) provenance: Value,
    pub(super) recipe: Recipe,
    pub(super) scalers: Scalers,
    /// The files that it was made of, once they are examined.
    pub(super) files: SourceFiles,
    /// The remedy where bars of other instruments differ because they have another timing.
    pub(super) context_remedy: Option<String>,
}

impl ExistingSeries {
    /// # Errors
    /// A data error for a file that `ingest` did not write.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let source = open_through_cache(path, "append")?;
        let series = source.series().ok_or_else(|| {
            Error::data(format!(
                "{}: /@layout: expected a series, as `ingest` writes it, found windows",
                path.display()
            ))
        })?;
        let (provenance, recipe) = Recipe::recorded(path, series.file().attribute("source")?.as_ref())?;
        let names = symbols_in(&provenance, LISTS[0]);
        let scalers = scalers_of(path, series.file(), names, &recipe.spec())?;
        let (files, context_remedy) = (SourceFiles::default(), None);
        Ok(ExistingSeries { source, provenance, recipe, scalers, files, context_remedy })
    }

    fn series(&self) -> &SeriesSource {
        self.source.series().expect("a series, as it was opened")
    }

    #[cfg(test)]
    pub(super) fn attribute(&self, name: &str) -> Option<megabatch_chunk_io::AttributeValue> {
        self.series().file().attribute(name).unwrap()
    }

    #[cfg(test)]
    pub(super) fn read_sample_times(&self, times: &mut [i64]) {
        self.series().file().read_column(SeriesColumn::SampleTime, 0..times.len(), times).unwrap();
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    /// The instruments, and those that were left out.
    pub(super) fn symbols(&self) -> Vec<String> {
        LISTS.iter().flat_map(|list| symbols_in(&self.provenance, list)).collect()
    }

    pub(super) fn samples(&self) -> usize {
        self.series().file().shape().samples
    }

    /// Span that its scalers were fitted on.
    pub(super) fn kept_scaler(&self) -> KeptScaler {
        KeptScaler::read(&self.provenance, self.scalers.fit_end_time)
    }

    /// Timeframe of the bars that it was made of.
    ///
    /// # Errors
    /// A data error for an account without it.
    pub(super) fn base(&self) -> Result<Timeframe> {
        let named = self.provenance[LISTS[0]][0]["base"].as_str().and_then(|name| name.parse().ok());
        named.ok_or_else(|| {
            Error::data(format!(
                "{}: /@source: expected the timeframe of its bars, found none; ingest all files anew",
                self.path().display()
            ))
        })
    }

    /// Bars that were read of an instrument.
    pub(super) fn bars_of(&self, symbol: &str) -> u64 {
        instrument(&self.provenance, symbol).and_then(|instrument| instrument["bars"]["all"].as_u64()).unwrap_or(0)
    }

    /// Warnings about features that are constant where the scalers were fitted: those after the
    /// ones about segments, one an instrument that has segments without samples.
    pub(super) fn constant_warnings(&self) -> Vec<String> {
        let has_segments_without_samples = |one: &&Value| listed(&one["segments"], "left_out").next().is_some();
        let segment_warnings = listed(&self.provenance, LISTS[0]).filter(has_segments_without_samples).count();
        let warnings = listed(&self.provenance, "warnings").skip(segment_warnings);
        warnings.filter_map(|warning| warning.as_str().map(str::to_owned)).collect()
    }

    /// Refuses a series of other instruments: the scalers are those of the file's.
    pub(super) fn require_same_instruments(&self, found: &[String]) -> Result<()> {
        let kept = &self.scalers.instruments;
        let (more, fewer) =
            (found.iter().find(|symbol| !kept.contains(symbol)), kept.iter().find(|symbol| !found.contains(symbol)));
        let said = match (more, fewer) {
            (None, None) => return Ok(()),
            (Some(symbol), _) => format!("{symbol} was left out of it, and with its new bars it could be in it"),
            (None, Some(symbol)) => format!("with the new bars, {symbol} could not be in it"),
        };
        Err(Error::data(format!(
            "{}: {said}; a series keeps its instruments when bars are appended: ingest all files anew",
            self.path().display()
        )))
    }
}

/// Rows of one instrument in both series.
#[derive(Clone, Debug)]
struct InstrumentRows {
    old: Range<usize>,
    new_start: usize,
}

impl InstrumentRows {
    /// The old rows that should be the `count` new ones from `first` on, as far as there are.
    fn old_rows(&self, first: usize, count: usize) -> Range<usize> {
        let start = (self.old.start + first - self.new_start).min(self.old.end);
        start..self.old.end.min(start + count)
    }
}

/// Check that every row and sample of the old series is in the new one, in its place of the
/// instrument, but for values that an unfinished last bar decides, and features of other
/// instruments from their last bar on, if no scaler was fitted on these; pieces come in any order
/// and from any thread.
pub(super) struct PrefixCheck {
    kept: ExistingSeries,
    /// Closes of unfinished last bars that the files have more of now, by instrument. Rows and
    /// targets that they decide may change.
    continued: BTreeMap<String, i64>,
    /// By timeframe and instrument.
    bars: Vec<Vec<InstrumentRows>>,
    /// By instrument.
    samples: Vec<InstrumentRows>,
    /// By instrument, when the last row that its scalers were fitted on closes, at the latest.
    fitted_until: Vec<i64>,
    /// The first loss of rows or samples at the end of an instrument.
    loss: Option<Loss>,
    /// By other instrument, when the first row closes whose features of it have changed.
    renewed: Mutex<BTreeMap<String, i64>>,
}

/// The last bar of another instrument among the features of a timeframe.
struct ContextEnd {
    symbol: String,
    /// Places of its features.
    columns: Vec<usize>,
    /// When it closes, or up to half a bar of the timeframe earlier. Rows from then on have no
    /// later bar.
    close_time: i64,
}

/// Rows or samples of an instrument at the end of the old series that the new one does not have.
struct Loss {
    symbol: String,
    /// The objects in words.
    said: String,
}

/// A row or sample that would change.
struct Change {
    time: i64,
    /// Its instrument.
    place: usize,
    /// The object in words.
    said: String,
    /// Other instruments, if their features are all that differs.
    context: BTreeSet<String>,
    /// True if only the scalers, which were fitted on it, keep it from changing.
    is_fitted: bool,
}

impl PrefixCheck {
    /// Begins with the numbers of rows.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn begin(kept: ExistingSeries, continued: BTreeMap<String, i64>, header: &SeriesHeader) -> Result<Self> {
        let file = kept.series().file();
        let names = header.instruments();
        let mut bars = Vec::with_capacity(header.timeframes.len());
        let mut loss = None;
        for (k, timeframe) in header.timeframes.iter().enumerate() {
            let all = [0, file.bars(k) as i64];
            let old = match file.timeframes()[k].instrument_starts() {
                [] => &all,
                starts => starts,
            };
            let mut rows = Vec::with_capacity(names.len());
            for (place, new) in timeframe.instrument_start.windows(2).enumerate() {
                let old = old[place] as usize..old[place + 1] as usize;
                let new_start = new[0] as usize;
                if old.len() > new[1] as usize - new_start {
                    let (timeframe, symbol, mut last) = (file.timeframes()[k].name(), &names[place], [0]);
                    file.read_column(SeriesColumn::CloseTime(k), old.end - 1..old.end, &mut last)?;
                    let last = utc(last[0]);
                    loss.get_or_insert_with(|| Loss {
                        symbol: symbol.clone(),
                        said: format!(
                            "{timeframe} bars of {symbol}, of which the last closes at {last}, would be lost"
                        ),
                    });
                }
                rows.push(InstrumentRows { old, new_start });
            }
            bars.push(rows);
        }
        let mut samples: Vec<InstrumentRows> = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let start = samples.last().map_or(0, |last| last.old.end);
            let old = start..file.first_sample_after(place);
            let own = header.segments.iter().filter(|segment| segment.instrument as usize == place);
            let (first, count) = own.fold((None, 0), |(first, count), segment| {
                (first.or(Some(segment.samples.start)), count + segment.samples.len())
            });
            if old.len() > count {
                let said = format!("samples of {name} would be lost");
                loss.get_or_insert_with(|| Loss { symbol: name.clone(), said });
            }
            samples.push(InstrumentRows { old, new_start: first.unwrap_or(0) });
        }
        let fitted = kept.kept_scaler();
        let last_fitted = |name: &String| match kept.scalers.kind {
            Scaling::None => i64::MIN,
            _ => fitted.fitted_until.get(name).copied().unwrap_or(fitted.fit_end_time.saturating_sub(1)),
        };
        let fitted_until = names.iter().map(last_fitted).collect();
        Ok(PrefixCheck { kept, continued, bars, samples, fitted_until, loss, renewed: Mutex::default() })
    }

    /// Ends after the last piece.
    ///
    /// # Errors
    /// A data error where the new series has fewer rows or samples.
    pub(super) fn end(&self) -> Result<()> {
        self.loss.as_ref().map_or(Ok(()), |loss| Err(self.kept.changed(&loss.symbol, &loss.said)))
    }

    /// Compares the rows and samples of `piece`, which are of one instrument.
    ///
    /// # Errors
    /// A data error that names the first that is another one; those of reading.
    pub(super) fn check(&self, piece: &SeriesPiece) -> Result<()> {
        let timeframes = piece.timeframes.len();
        // The numbers are nearly all bytes of the file.
        let compared = (0..timeframes + 1).into_par_iter().with_max_len(1).map(|k| match piece.timeframes.get(k) {
            Some(rows) => self.changed_bar(k, rows),
            None => self.changed_sample(piece),
        });
        let changes = compared.collect::<Result<Vec<_>>>()?;
        match changes.into_iter().flatten().min_by_key(|change| change.time) {
            None => Ok(()),
            Some(Change { place, said, context, is_fitted: true, .. }) => {
                Err(self.kept.fitted_context(&context, self.fitted_until[place], &said))
            }
            Some(Change { said, context, .. }) if !context.is_empty() => {
                Err(self.kept.changed_context(&context, &said))
            }
            Some(Change { place, said, .. }) => Err(self.kept.changed(self.name(place), &said)),
        }
    }

    /// Other instruments whose bars go on, each with when the first row closes whose features of it
    /// have changed.
    pub(super) fn renewed(&self) -> BTreeMap<String, i64> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn name(&self, place: usize) -> &str {
        &self.kept.scalers.instruments[place]
    }

    /// True if the last bar of the instrument was unfinished, and decides values known at `time`.
    fn may_change(&self, place: usize, time: i64) -> bool {
        self.continued.get(self.name(place)).is_some_and(|&close_time| time >= close_time)
    }

    /// True if only features of instruments with these `ends` differ between the values `then` and
    /// `now` of a row that closes at `time`, which is no earlier. They are noted as renewed.
    fn renews(&self, ends: &[ContextEnd], time: i64, then: &[f32], now: &[f32]) -> bool {
        let changed: Vec<usize> =
            (0..then.len()).filter(|&column| then[column].to_bits() != now[column].to_bits()).collect();
        let has_ended =
            |end: &&ContextEnd| end.close_time <= time && changed.iter().any(|own| end.columns.contains(own));
        let own: Vec<&ContextEnd> = ends.iter().filter(has_ended).collect();
        if !changed.iter().all(|column| own.iter().any(|end| end.columns.contains(column))) {
            return false;
        }
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        for end in own {
            let first = renewed.entry(end.symbol.clone()).or_insert(time);
            *first = time.min(*first);
        }
        true
    }

    fn changed_bar(&self, timeframe: usize, rows: &TimeframePiece) -> Result<Option<Change>> {
        let instruments = &self.bars[timeframe];
        let place = instruments.partition_point(|own| own.new_start <= rows.first_row) - 1;
        let old = instruments[place].old_rows(rows.first_row, rows.close_time.len());
        if old.is_empty() {
            return Ok(None);
        }
        let (series, width) = (self.kept.series(), self.kept.scalers.features.len());
        let mut times = vec![0; old.len()];
        series.file().read_column(SeriesColumn::CloseTime(timeframe), old.clone(), &mut times)?;
        let mut values = vec![0.0; old.len() * width];
        series.read_bars(timeframe, std::slice::from_ref(&old), &mut values)?;
        let (name, instrument) = (series.file().timeframes()[timeframe].name(), self.name(place));
        let is_same = |row: usize| {
            let own = row * width..(row + 1) * width;
            times[row] == rows.close_time[row]
                && (is_same_bits(&values[own.clone()], &rows.values[own])
                    || self.may_change(place, times[row])
                    || self.kept.is_made_at_the_end(instrument, name, times[row]))
        };
        let mut first = (0..old.len()).find(|&row| !is_same(row));
        let mut is_fitted = false;
        if first.is_some() {
            let ends = self.kept.context_ends(timeframe, place, instruments[place].old.end - 1)?;
            let is_renewed = |row: usize| {
                let own = row * width..(row + 1) * width;
                times[row] == rows.close_time[row]
                    && self.renews(&ends, times[row], &values[own.clone()], &rows.values[own])
            };
            let may_change = |row: usize| times[row] > self.fitted_until[place] && is_renewed(row);
            first = (0..old.len()).find(|&row| !is_same(row) && !may_change(row));
            is_fitted = first.is_some_and(is_renewed);
        }
        Ok(first.map(|row| {
            let said = format!(
                "/series/{name}/values: row {}, the {name} bar of {instrument} that closes at {}, would become another one",
                old.start + row,
                utc(times[row])
            );
            let own = row * width..(row + 1) * width;
            let context = match times[row] == rows.close_time[row] {
                true => self.kept.differing_context(&values[own.clone()], &rows.values[own]),
                false => BTreeSet::new(),
            };
            Change { time: times[row].min(rows.close_time[row]), place, said, context, is_fitted }
        }))
    }

    fn changed_sample(&self, piece: &SeriesPiece) -> Result<Option<Change>> {
        let Some(place) = piece.sample_instrument.first().map(|&place| place as usize) else { return Ok(None) };
        let old = self.samples[place].old_rows(piece.first_sample, piece.sample_time.len());
        if old.is_empty() {
            return Ok(None);
        }
        let series = self.kept.series();
        let file = series.file();
        let column = |column: SeriesColumn| -> Result<Vec<i64>> {
            let mut found = vec![0; old.len()];
            file.read_column(column, old.clone(), &mut found)?;
            Ok(found)
        };
        let times = column(SeriesColumn::SampleTime)?;
        let mut first = first_difference(&times, piece.sample_time.iter().copied());
        let spans =
            [(SeriesColumn::ReachTime, &piece.receptive_start), (SeriesColumn::LabelEndTime, &piece.label_end_time)];
        for (name, new) in spans {
            // Newer bars of other instruments are reached in the place of older ones, and files of
            // earlier versions leave them out.
            let is_free = self.kept.has_context() && name == SeriesColumn::ReachTime;
            // A file of before may lack them.
            if file.has_column(name) && !is_free {
                first = first.min(first_difference(&column(name)?, new.iter().copied()));
            }
        }
        for (k, rows) in piece.timeframes.iter().enumerate() {
            let own = &self.bars[k][place];
            let moved = own.new_start as i64 - own.old.start as i64;
            let ends = rows.end.iter().map(|end| end - moved);
            first = first.min(first_difference(&column(SeriesColumn::SampleEnd(k))?, ends));
        }
        let may_change = |n: usize| self.may_change(place, piece.sample_time[n].max(piece.label_end_time[n]));
        if let Some(weights) = file.sample_weights() {
            let same = |n: &usize| weights[old.start + n].to_bits() == piece.weight[*n].to_bits() || may_change(*n);
            first = first.min((0..old.len()).find(|n| !same(n)).unwrap_or(usize::MAX));
        }
        let horizons = file.shape().horizons;
        let mut targets = vec![0.0; old.len() * horizons];
        series.read_targets(std::slice::from_ref(&old), &mut targets)?;
        let is_same = |n: &usize| {
            let own = n * horizons..(n + 1) * horizons;
            is_same_bits(&targets[own.clone()], &piece.targets[own]) || may_change(*n)
        };
        first = first.min((0..old.len()).find(|n| !is_same(n)).unwrap_or(usize::MAX));
        Ok(times.get(first).map(|&time| {
            let (sample, instrument) = (old.start + first, self.name(place));
            let said = format!("sample {sample}, that of {instrument} at {}, would become another one", utc(time));
            Change { time, place, said, context: BTreeSet::new(), is_fitted: false }
        }))
    }
}

impl ExistingSeries {
    /// The last bars of other instruments among the features of a timeframe, by their ages in
    /// `last_row`, the last of the instrument at `place`.
    fn context_ends(&self, timeframe: usize, place: usize, last_row: usize) -> Result<Vec<ContextEnd>> {
        let (series, width) = (self.series(), self.scalers.features.len());
        let (row, mut time, mut values) = (last_row..last_row + 1, [0], vec![0.0; width]);
        series.file().read_column(SeriesColumn::CloseTime(timeframe), row.clone(), &mut time)?;
        series.read_bars(timeframe, std::slice::from_ref(&row), &mut values)?;
        let scaler = &self.scalers.timeframes[timeframe];
        let bar_ns = scaler.timeframe.duration_ns() as f64;
        let names: Vec<Option<&str>> = self.scalers.features.iter().map(Feature::as_function).collect();
        let end = |function: &String| {
            let (symbol, age) = (function.strip_prefix(CONTEXT)?, age_column(function)?);
            let age = names.iter().position(|name| *name == Some(age.as_str()))?;
            let scaled = place * width + age;
            // Ages have single precision.
            let bars = f64::from(values[age]) * scaler.scale[scaled] + scaler.center[scaled] + 0.5;
            let is_own = |name: &str| is_context_feature(name, symbol);
            let columns = (0..width).filter(|&column| names[column].is_some_and(is_own)).collect();
            Some(ContextEnd { symbol: symbol.to_owned(), columns, close_time: time[0] - (bars * bar_ns) as i64 })
        };
        let functions = self.provenance["functions"]["fingerprints"].as_object();
        Ok(functions.into_iter().flat_map(serde_json::Map::keys).filter_map(end).collect())
    }

    /// The other instruments whose features differ between the values `then` and `now` of a row.
    /// Empty if another feature differs too.
    fn differing_context(&self, then: &[f32], now: &[f32]) -> BTreeSet<String> {
        let functions = self.provenance["functions"]["fingerprints"].as_object();
        let names = functions.into_iter().flat_map(serde_json::Map::keys);
        let symbols: Vec<&str> = names.filter_map(|name| name.strip_prefix(CONTEXT)).collect();
        let mut differing = BTreeSet::new();
        for (feature, (then, now)) in self.scalers.features.iter().zip(then.iter().zip(now)) {
            if then.to_bits() == now.to_bits() {
                continue;
            }
            let name = feature.as_function().unwrap_or_default();
            let Some(symbol) = symbols.iter().find(|symbol| is_context_feature(name, symbol)) else {
                return BTreeSet::new();
            };
            differing.insert((*symbol).to_owned());
        }
        differing
    }

    /// True if the row of `timeframe` that closes at `close_time` is the last and was made of
    /// shorter bars: a file of own bars ended with its bar, which might have been unfinished.
    fn is_made_at_the_end(&self, symbol: &str, timeframe: &str, close_time: i64) -> bool {
        let Some(then) = instrument(&self.provenance, symbol) else { return false };
        let (Some(last_close), Ok(length)) = (then["last_close_time_ns"].as_i64(), timeframe.parse::<Timeframe>())
        else {
            return false;
        };
        let length_ns = length.duration_ns();
        let is_its_bar = |time: i64| (close_time - length_ns..close_time).contains(&time);
        let is_last = |own: &Value| own[LAST_OPEN_TIME].as_i64().is_some_and(is_its_bar);
        // The bars end before another row of the timeframe closes.
        close_time + length_ns > last_close
            && close_time > self.scalers.fit_end_time
            && listed(then, "own").any(|own| own["timeframe"] == timeframe && is_last(own))
    }

    /// True with features of other instruments.
    fn has_context(&self) -> bool {
        let functions = self.provenance["functions"]["fingerprints"].as_object();
        functions.is_some_and(|functions| functions.keys().any(|name| name.starts_with(CONTEXT)))
    }

    /// The error where bars or samples of an instrument would not be those of before.
    pub(super) fn changed(&self, symbol: &str, said: &str) -> Error {
        let options = self.recipe.read_options();
        let is_own =
            |path: &&PathBuf| options.symbols_of(path).is_ok_and(|found| found.iter().any(|own| own == symbol));
        let rewritten: Vec<String> = self.files.rewritten.iter().filter(is_own).map(|path| shown(path)).collect();
        let out = self.path().display();
        let has_functions = self.provenance.get("functions").is_some();
        let by_function = if has_functions { ", or a function that gives other values" } else { "" };
        let own_bars =
            if self.recipe.own_bars { "own bars of times of which it has those that were made, " } else { "" };
        let context = if self.has_context() {
            "bars of another instrument from before those that its features read, "
        } else {
            ""
        };
        Error::data(match rewritten.is_empty() {
            true => format!(
                "{out}: {said}: the appended bars change what it holds of the time before them ({own_bars}{context}a hole that they fill, or a grid, calendar or clock that all files share{by_function}); nothing was written; ingest all files anew"
            ),
            false => format!(
                "{}: these are not the rows that {out} was made of, and not only more: {said}; nothing was written; put the rows of then back, or ingest all files anew",
                rewritten.join(", ")
            ),
        })
    }

    /// The error where the features of the instruments `context`, and nothing else, would not be
    /// those of before.
    fn changed_context(&self, context: &BTreeSet<String>, said: &str) -> Error {
        let remedy = self.context_remedy.as_deref();
        Error::data(format!(
            "{}: these are not the bars that {} was made of, and not only more: {said}; nothing was written; {}",
            self.named_context(context),
            self.path().display(),
            remedy.unwrap_or("give bars that begin with those of then, or ingest all files anew")
        ))
    }

    /// The error where the bars of the instruments `context` had ended before the last of the rows
    /// that scalers were fitted on, which closes at `fitted_until`, and go on.
    fn fitted_context(&self, context: &BTreeSet<String>, fitted_until: i64, said: &str) -> Error {
        Error::data(format!(
            "{}: these bars had ended within the span, up to {}, that the scalers of {} were fitted on: {said}; nothing was written: ingest all files anew",
            self.named_context(context),
            utc(fitted_until),
            self.path().display()
        ))
    }

    /// Other instruments with their files, for an error.
    fn named_context(&self, context: &BTreeSet<String>) -> String {
        let named = |symbol: &String| match self.recipe.context.iter().find(|file| file.symbol == *symbol) {
            Some(file) => format!("{symbol} ({})", file.path.display()),
            None => symbol.clone(),
        };
        format!("{CONTEXT}{}", context.iter().map(named).collect::<Vec<_>>().join(", "))
    }
}

/// True if `name` is that of a feature of another instrument, `symbol`.
fn is_context_feature(name: &str, symbol: &str) -> bool {
    name.strip_prefix(symbol).is_some_and(|rest| rest.starts_with('.'))
}

/// The first place at which lists differ, as far as the old one goes; the largest number where they
/// do not.
fn first_difference(old: &[i64], new: impl Iterator<Item = i64>) -> usize {
    old.iter().zip(new).position(|(old, new)| *old != new).unwrap_or(usize::MAX)
}

fn is_same_bits(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| one.to_bits() == other.to_bits())
}
