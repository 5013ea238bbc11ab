#![forbid(unsafe_code)]

//! Upper bounds of a run's batches.

use megabatch_nn::batch::{Grain, Runs, Series, SeriesView};
use megabatch_nn::graph::{Graphs, check_graphs};
use megabatch_nn::memory::{LargestBatch, LargestGraphs};
use megabatch_nn::model::SampleShape;
use megabatch_order::LastBatch;

use super::runs::{MostRuns, Pieces};
use crate::config::Config;
use crate::data::kept_windows::{can_keep_graphs, can_keep_windows};
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Samples, resident_series};
use crate::error::Result;

/// Bound of the batches of a run that trains on `train` and validates on `validation`.
///
/// # Errors
/// Whatever is wrong with series.
pub(crate) fn largest_batch(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
) -> Result<LargestBatch> {
    let is_weighted = config.is_weighted(samples);
    Ok(LargestBatch { is_weighted, ..largest_windows(config, samples, train, validation)? })
}

/// The same but for the weights of samples.
fn largest_windows(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
) -> Result<LargestBatch> {
    let (shape, steps) = (samples.shape(), steps_of(samples));
    if let Some(graphs) = samples.graphs().filter(|_| config.model.is_over_graphs()) {
        return largest_batch_of_graphs(config, samples, graphs, train, validation);
    }
    let sizes_learnt = match config.purpose().runs() {
        Some(runs) => sizes_in_runs(config, runs, train.len()),
        None => sizes_of_training(config, train.len()),
    };
    let sizes = distinct_sizes([sizes_learnt.clone(), sizes_of_validation(config, validation.len())].concat());
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let rest = LargestBatch { shares_bars: shares_bars(samples), ..LargestBatch::default() };
    let Some(view) = resident_series(samples) else {
        let windows = vec![largest; shape.timeframes.len()];
        let bars = shape.timeframes.iter().map(|timeframe| largest * timeframe.steps).collect();
        let kept_windows = kept_windows(config, samples);
        return Ok(LargestBatch { sizes, sizes_learnt, steps, windows, bars, kept_windows, ..rest });
    };
    view.check(shape)?;
    let pieces = Pieces::new(config, train.len());
    if let Some(runs) = config.purpose().runs() {
        return Ok(largest_batch_of_runs(runs, shape, &view, train, pieces, sizes_learnt));
    }
    let (mut windows, mut bars, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (series, timeframe) in view.timeframes.iter().zip(&shape.timeframes) {
        let rows = series.values.len() / timeframe.features.max(1);
        let in_training = Covered::most(series, train, timeframe.steps, pieces.len).times(pieces.count);
        let in_validation = Covered::most(series, validation, timeframe.steps, config.batch_size);
        windows.push(in_training.windows.max(in_validation.windows).min(largest).min(rows));
        bars.push(in_training.bars.max(in_validation.bars).min(largest * timeframe.steps).min(rows));
        all.push(rows);
    }
    let series = config.keeps_series_on_gpu().then_some(all);
    Ok(LargestBatch { sizes, sizes_learnt, steps, windows, bars, series, ..rest })
}

/// Bound of dense training on the samples `train`, in batches of these sizes. The CPU validates, in
/// one pass over each segment.
fn largest_batch_of_runs(
    runs: Runs,
    shape: &SampleShape,
    view: &SeriesView<'_>,
    train: &SampleRanges,
    pieces: Pieces,
    sizes: Vec<usize>,
) -> LargestBatch {
    let MostRuns { count, steps } = MostRuns::new(runs, shape, view, train, pieces);
    let count = count.min(sizes.iter().copied().max().unwrap_or(0));
    let rows = view.timeframes.iter().zip(&shape.timeframes);
    let rows: Vec<usize> = rows.map(|(series, timeframe)| series.values.len() / timeframe.features.max(1)).collect();
    let windows: Vec<usize> = rows.iter().map(|&rows| count.min(rows)).collect();
    // The last window goes on past the last bar.
    let covered = |(k, &steps): (usize, &usize)| (windows[k] * steps).min(rows[k] + steps);
    let bars = steps.iter().enumerate().map(covered).collect();
    let rest = LargestBatch { shares_bars: true, series: Some(rows), ..LargestBatch::default() };
    LargestBatch { sizes_learnt: sizes.clone(), sizes, steps, windows, bars, ..rest }
}

/// Bound of a run on graphs: the graphs with most nodes may come together, and share no windows.
fn largest_batch_of_graphs(
    config: &Config,
    samples: &dyn Samples,
    graphs: &dyn Graphs,
    train: &SampleRanges,
    validation: &SampleRanges,
) -> Result<LargestBatch> {
    let shape = samples.shape();
    let most_nodes = |list: &SampleRanges| {
        let mut nodes: Vec<usize> = list.iter().map(|graph| graphs.nodes(graph).len()).collect();
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        nodes.iter().take(config.batch_size).sum::<usize>()
    };
    check_graphs(graphs, train.iter())?;
    check_graphs(graphs, validation.iter())?;
    let (learnt, count) = (most_nodes(train), train.len().max(validation.len()).min(config.batch_size));
    let nodes = learnt.max(most_nodes(validation));
    let (mut windows, mut bars) =
        (vec![nodes; shape.timeframes.len()], shape.timeframes.iter().map(|tf| nodes * tf.steps).collect::<Vec<_>>());
    let series = resident_series(samples).map(|view| {
        let rows =
            view.timeframes.iter().zip(&shape.timeframes).map(|(series, tf)| series.values.len() / tf.features.max(1));
        rows.collect::<Vec<usize>>()
    });
    for (k, &rows) in series.iter().flatten().enumerate() {
        (windows[k], bars[k]) = (windows[k].min(rows), bars[k].min(rows));
    }
    let graphs = Some(LargestGraphs {
        graphs: count,
        edges: count * graphs.largest().1,
        kept: (config.keep_graphs && can_keep_graphs(graphs)).then(|| [graphs.total_nodes(), graphs.total_edges()]),
    });
    let (sizes, sizes_learnt, steps) = (vec![nodes], vec![learnt], steps_of(samples));
    let (kept_windows, series) = (kept_windows(config, samples), series.filter(|_| config.keeps_series_on_gpu()));
    let rest = LargestBatch { shares_bars: shares_bars(samples), kept_windows, graphs, ..LargestBatch::default() };
    Ok(LargestBatch { sizes, sizes_learnt, steps, windows, bars, series, ..rest })
}

/// True if windows of `samples` are slices of series, and come as such.
fn shares_bars(samples: &dyn Samples) -> bool {
    samples.streamed_series().is_some() || resident_series(samples).is_some()
}

/// Stored windows of each timeframe that a GPU keeps.
fn kept_windows(config: &Config, samples: &dyn Samples) -> usize {
    if config.keep_windows && can_keep_windows(samples) { samples.len() } else { 0 }
}

/// T of each timeframe.
fn steps_of(samples: &dyn Samples) -> Vec<usize> {
    samples.shape().timeframes.iter().map(|timeframe| timeframe.steps).collect()
}

/// Batch sizes of training on `samples` samples.
fn sizes_of_training(config: &Config, samples: usize) -> Vec<usize> {
    let last_step = if config.last_batch == LastBatch::Drop { 0 } else { samples % config.step_samples() };
    let full = if samples >= config.batch_size { config.batch_size } else { 0 };
    distinct_sizes(vec![full, last_step % config.batch_size])
}

/// Batch sizes of dense training, whose batches end where runs end.
fn sizes_in_runs(config: &Config, runs: Runs, samples: usize) -> Vec<usize> {
    let step = config.step_samples();
    let whole = if config.last_batch == LastBatch::Drop { samples / step * step } else { samples };
    let steps = (0..whole).step_by(step).map(|start| start..whole.min(start.saturating_add(step)));
    let batches = steps.flat_map(|step| runs.batches_of_step(step, config.batch_size, Grain::Runs));
    distinct_sizes(batches.map(|batch| batch.len()).collect())
}

/// Batch sizes of a validation.
fn sizes_of_validation(config: &Config, samples: usize) -> Vec<usize> {
    distinct_sizes(vec![samples.min(config.batch_size), samples % config.batch_size])
}

/// The sizes above 0, each once.
fn distinct_sizes(mut sizes: Vec<usize>) -> Vec<usize> {
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|&size| size > 0);
    sizes
}

/// Number of distinct windows, and of the bars that they cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Covered {
    windows: usize,
    bars: usize,
}

impl Covered {
    /// The most of any `len` consecutive samples of `list`, with windows of `steps` bars.
    fn most(series: &Series<'_>, list: &SampleRanges, steps: usize, len: usize) -> Self {
        // What each sample adds to those before it; a list that goes back covers what it covers
        // once more.
        let alone = Covered { windows: 1, bars: steps };
        let adds = |(before, sample)| match series.ends[sample] - series.ends[before] {
            0 => Covered::default(),
            gap if gap > 0 => Covered { windows: 1, bars: steps.min(gap as usize) },
            _ => alone,
        };
        let added = || list.iter().zip(list.iter().skip(1)).map(adds);
        if list.is_empty() {
            return Covered::default();
        }
        let (mut now, mut most) = (alone, alone);
        let mut leaving = added();
        for (k, next) in added().enumerate() {
            now = now.plus(next);
            if k + 2 > len {
                let leaves = leaving.next().expect("it was added before");
                now = Covered { windows: now.windows - leaves.windows, bars: now.bars - leaves.bars };
            }
            most = Covered { windows: most.windows.max(now.windows), bars: most.bars.max(now.bars) };
        }
        most
    }

    fn plus(self, other: Self) -> Self {
        Covered { windows: self.windows + other.windows, bars: self.bars + other.bars }
    }

    fn times(self, count: usize) -> Self {
        Covered { windows: self.windows * count, bars: self.bars * count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(ends: &[i64]) -> Series<'_> {
        Series { values: &[], ends, segment_starts: &[] }
    }

    #[test]
    fn what_windows_have_in_common_is_counted_once() {
        let ends = [9, 9, 10, 14, 14, 30, 9];
        let list = SampleRanges::from(0..7);
        for (len, windows, bars) in [(1, 1, 4), (2, 2, 8), (3, 3, 12), (4, 3, 12), (5, 4, 16), (7, 5, 17), (9, 5, 17)] {
            let found = Covered::most(&series(&ends), &list, 4, len);
            assert_eq!(found, Covered { windows, bars }, "{len} at once");
        }
        assert_eq!(Covered::most(&series(&ends), SampleRanges::NONE, 4, 3), Covered::default());
    }

    #[test]
    fn batches_of_an_epoch_and_of_a_validation_have_few_sizes() {
        let config = Config { batch_size: 8, accumulation_steps: 2, ..Config::default() };
        assert_eq!(sizes_of_training(&config, 42), [2, 8]);
        assert_eq!(sizes_of_training(&config, 5), [5]);
        assert_eq!(sizes_of_training(&Config { last_batch: LastBatch::Drop, ..config.clone() }, 42), [8]);
        let validation_sizes = [0, 3, 8, 13].map(|samples| sizes_of_validation(&config, samples));
        assert_eq!(validation_sizes, [vec![], vec![3], vec![8], vec![5, 8]]);
    }
}
