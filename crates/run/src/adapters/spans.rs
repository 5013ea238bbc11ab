//! Span of time that each sample uses: from its earliest bar to the end of its labels.

use std::borrow::Cow;

use megabatch_chunk_io::{AttributeValue, SeriesColumn, SeriesSource, Source, longest_bar_ns};
use megabatch_trainer::reckoning::{BarCount, LongerBars, SampleCalendars, fill_label_ends, nearer};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::plural;

/// Spans of the samples of a file.
pub(crate) struct SampleSpans<'a> {
    /// `[N]` open of the earliest bar of each sample, ns; the smallest number if it is unknown.
    pub(crate) reach_ns: Cow<'a, [i64]>,
    /// `[N]` close of the last bar of each sample's targets, ns.
    pub(crate) label_end_ns: Cow<'a, [i64]>,
    /// A note, a sentence without its full stop, if the file lacks spans and they are bounds.
    pub(crate) note: Option<String>,
    /// A warning, a sentence without its full stop, if spans rest on an assumption. If it is wrong,
    /// labels reach into later parts.
    pub(crate) warning: Option<String>,
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

    /// True if the file has the ends of its labels.
    pub(crate) fn is_known(source: &Source) -> bool {
        source.series().is_some() || source.sample_label_end_times().is_some()
    }
}

fn series_spans<'a>(source: &'a Source, series: &'a SeriesSource) -> Result<SampleSpans<'a>> {
    series.file().load_index()?;
    let reach_ns = match source.sample_reach_times() {
        Some(reach_ns) => Cow::Borrowed(reach_ns),
        None => Cow::Owned(window_starts(source, series)?),
    };
    if let Some(label_end_ns) = source.sample_label_end_times() {
        return Ok(SampleSpans { reach_ns, label_end_ns: Cow::Borrowed(label_end_ns), note: None, warning: None });
    }
    let file = series.file();
    let (times, bars) = (file.sample_times(), horizon_bars(source)?);
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
    let label_end_ns = Cow::Owned(fill_label_ends(times, &label_end_ns));
    Ok(SampleSpans { reach_ns, label_end_ns, note, warning: None })
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

/// Close of the last bar of each instrument, as recorded by `ingest`.
fn instrument_ends(source: &Source) -> Result<Vec<Option<i64>>> {
    let provenance: Value = match source.attribute("source")? {
        Some(AttributeValue::Text(text)) => serde_json::from_str(&text).unwrap_or_default(),
        _ => Value::Null,
    };
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
fn window_starts(source: &Source, series: &SeriesSource) -> Result<Vec<i64>> {
    let is_ordinal = source.attribute("time_kind")? == Some(AttributeValue::from("ordinal"));
    let timeframes = series.file().timeframes();
    let mut starts = vec![i64::MAX; series.file().shape().samples];
    for (k, timeframe) in timeframes.iter().enumerate() {
        // Where times are ordinals, or the name tells no duration, bars' close times stand in.
        let duration_ns = longest_bar_ns(timeframe.name()).filter(|_| !is_ordinal).unwrap_or(0);
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
            warning: None,
        });
    }
    let reckoned = match source.sample_times() {
        Some(_) => WindowsReckoning::by_time(source, times)?,
        None => WindowsReckoning::by_number(source, times)?,
    };
    Ok(SampleSpans {
        reach_ns: reach.map_or(Cow::Owned(reckoned.reach_ns), Cow::Borrowed),
        label_end_ns: label_end.map_or(Cow::Owned(reckoned.label_end_ns), Cow::Borrowed),
        note: None,
        warning: Some(assumptions(source)?),
    })
}

/// A warning of the assumptions on windows that do not tell their spans, with the remedy.
fn assumptions(source: &Source) -> Result<String> {
    let path = source.path().display();
    let apart = match (source.sample_times().is_some(), source.calendar_of_samples().is_some()) {
        (false, _) => "from its number to the next, as if every bar had a sample and all were of one instrument",
        (true, false) => {
            "from one time in /timestamps to the next, as if all samples were of one instrument (/samples/instrument \
             is not there)"
        }
        (true, true) => "from one time in /timestamps of its instrument to the next",
    };
    let ahead = plural(horizon_bars(source)?, "sample");
    let window = "the time from the first bar of a window to the end of its label, such as data.purge=8d";
    Ok(match source.sample_label_end_times() {
        None => format!(
            "{path} does not tell when its labels end (/samples/label_end_time): data.purge=auto takes each to end {ahead} later, {apart}. \
             Labels that end later leak into validation and test, whose errors then flatter the model: store the list, or give {window}"
        ),
        Some(_) => format!(
            "{path} does not tell how far its samples look back (/samples/reach_time): data.purge=auto counts the bars of a window {apart}. \
             Windows and features that look back further see labels of an earlier part: store the list, or give {window}"
        ),
    })
}

/// Spans of windows, from the times or the numbers of their samples.
struct WindowsReckoning {
    reach_ns: Vec<i64>,
    label_end_ns: Vec<i64>,
}

impl WindowsReckoning {
    /// From `times`: a bar lies between two samples at least, or of a timeframe whose name tells a
    /// duration, in every such stretch of time that has a sample.
    fn by_time(source: &Source, times: &[i64]) -> Result<Self> {
        let shape = source.shape();
        let durations = durations(source)?;
        let calendars = SampleCalendars::new(times, source.calendar_of_samples());
        // Samples stand at closes of the base, which is the shortest timeframe if no other is named
        // and no sample lies within its bars.
        let least_ns = least_distance(times, &calendars);
        let shortest = durations[0].filter(|&shortest| least_ns.is_none_or(|least_ns| least_ns >= shortest));
        let base = base_ns(source)?.or(shortest);
        let mut reach_ns = vec![i64::MAX; shape.samples];
        for (timeframe, duration_ns) in shape.timeframes.iter().zip(&durations) {
            let is_base = duration_ns.is_some() && *duration_ns == base;
            let bars = timeframe.steps - usize::from(is_base);
            let back = calendars.back(BarCount { bars, bar_ns: duration_ns.unwrap_or(1) });
            for (reach, back) in reach_ns.iter_mut().zip(back) {
                *reach = (*reach).min(back.map_or(i64::MIN, |back| back - duration_ns.unwrap_or(0)));
            }
        }
        let (bar_ns, beyond_ns) = match (base, durations[0]) {
            (Some(base), _) => (base, 0),
            (None, Some(shortest)) => (shortest, shortest),
            (None, None) => (1, 0),
        };
        let ahead = calendars.ahead(BarCount { bars: horizon_bars(source)?, bar_ns });
        let label_end: Vec<Option<i64>> = ahead.into_iter().map(|end| end.map(|end| end + beyond_ns)).collect();
        Ok(WindowsReckoning { reach_ns, label_end_ns: fill_label_ends(times, &label_end) })
    }

    /// From `numbers`, where the file has no times: the shortest timeframe is taken to have a bar a
    /// sample.
    fn by_number(source: &Source, numbers: &[i64]) -> Result<Self> {
        let shape = source.shape();
        let durations = durations(source)?;
        let ratio = |k: usize| match (durations[k], durations[0]) {
            (Some(duration), Some(shortest)) => duration / shortest,
            _ => 1,
        };
        let windows = shape.timeframes.iter().enumerate();
        let back = windows.map(|(k, timeframe)| (timeframe.steps as i64).saturating_mul(ratio(k))).max().unwrap_or(0);
        let ahead = i64::try_from(horizon_bars(source)?).unwrap_or(i64::MAX);
        Ok(WindowsReckoning {
            reach_ns: numbers.iter().map(|number| number.saturating_sub(back)).collect(),
            label_end_ns: numbers.iter().map(|number| number.saturating_add(ahead)).collect(),
        })
    }
}

/// The smallest time between two samples of one calendar.
fn least_distance(times: &[i64], calendars: &SampleCalendars) -> Option<i64> {
    let previous = calendars.back(BarCount { bars: 1, bar_ns: 1 });
    times.iter().zip(previous).filter_map(|(time, previous)| previous.map(|previous| time - previous)).min()
}

/// The duration of each timeframe of windows, where its name tells it.
///
/// # Errors
/// A usage failure for a timeframe of several whose name tells none: how many samples its bars go
/// back over is anyone's guess.
fn durations(source: &Source) -> Result<Vec<Option<i64>>> {
    let timeframes = &source.shape().timeframes;
    let durations: Vec<_> = timeframes.iter().map(|timeframe| longest_bar_ns(timeframe.name.as_deref()?)).collect();
    let unknown = durations.iter().position(Option::is_none).filter(|_| timeframes.len() > 1);
    match unknown.and_then(|k| timeframes[k].name.as_deref()) {
        None => Ok(durations),
        Some(name) => Err(Error::usage(format!(
            "data.purge is auto, and {} does not tell how far a window of {name} reaches back: name the timeframe by its duration, such as M5 or \
             H1, or give the time to leave out, such as data.purge=8d",
            source.path().display()
        ))),
    }
}

/// Horizon of the farthest target, in bars: the file's attribute, or else the number of targets.
fn horizon_bars(source: &Source) -> Result<usize> {
    let told = match source.attribute("horizon_bars")? {
        Some(AttributeValue::Int(bars)) => usize::try_from(bars).ok(),
        _ => None,
    };
    Ok(told.unwrap_or(source.shape().horizons))
}

/// Bars of a series' shortest timeframe to the end of its farthest target; `None` where targets
/// count shorter bars than any of the series, though the file does not tell when labels end.
pub(super) fn reckoned_horizon(source: &Source) -> Result<Option<usize>> {
    let shortest = source.shape().timeframes[0].name.as_deref().and_then(longest_bar_ns);
    let counts_shorter = matches!((base_ns(source)?, shortest), (Some(base), Some(shortest)) if base < shortest);
    match counts_shorter && source.series().is_some_and(|series| !series.file().has_column(SeriesColumn::LabelEndTime))
    {
        true => Ok(None),
        false => horizon_bars(source).map(Some),
    }
}

/// The duration of the bars that targets count, where the file tells it.
fn base_ns(source: &Source) -> Result<Option<i64>> {
    Ok(match source.attribute("base")? {
        Some(AttributeValue::Text(name)) => longest_bar_ns(&name),
        _ => None,
    })
}
