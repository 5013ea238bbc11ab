//! A data file's samples, split by time with a purge that fits what the file knows of its windows.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::ops::Range;

use megabatch_chunk_io::{SeriesColumn, SeriesSource, Source};
use megabatch_nn::graph::Graphs as _;
use megabatch_trainer as trainer;
use megabatch_trainer::{
    Purge, PurgeRule, SampleTimes, Split, SplitFractions, TimeColumn, WalkForward, count_overlaps, split,
    split_in_pieces,
};

use super::context_account::ContextAccount;
use super::cross_section::CrossSections;
use super::overlaps::ReckonedSpans;
use super::purge_basis::has_ordinal_times;
use super::spans::{SampleSpans, UNKNOWN_END, provenance, reckoned_horizon};
use crate::config::{Config, data};
use crate::error::{Error, Result};
use crate::text::number::seconds;
use crate::text::utc;

/// The folds that training walks forward through, if it does.
pub(crate) fn walk_forward(config: &Config) -> Option<WalkForward> {
    Some(WalkForward {
        folds: config.get(&data::WALK_FORWARD)?,
        window: config.get(&data::WALK_FORWARD_WINDOW),
        overlap: config.get(&data::WALK_FORWARD_OVERLAP),
    })
}

/// Splits the samples of `source` as `config` says. Of a series whose index stays in the file,
/// memory does not grow with samples, unless the index is needed.
///
/// # Errors
/// A part that should have samples is left without, or the scaler of the file saw samples that are
/// not for training.
pub(crate) fn split_source(source: &Source, config: &Config) -> Result<Split> {
    require_times_for_duration(source, config)?;
    let division = Division::from_config(config);
    if let Some(split) = split_in_file(source, config, &division)? {
        check_scalers(source, split.validation_start_ns)?;
        return Ok(split);
    }
    split_in_memory(source, config, &times(source)?, |spans| spans)
}

/// Refuses a purge by a duration where samples are numbered and have no times.
fn require_times_for_duration(source: &Source, config: &Config) -> Result<()> {
    if config.purge_ns().unwrap_or(0) == 0 {
        return Ok(());
    }
    let why = match source.has_times() {
        true if has_ordinal_times(source)? => "has times that only order its samples",
        true => return Ok(()),
        false => "has no timestamps",
    };
    let needs = match (source.untimed_span_list(), source.horizon_bars()?) {
        (Some(_), _) => " once the file has /timestamps",
        (None, None) => " once f.attrs[\"horizon_bars\"] tells the bars of a label",
        (None, Some(_)) => "",
    };
    Err(Error::usage(format!(
        "data.purge: {} {why}, so that a duration means nothing; use auto, which counts samples{needs}, or 0s",
        source.path().display()
    )))
}

/// Says that the purge is longer than the data, where nothing remained of a part.
fn explain_duration(error: trainer::Error, source: &Source, config: &Config) -> Error {
    let nothing_left = matches!(error, trainer::Error::NothingLeft { before: 1.., .. });
    let error = Error::from(error);
    let (Some(duration_ns), Ok(times)) = (config.purge_ns().filter(|_| nothing_left), times(source)) else {
        return error;
    };
    let span_ns = times.iter().max().zip(times.iter().min()).map_or(0, |(last, first)| last.saturating_sub(*first));
    if duration_ns <= span_ns {
        return error;
    }
    error.context(format!(
        "data.purge={} is longer than the data, which span {}",
        config.text(&data::PURGE.key),
        seconds(span_ns as f64 / 1e9)
    ))
}

/// Splits what was taken at `times`, samples or groups of them, whose spans `grouped` makes of
/// those of the samples.
fn split_in_memory(
    source: &Source,
    config: &Config,
    times: &[i64],
    grouped: impl FnOnce(SampleSpans<'_>) -> SampleSpans<'_>,
) -> Result<Split> {
    let division = Division::from_config(config);
    let split = match config.purge_ns() {
        Some(duration_ns) => division
            .split(times, Purge::Duration(duration_ns))
            .map_err(|error| explain_duration(error, source, config))?,
        None if !config.has_unseen() => division.split(times, Purge::Duration(0))?,
        None => {
            let SampleSpans { reach_ns, label_end_ns, .. } = grouped(SampleSpans::from_source(source, times)?);
            let purge = Purge::Windows { window_start_ns: &reach_ns, label_end_ns: &label_end_ns };
            division.split(times, purge).map_err(|error| division.explain(error, source, times, purge))?
        }
    };
    check_scalers(source, split.validation_start_ns)?;
    Ok(split)
}

/// The split of a series whose index stays in the file; `None` where the index is needed: for
/// walk-forward folds, and where the file does not tell its samples' spans.
fn split_in_file(source: &Source, config: &Config, division: &Division) -> Result<Option<Split>> {
    let Some(series) = source.series().filter(|series| !series.file().has_index()) else { return Ok(None) };
    if division.fold.is_some() {
        return Ok(None);
    }
    let purge = match config.purge_ns() {
        Some(duration_ns) => PurgeRule::Duration(duration_ns),
        None if !config.has_unseen() => PurgeRule::Duration(0),
        None if SPANS.iter().all(|&column| series.file().has_column(column)) => PurgeRule::Windows,
        None => return Ok(None),
    };
    match split_in_pieces(&TimesInFile(series), division.fractions, purge) {
        Ok(split) => Ok(Some(split)),
        // What is left of a part is explained with the index in memory.
        Err(trainer::Error::NothingLeft { .. }) if purge == PurgeRule::Windows => Ok(None),
        Err(error) => Err(explain_duration(error, source, config)),
    }
}

/// Columns of the spans of samples.
const SPANS: [SeriesColumn; 2] = [SeriesColumn::ReachTime, SeriesColumn::LabelEndTime];

/// Times of the samples of a series, read in pieces.
struct TimesInFile<'a>(&'a SeriesSource);

impl SampleTimes for TimesInFile<'_> {
    fn len(&self) -> usize {
        self.0.file().shape().samples
    }

    fn scan(
        &self,
        column: TimeColumn,
        samples: Range<usize>,
        each: &mut dyn FnMut(usize, &[i64]),
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let column = match column {
            TimeColumn::Sample => SeriesColumn::SampleTime,
            TimeColumn::WindowStart => SeriesColumn::ReachTime,
            TimeColumn::LabelEnd => SeriesColumn::LabelEndTime,
        };
        self.0.file().scan_column(column, samples, |first, times| {
            each(first, times);
            Ok::<(), megabatch_chunk_io::Error>(())
        })?;
        Ok(())
    }
}

/// Splits cross-sections as `config` says: each reaches as far back as any of its samples.
///
/// # Errors
/// As [`split_source`].
pub(crate) fn split_cross_sections(sections: &CrossSections, config: &Config) -> Result<Split> {
    let source = sections.source().source();
    require_times_for_duration(source, config)?;
    let times = sections.times();
    split_in_memory(source, config, times, |spans| {
        let each_section = |combined: &dyn Fn(&[usize]) -> Option<i64>| -> Cow<'static, [i64]> {
            let one_section = |section| combined(sections.nodes(section)).expect("a cross-section has samples");
            (0..times.len()).map(one_section).collect()
        };
        let reach_ns = each_section(&|samples| samples.iter().map(|&n| spans.reach_ns[n]).min());
        let label_end_ns = each_section(&|samples| samples.iter().map(|&n| spans.label_end_ns[n]).max());
        SampleSpans { reach_ns, label_end_ns, ..spans }
    })
}

/// The rule by which samples are divided.
struct Division {
    fractions: SplitFractions,
    /// A fold, where they are walked through.
    fold: Option<(WalkForward, usize)>,
}

impl Division {
    /// Split of `config`; of all folds together, the last one.
    fn from_config(config: &Config) -> Self {
        let [train, validation, test] = config.split();
        let with_fold = |walk: WalkForward| (walk, config.walk_forward_fold().unwrap_or(walk.folds - 1));
        Division { fractions: SplitFractions { train, validation, test }, fold: walk_forward(config).map(with_fold) }
    }

    fn split(&self, times: &[i64], purge: Purge<'_>) -> trainer::Result<Split> {
        match self.fold {
            None => split(times, self.fractions, purge),
            Some(fold) => trainer::walk_forward(times, self.fractions, fold.0, fold.1, purge),
        }
    }

    /// Says why so much was left out between the parts, where nothing remained of one.
    fn explain(&self, error: trainer::Error, source: &Source, times: &[i64], purge: Purge<'_>) -> Error {
        let nothing_left = matches!(error, trainer::Error::NothingLeft { before: 1.., .. });
        let error = Error::from(error);
        let Purge::Windows { window_start_ns, label_end_ns } = purge else { return error };
        if !nothing_left {
            return error;
        }
        let known_ends: Vec<i64> =
            label_end_ns.iter().map(|&end| if end == UNKNOWN_END { i64::MIN } else { end }).collect();
        let if_known = Purge::Windows { window_start_ns, label_end_ns: &known_ends };
        let first_unknown = (0..times.len()).filter(|&n| label_end_ns[n] == UNKNOWN_END).min_by_key(|&n| times[n]);
        if let Some(first) = first_unknown.filter(|_| self.split(times, if_known).is_ok()) {
            let (from, fix) = match source.has_times() {
                true => (
                    utc(times[first]),
                    "write f[\"samples/label_end_time\"] with h5py, int64 [N], ns since 1970 UTC, or give data.purge a time",
                ),
                false => (
                    format!("sample {first}"),
                    "write f[\"timestamps\"] with h5py, int64 [N], ns since 1970 UTC, and beside it \
                     f[\"samples/label_end_time\"], of the same kind, or give data.purge a time",
                ),
            };
            return error.context(format!(
                "data.purge is auto, and labels end beyond the last sample of their instrument, from {from} on, which may be at any time; {fix}"
            ));
        }
        let starts = window_start_ns.iter().zip(times);
        let known_starts: Vec<i64> =
            starts.map(|(&start, &time)| if start == i64::MIN { time } else { start }).collect();
        let if_known = Purge::Windows { window_start_ns: &known_starts, label_end_ns };
        // One such sample in the test of a fold leaves no training.
        if self.fold.is_some() && self.split(times, if_known).is_ok() {
            let fix = match (source.series(), source.has_times()) {
                (Some(_), _) => "convert windows that have /timestamps, or give data.purge=0s, which keeps all samples",
                (None, true) => {
                    "write f[\"samples/reach_time\"] with h5py, int64 [N], ns since 1970 UTC, or give data.purge a time"
                }
                (None, false) => {
                    "write f[\"timestamps\"] with h5py, int64 [N], ns since 1970 UTC, and beside it f[\"samples/reach_time\"], of \
                     the same kind, or give data.purge=0s, which keeps all samples"
                }
            };
            return error.context(format!(
                "data.purge is auto, and the first windows of an instrument, some of which lie in a later part, may reach back to any time; {fix}"
            ));
        }
        if !source.has_times() {
            return error;
        }
        // Of the first samples of a windows file it is not known how far they reach.
        let known = times.iter().zip(window_start_ns).filter(|(_, reach)| **reach > i64::MIN);
        let longest_ns = known.map(|(time, reach)| time - reach).max().unwrap_or(0);
        let account = ContextAccount::read(&provenance(source).unwrap_or_default());
        let context = account.remarks(longest_ns, times.iter().copied().max().unwrap_or(i64::MAX));
        let context: String = context.iter().map(|remark| format!("; {remark}")).collect();
        error.context(format!(
            "data.purge is auto, and samples reach back up to {} (their windows, and what features of the windows' first bars look back at){context}",
            seconds(longest_ns as f64 / 1e9)
        ))
    }
}

/// When each sample was taken. A file without times is in their order by its layout's definition,
/// and its samples are numbered.
fn times(source: &Source) -> Result<Cow<'_, [i64]>> {
    source.series().map_or(Ok(()), |series| series.file().load_index())?;
    Ok(match source.sample_times() {
        Some(times) => Cow::Borrowed(times),
        None => Cow::Owned((0..source.shape().samples as i64).collect()),
    })
}

/// Remarks on the purge between the parts of a split, one sentence each, without its stop.
#[derive(Default)]
pub(crate) struct PurgeRemarks {
    /// Assumptions that the errors rest on.
    pub(crate) warnings: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl PurgeRemarks {
    /// The remarks on `spans`.
    pub(crate) fn on_spans(spans: SampleSpans<'_>) -> Self {
        PurgeRemarks { warnings: spans.warnings, notes: spans.note.into_iter().collect() }
    }
}

/// Remarks on the purge between the parts of `split`.
pub(crate) fn remarks_on_purge(source: &Source, config: &Config, split: &Split) -> Result<PurgeRemarks> {
    if split.validation.is_empty() && split.test.is_empty() {
        return Ok(PurgeRemarks::default());
    }
    if config.purge_ns().is_some() && !SampleSpans::are_exact(source)? {
        return Ok(PurgeRemarks::default());
    }
    let in_file = source.series().filter(|series| !series.file().has_index());
    let tells = |column| in_file.is_some_and(|series| series.file().has_column(column));
    let is_by_spans = config.purge_ns().is_none();
    if is_by_spans && tells(SeriesColumn::LabelEndTime) {
        return Ok(PurgeRemarks::default());
    }
    let before_test = if split.validation.is_empty() { &split.train } else { &split.validation };
    let pairs = [(&split.train, &split.validation), (before_test, &split.test)];
    let reckoned = match in_file.filter(|_| !is_by_spans) {
        Some(series) => {
            reckoned_horizon(source)?.map(|horizon| ReckonedSpans::new(series.file(), horizon)).transpose()?
        }
        None => None,
    };
    let overlaps = match (in_file.filter(|_| SPANS.into_iter().all(tells)), reckoned) {
        (Some(series), _) => {
            let [validation, test] = pairs.map(|(before, after)| count_overlaps(&TimesInFile(series), before, after));
            [validation?, test?]
        }
        (None, Some(spans)) => {
            let [validation, test] = pairs.map(|(before, after)| spans.count_overlaps(before, after));
            [validation?, test?]
        }
        (None, None) => {
            let spans = SampleSpans::from_source(source, &times(source)?)?;
            if is_by_spans {
                return Ok(PurgeRemarks::on_spans(spans));
            }
            pairs.map(|(before, after)| {
                let known_ends = before.iter().map(|n| spans.label_end_ns[n]).filter(|&end| end < UNKNOWN_END);
                let last_label_ns = known_ends.max().unwrap_or(i64::MIN);
                after.iter().filter(|&n| spans.reach_ns[n] < last_label_ns).count()
            })
        }
    };
    let notes = match overlaps {
        [0, 0] => Vec::new(),
        [validation, test] => vec![format!(
            "data.purge leaves {validation} samples to validate and {test} to test that look back to before the end of labels of the part \
             before theirs: their errors flatter the model; auto leaves such samples out"
        )],
    };
    Ok(PurgeRemarks { notes, ..PurgeRemarks::default() })
}

/// A scaler that was fitted on bars of the validation or test span carries knowledge of them into
/// training.
fn check_scalers(source: &Source, validation_start_ns: i64) -> Result<()> {
    let Some(series) = source.series() else { return Ok(()) };
    for timeframe in series.file().timeframes() {
        if let Some(scaler) = timeframe.scaler()
            && scaler.kind != "none"
            && scaler.fit_end_time > validation_start_ns
        {
            return Err(Error::data(format!(
                "{}: /scaler/{}: fitted on bars up to {}, but training ends at {}, so that validation would have shaped the features; \
                 give `ingest --train-fraction` the first number of data.split, or make that number larger",
                source.path().display(),
                timeframe.name(),
                utc(scaler.fit_end_time),
                utc(validation_start_ns),
            )));
        }
    }
    Ok(())
}
