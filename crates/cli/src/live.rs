//! A model that follows the bars of one instrument: its series and its states go on together, a bar at a time.

use anyhow::Result;
use megabatch_bars::{Bar, Bars, HoleRule, SeriesStream, Step};
use megabatch_trainer::Follower;

/// Numbers of a timeframe that are replayed at once: enough for products of many rows, and no memory to speak of.
const REPLAYED_LEN_MAX: usize = 1 << 16;

/// The series of an instrument and the model's states after its last bar.
pub(crate) struct Live {
    series: SeriesStream,
    follower: Follower,
}

impl Live {
    /// Neither has seen a bar. The model's timeframes are those of the series.
    pub(crate) fn new(series: SeriesStream, follower: Follower) -> Self {
        assert_eq!(series.windows().len(), follower.model().shape().timeframes.len(), "a state a timeframe");
        Live { series, follower }
    }

    /// The states after bars that are history: they depend on the last segment alone, of which nothing is predicted.
    pub(crate) fn replay(&mut self, bars: &Bars, holes: HoleRule) -> Result<()> {
        let Some(segment) = holes.segments(bars).pop() else { return Ok(()) };
        let mut rows = vec![Vec::new(); self.series.windows().len()];
        self.follower.restart();
        for index in segment {
            self.series.push(&bars.bar(index))?;
            for (k, rows) in rows.iter_mut().enumerate() {
                rows.extend_from_slice(self.series.closed(k));
                if rows.len() >= REPLAYED_LEN_MAX {
                    self.follower.push(k, rows);
                    rows.clear();
                }
            }
        }
        rows.iter().enumerate().for_each(|(k, rows)| self.follower.push(k, rows));
        Ok(())
    }

    /// Takes the next bar into the series: resampling, features and scaling.
    pub(crate) fn close(&mut self, bar: &Bar) -> Result<Step> {
        Ok(self.series.push(bar)?)
    }

    /// Moves the states on by the rows that closed with the bar of `step`, which is the last one. The outputs [K, M] where a sample stands at it.
    pub(crate) fn predict(&mut self, step: Step) -> Option<Vec<f32>> {
        if step.begins_segment {
            self.follower.restart();
        }
        for k in 0..self.series.windows().len() {
            self.follower.push(k, self.series.closed(k));
        }
        step.has_full_windows.then(|| self.follower.predict())
    }
}
