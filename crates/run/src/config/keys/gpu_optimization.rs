//! Batches, memory and loading.

use super::choices::MemoryRecord;
use super::setting::{Setting, choice, setting, settings};
use super::{COUNT, COUNT_OR_ZERO, Condition::*, Key, POSITIVE, or};
use crate::config::value::Kind;

settings! {
    /// Samples in a batch.
    BATCH_SIZE: usize = setting("gpu_optimization.batch_size", COUNT, "64");

    /// Batches whose gradients are averaged before an optimizer step.
    GRADIENT_ACCUMULATION_STEPS: usize => gradient_accumulation_steps =
        setting("gpu_optimization.gradient_accumulation_steps", COUNT, "1");

    /// Mixed precision in fp16, unless `training.precision` is set.
    USE_AMP: bool = setting("gpu_optimization.use_amp", Kind::Bool, "false");

    /// Data that do not fit in memory are loaded in large chunks. On a GPU all windows, and the
    /// edges of all graphs, stay where they fit; else windows pass through it in chunks. `false`:
    /// batch by batch.
    USE_CHUNK_LOADER: bool = setting("gpu_optimization.use_chunk_loader", Kind::Bool, "true")
        .only(&[OnWindowsOrGpuGraphs]);

    /// Size of such a chunk, in 10^9 bytes; two are in memory, and two on a GPU, of half the size
    /// in 16 bits. `auto`: half of the memory left by the model, at most three eighths of all
    /// memory, or of what the run leaves of a GPU's.
    CHUNK_SIZE_GB: Option<f64> = setting("gpu_optimization.chunk_size_gb", or("auto", &POSITIVE), "auto")
        .only(&[OnWindows]);

    /// GPU memory left to the driver, in 10^9 bytes. `auto`: 1 GiB, or an eighth of a smaller GPU's
    /// memory.
    DRIVER_RESERVE_GB: Option<f64> =
        setting("gpu_optimization.driver_reserve_gb", or("auto", &POSITIVE), "auto")
        .only(&[OnGpus]);

    /// Accepted, without effect: a background thread loads ahead, on all free CPU cores.
    NUM_WORKERS: usize = setting("gpu_optimization.num_workers", COUNT_OR_ZERO, "0")
        .only(&[Never { because: "one background thread loads ahead of training, on all CPU cores" }]);

    /// Accepted, without effect on the CPU.
    PIN_MEMORY: bool = setting("gpu_optimization.pin_memory", Kind::Bool, "true").only(&[OnGpus]);

    /// Accepted, without effect: there are no worker processes.
    PERSISTENT_WORKERS: bool = setting("gpu_optimization.persistent_workers", Kind::Bool, "true")
        .only(&[Never { because: "there are no worker processes" }]);

    /// Epochs after which unused cached memory is returned to the system; 0: never.
    EMPTY_CACHE_EVERY_N_EPOCHS: u64 =
        setting("gpu_optimization.empty_cache_every_n_epochs", COUNT_OR_ZERO, "0");

    /// Batches after which unused cached memory is returned to the system; 0: never. Taking it
    /// again costs time.
    EMPTY_CACHE_EVERY_N_BATCHES: u64 =
        setting("gpu_optimization.empty_cache_every_n_batches", COUNT_OR_ZERO, "0");

    /// Growth of live memory, in 10^6 bytes, from which a warning names the owner: at least three
    /// rises over the epochs, without a fall.
    LEAK_WARNING_MB: Option<f64> = setting("gpu_optimization.leak_warning_mb", or("none", &POSITIVE), "100");

    /// Record of memory use. `events`: memory over time, peak and last allocations, in memory.json
    /// and the report. `trace`: also every allocation, in memory-trace.jsonl.
    RECORD_MEMORY: MemoryRecord = choice("gpu_optimization.record_memory", "events");

    /// Batches between two rows of gpu.csv; 0: a row a second.
    LOG_GPU_STATS_EVERY_N_BATCHES: usize =
        setting("gpu_optimization.log_gpu_stats_every_n_batches", COUNT_OR_ZERO, "0")
        .only(&[OnGpus]);
}
