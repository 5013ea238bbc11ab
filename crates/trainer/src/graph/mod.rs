//! Graphs whose nodes are samples.

#![forbid(unsafe_code)]

mod attention;
mod batch;
mod port;
mod readout;
mod view;

pub use attention::{
    AttentionKind, AttentionMemory, AttentionPass, GraphActivation, GraphAttention, GraphConfig, GraphDropout,
    GraphOutput, NodeGradients, Nodes, PackedAttention, Passes,
};
pub(crate) use attention::{
    BatchEdges, GraphMask, GraphPlace, Joined, Layer as AttentionLayer, NO_EDGE, Scoring, SeenEdges,
};
pub(crate) use batch::{GraphBatch, check_graphs, samples_of};
pub use port::{GraphTargets, Graphs, LabelSpan};
pub use readout::Readout;
pub use view::GraphView;
