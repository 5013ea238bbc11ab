//! Upper bounds of a run's batches.

use megabatch_nn::batch::{Grain, Runs, SeriesView};
use megabatch_nn::graph::{Graphs, check_graphs};
use megabatch_nn::memory::{LargestBatch, LargestGraphs};
use megabatch_nn::model::{Encoder, SampleShape};
use megabatch_nn_cpu::SHARD_SAMPLES;
use megabatch_order::{LastBatch, Rank};

use super::covered::{Covered, MostCovered, MostCoveredByGraphs};
use super::runs::{MostRuns, Pieces};
use crate::config::Config;
use crate::data::carried_rows::SlicedSeries;
use crate::data::kept_windows::{can_keep_graphs, can_keep_windows, windows_in_chunk};
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Samples, resident_series, shares_bars};
use crate::data::schedule::Schedule;
use crate::error::Result;
use crate::evaluate::shared::own_part;

#[cfg(test)]
#[path = "../../tests/in_file/mod.rs"]
mod in_file;

/// Sizes of the batches of a rank, or of a run that is alone, but for graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankShare {
    learnt: Vec<usize>,
    validated: Vec<usize>,
}

impl RankShare {
    /// The share of a run that is alone: whole batches.
    fn whole(config: &Config, train: &SampleRanges, validation: &SampleRanges) -> Self {
        let learnt = match config.purpose().runs() {
            Some(runs) => sizes_in_runs(config, runs, train.len()),
            None => sizes_of_training(config, train.len()),
        };
        RankShare { learnt, validated: sizes_of_validation(config, validation.len()) }
    }

    /// The largest batch of training.
    fn learnt_max(&self) -> usize {
        self.learnt.iter().copied().max().unwrap_or(0)
    }

    /// The largest batch of a validation.
    fn validated_max(&self) -> usize {
        self.validated.iter().copied().max().unwrap_or(0)
    }

    /// The largest batch.
    fn largest(&self) -> usize {
        self.validated_max().max(self.learnt_max())
    }

    /// The shares of `ranks`, each once; whole batches of one, and of graphs and dense training.
    ///
    /// # Errors
    /// [`Error::NothingLeft`](crate::Error::NothingLeft) for too few samples of several ranks.
    pub(crate) fn distinct(
        config: &Config,
        train: &SampleRanges,
        validation: &SampleRanges,
        ranks: usize,
    ) -> Result<Vec<Self>> {
        if ranks < 2 || config.model.is_over_graphs() || config.purpose().runs().is_some() {
            return Ok(vec![RankShare::whole(config, train, validation)]);
        }
        let schedule = Schedule::new(config, train.len())?;
        // The last step of an epoch is another one than those before it.
        let steps = [0, schedule.steps_per_epoch - 1].map(|step| schedule.step(step));
        let mut shares: Vec<RankShare> = Vec::new();
        for rank in 0..ranks {
            let rank = Rank::new(rank, ranks)?;
            let own = schedule.for_rank(rank);
            let batches = steps.iter().flat_map(|step| own.own_batches_of(step));
            let share = RankShare {
                learnt: distinct_sizes(batches.map(|batch| batch.len()).collect()),
                validated: sizes_of_validation(config, own_part(validation, SHARD_SAMPLES, rank).len()),
            };
            if !shares.contains(&share) {
                shares.push(share);
            }
        }
        Ok(shares)
    }
}

/// Bound of the batches of a run that trains on `train` and validates on `validation`. The ends of
/// their windows are read from a series in a file.
///
/// # Errors
/// Whatever is wrong with series; [`Error::Gather`](crate::Error::Gather) for a file that cannot be
/// read.
pub(crate) fn largest_batch(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
) -> Result<LargestBatch> {
    let shares = vec![RankShare::whole(config, train, validation)];
    Ok(largest_batches(config, samples, train, validation, shares)?.remove(0))
}

/// Bound of the batches of each of the ranks that take `shares` of them. The ends of windows are
/// read once for all.
///
/// # Errors
/// As [`largest_batch`].
pub(super) fn largest_batches(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
    shares: Vec<RankShare>,
) -> Result<Vec<LargestBatch>> {
    let is_weighted = config.is_weighted(samples);
    let covered = covered_by_shares(config, samples, train, validation, &shares)?;
    let largest = |(n, share): (usize, RankShare)| {
        let covered: Vec<Covered> = covered.iter().map(|by_share| by_share[n]).collect();
        Ok(LargestBatch { is_weighted, ..largest_windows(config, samples, train, validation, share, &covered)? })
    };
    shares.into_iter().enumerate().map(largest).collect()
}

/// Most of the windows and bars that a batch covers, by timeframe and by share.
fn covered_by_shares(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
    shares: &[RankShare],
) -> Result<Vec<Vec<Covered>>> {
    // Dense training on a GPU is that of series in memory, and graphs share no windows.
    let slices = shares_bars(samples) && config.purpose().runs().is_none() && !config.model.is_over_graphs();
    let (sliced, pieces) = (slices.then(|| SlicedSeries::new(samples)).transpose()?, Pieces::new(config, train.len()));
    let covered_in = |(k, steps): (usize, usize)| -> Result<Vec<Covered>> {
        let apart = shares.iter().map(RankShare::largest).map(|windows| Covered { windows, bars: windows * steps });
        let Some(series) = &sliced else { return Ok(apart.collect()) };
        let most = |list: &SampleRanges, lens: &[usize]| -> Result<Vec<Covered>> {
            let mut most: Vec<_> = lens.iter().map(|&len| MostCovered::new(steps, len)).collect();
            series.each_end(k, list, |window| {
                most.iter_mut().for_each(|most| most.push(window.end));
                Ok(())
            })?;
            Ok(most.iter().map(|most| most.most).collect())
        };
        // A rank's share is a part of a batch: of as many pieces at most, which may be shorter.
        let lens: Vec<usize> = shares.iter().map(|share| pieces.len.min(share.learnt_max())).collect();
        let validated: Vec<usize> = shares.iter().map(RankShare::validated_max).collect();
        let (in_training, in_validation) = (most(train, &lens)?, most(validation, &validated)?);
        let rows = series.span(k).bars;
        let covered =
            in_training.into_iter().zip(in_validation).zip(apart).map(|((in_training, in_validation), apart)| {
                let in_training = in_training.times(pieces.count);
                Covered {
                    windows: in_training.windows.max(in_validation.windows).min(apart.windows).min(rows),
                    bars: in_training.bars.max(in_validation.bars).min(apart.bars).min(rows),
                }
            });
        Ok(covered.collect())
    };
    steps_of(samples).into_iter().enumerate().map(covered_in).collect()
}

/// Bound of these batches, which cover `covered` by timeframe, without the weights of samples.
fn largest_windows(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
    share: RankShare,
    covered: &[Covered],
) -> Result<LargestBatch> {
    let (shape, steps, runs) = (samples.shape(), steps_of(samples), config.purpose().runs());
    if let Some(graphs) = samples.graphs().filter(|_| config.model.is_over_graphs()) {
        return largest_batch_of_graphs(config, samples, graphs, train, validation);
    }
    let validated_max = share.validated_max();
    let (sizes_learnt, resident) = (share.learnt, resident_series(samples));
    if let (Some(runs), Some(view)) = (runs, &resident) {
        view.check(shape)?;
        let pieces = Pieces::new(config, train.len());
        return Ok(largest_batch_of_runs(runs, shape, view, train, pieces, sizes_learnt));
    }
    let sizes = distinct_sizes([sizes_learnt.clone(), share.validated].concat());
    let (windows, bars) = covered.iter().map(|covered| (covered.windows, covered.bars)).unzip();
    let (kept_windows, chunk_windows) = (kept_windows(config, samples), windows_in_chunk(config, samples).unwrap_or(0));
    let series = resident.filter(|_| config.keeps_series_on_gpu()).map(|view| series_rows(&view, shape));
    let rest = LargestBatch { shares_bars: shares_bars(samples), kept_windows, series, ..LargestBatch::default() };
    Ok(LargestBatch { sizes, sizes_learnt, validated_max, steps, windows, bars, chunk_windows, ..rest })
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
    let rows = series_rows(view, shape);
    let windows: Vec<usize> = rows.iter().map(|&rows| count.min(rows)).collect();
    // The last window goes on past the last bar.
    let covered = |(k, &steps): (usize, &usize)| (windows[k] * steps).min(rows[k] + steps);
    let bars = steps.iter().enumerate().map(covered).collect();
    let rest = LargestBatch { shares_bars: true, series: Some(rows), ..LargestBatch::default() };
    LargestBatch { sizes_learnt: sizes.clone(), sizes, steps, windows, bars, ..rest }
}

/// Nodes and edges of the largest batch of graphs: the most of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GraphBatchSizes {
    nodes: usize,
    edges: usize,
}

impl GraphBatchSizes {
    /// Most graphs that a plan looks up batch by batch.
    const LOOKED_UP_MAX: u64 = 1 << 20;

    /// The sizes of the largest batch of training on the graphs `train`, step by step; of a long
    /// run, those of the largest graphs together.
    fn in_training(config: &Config, graphs: &dyn Graphs, train: &SampleRanges) -> Self {
        let few = |schedule: &Schedule| {
            schedule.steps.saturating_mul(config.step_samples() as u64) <= GraphBatchSizes::LOOKED_UP_MAX
        };
        match Schedule::new(config, train.len()).ok().filter(few) {
            Some(schedule) => GraphBatchSizes::most(graphs, schedule.batches(0..schedule.steps, train)),
            None => GraphBatchSizes::together(config, graphs, train),
        }
    }

    /// The sizes of the largest batch of consecutive graphs of `validation`. Batches of ranks begin
    /// anywhere.
    fn in_validation(config: &Config, graphs: &dyn Graphs, validation: &SampleRanges) -> Self {
        let most = |size: &dyn Fn(usize) -> usize| {
            let sizes: Vec<usize> = validation.iter().map(size).collect();
            let sums = sizes.iter().enumerate().scan(0, |sum, (k, size)| {
                *sum = *sum + size - k.checked_sub(config.batch_size).map_or(0, |leaves| sizes[leaves]);
                Some(*sum)
            });
            sums.max().unwrap_or(0)
        };
        GraphBatchSizes {
            nodes: most(&|graph| graphs.nodes(graph).len()),
            edges: most(&|graph| graphs.edges_max(graph)),
        }
    }

    /// The sizes of the largest of `batches`.
    fn most(graphs: &dyn Graphs, batches: impl Iterator<Item = Vec<usize>>) -> Self {
        let sizes = batches.map(|batch| GraphBatchSizes {
            nodes: batch.iter().map(|&graph| graphs.nodes(graph).len()).sum(),
            edges: batch.iter().map(|&graph| graphs.edges_max(graph)).sum(),
        });
        sizes.fold(GraphBatchSizes::default(), GraphBatchSizes::max)
    }

    /// The sizes of a batch of the graphs of `list` with most nodes, and of those with most edges.
    fn together(config: &Config, graphs: &dyn Graphs, list: &SampleRanges) -> Self {
        let most = |size: &dyn Fn(usize) -> usize| {
            let mut sizes: Vec<usize> = list.iter().map(size).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.iter().take(config.batch_size).sum()
        };
        GraphBatchSizes {
            nodes: most(&|graph| graphs.nodes(graph).len()),
            edges: most(&|graph| graphs.edges_max(graph)),
        }
    }

    fn max(self, other: Self) -> Self {
        GraphBatchSizes { nodes: self.nodes.max(other.nodes), edges: self.edges.max(other.edges) }
    }
}

/// Bound of a run on graphs.
fn largest_batch_of_graphs(
    config: &Config,
    samples: &dyn Samples,
    graphs: &dyn Graphs,
    train: &SampleRanges,
    validation: &SampleRanges,
) -> Result<LargestBatch> {
    let shape = samples.shape();
    check_graphs(graphs, train.iter())?;
    check_graphs(graphs, validation.iter())?;
    let count = train.len().max(validation.len()).min(config.batch_size);
    let in_training = GraphBatchSizes::in_training(config, graphs, train);
    let in_validation = GraphBatchSizes::in_validation(config, graphs, validation);
    let GraphBatchSizes { nodes, edges } = in_training.max(in_validation);
    let covered = covered_by_nodes(config, samples, graphs, train, validation, nodes)?;
    let (mut windows, mut bars): (Vec<usize>, Vec<usize>) =
        covered.iter().map(|covered| (covered.windows, covered.bars)).unzip();
    let series = resident_series(samples).map(|view| series_rows(&view, shape));
    for (k, &rows) in series.iter().flatten().enumerate() {
        (windows[k], bars[k]) = (windows[k].min(rows), bars[k].min(rows));
    }
    let graphs = Some(LargestGraphs {
        graphs: count,
        edges,
        kept: (config.keep_graphs && can_keep_graphs(graphs)).then(|| [graphs.total_nodes(), graphs.total_edges()]),
    });
    let (sizes, sizes_learnt, steps) = (vec![nodes], vec![in_training.nodes], steps_of(samples));
    let (kept_windows, series) = (kept_windows(config, samples), series.filter(|_| config.keeps_series_on_gpu()));
    let rest = LargestBatch { shares_bars: shares_bars(samples), kept_windows, graphs, ..LargestBatch::default() };
    Ok(LargestBatch { sizes, sizes_learnt, steps, windows, bars, series, ..rest })
}

/// Most nodes whose bars a plan compares, in about a second a timeframe.
const COMPARED_NODES_MAX: usize = 1 << 22;

/// Most of the windows and bars that a batch of graphs, of up to `nodes` nodes, covers, by
/// timeframe. Nodes of graphs that follow one another may share bars, which are counted apart in
/// collections of more than [`COMPARED_NODES_MAX`] nodes.
fn covered_by_nodes(
    config: &Config,
    samples: &dyn Samples,
    graphs: &dyn Graphs,
    train: &SampleRanges,
    validation: &SampleRanges,
    nodes: usize,
) -> Result<Vec<Covered>> {
    let apart = |steps: usize| Covered { windows: nodes, bars: nodes * steps };
    let compares = shares_bars(samples)
        && config.model.encoder == Encoder::Recurrent
        && graphs.total_nodes() <= COMPARED_NODES_MAX;
    let Some(series) = compares.then(|| SlicedSeries::new(samples)).transpose()? else {
        return Ok(steps_of(samples).into_iter().map(apart).collect());
    };
    let pieces = Pieces::new(config, train.len());
    let covered_in = |(k, steps): (usize, usize)| -> Result<Covered> {
        let most = |list: &SampleRanges, len: usize| -> Result<Covered> {
            let list_nodes = || list.iter().map(|graph| graphs.nodes(graph));
            let (mut most, mut sizes) = (MostCoveredByGraphs::new(steps, len), list_nodes().map(<[usize]>::len));
            let (mut ends, mut size) = (Vec::new(), sizes.next());
            series.each_end(k, &list_nodes().flatten().copied().collect(), |window| {
                ends.push(window.end);
                if size == Some(ends.len()) {
                    most.push(std::mem::take(&mut ends));
                    size = sizes.next();
                }
                Ok(())
            })?;
            Ok(most.most)
        };
        let in_training = most(train, pieces.len)?.times(pieces.count);
        let in_validation = most(validation, config.batch_size)?;
        let (apart, rows) = (apart(steps), series.span(k).bars);
        Ok(Covered {
            windows: in_training.windows.max(in_validation.windows).min(apart.windows).min(rows),
            bars: in_training.bars.max(in_validation.bars).min(apart.bars).min(rows),
        })
    };
    steps_of(samples).into_iter().enumerate().map(covered_in).collect()
}

/// Stored windows of each timeframe that a GPU keeps.
fn kept_windows(config: &Config, samples: &dyn Samples) -> usize {
    if config.keep_windows && can_keep_windows(samples) { samples.len() } else { 0 }
}

/// Number of bars of each timeframe's series.
fn series_rows(view: &SeriesView<'_>, shape: &SampleShape) -> Vec<usize> {
    let timeframes = view.timeframes.iter().zip(&shape.timeframes);
    timeframes.map(|(series, timeframe)| series.values.len() / timeframe.features.max(1)).collect()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use megabatch_nn::model::Timeframe;
    use proptest::prelude::*;

    use super::in_file::InFile;
    use super::*;
    use crate::data::series_in_memory::SeriesInMemory;

    /// Samples whose windows, of `steps` bars, end so many bars after those of the sample before.
    fn samples(moved: &[i64], steps: usize) -> SeriesInMemory {
        let timeframe = Timeframe { name: "M1".to_owned(), steps, features: 1 };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: 1 };
        let ends = moved.iter().scan(steps as i64 - 1, |end, step| {
            *end += step;
            Some(*end)
        });
        let ends: Vec<i64> = ends.collect();
        let bars = ends.last().map_or(0, |&last| last as usize + 1);
        SeriesInMemory::new(shape, vec![(vec![0.0; bars], ends)], vec![0.0; moved.len()]).unwrap()
    }

    /// Bound of batches that bring their bars, of a series in memory and in a file alike.
    fn planned(config: &Config, samples: &SeriesInMemory, train: &SampleRanges, validation: &SampleRanges) -> Covered {
        let config = Config { keep_series: false, ..config.clone() };
        let bound = |samples: &dyn Samples| largest_batch(&config, samples, train, validation).unwrap();
        let planned = bound(&InFile(samples.clone()));
        assert_eq!(planned, bound(samples));
        Covered { windows: planned.windows[0], bars: planned.bars[0] }
    }

    /// Most of `batches`, bar by bar.
    fn found(samples: &SeriesInMemory, batches: impl Iterator<Item = Vec<usize>>) -> Covered {
        let (view, steps) = (samples.series().unwrap(), samples.shape().timeframes[0].steps as i64);
        batches.fold(Covered::default(), |most, batch| {
            let ends: BTreeSet<i64> = batch.iter().map(|&sample| view.timeframes[0].ends[sample]).collect();
            let bars: BTreeSet<i64> = ends.iter().flat_map(|&end| end + 1 - steps..=end).collect();
            Covered { windows: most.windows.max(ends.len()), bars: most.bars.max(bars.len()) }
        })
    }

    fn found_in_training(config: &Config, samples: &SeriesInMemory, train: &SampleRanges) -> Covered {
        let schedule = Schedule::new(config, train.len()).unwrap();
        found(samples, schedule.batches(0..2 * schedule.steps_per_epoch, train))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_batch_of_a_series_covers_more(
            moved in prop::collection::vec(prop_oneof![4 => 0i64..3, 1 => 3i64..12], 2..90),
            (steps, seed) in (1usize..9, any::<u64>()),
            (batch_size, gradient_accumulation_steps, validated) in (1usize..40, 1usize..3, 0usize..20),
            run_length in prop_oneof![Just(None), (1usize..50).prop_map(Some)],
        ) {
            let (samples, trained) = (samples(&moved, steps), moved.len() - validated.min(moved.len() - 1));
            let (train, validation) = (SampleRanges::from(0..trained), SampleRanges::from(trained..moved.len()));
            let config = Config { batch_size, gradient_accumulation_steps, run_length, seed, ..Config::default() };
            let planned = planned(&config, &samples, &train, &validation);
            let validated = found(&samples, validation.chunks(batch_size).map(|part| part.iter().collect()));
            for found in [found_in_training(&config, &samples, &train), validated] {
                prop_assert!(found.windows <= planned.windows, "{:?} of {:?}", found, planned);
                prop_assert!(found.bars <= planned.bars, "{:?} of {:?}", found, planned);
            }
        }
    }

    #[test]
    fn shares_have_the_batches_of_ranks() {
        // Steps of 80 samples, the last one of 20: blocks of 32 and 8, twice, and of 20.
        let config = Config { batch_size: 40, gradient_accumulation_steps: 2, ..Config::default() };
        let (train, validation) = (SampleRanges::from(0..100), SampleRanges::from(100..150));
        let shares = |ranks| RankShare::distinct(&config, &train, &validation, ranks).unwrap();
        let share = |learnt: &[usize], validated: &[usize]| RankShare {
            learnt: learnt.to_vec(),
            validated: validated.to_vec(),
        };
        assert_eq!(shares(1), [share(&[20, 40], &[10, 40])]);
        assert_eq!(shares(2), [share(&[20, 40], &[32]), share(&[40], &[18])]);
        assert_eq!(shares(4), [share(&[20, 32], &[32]), share(&[8], &[18]), share(&[32], &[]), share(&[8], &[])]);
    }

    #[test]
    fn batches_in_the_order_of_time_cover_what_is_planned() {
        let (samples, train) = (samples(&[1; 80], 5), SampleRanges::from(0..80));
        let config = Config { batch_size: 16, run_length: Some(1000), ..Config::default() };
        let planned = planned(&config, &samples, &train, SampleRanges::NONE);
        assert_eq!(planned, Covered { windows: 16, bars: 20 });
        assert_eq!(found_in_training(&config, &samples, &train), planned);
    }

    #[test]
    fn batches_of_an_epoch_and_of_a_validation_have_few_sizes() {
        let config = Config { batch_size: 8, gradient_accumulation_steps: 2, ..Config::default() };
        assert_eq!(sizes_of_training(&config, 42), [2, 8]);
        assert_eq!(sizes_of_training(&config, 5), [5]);
        assert_eq!(sizes_of_training(&Config { last_batch: LastBatch::Drop, ..config.clone() }, 42), [8]);
        let validation_sizes = [0, 3, 8, 13].map(|samples| sizes_of_validation(&config, samples));
        assert_eq!(validation_sizes, [vec![], vec![3], vec![8], vec![5, 8]]);
    }
}
