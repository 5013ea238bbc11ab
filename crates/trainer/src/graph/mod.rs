//! Graphs whose nodes are samples.

#![forbid(unsafe_code)]

mod view;

pub use view::GraphView;
