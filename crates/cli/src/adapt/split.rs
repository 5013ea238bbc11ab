//! A data file's samples, split by time with a purge that fits what the file knows of its windows.

use std::borrow::Cow;

use anyhow::Result;
use megabatch_bars::Timeframe;
use megabatch_chunk_io::{AttributeValue, ResidentSeries, Source};
use megabatch_trainer::{self as trainer, Graphs as _, Purge, Split, SplitFractions, WalkForward, split};

use super::cross_section::CrossSections;
use crate::config::Config;
use crate::failure::Failure;
use crate::settings::walk_forward;

/// Splits the samples of `source` as `config` says.
///
/// # Errors
/// A part that should have samples is left without, or the scaler of the file saw samples that are not for training.
pub(crate) fn split_source(source: &Source, config: &Config) -> Result<Split> {
    let division = Division::of(config);
    // A file without timestamps is in order of time by its layout's definition, one sample a unit.
    let numbered: Vec<i64>;
    let times = match source.sample_times() {
        Some(times) => times,
        None => {
            numbered = (0..source.shape().samples as i64).collect();
            &numbered
        }
    };
    let split = match (config.purge_ns(), source.series()) {
        (Some(duration_ns), _) if duration_ns == 0 || source.sample_times().is_some() => {
            division.split(times, Purge::Duration(duration_ns)).map_err(anyhow::Error::from)
        }
        (Some(_), _) => {
            return Err(Failure::usage(format!(
                "data.purge: {} has no timestamps, so that a duration means nothing; use auto, which counts samples, or 0s",
                source.path().display()
            )));
        }
        (None, Some(series)) => {
            let reach_ns = reach_times(series);
            let label_end_ns = label_end_times(series)?;
            let purge = Purge::Windows { window_start_ns: &reach_ns, label_end_ns: &label_end_ns };
            division.split(times, purge).map_err(|error| explain_reach(error, times, &reach_ns))
        }
        (None, None) => {
            division.split(times, Purge::Duration(reach_of_windows(source, times))).map_err(anyhow::Error::from)
        }
    }?;
    check_scalers(source, &split)?;
    Ok(split)
}

/// Splits cross-sections as `config` says: each reaches as far back as any of its samples.
///
/// # Errors
/// As [`split_source`].
pub(crate) fn split_cross_sections(sections: &CrossSections, config: &Config) -> Result<Split> {
    let source = sections.source().source();
    let series = source.series().expect("cross-sections are of a series");
    let division = Division::of(config);
    let times = sections.times();
    let split = match config.purge_ns() {
        Some(duration_ns) => division.split(times, Purge::Duration(duration_ns))?,
        None => {
            let (reach_ns, label_end_ns) = (reach_times(series), label_end_times(series)?);
            let of_sections = |of_samples: &dyn Fn(&[usize]) -> Option<i64>| -> Vec<i64> {
                let of_section = |section| of_samples(sections.nodes(section)).expect("a cross-section has samples");
                (0..times.len()).map(of_section).collect()
            };
            let window_start_ns = of_sections(&|samples| samples.iter().map(|&n| reach_ns[n]).min());
            let label_end_ns = of_sections(&|samples| samples.iter().map(|&n| label_end_ns[n]).max());
            let purge = Purge::Windows { window_start_ns: &window_start_ns, label_end_ns: &label_end_ns };
            division.split(times, purge).map_err(|error| explain_reach(error, times, &window_start_ns))?
        }
    };
    check_scalers(source, &split)?;
    Ok(split)
}

/// The rule by which samples are divided.
struct Division {
    fractions: SplitFractions,
    /// A fold, where they are walked through.
    fold: Option<(WalkForward, usize)>,
}

impl Division {
    /// That of `config`; of all folds together, the last one.
    fn of(config: &Config) -> Self {
        let [train, validation, test] = config.split();
        let of_walk =
            |walk: WalkForward| (walk, config.optional_count("data.walk_forward_fold").unwrap_or(walk.folds - 1));
        Division { fractions: SplitFractions { train, validation, test }, fold: walk_forward(config).map(of_walk) }
    }

    fn split(&self, times: &[i64], purge: Purge<'_>) -> trainer::Result<Split> {
        match self.fold {
            None => split(times, self.fractions, purge),
            Some(fold) => trainer::walk_forward(times, self.fractions, fold, purge),
        }
    }
}

/// When the last bar closed that each sample's label uses.
fn label_end_times(series: &ResidentSeries) -> Result<Vec<i64>> {
    Ok(series.label_end_times(horizon_bars(series)?).collect())
}

/// How many samples to validate, and to test, look back to before the end of the last label of the part before theirs; none where
/// the file does not know.
pub(crate) fn overlapping(source: &Source, split: &Split) -> Result<[usize; 2]> {
    let Some(series) = source.series() else { return Ok([0; 2]) };
    let reach_ns = reach_times(series);
    let label_end_ns = label_end_times(series)?;
    let count = |before: &[usize], after: &[usize]| {
        let last_label_ns = before.iter().map(|&n| label_end_ns[n]).max().unwrap_or(i64::MIN);
        after.iter().filter(|&&n| reach_ns[n] < last_label_ns).count()
    };
    let before_test = if split.validation.is_empty() { &split.train } else { &split.validation };
    Ok([count(&split.train, &split.validation), count(before_test, &split.test)])
}

/// When the earliest bar opened that had a part in each sample.
fn reach_times(series: &ResidentSeries) -> Cow<'_, [i64]> {
    match series.file().sample_reach_times() {
        Some(reach_ns) => Cow::Borrowed(reach_ns),
        None => Cow::Owned(window_starts(series)),
    }
}

/// Says why so much was left out between the parts, where nothing remained of one.
fn explain_reach(error: trainer::Error, times: &[i64], reach_ns: &[i64]) -> anyhow::Error {
    let nothing_left = matches!(error, trainer::Error::NothingLeft { before: 1.., .. });
    let longest_ns = times.iter().zip(reach_ns).map(|(time, reach)| time - reach).max().unwrap_or(0);
    let error = anyhow::Error::from(error);
    match nothing_left {
        true => error.context(format!(
            "data.purge is auto, and samples reach back up to {:.1} days: their windows, and what features of the windows' first bars look back at",
            longest_ns as f64 / DAY_NS
        )),
        false => error,
    }
}

const DAY_NS: f64 = 86_400e9;

/// When the earliest bar in any window of each sample opened; what its features look back at is not known here.
fn window_starts(series: &ResidentSeries) -> Vec<i64> {
    let timeframes = series.file().timeframes();
    let mut starts = vec![i64::MAX; series.file().shape().samples];
    for (k, timeframe) in timeframes.iter().enumerate() {
        // A timeframe that is none of ours has bars of a length that the file does not tell; its bars' close times stand in.
        let duration_ns = timeframe.name().parse().map_or(0, Timeframe::duration_ns);
        for (start, first_close) in starts.iter_mut().zip(series.window_start_times(k)) {
            *start = (*start).min(first_close - duration_ns);
        }
    }
    starts
}

/// How many bars of the shortest timeframe ahead the targets look: the file's attributes say it in base bars, or else there is a
/// target a bar.
fn horizon_bars(series: &ResidentSeries) -> Result<usize> {
    let file = series.file();
    let horizon = match file.attribute("horizon_bars")? {
        Some(AttributeValue::Int(bars)) => usize::try_from(bars).ok(),
        _ => None,
    };
    let horizon = horizon.unwrap_or(file.shape().horizons);
    let base = match file.attribute("base")? {
        Some(AttributeValue::Text(name)) => name.parse().ok().map(Timeframe::duration_ns),
        _ => None,
    };
    let shortest = file.timeframes()[0].name().parse().ok().map(Timeframe::duration_ns);
    Ok(match (base, shortest) {
        // A sample may lie anywhere within a bar of the shortest timeframe, so that one bar more is reached.
        (Some(base), Some(shortest)) if base < shortest => horizon.div_ceil((shortest / base) as usize) + 1,
        _ => horizon,
    })
}

/// The time from the first bar of the longest window to the end of the label, as well as a windows file tells: by the names of
/// its timeframes, or else by the usual distance of its samples. Without timestamps, `times` number the samples, and the shortest
/// timeframe is taken to have a bar a sample.
fn reach_of_windows(source: &Source, times: &[i64]) -> i64 {
    let mut distances: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).filter(|&gap| gap > 0).collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(0);
    let shape = source.shape();
    let named = |k: usize| shape.timeframes[k].name.as_deref()?.parse().ok().map(Timeframe::duration_ns);
    let shortest = match (source.sample_times(), named(0)) {
        (Some(_), Some(duration_ns)) => duration_ns,
        _ => usual,
    };
    let bar = |k: usize| match (named(k), named(0)) {
        (Some(duration_ns), Some(shortest_ns)) => shortest.saturating_mul(duration_ns / shortest_ns),
        _ => shortest,
    };
    let windows = (0..shape.timeframes.len()).map(|k| (shape.timeframes[k].steps as i64).saturating_mul(bar(k)));
    windows.max().unwrap_or(0).saturating_add(shortest.saturating_mul(shape.horizons as i64))
}

/// A scaler that was fitted on bars of the validation or test span carries knowledge of them into training.
fn check_scalers(source: &Source, split: &Split) -> Result<()> {
    let Some(series) = source.series() else { return Ok(()) };
    for timeframe in series.file().timeframes() {
        if let Some(scaler) = timeframe.scaler()
            && scaler.kind != "none"
            && scaler.fit_end_time > split.validation_start_ns
        {
            return Err(Failure::data(format!(
                "{}: /scaler/{}: fitted on bars up to {}, but training ends at {}, so that validation would have shaped the features; \
                 give `ingest --train-fraction` the first number of data.split, or make that number larger",
                source.path().display(),
                timeframe.name(),
                utc(scaler.fit_end_time),
                utc(split.validation_start_ns),
            )));
        }
    }
    Ok(())
}

/// A time as people write it.
pub(crate) fn utc(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(time_ns.into())
        .map_or_else(|_| "the end".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}
