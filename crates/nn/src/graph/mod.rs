//! Graphs whose nodes are samples: the port that they come through, views, lists of edges.

#![forbid(unsafe_code)]

mod batch;
mod dropout;
mod edges;
mod lists;
mod port;
mod view;

pub use batch::{GraphBatch, check_graphs, samples_of};
pub use dropout::GraphDropout;
pub(crate) use dropout::GraphMask;
pub(crate) use edges::{place_attributes, places};
pub use lists::{BatchEdges, GraphPlace, NO_EDGE, SeenEdges};
pub use port::{GraphTargets, Graphs, LabelSpan};
pub use view::GraphView;
