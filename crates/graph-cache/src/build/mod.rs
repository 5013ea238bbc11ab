//! Builders of graphs: correlation of observations, similarity of features, nearness in space.
//!
//! All of it is arithmetic on slices, without files. Graphs are a function of data and options
//! alone, bit for bit: not of the CPU, the number of threads, or of a graph being built from its
//! predecessor.

mod assemble;
mod cell;
mod cell_list;
mod channel;
mod collections;
mod correlation;
mod kernel;
mod knn;
mod nearest;
mod pairwise;
mod panel;
mod points;
mod radius;
mod random;
mod rows;
mod sliding;
mod window;

pub use assemble::{SelfLoops, Symmetry};
pub use cell::UnitCell;
pub use channel::{Channel, ChannelValues};
pub use collections::{CorrelationGraphs, PointGraphs, PointRule};
pub use correlation::Correlation;
pub use knn::{Knn, Metric};
pub use nearest::Sign;
pub use panel::Panel;
pub use points::Points;
pub use radius::Radius;
pub use random::Rewired;
pub use window::Demeaning;
