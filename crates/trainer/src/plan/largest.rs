//! Upper bounds of a run's batches.

use std::collections::{BTreeMap, BTreeSet};

use megabatch_nn::batch::{Grain, Runs, SeriesView};
use megabatch_nn::graph::{Graphs, check_graphs};
use megabatch_nn::memory::{LargestBatch, LargestGraphs};
use megabatch_nn::model::{Encoder, SampleShape};
use megabatch_nn_cpu::SHARD_SAMPLES;
use megabatch_order::{LastBatch, Rank};

use super::covered::{Covered, MostCovered, MostCoveredByGraphs};
use super::runs::{LookedUpBatches, MostRuns, Pieces};
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

/// Sizes of the batches of a rank, or of a run that is alone: samples, or graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankShare {
    learnt: Vec<usize>,
    validated: Vec<usize>,
    /// Pieces of consecutive samples of each batch of training, by their length.
    pieces: Vec<Vec<Pieces>>,
    /// The rank whose graphs or runs these are, which differ in size; `None` of other samples, and
    /// of a run that is alone.
    rank: Option<Rank>,
}

impl RankShare {
    /// The share of a run that is alone: whole batches.
    fn whole(config: &Config, train: &SampleRanges, validation: &SampleRanges) -> Self {
        let learnt = match config.purpose().runs() {
            Some(runs) => sizes_in_runs(config, runs, train.len()),
            None => sizes_of_training(config, train.len()),
        };
        let validated = sizes_of_validation(config, validation.len());
        RankShare { learnt, validated, pieces: vec![vec![Pieces::new(config, train.len())]], rank: None }
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

    /// The most pieces of a batch of training, as if all of them were as long as the longest.
    fn most_pieces(&self) -> Pieces {
        let counts = self.pieces.iter().map(|batch| batch.iter().map(|pieces| pieces.count).sum::<usize>());
        let lens = self.pieces.iter().flatten().map(|pieces| pieces.len);
        Pieces { count: counts.max().unwrap_or(0), len: lens.max().unwrap_or(0) }
    }

    /// The shares of `ranks`, each once; of graphs and in dense training, that of each rank.
    ///
    /// # Errors
    /// As [`RankShare::for_rank`].
    pub(crate) fn distinct(
        config: &Config,
        train: &SampleRanges,
        validation: &SampleRanges,
        ranks: usize,
    ) -> Result<Vec<Self>> {
        let mut shares: Vec<RankShare> = Vec::new();
        for rank in 0..ranks.max(1) {
            let share = RankShare::for_rank(config, train, validation, Rank::new(rank, ranks.max(1))?)?;
            if !shares.contains(&share) {
                shares.push(share);
            }
        }
        Ok(shares)
    }

    /// The share of `rank`.
    ///
    /// # Errors
    /// [`Error::NothingLeft`](crate::Error::NothingLeft) for too few samples of several ranks.
    fn for_rank(config: &Config, train: &SampleRanges, validation: &SampleRanges, rank: Rank) -> Result<Self> {
        if rank.world() < 2 {
            return Ok(RankShare::whole(config, train, validation));
        }
        let own = Schedule::new(config, train.len())?.cut_into(config.batch_size, Grain::Runs).for_rank(rank);
        let last = own.steps_per_epoch - 1;
        // The last step of an epoch is another one than those before it. In dense training the runs
        // of each may lie otherwise.
        let is_dense = config.purpose().runs().is_some();
        let steps: Vec<u64> = if is_dense { (0..=last).collect() } else { vec![0, last] };
        let (whole, is_over_graphs) = (Pieces::new(config, train.len()), config.model.is_over_graphs());
        let block_len = if is_over_graphs { 1 } else { SHARD_SAMPLES };
        let (mut sizes, mut pieces) = (Vec::new(), Vec::new());
        for part in steps.iter().flat_map(|&step| own.own_batches_of(&own.step(step))) {
            sizes.push(part.len());
            let in_part = whole.in_part(config, &part);
            if !pieces.contains(&in_part) {
                pieces.push(in_part);
            }
        }
        Ok(RankShare {
            learnt: distinct_sizes(sizes),
            validated: sizes_of_validation(config, own_part(validation, block_len, rank).len()),
            pieces,
            rank: (is_over_graphs || is_dense).then_some(rank),
        })
    }
}

/// Bound of the batches of `rank` in a run that trains on `train` and validates on `validation`.
/// The ends of their windows are read from a series in a file.
///
/// # Errors
/// As [`RankShare::distinct`]; whatever is wrong with series;
/// [`Error::Gather`](crate::Error::Gather) for a file that cannot be read.
pub(crate) fn largest_batch(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
    rank: Rank,
) -> Result<LargestBatch> {
    let shares = vec![RankShare::for_rank(config, train, validation, rank)?];
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
    let batches = match samples.graphs().filter(|_| config.model.is_over_graphs()) {
        Some(graphs) => largest_batches_of_graphs(config, samples, graphs, train, validation, shares)?,
        None => {
            let covered = covered_by_shares(config, samples, train, validation, &shares)?;
            let largest = |(n, share): (usize, RankShare)| {
                let covered: Vec<ShareCovered> = covered.iter().map(|by_share| by_share[n]).collect();
                largest_windows(config, samples, train, share, &covered)
            };
            shares.into_iter().enumerate().map(largest).collect::<Result<_>>()?
        }
    };
    Ok(batches.into_iter().map(|batch| LargestBatch { is_weighted, ..batch }).collect())
}

/// Most of the windows and bars that a batch covers, by timeframe and by share.
fn covered_by_shares(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    validation: &SampleRanges,
    shares: &[RankShare],
) -> Result<Vec<Vec<ShareCovered>>> {
    // Dense training on a GPU is that of series in memory.
    let slices = shares_bars(samples) && config.purpose().runs().is_none();
    let sliced = slices.then(|| SlicedSeries::new(samples)).transpose()?;
    let covered_in = |(k, steps): (usize, usize)| -> Result<Vec<ShareCovered>> {
        let apart = shares.iter().map(|share| ShareCovered::apart(share.learnt_max(), share.validated_max(), steps));
        let Some(series) = &sliced else { return Ok(apart.collect()) };
        let most = |list: &SampleRanges, lens: BTreeSet<usize>| -> Result<BTreeMap<usize, Covered>> {
            let mut most: Vec<_> = lens.into_iter().map(|len| MostCovered::new(steps, len)).collect();
            series.each_end(k, list, |window| {
                most.iter_mut().for_each(|most| most.push(window.end));
                Ok(())
            })?;
            Ok(most.iter().map(|most| (most.len, most.most)).collect())
        };
        let in_training = most(train, piece_lens(shares))?;
        let in_validation = most(validation, shares.iter().map(RankShare::validated_max).collect())?;
        let rows = series.span(k).bars;
        let covered = shares.iter().zip(apart).map(|(share, apart)| {
            ShareCovered::in_pieces(share, &in_training, &in_validation).min(apart).at_most(rows)
        });
        Ok(covered.collect())
    };
    steps_of(samples).into_iter().enumerate().map(covered_in).collect()
}

/// Lengths of the pieces of all batches of training, each once.
fn piece_lens<'a>(shares: impl IntoIterator<Item = &'a RankShare>) -> BTreeSet<usize> {
    shares.into_iter().flat_map(|share| share.pieces.iter().flatten()).map(|pieces| pieces.len).collect()
}

/// Bound of the batches of `share`, which cover `covered` by timeframe, without the weights of
/// samples.
fn largest_windows(
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
    share: RankShare,
    covered: &[ShareCovered],
) -> Result<LargestBatch> {
    let (shape, steps, runs) = (samples.shape(), steps_of(samples), config.purpose().runs());
    let (validated_max, resident) = (share.validated_max(), resident_series(samples));
    if let (Some(runs), Some(view)) = (runs, &resident) {
        view.check(shape)?;
        let rank = share.rank.unwrap_or_default();
        return Ok(match LookedUpBatches::new(config, shape, view, train, rank) {
            Some(batches) => largest_of_looked_up(shape, view, batches),
            None => largest_batch_of_runs(runs, shape, view, train, share),
        });
    }
    let sizes = distinct_sizes([share.learnt.clone(), share.validated].concat());
    let (kept_windows, chunk_windows) = (kept_windows(config, samples), windows_in_chunk(config, samples).unwrap_or(0));
    let series = resident.filter(|_| config.keeps_series_on_gpu()).map(|view| series_rows(&view, shape));
    let rest = LargestBatch { shares_bars: shares_bars(samples), kept_windows, series, ..covering(covered) };
    Ok(LargestBatch { sizes, sizes_learnt: share.learnt, validated_max, steps, chunk_windows, ..rest })
}

/// Bound of batches that cover `covered` by timeframe, and of which nothing else is known.
fn covering(covered: &[ShareCovered]) -> LargestBatch {
    let all = || covered.iter().map(|covered| covered.learnt.max(covered.validated));
    let learnt = || covered.iter().map(|covered| covered.learnt);
    LargestBatch {
        windows: all().map(|covered| covered.windows).collect(),
        bars: all().map(|covered| covered.bars).collect(),
        windows_learnt: learnt().map(|covered| covered.windows).collect(),
        bars_learnt: learnt().map(|covered| covered.bars).collect(),
        ..LargestBatch::default()
    }
}

/// The largest of `batches` of dense training. The CPU validates, in one pass over each segment.
fn largest_of_looked_up(shape: &SampleShape, view: &SeriesView<'_>, batches: LookedUpBatches) -> LargestBatch {
    let LookedUpBatches { sizes, largest } = batches;
    let sizes: Vec<usize> = sizes.into_iter().collect();
    let steps = shape.timeframes.iter().map(|timeframe| timeframe.steps).collect();
    let none = vec![0; shape.timeframes.len()];
    let rest = LargestBatch { shares_bars: true, series: Some(series_rows(view, shape)), ..LargestBatch::default() };
    let rest = LargestBatch { sizes_learnt: sizes.clone(), sizes, steps, windows: none.clone(), bars: none, ..rest };
    if largest.is_empty() { rest } else { rest.with_dense(largest) }
}

/// Bound of dense training on the samples `train`, in the batches of `share`, for a run that is too
/// long to look them up.
fn largest_batch_of_runs(
    runs: Runs,
    shape: &SampleShape,
    view: &SeriesView<'_>,
    train: &SampleRanges,
    share: RankShare,
) -> LargestBatch {
    let MostRuns { count, steps } = MostRuns::new(runs, shape, view, train, share.most_pieces());
    let count = count.min(share.learnt_max());
    let rows = series_rows(view, shape);
    let windows: Vec<usize> = rows.iter().map(|&rows| count.min(rows)).collect();
    // The last window goes on past the last bar.
    let covered = |(k, &steps): (usize, &usize)| (windows[k] * steps).min(rows[k] + steps);
    let bars: Vec<usize> = steps.iter().enumerate().map(covered).collect();
    let learnt = LargestBatch { windows_learnt: windows.clone(), bars_learnt: bars.clone(), ..LargestBatch::default() };
    let rest = LargestBatch { shares_bars: true, series: Some(rows), ..learnt };
    LargestBatch { sizes_learnt: share.learnt.clone(), sizes: share.learnt, steps, windows, bars, ..rest }
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

    /// The sizes of the largest batch of `share` in training on the graphs `train`, step by step;
    /// of a long run, those of the largest graphs together.
    fn in_training(config: &Config, graphs: &dyn Graphs, train: &SampleRanges, share: &RankShare) -> Self {
        let rank = share.rank.unwrap_or_default();
        let few = |schedule: &Schedule| {
            let looked_up = schedule.steps.saturating_mul(config.step_samples() as u64);
            looked_up.saturating_mul(rank.world() as u64) <= GraphBatchSizes::LOOKED_UP_MAX
        };
        match Schedule::new(config, train.len()).ok().filter(few) {
            Some(schedule) => {
                GraphBatchSizes::most(graphs, schedule.for_rank(rank).own_batches(0..schedule.steps, train))
            }
            None => GraphBatchSizes::together(graphs, train, share.learnt_max()),
        }
    }

    /// The sizes of the largest batch of a validation of `validation`, of which `share` has a part.
    fn in_validation(config: &Config, graphs: &dyn Graphs, validation: &SampleRanges, share: &RankShare) -> Self {
        let own = own_part(validation, 1, share.rank.unwrap_or_default());
        GraphBatchSizes::most(graphs, own.chunks(config.batch_size).map(|batch| batch.iter().collect()))
    }

    /// The sizes of the largest of `batches`.
    fn most(graphs: &dyn Graphs, batches: impl Iterator<Item = Vec<usize>>) -> Self {
        let sizes = batches.map(|batch| GraphBatchSizes {
            nodes: batch.iter().map(|&graph| graphs.nodes(graph).len()).sum(),
            edges: batch.iter().map(|&graph| graphs.edges_max(graph)).sum(),
        });
        sizes.fold(GraphBatchSizes::default(), GraphBatchSizes::max)
    }

    /// The sizes of a batch of the `count` graphs of `list` with most nodes, and of those with most
    /// edges.
    fn together(graphs: &dyn Graphs, list: &SampleRanges, count: usize) -> Self {
        let most = |size: &dyn Fn(usize) -> usize| {
            let mut sizes: Vec<usize> = list.iter().map(size).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.iter().take(count).sum()
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

/// The batches of graphs of a rank.
struct GraphShare {
    share: RankShare,
    learnt: GraphBatchSizes,
    validated: GraphBatchSizes,
}

/// Bound of the batches of each of the ranks that take `shares` of a run on graphs.
fn largest_batches_of_graphs(
    config: &Config,
    samples: &dyn Samples,
    graphs: &dyn Graphs,
    train: &SampleRanges,
    validation: &SampleRanges,
    shares: Vec<RankShare>,
) -> Result<Vec<LargestBatch>> {
    check_graphs(graphs, train.iter())?;
    check_graphs(graphs, validation.iter())?;
    let sized = |share: RankShare| GraphShare {
        learnt: GraphBatchSizes::in_training(config, graphs, train, &share),
        validated: GraphBatchSizes::in_validation(config, graphs, validation, &share),
        share,
    };
    let shares: Vec<GraphShare> = shares.into_iter().map(sized).collect();
    let covered = covered_by_nodes(config, samples, graphs, train, validation, &shares)?;
    let rows = resident_series(samples).map(|view| series_rows(&view, samples.shape()));
    let kept = (config.keep_graphs && can_keep_graphs(graphs)).then(|| [graphs.total_nodes(), graphs.total_edges()]);
    let largest = |(n, GraphShare { share, learnt, validated }): (usize, &GraphShare)| {
        let within_series = |(k, by_share): (usize, &Vec<ShareCovered>)| match &rows {
            Some(rows) => by_share[n].at_most(rows[k]),
            None => by_share[n],
        };
        let covered: Vec<ShareCovered> = covered.iter().enumerate().map(within_series).collect();
        let all = GraphBatchSizes::max(*learnt, *validated);
        let graphs = LargestGraphs {
            graphs: share.largest(),
            edges: all.edges,
            graphs_learnt: share.learnt_max(),
            edges_learnt: learnt.edges,
            kept,
        };
        let (sizes, sizes_learnt, steps) = (vec![all.nodes], vec![learnt.nodes], steps_of(samples));
        let series = rows.clone().filter(|_| config.keeps_series_on_gpu());
        let (shares_bars, kept_windows) = (shares_bars(samples), kept_windows(config, samples));
        let rest = LargestBatch { shares_bars, kept_windows, graphs: Some(graphs), ..covering(&covered) };
        LargestBatch { sizes, sizes_learnt, steps, series, ..rest }
    };
    Ok(shares.iter().enumerate().map(largest).collect())
}

/// Most nodes whose bars a plan compares, in about a second a timeframe.
const COMPARED_NODES_MAX: usize = 1 << 22;

/// Most of the windows and bars that a batch of graphs covers, by timeframe and by share. Nodes of
/// graphs that follow one another may share bars, which are counted apart in collections of more
/// than [`COMPARED_NODES_MAX`] nodes.
fn covered_by_nodes(
    config: &Config,
    samples: &dyn Samples,
    graphs: &dyn Graphs,
    train: &SampleRanges,
    validation: &SampleRanges,
    shares: &[GraphShare],
) -> Result<Vec<Vec<ShareCovered>>> {
    let apart = |steps: usize| -> Vec<ShareCovered> {
        shares.iter().map(|share| ShareCovered::apart(share.learnt.nodes, share.validated.nodes, steps)).collect()
    };
    let compares = shares_bars(samples)
        && config.model.encoder == Encoder::Recurrent
        && graphs.total_nodes() <= COMPARED_NODES_MAX;
    let Some(series) = compares.then(|| SlicedSeries::new(samples)).transpose()? else {
        return Ok(steps_of(samples).into_iter().map(apart).collect());
    };
    let covered_in = |(k, steps): (usize, usize)| -> Result<Vec<ShareCovered>> {
        let most = |list: &SampleRanges, lens: BTreeSet<usize>| -> Result<BTreeMap<usize, Covered>> {
            let list_nodes = || list.iter().map(|graph| graphs.nodes(graph));
            let mut most: Vec<_> = lens.into_iter().map(|len| MostCoveredByGraphs::new(steps, len)).collect();
            let mut sizes = list_nodes().map(<[usize]>::len);
            let (mut ends, mut size) = (Vec::new(), sizes.next());
            series.each_end(k, &list_nodes().flatten().copied().collect(), |window| {
                ends.push(window.end);
                if size == Some(ends.len()) {
                    most.iter_mut().for_each(|most| most.push(ends.clone()));
                    ends.clear();
                    size = sizes.next();
                }
                Ok(())
            })?;
            Ok(most.iter().map(|most| (most.len, most.most)).collect())
        };
        let in_training = most(train, piece_lens(shares.iter().map(|share| &share.share)))?;
        let in_validation = most(validation, shares.iter().map(|share| share.share.validated_max()).collect())?;
        let rows = series.span(k).bars;
        let covered = shares.iter().zip(apart(steps)).map(|(share, apart)| {
            ShareCovered::in_pieces(&share.share, &in_training, &in_validation).min(apart).at_most(rows)
        });
        Ok(covered.collect())
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

/// The most that batches of a share cover of a timeframe.
#[derive(Clone, Copy, Debug)]
struct ShareCovered {
    learnt: Covered,
    validated: Covered,
}

impl ShareCovered {
    /// So many windows of `steps` bars each, which have none in common.
    fn apart(learnt: usize, validated: usize, steps: usize) -> Self {
        let [learnt, validated] = [learnt, validated].map(|windows| Covered { windows, bars: windows * steps });
        ShareCovered { learnt, validated }
    }

    /// The most of the batches of `share`, by that of so many consecutive samples of training, and
    /// of a validation.
    fn in_pieces(
        share: &RankShare,
        in_training: &BTreeMap<usize, Covered>,
        in_validation: &BTreeMap<usize, Covered>,
    ) -> Self {
        let in_batch = |batch: &Vec<Pieces>| {
            let pieces = batch.iter().map(|pieces| in_training[&pieces.len].times(pieces.count));
            pieces.fold(Covered::default(), Covered::plus)
        };
        ShareCovered {
            learnt: share.pieces.iter().map(in_batch).fold(Covered::default(), Covered::max),
            validated: in_validation[&share.validated_max()],
        }
    }

    fn min(self, other: Self) -> Self {
        let (learnt, validated) = (self.learnt.min(other.learnt), self.validated.min(other.validated));
        ShareCovered { learnt, validated }
    }

    /// The cover within a series of `bars` bars, which has no more windows.
    fn at_most(self, bars: usize) -> Self {
        let all = Covered { windows: bars, bars };
        self.min(ShareCovered { learnt: all, validated: all })
    }
}

#[cfg(test)]
mod tests {
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
        let rank = Rank::default();
        let bound = |samples: &dyn Samples| largest_batch(&config, samples, train, validation, rank).unwrap();
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Each rank's batches of training and of a validation, by the bound of one share.
        #[test]
        fn no_batch_of_a_rank_covers_more(
            moved in prop::collection::vec(prop_oneof![4 => 0i64..3, 1 => 3i64..12], 60..200),
            (steps, seed, ranks) in (1usize..9, any::<u64>(), 2usize..4),
            (batch_size, gradient_accumulation_steps, validated) in (33usize..90, 1usize..3, 0usize..50),
            run_length in prop_oneof![Just(None), (1usize..50).prop_map(Some), (1usize..4).prop_map(|n| Some(16 * n))],
        ) {
            let (samples, trained) = (samples(&moved, steps), moved.len() - validated);
            let (train, validation) = (SampleRanges::from(0..trained), SampleRanges::from(trained..moved.len()));
            let config = Config { batch_size, gradient_accumulation_steps, run_length, seed, ..Config::default() };
            let shares = RankShare::distinct(&config, &train, &validation, ranks).unwrap();
            let bounds = largest_batches(&config, &samples, &train, &validation, shares).unwrap();
            let schedule = Schedule::new(&config, trained).unwrap();
            for rank in 0..ranks {
                let rank = Rank::new(rank, ranks).unwrap();
                let own = schedule.for_rank(rank).own_batches(0..2 * schedule.steps_per_epoch, &train);
                let learnt = found(&samples, own);
                let own = own_part(&validation, SHARD_SAMPLES, rank);
                let validated = found(&samples, own.chunks(batch_size).map(|part| part.iter().collect()));
                let all = learnt.max(validated);
                let holds = |bound: &LargestBatch| {
                    let in_training = Covered { windows: bound.windows_learnt[0], bars: bound.bars_learnt[0] };
                    let in_any = Covered { windows: bound.windows[0], bars: bound.bars[0] };
                    learnt.max(in_training) == in_training && all.max(in_any) == in_any
                };
                prop_assert!(bounds.iter().any(holds), "{:?} and {:?} of {:?}", learnt, validated, bounds);
            }
        }
    }

    #[test]
    fn shares_have_the_batches_of_ranks() {
        // Steps of 80 samples, the last one of 20: blocks of 32 and 8, twice, and of 20.
        let config = Config { batch_size: 40, gradient_accumulation_steps: 2, ..Config::default() };
        let (train, validation) = (SampleRanges::from(0..100), SampleRanges::from(100..150));
        let shares = |ranks| -> Vec<[Vec<usize>; 2]> {
            let shares = RankShare::distinct(&config, &train, &validation, ranks).unwrap();
            shares.into_iter().map(|share| [share.learnt, share.validated]).collect()
        };
        let share = |learnt: &[usize], validated: &[usize]| [learnt.to_vec(), validated.to_vec()];
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
