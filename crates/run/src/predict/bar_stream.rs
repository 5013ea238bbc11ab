//! A model that predicts the bars of one instrument as they come. Series and states advance
//! together, a bar at a time.

use megabatch_bars::{Bar, Bars, FunctionStream, GapPolicy, SeriesStep, SeriesStream};
use megabatch_nn_cpu::StreamingPredictor;

use crate::error::Result;

/// Numbers of a timeframe that are replayed at once: enough for products of many rows, in little
/// memory.
const REPLAYED_LEN_MAX: usize = 1 << 16;

/// Origin of the model's states at a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streaming {
    /// States advance a step a bar, for models that were trained with carried states.
    Carried,
    /// Each window is computed anew from zeros, as the model was trained: as many steps a bar as
    /// its windows have.
    Windows,
}

/// The series of an instrument and the model's states after its last bar.
pub(crate) struct BarStream<'a> {
    series: SeriesStream,
    /// Functions among the features.
    functions: Option<FunctionStream<'a>>,
    follower: StreamingPredictor,
    /// The last rows of each timeframe, `[T, F]` at most, where windows are computed anew.
    windows: Option<Vec<Vec<f32>>>,
}

impl<'a> BarStream<'a> {
    /// A stream without bars. The model's timeframes are those of the series.
    pub(crate) fn new(series: SeriesStream, follower: StreamingPredictor, streaming: Streaming) -> Self {
        let count = series.windows().len();
        assert_eq!(count, follower.model().shape().timeframes.len(), "a state a timeframe");
        let windows = (streaming == Streaming::Windows).then(|| vec![Vec::new(); count]);
        BarStream { series, functions: None, follower, windows }
    }

    /// The stream with functions among its features; bars that are replayed have their columns.
    pub(crate) fn with_functions(self, functions: Option<FunctionStream<'a>>) -> Self {
        BarStream { functions, ..self }
    }

    /// Replays bars of the past, and gives the step of the last one. The states depend on the last
    /// segment alone. Nothing is predicted.
    pub(crate) fn replay(&mut self, bars: &Bars, holes: GapPolicy) -> Result<Option<SeriesStep>> {
        let Some(segment) = holes.segments(bars).pop() else { return Ok(None) };
        let mut rows = vec![Vec::new(); self.series.windows().len()];
        let mut last = None;
        self.restart();
        for index in segment {
            last = Some(self.series.push(&bars.bar(index))?);
            if self.windows.is_some() {
                self.keep_rows();
                continue;
            }
            for (k, rows) in rows.iter_mut().enumerate() {
                rows.extend_from_slice(self.series.closed(k));
                if rows.len() >= REPLAYED_LEN_MAX {
                    self.follower.push(k, rows);
                    rows.clear();
                }
            }
        }
        rows.iter().enumerate().for_each(|(k, rows)| self.follower.push(k, rows));
        Ok(last)
    }

    /// Takes the next bar into the series: resampling, features and scaling.
    pub(crate) fn close(&mut self, bar: &Bar) -> Result<SeriesStep> {
        let Some(functions) = &mut self.functions else { return Ok(self.series.push(bar)?) };
        let mut bar = bar.clone();
        functions.widen(&mut bar);
        Ok(self.series.push_with(&bar, &mut |timeframe, closed| functions.complete(timeframe, closed))?)
    }

    /// Advances the states by the rows that closed with the bar of `step`, the last one. Returns
    /// the outputs [K, M] if the bar has a sample.
    pub(crate) fn predict(&mut self, step: SeriesStep) -> Option<Vec<f32>> {
        if step.begins_segment {
            self.restart();
        }
        match self.windows {
            Some(_) => self.keep_rows(),
            None => (0..self.series.windows().len()).for_each(|k| self.follower.push(k, self.series.closed(k))),
        }
        self.outputs(step)
    }

    /// The outputs [K, M] after the bar of `step`, the last one, if it has a sample.
    pub(crate) fn outputs(&mut self, step: SeriesStep) -> Option<Vec<f32>> {
        if !step.has_full_windows {
            return None;
        }
        if let Some(windows) = &self.windows {
            self.follower.restart();
            windows.iter().enumerate().for_each(|(k, rows)| self.follower.push(k, rows));
        }
        Some(self.follower.predict())
    }

    /// Bars that must close until windows are full, by timeframe; empty if all are.
    pub(crate) fn bars_needed(&self) -> Vec<(String, usize)> {
        let needed = self
            .series
            .windows()
            .enumerate()
            .map(|(k, window)| (window.timeframe.to_string(), self.series.bars_needed(k)));
        needed.filter(|(_, bars)| *bars > 0).collect()
    }

    /// A segment begins.
    fn restart(&mut self) {
        self.follower.restart();
        self.windows.iter_mut().flatten().for_each(Vec::clear);
    }

    /// Keeps the rows that closed last, and as many before them as a window has.
    fn keep_rows(&mut self) {
        let shapes = &self.follower.model().shape().timeframes;
        for (k, rows) in self.windows.iter_mut().flatten().enumerate() {
            rows.extend_from_slice(self.series.closed(k));
            let surplus = rows.len().saturating_sub(shapes[k].steps * shapes[k].features);
            rows.drain(..surplus);
        }
    }
}
