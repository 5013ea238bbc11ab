//! Floats of graphs in memory that a process may write.

use std::ops::Range;

use super::GraphFile;
use super::layout::{FloatWidth, Widths};
use super::mapping::PrivateBytes;
use crate::error::Result;

/// The floats of a file's graphs in memory that this process may write: a copy. Neither the file
/// nor [`GraphFile`] sees that.
#[derive(Debug)]
pub struct PrivateGraphs {
    file: GraphFile,
    bytes: PrivateBytes,
}

/// The floats of a graph; `None` for those that the file has in half precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateGraph {
    /// [N, F] row-major.
    pub node_features: Option<FloatArray>,
    /// `[E]` in the order of [`StoredGraph::csr`](crate::StoredGraph::csr), or none at all.
    pub weights: Option<FloatArray>,
    /// [E, A] row-major, in that order.
    pub edge_attributes: Option<FloatArray>,
    /// [N, K] row-major, `[K]`, or none.
    pub targets: FloatArray,
}

/// f32 numbers in memory of [`PrivateGraphs`], which must outlive their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatArray {
    /// Address of the first, whose provenance is exposed.
    pub address: usize,
    /// Count of the numbers.
    pub len: usize,
}

impl GraphFile {
    /// The floats of the file for programs that may write them. `None` for a mapped file: programs
    /// that keep addresses in it would end with SIGBUS once another one cuts it short.
    pub fn private(&self) -> Option<PrivateGraphs> {
        Some(PrivateGraphs { file: self.clone(), bytes: self.inner.bytes.private()? })
    }
}

impl PrivateGraphs {
    /// The floats of a graph.
    ///
    /// # Errors
    /// [`Error::NoGraph`](crate::Error::NoGraph); [`Error::Damaged`](crate::Error::Damaged) at the
    /// first use of its block.
    pub fn graph(&self, graph: usize) -> Result<PrivateGraph> {
        self.file.check_once(&[graph])?;
        let (_, layout) = self.file.checked_block(graph);
        let start = self.bytes.address() + self.file.inner.entries()[graph].offset as usize;
        let array =
            |range: Range<usize>| FloatArray { address: start + range.start, len: range.len() / size_of::<f32>() };
        let single = |width, range| (width == FloatWidth::F32).then(|| array(range));
        let Widths { edges, features, .. } = self.file.widths();
        Ok(PrivateGraph {
            node_features: single(features, layout.node_features),
            weights: single(edges, layout.weights),
            edge_attributes: single(edges, layout.edge_attributes),
            targets: array(layout.targets),
        })
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "the arrays are addresses")]
mod tests {
    use super::super::tests::{mapped, written};
    use super::*;
    use crate::error::Error;
    use crate::graph::Targets;

    /// Adds 1 to each number of an array, and gives what it was.
    fn changed(array: FloatArray) -> Vec<f32> {
        // SAFETY: the test keeps the `PrivateGraphs` of the array, and nobody else has its memory.
        let values = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<f32>(array.address), array.len)
        };
        let before = values.to_vec();
        values.iter_mut().for_each(|value| *value += 1.0);
        before
    }

    #[test]
    fn who_writes_is_alone_with_what_was_written() {
        let (in_memory, graphs) = written(4);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rings.mbg");
        std::fs::write(&path, &*in_memory.inner.bytes).unwrap();
        // Arrays in a mapping ended the process once the file was cut short.
        assert_eq!(mapped(&path).private().is_none(), cfg!(unix));
        for file in [in_memory, GraphFile::open(&path).unwrap()] {
            let (private, other) = (file.private().unwrap(), file.private().unwrap());
            for (index, graph) in graphs.iter().enumerate() {
                let floats = private.graph(index).unwrap();
                let Targets::Nodes(targets) = &graph.targets else { unreachable!("rings have targets of nodes") };
                assert_eq!(changed(floats.node_features.unwrap()), graph.node_features);
                assert_eq!(changed(floats.weights.unwrap()), graph.weights);
                assert_eq!(changed(floats.edge_attributes.unwrap()), graph.edge_attributes);
                assert_eq!(&changed(floats.targets), targets);
                assert_eq!(changed(floats.targets), targets.iter().map(|target| target + 1.0).collect::<Vec<_>>());
                assert_eq!(&changed(other.graph(index).unwrap().targets), targets);
                assert_eq!(&file.graph(index).unwrap().to_graph(), graph);
            }
            assert!(matches!(private.graph(4), Err(Error::NoGraph { index: 4, graphs: 4, .. })));
        }
        GraphFile::open(&path).unwrap().verify().unwrap();
    }
}
