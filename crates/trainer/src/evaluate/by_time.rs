//! Samples of several instruments, gathered until those of each time can be correlated.

use std::ops::Range;

use megabatch_nn::graph::LabelSpan;
use megabatch_nn::loss::labelled_rows;

use super::sums::{GroupSums, Rows};
use crate::data::samples::Samples;
use crate::evaluate::metrics::{GraphCorrelations, overlap};

/// Numbers that are kept of predictions, targets and baselines: 64 MiB. Evaluations of more have no
/// correlations.
const VALUES_MAX: usize = 1 << 24;

/// Times whose correlations are told one by one. Evaluations of more have none.
const TIMES_MAX: usize = 20_000;

/// Rows of an evaluation with their times.
#[derive(Default)]
pub(super) struct ByTime {
    samples: Vec<usize>,
    times: Vec<i64>,
    predictions: Vec<f32>,
    targets: Vec<f32>,
    baselines: Vec<(&'static str, Vec<f32>)>,
    /// True once there were more rows than are kept.
    is_full: bool,
}

/// Rows of one time.
struct Section {
    time_ns: i64,
    rows: Range<usize>,
}

impl ByTime {
    /// Adds a batch, whose targets are one group.
    pub(super) fn add(&mut self, samples: &[usize], times: &[i64], batch: Rows<'_>) {
        let baselines = batch.baselines.first().map_or(&[][..], Vec::as_slice);
        let values = batch.predictions.len() + batch.targets.len() * (1 + baselines.len());
        let kept = self.predictions.len() + self.targets.len() * (1 + self.baselines.len());
        if self.is_full || kept + values > VALUES_MAX {
            *self = ByTime { is_full: true, ..ByTime::default() };
            return;
        }
        self.samples.extend(samples);
        self.times.extend(times);
        self.predictions.extend(batch.predictions);
        self.targets.extend(batch.targets);
        if self.baselines.is_empty() {
            self.baselines = baselines.iter().map(|(name, _)| (*name, Vec::new())).collect();
        }
        for ((_, all), (_, own)) in self.baselines.iter_mut().zip(baselines) {
            all.extend(own);
        }
    }

    /// Adds the correlations of each time to `sums`, in order of time, and gives those of the
    /// model. `outputs` is K.
    pub(super) fn correlate(
        self,
        sums: &mut GroupSums,
        samples: &dyn Samples,
        outputs: usize,
    ) -> Vec<GraphCorrelations> {
        let sorted = self.sorted(outputs);
        let mut sections: Vec<Section> = Vec::new();
        for own in sorted.times.chunk_by(|a, b| a == b) {
            let start = sections.last().map_or(0, |last| last.rows.end);
            sections.push(Section { time_ns: own[0], rows: start..start + own.len() });
        }
        let has_several = |section: &Section| {
            let rows = &sorted.targets[section.rows.start * outputs..section.rows.end * outputs];
            labelled_rows(rows, outputs) > 1
        };
        sections.retain(has_several);
        if sections.is_empty() || sections.len() > TIMES_MAX {
            return Vec::new();
        }
        let lag = |target: usize| {
            let span = |Section { time_ns, rows }: &Section| {
                samples.target_span(&sorted.samples[rows.clone()], *time_ns, target)
            };
            let spans: Option<Vec<LabelSpan>> = sections.iter().map(span).collect();
            spans.map_or(0, |spans| overlap(&spans))
        };
        sums.set_lags(&(0..outputs).map(lag).collect::<Vec<usize>>());
        let baselines = [sorted.baselines];
        let rows = Rows { predictions: &sorted.predictions, targets: &sorted.targets, baselines: &baselines };
        sections.iter().for_each(|section| sums.correlate(rows, section.rows.clone()));
        let with_time = |correlations: GraphCorrelations| GraphCorrelations {
            time_ns: Some(sections[correlations.graph].time_ns),
            ..correlations
        };
        sums.by_graph().into_iter().map(with_time).collect()
    }

    /// The rows in order of time, those of one time in the order in which they came.
    fn sorted(self, outputs: usize) -> ByTime {
        let mut order: Vec<usize> = (0..self.times.len()).collect();
        order.sort_by_key(|&row| self.times[row]);
        let in_order = |values: &[f32]| -> Vec<f32> {
            let width = values.len().checked_div(order.len()).unwrap_or(outputs);
            order.iter().flat_map(|&row| values[row * width..(row + 1) * width].iter().copied()).collect()
        };
        ByTime {
            predictions: in_order(&self.predictions),
            targets: in_order(&self.targets),
            baselines: self.baselines.iter().map(|(name, values)| (*name, in_order(values))).collect(),
            samples: order.iter().map(|&row| self.samples[row]).collect(),
            times: order.iter().map(|&row| self.times[row]).collect(),
            is_full: self.is_full,
        }
    }
}
