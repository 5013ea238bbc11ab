//! Spans of time of the targets of cross-sections, from which overlapping days follow.

use megabatch_bars::{TargetKind, Timeframe};
use megabatch_chunk_io::{AttributeValue, SeriesSource};
use megabatch_nn::graph::LabelSpan;

use crate::error::Result;

/// Begin and end of the targets of a series' samples.
pub(super) struct LabelSpans {
    /// Rows of the shortest timeframe from a sample's last row to the end of each target, `[K]`.
    rows: Vec<usize>,
    /// True if a target begins where the target before ends; false if all begin at the sample's
    /// time.
    are_increments: bool,
}

impl LabelSpans {
    /// The spans of the targets of `series`: one target a bar ahead, in base bars.
    ///
    /// # Errors
    /// An attribute of the file cannot be read.
    pub(super) fn from_series(series: &SeriesSource) -> Result<Self> {
        let file = series.file();
        file.load_index()?;
        let targets = file.shape().horizons;
        let horizon = match file.attribute("horizon_bars")? {
            Some(AttributeValue::Int(bars)) => usize::try_from(bars).unwrap_or(targets),
            _ => targets,
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
            rows: (0..targets).map(|target| rows(bars(target))).collect(),
            are_increments: horizon == targets && kind.as_deref() == Some(TargetKind::Increment.name()),
        })
    }

    /// The span of one target of `samples` of `series`, all taken at `time_ns`. Instruments whose
    /// bars are rare end later than the others: the median sample counts.
    pub(super) fn last_label_end(
        &self,
        series: &SeriesSource,
        samples: &[usize],
        time_ns: i64,
        target: usize,
    ) -> LabelSpan {
        let start_ns = match target.checked_sub(1).filter(|_| self.are_increments) {
            Some(before) => median_end(series, samples, self.rows[before]),
            None => time_ns,
        };
        LabelSpan { start_ns, end_ns: median_end(series, samples, self.rows[target]) }
    }
}

/// Close of the row `rows` after a sample's last one, or of the instrument's last row: the median
/// over samples.
fn median_end(series: &SeriesSource, samples: &[usize], rows: usize) -> i64 {
    let file = series.file();
    let shortest = &file.timeframes()[0];
    let (closes, instruments) = (shortest.close_times(), file.sample_instruments());
    let end = |&sample: &usize| {
        let rows_end = instruments.map_or(closes.len(), |instruments| {
            shortest.instrument_starts()[instruments[sample] as usize + 1] as usize
        });
        closes[(shortest.sample_ends()[sample] as usize + rows).min(rows_end - 1)]
    };
    let mut ends: Vec<i64> = samples.iter().map(end).collect();
    let middle = ends.len() / 2;
    *ends.select_nth_unstable(middle).1
}
