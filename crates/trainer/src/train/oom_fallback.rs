//! Levels of reduced memory, for a device that has less than was planned.
//!
//! ```text
//! 0  what stays    on a GPU, series, windows, chunks of these and edges of graphs: they come batch
//!                  by batch
//! 1  chunks        of samples read ahead: to four fifths, from 75 % of the memory to 60 %; threads
//!                  share no shard from here on
//! 2  batches       to three quarters, then to a half; they are accumulated to what they were
//! 3  activations   some of them computed again in the backward pass: gradient checkpointing
//! 4  both          batches and chunks to a quarter, an eighth, …, down to one sample
//! ```
//!
//! No cut changes what is learnt: an optimizer step takes the same samples, and adds up their
//! gradients in the same order. Batches are cut where shards end, so that on the CPU the run goes
//! on bit for bit; below 32 samples, where a shard itself is cut, to rounding. On a GPU, whose sums
//! are those of whole batches, the sums of a batch that is cut differ in their last bits. Dense
//! training groups the runs of a step into shards whatever batches it is computed in, and batches
//! consist of whole shards. Products in 16 bits, which would be the next thing to cut, take more
//! memory on a CPU, not less.

use megabatch_nn::batch::Grain;
use megabatch_nn_cpu::{Purpose, SHARD_SAMPLES};
use megabatch_nn_cuda::ComputeConfig;

use crate::config::Config;
use crate::data::samples::{Samples, resident_series};

/// Limits of a run's memory, relative to its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// Size of the chunks that samples are read ahead in, of what was planned.
    pub(crate) chunk_percent: u32,
    /// True if series may lie on a GPU.
    pub(crate) keep_series: bool,
    /// True if stored windows may lie on a GPU.
    pub(crate) keep_windows: bool,
    /// True if stored windows may pass through a GPU in chunks.
    pub(crate) chunk_windows: bool,
    /// True if the edges of all graphs may lie on a GPU.
    pub(crate) keep_graphs: bool,
    /// Samples, or graphs, that are computed at once: a batch, or a part of one.
    pub(crate) batch_size: usize,
    pub(crate) gradient_checkpointing: bool,
}

impl MemoryLimits {
    /// The limits of the plan.
    fn planned(config: &Config) -> Self {
        let Config { batch_size, gradient_checkpointing, keep_windows, keep_graphs, .. } = *config;
        MemoryLimits {
            chunk_percent: 100,
            keep_series: config.keeps_series_on_gpu(),
            keep_windows,
            chunk_windows: config.chunk_windows.is_some(),
            keep_graphs,
            batch_size,
            gradient_checkpointing,
        }
    }

    /// These limits as samples of such a form are subject to them.
    pub(crate) fn for_samples(self, form: SampleForm) -> Self {
        let chunk_percent = if form.has_chunks { self.chunk_percent } else { 100 };
        MemoryLimits { chunk_percent, keep_series: self.keep_series && form.has_series, ..self }
    }

    /// These limits with nothing on a GPU that batches of a run with `config` can bring.
    fn batch_by_batch(self, config: &Config) -> Self {
        // Runs of samples are slices of series that stay.
        let keep_series = self.keep_series && config.streams();
        MemoryLimits { keep_series, keep_windows: false, chunk_windows: false, keep_graphs: false, ..self }
    }

    /// Purpose of the engine of a training run with `config` within these limits.
    pub(crate) fn purpose(self, config: &Config) -> Purpose {
        Config { gradient_checkpointing: self.gradient_checkpointing, ..config.clone() }.purpose()
    }

    /// Settings of the CUDA engine for a run with `config` within these limits.
    pub(crate) fn on_device(self, config: &Config) -> ComputeConfig {
        ComputeConfig { gradient_checkpointing: self.gradient_checkpointing, ..config.on_device() }
    }
}

/// Form of a run's samples, as far as memory limits apply to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SampleForm {
    /// True if samples are read ahead in chunks.
    pub(crate) has_chunks: bool,
    /// True if samples are slices of series in memory.
    pub(crate) has_series: bool,
    /// True if a rank can release what stays on its GPU: all ranks come to that level, and compute
    /// batches of one size.
    pub(crate) any_rank_releases: bool,
}

impl SampleForm {
    /// Form of `samples`, of which no other rank is known.
    pub(crate) fn new(samples: &dyn Samples) -> Self {
        let (has_chunks, has_series) = (samples.load_ahead().is_some(), resident_series(samples).is_some());
        SampleForm { has_chunks, has_series, any_rank_releases: false }
    }
}

/// The limits of a run level by level, from its plan down.
#[derive(Clone, Debug)]
pub(crate) struct OomFallback {
    levels: Vec<MemoryLimits>,
    level: usize,
}

/// First reduction of chunks.
const FIRST_CHUNK_PERCENT: u32 = 80;
/// Batches are cut so often before chunks are cut again.
const BATCHES_FIRST: usize = 2;

impl OomFallback {
    pub(crate) fn new(config: &Config) -> Self {
        let planned = MemoryLimits::planned(config).batch_by_batch(config);
        OomFallback::with_levels(config, planned, config.can_checkpoint_gradients(), Grain::Shards)
    }

    /// The levels of a run on a GPU.
    pub(crate) fn for_gpu(config: &Config) -> Self {
        OomFallback::with_levels(config, MemoryLimits::planned(config), config.can_checkpoint_on_gpu(), Grain::Runs)
    }

    fn with_levels(config: &Config, planned: MemoryLimits, can_checkpoint: bool, grain: Grain) -> Self {
        let batch_by_batch = planned.batch_by_batch(config);
        let first = MemoryLimits { chunk_percent: FIRST_CHUNK_PERCENT, ..batch_by_batch };
        let sizes = batch_sizes(config, grain);
        let (before, after) = sizes.split_at(sizes.len().min(BATCHES_FIRST));
        // Ranks that keep nothing on their GPUs have the second level too: a level is one size of
        // batches for all.
        let mut levels = vec![planned, batch_by_batch, first];
        levels.extend(before.iter().map(|&batch_size| MemoryLimits { batch_size, ..first }));
        let checkpointing = MemoryLimits { gradient_checkpointing: can_checkpoint, ..levels[levels.len() - 1] };
        levels.push(checkpointing);
        levels.extend(after.iter().zip(1u32..).map(|(&batch_size, halvings)| MemoryLimits {
            chunk_percent: FIRST_CHUNK_PERCENT.checked_shr(halvings).unwrap_or(0).max(1),
            batch_size,
            ..checkpointing
        }));
        OomFallback { levels, level: 0 }
    }

    /// Current limits of the run.
    pub(crate) fn limits(&self) -> MemoryLimits {
        self.levels[self.level]
    }

    /// Number of levels below the plan.
    pub(crate) fn level(&self) -> usize {
        self.level
    }

    /// True if batches can bring what stays on a GPU, for samples of this form.
    pub(crate) fn can_release(&self, form: SampleForm) -> bool {
        self.level == 0 && self.levels[0].for_samples(form) != self.levels[1].for_samples(form)
    }

    /// Cuts it to `level`, if it is not there already.
    pub(crate) fn cut_to(&mut self, level: usize) -> MemoryLimits {
        self.level = self.level.max(level.min(self.levels.len() - 1));
        self.limits()
    }

    /// Cuts it, for samples of this form; `None` where there is nothing left to cut.
    pub(crate) fn next_level(&mut self, form: SampleForm) -> Option<MemoryLimits> {
        let now = self.limits().for_samples(form);
        let is_less = |limits: &MemoryLimits| limits.for_samples(form) != now;
        let releases = self.level == 0 && form.any_rank_releases;
        let below = if releases { 0 } else { self.levels[self.level + 1..].iter().position(is_less)? };
        self.level += 1 + below;
        Some(self.limits())
    }
}

/// Reduced batch sizes, one after the other.
fn batch_sizes(config: &Config, grain: Grain) -> Vec<usize> {
    let planned = config.batch_size;
    let (grain, is_divisible) = match config.purpose().runs() {
        _ if config.model.is_over_graphs() => (1, true),
        Some(runs) if grain == Grain::Runs => (runs.longest, false),
        Some(runs) => (runs.samples(), false),
        None => (SHARD_SAMPLES, true),
    };
    let halves = std::iter::successors(Some(planned / 2), |size| Some(size / 2));
    let sizes = std::iter::once(planned / 4 * 3 + planned % 4 * 3 / 4).chain(halves).take_while(|&size| size > 0);
    let mut cut: Vec<usize> = sizes
        .filter(|&size| is_divisible || size >= grain)
        .map(|size| if size >= grain { size / grain * grain } else { size })
        .filter(|&size| size < planned)
        .collect();
    cut.dedup();
    cut
}

#[cfg(test)]
mod tests {
    use megabatch_nn::batch::LossOn;
    use megabatch_nn::model::{GraphConfig, ModelConfig, Readout};

    use super::*;

    #[test]
    fn batches_are_cut_where_shards_end() {
        let windows = |batch_size| Config { batch_size, ..Config::default() };
        let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(50), ..windows(400) };
        let model =
            ModelConfig { graph: Some(GraphConfig::default()), readout: Some(Readout::Node), ..Default::default() };
        let graphs = Config { model, ..windows(10) };
        for (config, expected) in [
            (windows(128), &[96, 64, 32, 16, 8, 4, 2, 1][..]),
            (windows(64), &[32, 16, 8, 4, 2, 1]),
            (windows(100), &[64, 32, 25, 12, 6, 3, 1]),
            (windows(7), &[5, 3, 1]),
            (windows(1), &[]),
            // Four runs of 50 side by side.
            (dense.clone(), &[200]),
            // The shards of a step, of which a batch holds one.
            (Config { batch_size: 100, gradient_accumulation_steps: 4, ..dense.clone() }, &[]),
            (graphs, &[7, 5, 2, 1]),
        ] {
            assert_eq!(batch_sizes(&config, Grain::Shards), expected, "{}", config.batch_size);
        }
        assert_eq!(batch_sizes(&dense, Grain::Runs), [300, 200, 100, 50]);
        assert_eq!(batch_sizes(&windows(usize::MAX), Grain::Shards)[0], usize::MAX / 32 * 24 / 32 * 32);
    }

    #[test]
    fn chunks_are_cut_first_where_there_are_any() {
        let descent = |has_chunks| {
            let mut fallback = OomFallback::new(&Config { batch_size: 128, ..Config::default() });
            let form = SampleForm { has_chunks, ..SampleForm::default() };
            let planned = MemoryLimits {
                chunk_percent: 100,
                keep_series: false,
                keep_windows: false,
                chunk_windows: false,
                keep_graphs: false,
                batch_size: 128,
                gradient_checkpointing: false,
            };
            assert_eq!(fallback.limits(), planned);
            let levels = std::iter::from_fn(|| fallback.next_level(form));
            levels
                .map(|MemoryLimits { chunk_percent, batch_size, gradient_checkpointing, .. }| {
                    (chunk_percent, batch_size, gradient_checkpointing)
                })
                .collect::<Vec<_>>()
        };
        let before = [(80, 96, false), (80, 64, false)];
        let after =
            [(80, 64, true), (40, 32, true), (20, 16, true), (10, 8, true), (5, 4, true), (2, 2, true), (1, 1, true)];
        assert_eq!(descent(false), [&before[..], &after].concat());
        assert_eq!(descent(true), [&[(80, 128, false)], &before[..], &after].concat());
    }

    #[test]
    fn what_stays_on_a_gpu_leaves_it_before_anything_else_is_cut() {
        let kept = Config { batch_size: 1, keep_windows: true, keep_graphs: true, ..Config::default() };
        let kept = Config { chunk_windows: Some(9), ..kept };
        let mut fallback = OomFallback::for_gpu(&kept);
        let planned = fallback.limits();
        assert!(planned.keep_series && planned.keep_windows && planned.chunk_windows && planned.keep_graphs);
        let batch_by_batch = MemoryLimits {
            keep_series: false,
            keep_windows: false,
            chunk_windows: false,
            keep_graphs: false,
            ..planned
        };
        assert_eq!(fallback.next_level(SampleForm::default()), Some(batch_by_batch));
        assert_eq!(fallback.next_level(SampleForm::default()), None);
        let on_cpu = OomFallback::new(&kept).limits();
        assert!(!on_cpu.keep_series && !on_cpu.keep_windows && !on_cpu.chunk_windows && !on_cpu.keep_graphs);
    }

    #[test]
    fn series_leave_a_gpu_where_there_are_any_and_runs_of_samples_need_none() {
        let descent = |config: &Config, has_series| {
            let mut fallback = OomFallback::for_gpu(&Config { batch_size: 1, ..config.clone() });
            let form = SampleForm { has_series, ..SampleForm::default() };
            std::iter::from_fn(|| fallback.next_level(form)).map(|limits| limits.keep_series).collect::<Vec<_>>()
        };
        let dense = Config { loss_on: LossOn::EveryStep, ..Config::default() };
        assert_eq!(descent(&Config::default(), true), [false]);
        assert!(descent(&Config::default(), false).is_empty());
        assert!(descent(&dense, true).is_empty());
    }

    #[test]
    fn ranks_that_keep_something_on_their_gpus_and_others_cut_batches_together() {
        let form = SampleForm { has_series: true, any_rank_releases: true, ..SampleForm::default() };
        let descent = |keep_series, keep_windows| {
            let config = Config { batch_size: 128, keep_series, keep_windows, ..Config::default() };
            let mut fallback = OomFallback::for_gpu(&config);
            assert_eq!(fallback.can_release(form), keep_series || keep_windows);
            let cuts = std::iter::from_fn(|| Some((fallback.next_level(form)?.batch_size, fallback.level())));
            cuts.collect::<Vec<_>>()
        };
        let expected = descent(true, false);
        assert_eq!(expected[..2], [(128, 1), (96, 3)]);
        assert_eq!(descent(false, false), expected);
        assert_eq!(descent(false, true), expected);
        let nothing_stays = OomFallback::for_gpu(&Config { loss_on: LossOn::EveryStep, ..Config::default() });
        assert!(!nothing_stays.can_release(form), "runs of samples are slices of series that stay");
    }

    #[test]
    fn a_gpu_computes_activations_again_where_layers_can_share_their_memory() {
        let levels = |layers, gradient_checkpointing| {
            let model = ModelConfig { layers, ..ModelConfig::default() };
            let config = Config { model, batch_size: 128, gradient_checkpointing, ..Config::default() };
            let mut fallback = OomFallback::for_gpu(&config);
            std::iter::from_fn(|| fallback.next_level(SampleForm::default()))
                .map(|limits| (limits.batch_size, limits.gradient_checkpointing))
                .take(4)
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(1, false), [(96, false), (64, false), (32, false), (16, false)]);
        assert_eq!(levels(2, false), [(96, false), (64, false), (64, true), (32, true)]);
        assert_eq!(levels(2, true), [(96, true), (64, true), (32, true), (16, true)]);
    }

    #[test]
    fn what_is_cut_already_is_not_cut_again() {
        let levels = |config: Config| {
            let mut fallback = OomFallback::new(&Config { batch_size: 2, ..config });
            std::iter::from_fn(|| fallback.next_level(SampleForm::default()))
                .map(|limits| (limits.batch_size, limits.gradient_checkpointing))
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(Config::default()), [(1, false), (1, true)]);
        assert_eq!(levels(Config { gradient_checkpointing: true, ..Config::default() }), [(1, true)]);
    }
}
