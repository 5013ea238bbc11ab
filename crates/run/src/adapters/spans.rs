//! Span of time that each sample uses: from its earliest bar to the end of its labels.

use std::borrow::Cow;

use megabatch_chunk_io::{AttributeValue, SeriesColumn, SeriesSource, Source, longest_bar_ns};
use megabatch_trainer::reckoning::{BarCount, LongerBars, SampleCalendars, nearer};
use serde_json::Value;

use super::purge_basis::{
    assumptions, has_ordinal_times, require_bar_lengths, require_horizon, require_times_beside_lists,
    timeframe_without_length, unknown_base, unnamed_instruments,
};
use crate::error::Result;

/// The end of a label that is later than anything the file tells.
pub(super) const UNKNOWN_END: i64 = i64::MAX;

/// Spans of the samples of a file.
pub(crate) struct SampleSpans<'a> {
    /// `[N]` open of the earliest bar of each sample, ns; the smallest number if it is unknown.
    pub(crate) reach_ns: Cow<'a, [i64]>,
    /// `[N]` close of the last bar of each sample's targets, ns; [`UNKNOWN_END`] if it lies beyond
    /// the last sample, or the last bar, of the instrument.
    pub(crate) label_end_ns: Cow<'a, [i64]>,
    /// A note, a sentence without its full stop, if the file lacks spans and they are bounds.
    pub(crate) note: Option<String>,
    /// Assumptions that spans rest on: warnings, sentences without their full stop. If one is
    /// wrong, labels reach into later parts.
    pub(crate) warnings: Vec<String>,
}

impl<'a> SampleSpans<'a> {
    /// The spans of the samples of `source`, taken at `times`, which number them where the file has
    /// none.
    ///
    /// # Errors
    /// A usage failure where the file tells too little to reckon them.
    pub(crate) fn from_source(source: &'a Source, times: &[i64]) -> Result<Self> {
        match source.series() {
            Some(series) => series_spans(source, series),
            None => window_spans(source, times),
        }
    }

    /// True if samples that look back to before the end of a label can be counted: not in windows
    /// without one of the lists, whose spans are bounds, nor where nothing tells how far windows
    /// reach back.
    pub(crate) fn are_exact(source: &Source) -> Result<bool> {
        Ok(match source.series() {
            Some(series) => {
                let file = series.file();
                let has_label_ends = file.has_column(SeriesColumn::LabelEndTime) || source.horizon_bars()?.is_some();
                let has_reach = file.has_column(SeriesColumn::ReachTime) || timeframe_without_length(source)?.is_none();
                has_label_ends && has_reach
            }
            None => source.sample_label_end_times().is_some() && source.sample_reach_times().is_some(),
        })
    }
}

fn series_spans<'a>(source: &'a Source, series: &'a SeriesSource) -> Result<SampleSpans<'a>> {
    series.file().load_index()?;
    let reach_ns = match source.sample_reach_times() {
        Some(reach_ns) => Cow::Borrowed(reach_ns),
        None => Cow::Owned(window_starts(source, series)?),
    };
    if let Some(label_end_ns) = source.sample_label_end_times() {
        return Ok(SampleSpans {
            reach_ns,
            label_end_ns: Cow::Borrowed(label_end_ns),
            note: None,
            warnings: Vec::new(),
        });
    }
    let file = series.file();
    let bars = require_horizon(source)?;
    let shortest = longest_bar_ns(file.timeframes()[0].name());
    let (label_end_ns, note) = match (base_ns(source)?, shortest) {
        (Some(base), Some(shortest)) if base < shortest => {
            let note = format!(
                "{} does not tell when its labels end (/samples/label_end_time), nor every bar that they count: data.purge takes them to end \
                 as late as they may; ingest anew for exact times",
                source.path().display()
            );
            (shorter_label_ends(source, series, bars)?, Some(note))
        }
        _ => (series.close_times_ahead(bars).collect(), None),
    };
    let label_end_ns = Cow::Owned(label_end_ns.into_iter().map(|end| end.unwrap_or(UNKNOWN_END)).collect());
    Ok(SampleSpans { reach_ns, label_end_ns, note, warnings: assumptions(source)? })
}

/// Upper bounds of label ends, if labels count bars that are shorter than any of the series.
fn shorter_label_ends(source: &Source, series: &SeriesSource, bars: usize) -> Result<Vec<Option<i64>>> {
    let file = series.file();
    let shortest = &file.timeframes()[0];
    let instrument_end_ns = instrument_ends(source)?;
    let longer = LongerBars {
        close_time_ns: shortest.close_times(),
        instrument_start: shortest.instrument_starts(),
        segment_start: shortest.segment_starts(),
        instrument_end_ns: &instrument_end_ns,
    };
    let ahead =
        SampleCalendars::new(file.sample_times(), file.sample_instruments()).ahead(BarCount { bars, bar_ns: 1 });
    let instrument_of = |sample: usize| file.sample_instruments().map_or(0, |instruments| instruments[sample] as usize);
    let ends = shortest.sample_ends().iter().zip(ahead).enumerate();
    Ok(ends
        .map(|(sample, (&end, ahead))| nearer(longer.label_end(instrument_of(sample), end as usize, bars), ahead))
        .collect())
}

/// The account of the bars by `ingest`; null in other files.
pub(crate) fn provenance(source: &Source) -> Result<Value> {
    Ok(match source.attribute("source")? {
        Some(AttributeValue::Text(text)) => serde_json::from_str(&text).unwrap_or_default(),
        _ => Value::Null,
    })
}

/// Close of the last bar of each instrument, as recorded by `ingest`.
fn instrument_ends(source: &Source) -> Result<Vec<Option<i64>>> {
    let provenance = provenance(source)?;
    let listed: &[Value] = provenance["instruments"].as_array().map_or(&[], Vec::as_slice);
    let end_of = |instrument: &Value| instrument["last_close_time_ns"].as_i64();
    Ok(match source.instruments() {
        [] => vec![listed.first().filter(|_| listed.len() == 1).and_then(end_of)],
        names => {
            let by_name = |name: &String| listed.iter().find(|instrument| instrument["symbol"] == name.as_str());
            names.iter().map(|name| by_name(name).and_then(end_of)).collect()
        }
    })
}

/// Open of the earliest bar in any window of each sample, without the look-back of features.
///
/// # Errors
/// A usage failure for a timeframe whose name does not tell how long its bars are.
fn window_starts(source: &Source, series: &SeriesSource) -> Result<Vec<i64>> {
    require_bar_lengths(source)?;
    let is_ordinal = has_ordinal_times(source)?;
    let timeframes = series.file().timeframes();
    let mut starts = vec![i64::MAX; series.file().shape().samples];
    for (k, timeframe) in timeframes.iter().enumerate() {
        if is_ordinal {
            let opens = series.window_start_ordinals(k);
            starts.iter_mut().zip(opens).for_each(|(start, open)| *start = (*start).min(open));
            continue;
        }
        let duration_ns = longest_bar_ns(timeframe.name()).expect("it is required where times are no ordinals");
        for (start, first_close) in starts.iter_mut().zip(series.window_start_times(k)) {
            *start = (*start).min(first_close - duration_ns);
        }
    }
    Ok(starts)
}

fn window_spans<'a>(source: &'a Source, times: &[i64]) -> Result<SampleSpans<'a>> {
    let (reach, label_end) = (source.sample_reach_times(), source.sample_label_end_times());
    if let (Some(reach_ns), Some(label_end_ns)) = (reach, label_end) {
        return Ok(SampleSpans {
            reach_ns: Cow::Borrowed(reach_ns),
            label_end_ns: Cow::Borrowed(label_end_ns),
            note: None,
            warnings: Vec::new(),
        });
    }
    require_times_beside_lists(source)?;
    let horizon = label_end.is_none().then(|| require_horizon(source)).transpose()?;
    let reckoning = WindowsReckoning::new(source, times)?;
    let reach_ns = match reach {
        Some(reach_ns) => Cow::Borrowed(reach_ns),
        None => Cow::Owned(reckoning.reach_ns()?),
    };
    let label_end_ns = match (label_end, horizon) {
        (Some(label_end_ns), _) => Cow::Borrowed(label_end_ns),
        (None, bars) => Cow::Owned(reckoning.label_end_ns(bars.expect("it is required without the list"))?),
    };
    Ok(SampleSpans { reach_ns, label_end_ns, note: None, warnings: assumptions(source)? })
}

/// Windows that do not tell their spans, which are counted in samples: each bar of an instrument
/// has one sample at least.
struct WindowsReckoning<'a> {
    source: &'a Source,
    calendars: SampleCalendars,
    /// Duration of the bars that labels count, ns, where it is known.
    counted_ns: Option<i64>,
    /// The same, if samples stand at the closes of these bars.
    base_ns: Option<i64>,
}

impl<'a> WindowsReckoning<'a> {
    /// # Errors
    /// A usage failure where samples are of several instruments and the file does not tell of
    /// which.
    fn new(source: &'a Source, times: &[i64]) -> Result<Self> {
        let instruments = source.sample_instruments();
        if instruments.is_none()
            && let Some(pair) = times.windows(2).position(|pair| pair[1] <= pair[0])
        {
            return Err(unnamed_instruments(source, pair + 1));
        }
        let calendars = SampleCalendars::new(times, instruments);
        // Samples stand at closes of the base, which is the shortest timeframe if no other is
        // named, unless a sample lies within its bars.
        let least_ns = least_distance(times, &calendars);
        let is_apart = |bar_ns: &i64| least_ns.is_none_or(|least_ns| least_ns >= *bar_ns);
        let counted_ns = base_ns(source)?.or(shortest_ns(source));
        let base_ns = counted_ns.filter(|bar_ns| source.sample_times().is_none() || is_apart(bar_ns));
        Ok(WindowsReckoning { source, calendars, counted_ns, base_ns })
    }

    /// When the first bar in any window of each sample opened, at the earliest.
    ///
    /// # Errors
    /// A usage failure for a timeframe whose name does not tell how long its bars are.
    fn reach_ns(&self) -> Result<Vec<i64>> {
        require_bar_lengths(self.source)?;
        let shape = self.source.shape();
        let mut reach_ns = vec![i64::MAX; shape.samples];
        for timeframe in &shape.timeframes {
            let duration_ns = timeframe.name.as_deref().and_then(longest_bar_ns);
            let is_base = duration_ns.is_some() && duration_ns == self.base_ns;
            let (count, open_ns) = match self.source.sample_times() {
                // In every stretch of time as long as a bar that has a sample lies a bar at least.
                Some(_) => {
                    let bar_ns = duration_ns.expect("it is required where samples have times");
                    (BarCount { bars: timeframe.steps - usize::from(is_base), bar_ns }, bar_ns)
                }
                // Samples of the bar that is open, and of those in the window.
                None => {
                    let ratio = match (duration_ns, self.base_ns) {
                        (Some(duration), Some(base)) => usize::try_from(duration / base).unwrap_or(1).max(1),
                        _ => 1,
                    };
                    (BarCount { bars: timeframe.steps.saturating_add(1).saturating_mul(ratio) - 1, bar_ns: 1 }, 0)
                }
            };
            for (reach, back) in reach_ns.iter_mut().zip(self.calendars.back(count)) {
                *reach = (*reach).min(back.map_or(i64::MIN, |back| back - open_ns));
            }
        }
        Ok(reach_ns)
    }

    /// When the label of each sample ends that reads `bars` bars of the base ahead, at the latest.
    ///
    /// # Errors
    /// A usage failure where nothing tells how long these bars are.
    fn label_end_ns(&self, bars: usize) -> Result<Vec<i64>> {
        let (bar_ns, beyond_ns) = match (self.source.sample_times(), self.base_ns, self.counted_ns) {
            (None, ..) => (1, 0),
            (_, Some(base), _) => (base, 0),
            (_, None, Some(counted)) => (counted, counted),
            (_, None, None) => return Err(unknown_base(self.source)),
        };
        let ahead = self.calendars.ahead(BarCount { bars, bar_ns });
        Ok(ahead.into_iter().map(|end| end.map_or(UNKNOWN_END, |end| end + beyond_ns)).collect())
    }
}

/// The smallest time between two samples of one calendar.
fn least_distance(times: &[i64], calendars: &SampleCalendars) -> Option<i64> {
    let previous = calendars.back(BarCount { bars: 1, bar_ns: 1 });
    times.iter().zip(previous).filter_map(|(time, previous)| previous.map(|previous| time - previous)).min()
}

/// Duration of the shortest timeframe, ns, where its name tells it.
fn shortest_ns(source: &Source) -> Option<i64> {
    source.shape().timeframes[0].name.as_deref().and_then(longest_bar_ns)
}

/// Bars of a series' shortest timeframe to the end of its farthest target; `None` where that is
/// unknown, or where targets count shorter bars than any of the series, though the file does not
/// tell when labels end.
pub(super) fn reckoned_horizon(source: &Source) -> Result<Option<usize>> {
    let counts_shorter =
        matches!((base_ns(source)?, shortest_ns(source)), (Some(base), Some(shortest)) if base < shortest);
    match counts_shorter && source.series().is_some_and(|series| !series.file().has_column(SeriesColumn::LabelEndTime))
    {
        true => Ok(None),
        false => Ok(source.horizon_bars()?),
    }
}

/// The duration of the bars that targets count, where the file tells it.
fn base_ns(source: &Source) -> Result<Option<i64>> {
    Ok(match source.attribute("base")? {
        Some(AttributeValue::Text(name)) => longest_bar_ns(&name),
        _ => None,
    })
}
