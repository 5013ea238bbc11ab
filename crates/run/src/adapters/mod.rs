//! Adapters between the libraries: each file puts one library's data into the shape that another
//! asks for.

pub(crate) mod context_account;
pub(crate) mod cross_section;
pub(crate) mod data;
pub(crate) mod data_schema;
pub(crate) mod edges;
mod fold;
pub(crate) mod fold_plan;
mod graph_names;
pub(crate) mod graphs;
mod label_spans;
mod loading;
pub(crate) mod management;
pub(crate) mod neighbours;
mod overlaps;
pub(crate) mod peers;
pub(crate) mod purge_basis;
pub(crate) mod samples;
pub(crate) mod series;
pub(crate) mod spans;
pub(crate) mod split;
mod stored;
mod streamed;
pub(crate) mod trials;
pub(crate) mod verified;
