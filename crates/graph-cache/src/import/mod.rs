//! Graphs from the files of others: each format gives a [`Builder`] whose graphs are in memory.
//!
//! | format | function | graphs |
//! | --- | --- | --- |
//! | TU datasets, a folder of texts | [`tu`] | many, with labels or attributes of nodes, edges and graphs |
//! | CSV of edges, features and labels, a folder | [`edge_list`] | one, or one for each part of a split |
//! | SDF, molecules | [`sdf`] | one a molecule |
//! | `edge_index` as in PyTorch Geometric, in safetensors | [`edge_index`] | one, or as many as `ptr` or `batch` says |
//!
//! [`points`] reads rows of numbers, which [`build`](crate::build) makes graphs of; [`channels`]
//! what is known of nodes beside what they are joined by.
//!
//! Texts may be compressed with gzip. What a file holds bounds the memory that reading it takes,
//! whatever numbers stand in it. Edges of a node are in the order of the nodes that they come from;
//! edges given twice, and from a node to itself, are kept.

#![forbid(unsafe_code)]

mod channels;
mod classes;
mod columns;
mod edge_index;
mod edge_list;
mod edges;
mod points;
mod sdf;
mod table;
mod text;
mod tu;

pub use channels::channels;
pub use edge_index::{edge_index, edge_index_bytes};
pub use edge_list::{EdgeListOptions, FeatureRows, edge_list, edge_list_texts};
pub use points::{PointTable, points};
pub use sdf::{MoleculeEdges, Positions, SdfOptions, sdf, sdf_text};
pub use text::Text;
pub use tu::{tu, tu_texts};

/// Names of the columns that molecules have.
pub(crate) mod sdf_names {
    pub(crate) use super::sdf::{EDGE_ATTRIBUTES, POSITION};
}

use crate::builder::{Builder, Identity};
use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::schema::Schema;

/// Graphs that were imported.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    schema: Schema,
    keys: Vec<String>,
    graphs: ImportedGraphs,
    identity: Identity,
    notes: Vec<String>,
}

impl Imported {
    /// Notes on the files: a sentence each, without its stop.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[derive(Clone, Debug, PartialEq)]
enum ImportedGraphs {
    /// One a key.
    Each(Vec<Graph>),
    /// One and the same, of which every key has other targets.
    Parts { graph: Graph, targets: Vec<Targets> },
}

impl Builder for Imported {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, index: usize) -> Result<Graph> {
        Ok(match &self.graphs {
            ImportedGraphs::Each(graphs) => graphs[index].clone(),
            ImportedGraphs::Parts { graph, targets } => Graph { targets: targets[index].clone(), ..graph.clone() },
        })
    }
}

/// Keys of graphs that have no other name than their place in the file, from 1.
fn numbered(graphs: usize) -> Vec<String> {
    (1..=graphs).map(|number| number.to_string()).collect()
}

/// Identity of imported graphs: the bytes and names of the files, the importer, and its options.
fn identity(texts: &[&Text], builder: &str, parameters: String) -> Identity {
    let parts = texts.iter().flat_map(|text| [text.name().as_bytes(), text.bytes()]);
    Identity { data: Identity::hash(parts), builder: builder.to_owned(), parameters }
}
