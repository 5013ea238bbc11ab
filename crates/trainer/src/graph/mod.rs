//! Graphs whose nodes are samples.

#![forbid(unsafe_code)]

mod attention;
mod view;

pub use attention::{
    AttentionKind, AttentionMemory, AttentionPass, GraphActivation, GraphAttention, GraphConfig, GraphDropout,
    GraphOutput, NodeGradients, Nodes, PackedAttention, Passes,
};
pub use view::GraphView;
