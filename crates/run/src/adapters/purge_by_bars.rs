//! The purge of earlier versions, which counted bars and took every bin to be full: a run that
//! began with it goes on with it.

use megabatch_bars::Timeframe;
use megabatch_chunk_io::{AttributeValue, SeriesSource, Source};

use crate::error::Result;

/// When each sample's label ends, by bars of the shortest timeframe: too early where bars of the
/// base are missing.
pub(super) fn label_end_times(series: &SeriesSource) -> Result<Vec<i64>> {
    let file = series.file();
    file.load_index()?;
    let shortest = &file.timeframes()[0];
    let last_of = |sample: usize| match file.sample_instruments() {
        Some(instruments) => shortest.instrument_starts()[instruments[sample] as usize + 1] as usize - 1,
        None => shortest.close_times().len() - 1,
    };
    let ahead = series.close_times_ahead(horizon_bars(series)?).enumerate();
    Ok(ahead.map(|(sample, end)| end.unwrap_or_else(|| shortest.close_times()[last_of(sample)])).collect())
}

/// Horizon of the targets, in bars of the shortest timeframe.
fn horizon_bars(series: &SeriesSource) -> Result<usize> {
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
        (Some(base), Some(shortest)) if base < shortest => horizon.div_ceil((shortest / base) as usize) + 1,
        _ => horizon,
    })
}

/// The time from the first bar of the longest window of a windows file to the end of its label, as
/// if no bar were missing.
pub(super) fn reach_of_windows(source: &Source, times: &[i64]) -> i64 {
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
