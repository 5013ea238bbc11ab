//! Batches, memory and loading.

use super::{Acts, COUNT, COUNT_OR_ZERO, Key, POSITIVE, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key("gpu_optimization.batch_size", COUNT, "64", "Samples in a batch."),
    key(
        "gpu_optimization.gradient_accumulation_steps",
        COUNT,
        "1",
        "Batches whose gradients are averaged before the optimizer steps.",
    ),
    key(
        "gpu_optimization.use_amp",
        Kind::Bool,
        "false",
        "Mixed precision: fp16, unless `training.precision` says otherwise.",
    ),
    key(
        "gpu_optimization.use_chunk_loader",
        Kind::Bool,
        "true",
        "Whether data that do not fit in memory are loaded in large chunks, or else batch by batch. What fits stays resident, whatever \
         this says.",
    ).only(&[Acts::OnWindows]),
    key(
        "gpu_optimization.chunk_size_gb",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Size of the chunks in which data pass through memory that do not fit, in units of 10^9 bytes. There are two at a time: `auto` is \
         half of what the model leaves of the memory, and three eighths of all of it at most.",
    ).only(&[Acts::OnWindows]),
    key(
        "gpu_optimization.num_workers",
        COUNT_OR_ZERO,
        "0",
        "Accepted, without effect: there are no worker processes. One background thread loads the next chunk while training works on the one \
         before, and reading and decoding take all the processors that are free.",
    ).only(&[Acts::Never { because: "one background thread loads ahead of training, on all processors" }]),
    key(
        "gpu_optimization.pin_memory",
        Kind::Bool,
        "true",
        "Accepted, without effect on the CPU, which computes where data are loaded to.",
    ).only(&[Acts::OnGpus]),
    key(
        "gpu_optimization.persistent_workers",
        Kind::Bool,
        "true",
        "Accepted, without effect: there are no worker processes.",
    ).only(&[Acts::Never { because: "there are no worker processes" }]),
    key(
        "gpu_optimization.empty_cache_every_n_epochs",
        COUNT_OR_ZERO,
        "0",
        "Epochs after which memory that is kept for reuse and holds nothing is given back to the system; 0 never does.",
    ),
    key(
        "gpu_optimization.empty_cache_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "The same after so many batches, at the end of an optimizer step. What is given back has to be taken again: it costs time.",
    ),
    key(
        "gpu_optimization.leak_warning_mb",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "100",
        "Growth of live memory from epoch to epoch, in units of 10^6 bytes, above which there is a warning that names what grew. Growth \
         counts where it goes on: three rises or more after the first epoch, and nothing given back between them.",
    ),
    key(
        "gpu_optimization.record_memory",
        Kind::Choice { now: &["events", "trace", "off"], later: "" },
        "events",
        "What is noted of memory. `events`: its course, its peak and the last allocations, for the report, memory.json and oom-<n>.json. \
         `trace` also writes every allocation to memory-trace.jsonl, which `megabatch memory replay` reads.",
    ),
    key(
        "gpu_optimization.log_gpu_stats_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "Batches after which the GPU that trains is looked at: a row of gpu.csv with how busy it is, its memory, power, temperature and \
         clocks. 0 looks once a second. Without effect on the CPU, where memory use is in every step's line of metrics.jsonl.",
    ).only(&[Acts::OnGpus]),
];
