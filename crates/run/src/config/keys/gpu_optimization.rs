//! Batches, memory and loading.

use super::{COUNT, COUNT_OR_ZERO, Condition, Key, POSITIVE, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key("gpu_optimization.batch_size", COUNT, "64", "Samples in a batch."),
    key(
        "gpu_optimization.gradient_accumulation_steps",
        COUNT,
        "1",
        "Batches whose gradients are averaged before an optimizer step.",
    ),
    key(
        "gpu_optimization.use_amp",
        Kind::Bool,
        "false",
        "Mixed precision in fp16, unless `training.precision` is set.",
    ),
    key(
        "gpu_optimization.use_chunk_loader",
        Kind::Bool,
        "true",
        "Data that do not fit in memory are loaded in large chunks; `false`: batch by batch.",
    )
    .only(&[Condition::OnWindows]),
    key(
        "gpu_optimization.chunk_size_gb",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Size of such a chunk, in 10^9 bytes; two are in memory. `auto`: half of the memory left \
         by the model, at most three eighths of all memory.",
    )
    .only(&[Condition::OnWindows]),
    key(
        "gpu_optimization.driver_reserve_gb",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "GPU memory left to the driver, in 10^9 bytes. `auto`: 1 GiB, or an eighth of a smaller \
         GPU's memory.",
    )
    .only(&[Condition::OnGpus]),
    key(
        "gpu_optimization.num_workers",
        COUNT_OR_ZERO,
        "0",
        "Accepted, without effect: a background thread loads ahead, on all free CPU cores.",
    )
    .only(&[Condition::Never { because: "one background thread loads ahead of training, on all CPU cores" }]),
    key("gpu_optimization.pin_memory", Kind::Bool, "true", "Accepted, without effect on the CPU.")
        .only(&[Condition::OnGpus]),
    key(
        "gpu_optimization.persistent_workers",
        Kind::Bool,
        "true",
        "Accepted, without effect: there are no worker processes.",
    )
    .only(&[Condition::Never { because: "there are no worker processes" }]),
    key(
        "gpu_optimization.empty_cache_every_n_epochs",
        COUNT_OR_ZERO,
        "0",
        "Epochs after which unused cached memory is returned to the system; 0: never.",
    ),
    key(
        "gpu_optimization.empty_cache_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "Batches after which unused cached memory is returned to the system; 0: never. Taking it \
         again costs time.",
    ),
    key(
        "gpu_optimization.leak_warning_mb",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "100",
        "Growth of live memory, in 10^6 bytes, from which a warning names the owner: at least \
         three rises over the epochs, without a fall.",
    ),
    key(
        "gpu_optimization.record_memory",
        Kind::Choice { now: &["events", "trace", "off"], later: "" },
        "events",
        "Record of memory use. `events`: memory over time, peak and last allocations, in \
         memory.json and the report. `trace`: also every allocation, in memory-trace.jsonl.",
    ),
    key(
        "gpu_optimization.log_gpu_stats_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "Batches between two rows of gpu.csv; 0: a row a second.",
    )
    .only(&[Condition::OnGpus]),
];
