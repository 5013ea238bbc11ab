//! The native part of the Python module `megabatch`: functions of `megabatch-run` with Python's
//! types, PyTorch's memory from `megabatch-torch-pool`, and operations on its tensors from
//! `megabatch-segment`. The interface that people use is in `python/megabatch`.

#![allow(clippy::needless_pass_by_value, reason = "arguments come out of Python by value")]

mod arrays;
mod commands;
mod context;
mod convert;
mod dataset;
mod failure;
mod files;
mod follow;
mod functions;
mod graph;
mod host;
mod loader;
mod memory;
mod process;
mod scatter;
mod scatter_gpu;
mod threads;
mod torch_pool;
mod training;

/// Native functions of megabatch.
#[pyo3::pymodule]
mod _megabatch {
    #[pymodule_export]
    use crate::commands::{
        append, bar_columns, bars_of_ticks, build_graphs, clock_and_symbols, doctor, feature_columns, feature_names,
        function_inputs, ingest, is_time, is_utc, leak, likely_symbol, memory_snapshot, replay_memory, symbol_columns,
        synthesize, timeframe_name, timeframes, write_bars,
    };
    #[pymodule_export]
    use crate::context::{context_bars, context_start, read_context};
    #[pymodule_export]
    use crate::dataset::Dataset;
    #[pymodule_export]
    use crate::files::{compare, convert, inspect, monitor};
    #[pymodule_export]
    use crate::follow::Follower;
    #[pymodule_export]
    use crate::graph::{Graphs, export_graphs, verify_graphs};
    #[pymodule_export]
    use crate::loader::{Epoch, EpochSamples, Loader, Table};
    #[pymodule_export]
    use crate::process::program;
    #[pymodule_export]
    use crate::scatter::{
        TensorSegments, scatter_check_sorted, scatter_index_bound, scatter_plan, scatter_plan_from_offsets,
    };
    #[pymodule_export]
    use crate::scatter_gpu::{
        GpuTensorSegments, scatter_gpu_fault, scatter_gpu_plan, scatter_gpu_plan_bytes, scatter_gpu_plan_from_offsets,
    };
    #[pymodule_export]
    use crate::torch_pool::TorchPool;
    #[pymodule_export]
    use crate::training::{evaluate, export, import_weights, plan, predict, train, weights};

    /// Version of megabatch.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name of a version")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init() {
        crate::process::remember();
    }
}
