#![forbid(unsafe_code)]

//! Bars of a series whose states are carried or read.

use megabatch_nn::batch::SeriesView;

use crate::data::samples::Samples;
use crate::error::{Error, Result};

/// The bars whose states are carried, by timeframe, ascending.
///
/// # Errors
/// [`Error::NeedsSeries`] for samples that are not slices of series; as [`SeriesView::check`] and
/// [`SeriesView::window_start`].
pub(crate) fn carried_rows(samples: &dyn Samples, indices: &[usize]) -> Result<Vec<Vec<usize>>> {
    let (shape, series) = (samples.shape(), series_of(samples)?);
    let rows = |k: usize| {
        let mut rows = Vec::new();
        for &sample in indices {
            let start = series.window_start(shape, k, sample)?;
            if start > series.timeframes[k].segment_start(start) {
                rows.push(start - 1);
            }
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(rows)
    };
    (0..shape.timeframes.len()).map(rows).collect()
}

/// The series of samples whose states are to be carried from bar to bar.
pub(crate) fn series_of(samples: &dyn Samples) -> Result<SeriesView<'_>> {
    let Some(series) = samples.series() else {
        let expected = "false for samples that are stored as windows, which do not tell what bar came before";
        return Err(Error::NeedsSeries { setting: "carry_state", value: "true", expected });
    };
    series.check(samples.shape())?;
    Ok(series)
}

/// The rows of the last bars of the windows of `indices`, by timeframe, ascending.
///
/// # Errors
/// As [`carried_rows`].
pub(crate) fn distinct_ends(samples: &dyn Samples, indices: &[usize]) -> Result<Vec<Vec<usize>>> {
    let (shape, series) = (samples.shape(), series_of(samples)?);
    let ends = |k: usize| {
        let end = |&sample: &usize| Ok(series.window_start(shape, k, sample)? + shape.timeframes[k].steps - 1);
        let mut ends = indices.iter().map(end).collect::<Result<Vec<_>>>()?;
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    };
    (0..shape.timeframes.len()).map(ends).collect()
}
