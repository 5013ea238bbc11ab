//! Data and the memory of a GPU: whether the run fits, and what stays there.

use megabatch_chunk_io::{ChunkPlan, Residence};
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::Encoder;
use megabatch_nn_cuda::window_bytes;
use megabatch_trainer as trainer;
use megabatch_trainer::{LOCKED_BYTES_MAX, can_keep_graphs, can_keep_windows, windows_in_chunk};

use super::TrainingSetup;
use super::computing::{RequestedGpu, not_used};
use crate::adapters::data::Data;
use crate::config::choices::Residency;
use crate::config::{self, Config};
use crate::error::Result;
use crate::text::bytes;

impl TrainingSetup {
    /// Has bars of a series come to the GPU batch by batch where its free memory does not hold them
    /// all, and computes on the CPU if `is_auto` found a GPU that does not hold the run then.
    pub(super) fn fit_to_gpu(&mut self, is_auto: bool) -> Result<()> {
        let Some(RequestedGpu { name, free_bytes: Some(free), .. }) = &self.gpu_asked else { return Ok(()) };
        let can_come = !self.training.streams() && self.data.samples().series().is_some();
        if !is_auto && !can_come {
            return Ok(());
        }
        let mut needed = self.gpu_footprint(&self.training)?.total_bytes();
        if can_come && needed > *free {
            self.training.keep_series = false;
            needed = self.gpu_footprint(&self.training)?.total_bytes();
        }
        if is_auto && needed > *free {
            let reserve = self.config.get(&config::gpu_optimization::DRIVER_RESERVE_GB);
            let beside =
                reserve.map_or(String::new(), |size| format!(" beside gpu_optimization.driver_reserve_gb={size}"));
            let reason =
                format!("the run needs {} of its memory, and {} are free{beside}", bytes(needed), bytes(*free));
            self.gpu_passed_over = Some(not_used(name, &reason));
            (self.gpu, self.gpu_asked) = (None, None);
        }
        Ok(())
    }

    /// Has the edges of all graphs, and all stored windows, lie on the GPU if three quarters of the
    /// memory that the run leaves there hold them, and the run takes as many samples as there are;
    /// unless data are to come batch by batch. Stored windows that do not fit pass through the GPU
    /// in two chunks.
    pub(super) fn keep_on_gpu(&mut self) -> Result<()> {
        let Some(free) = self.gpu_asked.as_ref().and_then(|gpu| gpu.free_bytes) else { return Ok(()) };
        let samples = self.data.samples();
        let graphs = samples.graphs().filter(|_| self.training.model.is_over_graphs());
        let len = graphs.map_or(samples.len(), Graphs::len);
        let taken = self.planned_steps().saturating_mul(self.training.step_samples() as u64);
        let comes_whole = self.config.get(&config::gpu_optimization::USE_CHUNK_LOADER);
        if !comes_whole || taken < len as u64 {
            return Ok(());
        }
        let are_read = self.training.model.encoder == Encoder::Recurrent;
        let (can_graphs, can_windows) = (graphs.is_some_and(can_keep_graphs), are_read && can_keep_windows(samples));
        let any_chunk = trainer::Config { chunk_windows: Some(1), ..self.training.clone() };
        let can_chunk = windows_in_chunk(&any_chunk, samples).is_some();
        if !can_windows && !can_graphs && !can_chunk {
            return Ok(());
        }
        let batch_by_batch = self.gpu_footprint(&self.training)?.total_bytes();
        let room = batch_by_batch + free.saturating_sub(batch_by_batch) / 4 * 3;
        // Windows take more of the bus than edges do.
        for (keep_windows, keep_graphs) in [(can_windows, can_graphs), (can_windows, false), (false, can_graphs)] {
            let kept = trainer::Config { keep_windows, keep_graphs, ..self.training.clone() };
            if self.gpu_footprint(&kept)?.total_bytes() <= room {
                self.training = kept;
                break;
            }
        }
        if can_chunk && !self.training.keep_windows {
            self.chunk_windows(free.saturating_sub(batch_by_batch) / 4 * 3)?;
        }
        Ok(())
    }

    /// Has stored windows pass through the GPU in two chunks that take up to `room_bytes` there,
    /// if both have several batches and the host's memory holds two such chunks as well.
    fn chunk_windows(&mut self, room_bytes: usize) -> Result<()> {
        let (samples, batch_size) = (self.data.samples(), self.training.batch_size);
        let Ok(loaded) = &self.chunks else { return Ok(()) };
        let sample_bytes = loaded.sample_bytes.max(1);
        let loads_chunks = loaded.residence == Residence::Chunked;
        let (host_bytes, host_limit) = if loads_chunks {
            // The loader's two chunks, in whose place those of the GPU are.
            (loaded.chunk_bytes, None)
        } else {
            let taken = self.footprint(&self.training)?.total_bytes() + self.data_bytes(loaded);
            let (bytes, limit) = host_chunk(self.memory_bytes.saturating_sub(taken) as u64);
            (bytes, Some(limit))
        };
        let set_bytes = self.chunk_bytes_set().unwrap_or(u64::MAX);
        self.has_small_chunks = set_bytes / sample_bytes < 2 * batch_size as u64;
        let fitting_host = (set_bytes.min(host_bytes) / sample_bytes).min(samples.len() as u64) as usize;
        let (shape, precision) = (samples.shape(), self.training.precision);
        let gpu_bytes: usize = (0..shape.timeframes.len()).map(|k| window_bytes(shape, k, precision)).sum();
        let fitting_gpu = room_bytes / 2 / gpu_bytes.max(1);
        let fitting = fitting_host.min(fitting_gpu);
        self.chunk_limit = if fitting_gpu < fitting_host { Some(ChunkLimit::Memory) } else { host_limit };
        let windows = fitting / batch_size * batch_size;
        let chunked = trainer::Config { chunk_windows: Some(windows), ..self.training.clone() };
        if windows < 2 * batch_size || windows_in_chunk(&chunked, samples).is_none() {
            return Ok(());
        }
        if loads_chunks {
            let chunk_bytes = windows as u64 * sample_bytes;
            let smaller = ChunkPlan {
                samples_per_chunk: windows,
                chunks: samples.len().div_ceil(windows),
                chunk_bytes,
                data_bytes: 2 * chunk_bytes,
                ..*loaded
            };
            self.chunks = Ok(smaller);
        }
        self.training = chunked;
        Ok(())
    }
}

/// Limit of the size of chunks in which windows pass through a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkLimit {
    /// Free memory of the GPU or of the host.
    Memory,
    /// Page-locked memory of the host, which is bounded.
    LockedPages,
}

/// Bytes of each of two chunks on the host, where `left_bytes` are free, and their limit. Windows
/// in memory are gathered as fast in small chunks.
fn host_chunk(left_bytes: u64) -> (u64, ChunkLimit) {
    let limit = if left_bytes > LOCKED_BYTES_MAX { ChunkLimit::LockedPages } else { ChunkLimit::Memory };
    (left_bytes.min(LOCKED_BYTES_MAX) / 2, limit)
}

/// Requirement of runs whose windows go on from bar to bar.
pub(super) const GPU_NEEDS_SERIES: &str = "training from bar to bar on a GPU needs the series in memory";

/// Holds a series in memory for training that goes on from bar to bar on a GPU.
///
/// # Errors
/// The reason why it is not held, for a GPU that was not named.
pub(super) fn hold_for_gpu(
    config: &Config,
    training: &trainer::Config,
    data: &mut Data,
) -> std::result::Result<(), String> {
    if !training.streams() || data.streamable().is_none() {
        return Ok(());
    }
    if config.get(&config::data::RESIDENCY) == Some(Residency::Streamed) {
        return Err(format!("data.residency is streamed, and {GPU_NEEDS_SERIES}"));
    }
    data.hold().map_err(|_| format!("{GPU_NEEDS_SERIES}, and it does not fit"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::error::Error;
    use crate::host::Host;
    use crate::plan::{Plan, advise_smaller_model};
    use crate::setup::{Intent, Request};
    use crate::synth::{Layout, SampleOptions, SampleWindows, make_samples};

    /// Three hundred windows of 20 bars of 5 features, with 2 targets each, in `folder`.
    fn make_windows(folder: &Path) -> PathBuf {
        let data = folder.join("windows.h5");
        let count = |count| NonZeroUsize::new(count).unwrap();
        let options = SampleOptions {
            samples: count(300),
            windows: SampleWindows::Unnamed(count(20)),
            features: count(5),
            targets: count(2),
            layout: Layout::Windows,
            ..SampleOptions::default()
        };
        make_samples(&data, &options).unwrap();
        data
    }

    /// A plan for a GPU with `bytes` of free memory.
    fn planned(data: &Path, settings: &[&str], bytes: usize) -> TrainingSetup {
        let gpu = ["gpu_optimization.batch_size=16", "gpu_optimization.driver_reserve_gb=0.001"];
        let settings: Vec<String> = gpu
            .iter()
            .chain(&["model.hidden=4", "data.purge=0s"])
            .chain(settings)
            .map(|&setting| setting.to_owned())
            .collect();
        let (config, host) = (Config::load(None, &[], &settings).unwrap(), Host::silent());
        let (device, memory_bytes) = ("cuda:0", Some(1_000_000 + bytes));
        let request = Request { data: Some(data), device, memory_bytes, ..Request::new(config, Intent::Plan, &host) };
        TrainingSetup::open(request).unwrap()
    }

    #[test]
    fn chunks_on_a_gpu_have_twice_as_many_windows_in_16_bits() {
        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        for (precision, windows, number_bytes) in [("fp32", 32, 4), ("fp16", 64, 2), ("bf16", 64, 2)] {
            let precision = format!("training.precision={precision}");
            let by_batch = planned(&data, &[&precision, "gpu_optimization.use_chunk_loader=false"], 1 << 30);
            let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
            // Two chunks have three quarters of the bytes that are left.
            let chunked = planned(&data, &[&precision], needed + 40_000);
            let footprint = chunked.gpu_footprint(&chunked.training).unwrap();
            assert_eq!(chunked.training.chunk_windows, Some(windows), "{precision}");
            assert_eq!(footprint.part_bytes("bars"), 2 * windows * 20 * 5 * number_bytes, "{precision}");
        }
    }

    /// Windows came batch by batch without a word.
    #[test]
    fn chunks_that_are_set_below_two_batches_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        let fp32 = "training.precision=fp32";
        let by_batch = planned(&data, &[fp32, "gpu_optimization.use_chunk_loader=false"], 1 << 30);
        let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
        let note = "gpu_optimization.chunk_size_gb is smaller than two batches of 16 samples, 13.1 kB: \
                    windows come to the GPU batch by batch";
        // A sample has 408 bytes.
        for (chunk_bytes, windows) in [(32 * 408, Some(32)), (32 * 408 - 1, None), (16 * 408, None)] {
            let chunk_size = format!("gpu_optimization.chunk_size_gb={}", f64::from(chunk_bytes) / 1e9 + 1e-12);
            let setup = planned(&data, &[fp32, &chunk_size], needed + 60_000);
            let notes = Plan::new(&setup).unwrap().notes;
            assert_eq!(setup.training.chunk_windows, windows, "{chunk_bytes}");
            assert_eq!(notes.iter().any(|told| told == note), windows.is_none(), "{chunk_bytes}: {notes:?}");
        }
    }

    /// Chunks of 500 GB were cut without a word.
    #[test]
    fn chunks_that_are_set_above_what_memory_allows_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        let fp32 = "training.precision=fp32";
        let by_batch = planned(&data, &[fp32, "gpu_optimization.use_chunk_loader=false"], 1 << 30);
        let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
        let note =
            "gpu_optimization.chunk_size_gb is larger than memory allows: chunks on cuda:0 have 32 samples, 13.1 kB";
        for (gigabytes, is_cut) in [(47.0 * 408e-9, false), (48.1 * 408e-9, true), (500.0, true)] {
            let setup =
                planned(&data, &[fp32, &format!("gpu_optimization.chunk_size_gb={gigabytes}")], needed + 40_000);
            let notes = Plan::new(&setup).unwrap().notes;
            assert_eq!(setup.training.chunk_windows, Some(32), "{gigabytes}");
            assert_eq!(notes.iter().any(|told| told == note), is_cut, "{gigabytes}: {notes:?}");
        }
    }

    /// Memory was named where the bound of page-locked memory cut chunks, and where chunks end with
    /// those of the file.
    #[test]
    fn the_limit_of_chunks_is_told() {
        let gigabytes = |bytes: u64| host_chunk(bytes << 30);
        assert_eq!(gigabytes(6), (3 << 30, ChunkLimit::Memory));
        assert_eq!(gigabytes(8), (4 << 30, ChunkLimit::Memory));
        assert_eq!(gigabytes(9), (4 << 30, ChunkLimit::LockedPages));

        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        let settings = ["training.precision=fp32", "gpu_optimization.use_chunk_loader=false"];
        let by_batch = planned(&data, &settings, 1 << 30);
        let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
        let settings = ["training.precision=fp32", "gpu_optimization.chunk_size_gb=500"];
        let mut setup = planned(&data, &settings, needed + 40_000);
        assert_eq!(setup.chunk_limit, Some(ChunkLimit::Memory));
        setup.chunk_limit = Some(ChunkLimit::LockedPages);
        let cut = |setup: &TrainingSetup| {
            let notes = Plan::new(setup).unwrap().notes;
            notes.into_iter().find(|note| note.starts_with("gpu_optimization.chunk_size_gb is"))
        };
        let note = "gpu_optimization.chunk_size_gb is larger than page-locked memory allows, 8.59 GB for two chunks: \
                    chunks on cuda:0 have 32 samples, 13.1 kB";
        assert_eq!(cut(&setup).as_deref(), Some(note));
        setup.chunk_limit = None;
        assert_eq!(cut(&setup), None);
    }

    /// Loaded chunks, whose place those of a GPU take, were among the tensors too, and half of the
    /// chunks on a GPU was a validation's.
    #[test]
    fn a_plan_has_chunks_once_and_batches_of_a_validation_apart() {
        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        let fp32 = "training.precision=fp32";
        let by_batch = planned(&data, &[fp32, "gpu_optimization.use_chunk_loader=false"], 1 << 30);
        let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
        let mut setup = planned(&data, &[fp32], needed + 40_000);
        let sample_bytes: usize = (20 * 5 + 2) * 4;
        let check = |setup: &TrainingSetup, step_samples: usize| {
            let memory = Plan::new(setup).unwrap().memory;
            assert_eq!(memory.training.batches_bytes, 2 * (step_samples + 16) * sample_bytes);
            let tensor_bytes: usize = memory.tensors.iter().map(|tensor| tensor.bytes).sum();
            assert_eq!(tensor_bytes, memory.training.total_bytes(), "each tensor is listed, and once");
            assert_eq!(memory.phases[1].bytes, memory.total_bytes - 2 * 16 * sample_bytes);
        };
        check(&setup, 32);

        // As where memory does not hold the windows.
        let resident = setup.chunks.clone().unwrap();
        let chunk_bytes = 32 * sample_bytes as u64;
        setup.chunks = Ok(ChunkPlan {
            residence: Residence::Chunked,
            samples_per_chunk: 32,
            chunks: 10,
            chunk_bytes,
            data_bytes: 2 * chunk_bytes,
            ..resident
        });
        check(&setup, 16);
    }

    /// Chunks, which a run that is short of memory gives up first, were counted with each model.
    #[test]
    fn a_smaller_model_is_one_that_fits_without_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let data = make_windows(folder.path());
        let by_batch = planned(&data, &["gpu_optimization.use_chunk_loader=false"], 1 << 30);
        let needed = by_batch.gpu_footprint(&by_batch.training).unwrap().total_bytes();
        let setup = planned(&data, &[], needed + 40_000);
        assert!(setup.training.chunk_windows.is_some());
        let mut smaller = trainer::Config { batch_size: 1, chunk_windows: None, ..setup.training.clone() };
        smaller.model.hidden = 2;
        let free = setup.footprint(&smaller).unwrap().total_bytes();
        setup.device.set_budget_bytes(Some(setup.device.usage().allocated_bytes + free));
        let source = Box::new(trainer::Error::SampleOutOfRange { sample: 0, len: 0 });
        let shortage = trainer::Error::CannotReduceFurther { step: 1, batch_size: 1, source };
        let message = advise_smaller_model(&setup, Error::from(shortage)).exact_message();
        assert!(message.contains("model.hidden=2 would fit"), "{message}");
    }
}
