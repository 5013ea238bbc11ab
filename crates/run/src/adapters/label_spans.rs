//! Spans of time of the targets of cross-sections, from which overlapping days follow.

use megabatch_bars::{TargetKind, Timeframe};
use megabatch_chunk_io::{AttributeValue, SeriesSource};
use megabatch_nn::graph::LabelSpan;

use crate::error::Result;

/// Begin and end of the targets of a series' samples.
pub(super) struct LabelSpans {
    ends: LabelEnds,
    /// True if a target begins where the target before ends; false if all begin at the sample's
    /// time.
    are_increments: bool,
}

/// Ends of the targets of a series' samples.
enum LabelEnds {
    /// Rows of the shortest timeframe from a sample's last row to the end of each target, `[K]`.
    Rows(Vec<usize>),
    /// The end of the farthest target of each sample is in the file.
    Stored,
    Unknown,
}

impl LabelSpans {
    /// The spans of the targets of `series`, from its horizon or, without one, from the ends of its
    /// labels.
    ///
    /// # Errors
    /// An attribute of the file cannot be read.
    pub(super) fn from_series(series: &SeriesSource) -> Result<Self> {
        let file = series.file();
        file.load_index()?;
        let targets = file.shape().horizons;
        let Some(horizon) = file.horizon_bars()? else {
            let are_stored = file.span_times().label_end_times().is_some();
            let ends = if are_stored { LabelEnds::Stored } else { LabelEnds::Unknown };
            return Ok(LabelSpans { ends, are_increments: false });
        };
        let text = |value| if let Some(AttributeValue::Text(text)) = value { Some(text) } else { None };
        let duration = |name: &str| name.parse().ok().map(Timeframe::duration_ns);
        let base = text(file.attribute("base")?).and_then(|name| duration(&name));
        let kind = text(file.attribute("target_kind")?);
        let rows = |bars: usize| match (base, duration(file.timeframes()[0].name())) {
            // A sample may lie anywhere within a row, so that one more is reached.
            (Some(base), Some(row)) if base < row => bars.div_ceil((row / base) as usize) + 1,
            _ => bars,
        };
        // Targets that are not one a bar may each reach to the end.
        let bars = |target: usize| if horizon == targets { target + 1 } else { horizon };
        Ok(LabelSpans {
            ends: LabelEnds::Rows((0..targets).map(|target| rows(bars(target))).collect()),
            are_increments: horizon == targets && kind == Some(TargetKind::Increment.to_string()),
        })
    }

    /// The span of one target of `samples` of `series`, all taken at `time_ns`; `None` where the
    /// file does not tell it. Instruments whose bars are rare end later than the others: the median
    /// sample counts.
    pub(super) fn last_label_end(
        &self,
        series: &SeriesSource,
        samples: &[usize],
        time_ns: i64,
        target: usize,
    ) -> Option<LabelSpan> {
        let rows = match &self.ends {
            LabelEnds::Rows(rows) => rows,
            LabelEnds::Stored => {
                let ends = series.file().span_times().label_end_times()?;
                let end_ns = median(samples.iter().map(|&sample| ends[sample]).collect());
                return Some(LabelSpan { start_ns: time_ns, end_ns });
            }
            LabelEnds::Unknown => return None,
        };
        let start_ns = match target.checked_sub(1).filter(|_| self.are_increments) {
            Some(before) => median_row_end(series, samples, rows[before]),
            None => time_ns,
        };
        Some(LabelSpan { start_ns, end_ns: median_row_end(series, samples, rows[target]) })
    }
}

/// Close of the row `rows` after a sample's last one, or of the instrument's last row: the median
/// over samples.
fn median_row_end(series: &SeriesSource, samples: &[usize], rows: usize) -> i64 {
    let file = series.file();
    let shortest = &file.timeframes()[0];
    let (closes, instruments) = (shortest.close_times(), file.sample_instruments());
    let end = |&sample: &usize| {
        let rows_end = instruments.map_or(closes.len(), |instruments| {
            shortest.instrument_starts()[instruments[sample] as usize + 1] as usize
        });
        closes[(shortest.sample_ends()[sample] as usize + rows).min(rows_end - 1)]
    };
    median(samples.iter().map(end).collect())
}

fn median(mut times: Vec<i64>) -> i64 {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}
