//! Import of graphs: each format gives a [`Builder`] whose graphs are in memory.
//!
//! | format | function | graphs |
//! | --- | --- | --- |
//! | TU dataset, a folder of texts | [`tu`] | many, with labels or attributes |
//! | folder of CSV: edges, features, labels | [`edge_list`] | one, or one for each split |
//! | SDF, molecules | [`sdf`] | one a molecule |
//! | PyTorch Geometric's tensors, in safetensors | [`edge_index`] | one, or several |
//!
//! [`points`] reads rows of numbers for the builders of [`build`](crate::build); [`channels`] reads
//! further attributes of nodes.
//!
//! Texts may be compressed with gzip. The length of a file bounds the memory for reading it,
//! whatever numbers are in it. Edges of a node are in the order of the nodes that they come from;
//! edges given twice, and from a node to itself, are kept.

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
    /// Notes on the files: a sentence each, without a full stop.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[derive(Clone, Debug, PartialEq)]
enum ImportedGraphs {
    /// One a key.
    Each(Vec<Graph>),
    /// One graph, with other targets for every key.
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

/// Keys of graphs without names: their places in the file, from 1.
fn numbered(graphs: usize) -> Vec<String> {
    (1..=graphs).map(|number| number.to_string()).collect()
}

/// Identity of imported graphs: the bytes and names of the files, the importer, and its options.
fn identity(texts: &[&Text], builder: &str, parameters: String) -> Identity {
    let parts = texts.iter().flat_map(|text| [text.name().as_bytes(), text.bytes()]);
    Identity { data: Identity::hash(parts), builder: builder.to_owned(), parameters }
}
