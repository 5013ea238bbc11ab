//! Operations of a training step on a GPU, each in a file of its own: the function with its one
//! match on the device and the launch of its kernel, whose source lies beside it as `.cu`.
//! docs/design/gpu.md tells how they make a step, and what is missing.
//!
//! The CPU arm of a match is the operation's plain form, in a child `cpu`. It belongs to the tests,
//! whose suite compares every device with it: the feature `conformance` compiles the plain forms.
//! Without the feature an operation on the CPU panics.
//!
//! Gates lie unit by unit here, `[.., H, 4]` in the order i, f, g, o, so that the four of a unit
//! are one access to memory; [`interleave`] brings weights and biases of PyTorch's order into this
//! one, and [`add_separated`] their gradients back. Sums are in f32 whatever the operands are.
//!
//! ```text
//! forward    bars that the windows cover, rows padded         take_rows
//!            projected = x · W_ihᵀ + b, once a bar            multiply
//!            states that windows start from, where carried    CarriedStates
//!            states, gates of all steps and timeframes        recurrence; from bars:
//!                                                             recurrence_of_rows
//!            between layers: norm, dropout                    layer_norm, drop_outputs
//!            a vector for each window                         as it is, layer_norm or pool
//!            of all timeframes, one for each sample           join, then fuse or as they are
//!            over graphs: their lists, of those that stay     KeptGraphs
//!            layers of attention, a readout                   drop_nodes, coefficients,
//!                                                             gather_heads, read_graphs
//!            outputs, losses and their gradients              multiply, loss, graph_loss
//! backward   the same in reverse                              multiply, add_column_sums,
//!                                                             fuse_backward, scatter_add,
//!                                                             pool_backward
//!            between layers                                   multiply, round_to, drop_gradients,
//!                                                             layer_norm_backward
//!            d_gates of all steps and timeframes              recurrence_backward
//!            d_gates summed by bar                            sum_per_bar
//!            dW_ih = by_barᵀ · x,  dW_hh = d_gatesᵀ · h        multiply
//! ```
//!
//! The optimizer's two passes are those of [`megabatch_amp::ops`].

/// The CPU arm of an operation, which computes its plain form for the tests. The product is built
/// without it.
#[cfg(feature = "conformance")]
macro_rules! cpu_arm {
    ($form:expr) => {
        Ok::<_, ::megabatch_nn::Error>($form)
    };
}

#[cfg(not(feature = "conformance"))]
macro_rules! cpu_arm {
    ($form:expr) => {
        $crate::ops::refuse_cpu()
    };
}

mod affine;
mod attention;
mod batch_upload;
mod by_bar;
mod bytes;
mod capacity;
mod carried_states;
mod cell;
mod column_sums;
mod dropout;
mod fuse;
mod gate_rows;
mod gather;
mod graph_dropout;
mod graph_lists;
mod graph_loss;
mod group;
#[cfg(test)]
#[path = "tests/harness.rs"]
mod harness;
mod input_weights;
mod kept_graphs;
#[cfg(feature = "conformance")]
#[path = "tests/lanes.rs"]
mod lanes;
mod loss;
mod matmul;
mod norm;
mod operand;
mod pool;
mod product_kind;
mod readout;
mod recurrence;
mod recurrence_backward;
mod recurrence_bytes;
mod recurrence_f32;
mod recurrence_of_rows;
mod recurrence_schedule;
mod recurrence_states;
mod recurrent_weights;
mod round;
mod scratch;
#[cfg(any(test, feature = "conformance"))]
#[path = "tests/sources.rs"]
mod sources;
mod take_rows;
#[cfg(test)]
#[path = "tests/uploaded.rs"]
mod uploaded;
mod work_list;

use megabatch_nn::model::Cell;

pub(crate) use affine::Affine;
pub(crate) use attention::{
    Attended, AttentionSizes, NodeDotInputs, OutputStart, ReceiverRows, Scored, activation_gradients, coefficients,
    gather_heads, node_dot_gradients, node_dots, receiver_gradients, score_gradients, src_gradients, value_gradients,
};
pub(crate) use batch_upload::PlannedUpload;
pub use batch_upload::{BatchUploader, UploadBatch};
pub use by_bar::sum_per_bar;
pub use bytes::{DeviceInt8Matrix, DeviceInt8Rows, multiply_int8};
pub(crate) use capacity::ensure_capacity;
pub use carried_states::{CarriedSizes, CarriedStates, StateNote};
pub use column_sums::add_column_sums;
pub(crate) use column_sums::column_sum_partials_len;
pub use dropout::{Dropped, MaskNumbers, drop_gradients, drop_outputs};
pub use fuse::{FuseMemory, FuseSizes, FuseWeights, fuse, fuse_backward};
pub use gate_rows::{GateRows, GateTensor, add_separated, interleave};
pub use gather::{GatherIndex, ReadFrom, RowGranularity, join, scatter_add};
pub(crate) use graph_dropout::{DroppedNodes, drop_node_gradients, drop_nodes};
pub(crate) use graph_lists::GraphLists;
pub(crate) use graph_loss::{GraphRows, graph_loss, graph_loss_partials_len};
pub use input_weights::InputWeights;
pub(crate) use kept_graphs::KeptGraphs;
pub(crate) use loss::loss_partials_len;
pub use loss::{LossScaling, LossTable, Predictions, Terms, loss};
#[cfg(feature = "conformance")]
pub use matmul::by_library;
pub use matmul::{Product, multiply};
pub(crate) use matmul::{product_partials_len, rows_partials_len};
pub(crate) use norm::norm_partials_len;
pub use norm::{NormWeights, Normed, layer_norm, layer_norm_backward};
pub use operand::{Operand, TensorSlice};
pub use pool::{PoolMemory, PoolSizes, PoolSlots, PoolWeights, pool, pool_backward};
pub use product_kind::{Arithmetic, Output, Transpose};
pub(crate) use readout::{ReadGraphs, read_graphs, read_graphs_backward};
pub use recurrence::recurrence;
pub use recurrence_backward::recurrence_backward;
pub use recurrence_bytes::{RecurrentInt8, recurrence_int8};
pub use recurrence_of_rows::{RowInputs, recurrence_of_rows};
pub use recurrence_states::{Gradients, RecurrenceInputs, States};
pub use recurrent_weights::RecurrentWeights;
pub use round::{round_part, round_to};
pub use scratch::Scratch;
#[cfg(any(test, feature = "conformance"))]
pub use sources::SOURCES;
pub use take_rows::{Table, TableRows, take_rows};
pub use work_list::{RecurrenceSchedule, Sequence, TileWindows, WorkList};

/// Gates of the only cell that runs on a GPU.
pub(crate) const GATES: usize = Cell::Lstm.gates();

#[cfg(not(feature = "conformance"))]
fn refuse_cpu() -> megabatch_nn::Result<()> {
    panic!(
        "the CUDA engine computes on GPUs; for its operations on the CPU, enable megabatch-nn-cuda's feature conformance"
    )
}
