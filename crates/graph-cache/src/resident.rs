//! Graphs in the memory of a device.

use std::marker::PhantomData;
use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_segment::Index;

use crate::error::{Error, Result};
use crate::file::{BlockLayout, GraphFile, StoredGraph};

/// Graphs of a file on a device, in one buffer: all of them where they fit, and otherwise those of
/// the last batches, which are copied as they are asked for. What a kernel takes of a graph is
/// where its arrays begin; its indices are the graph's own, so that a batch is a list of such
/// places and nothing is renumbered.
#[derive(Debug)]
pub struct Resident<I = u32> {
    file: GraphFile,
    memory: Buffer<u8>,
    /// Where in the memory the block of each graph begins, if it is there.
    places: Vec<Option<usize>>,
    /// Bytes of the memory that blocks take, from its beginning.
    taken: usize,
    whole: bool,
    indices: PhantomData<I>,
}

/// Where the arrays of a graph are on a device, as kernels take them. They are what [`StoredGraph`]
/// calls them, and an array of no elements has some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the arrays have the names of the methods of StoredGraph, Csr and Csc")]
pub struct Addresses {
    pub nodes: u64,
    pub row_ptr: u64,
    pub col: u64,
    pub csc_offsets: u64,
    pub csc_rows: u64,
    pub csc_edges: u64,
    pub weights: u64,
    pub edge_attributes: u64,
    pub node_features: u64,
    pub targets: u64,
}

impl<I: Index> Resident<I> {
    /// Takes memory of `scope` for the graphs of `file`: as much as all of them take, if that is at
    /// most `limit_bytes` and no more than the device has free, and they are copied; or else as
    /// much as that, and they are streamed. All are looked through, because kernels follow their
    /// indices unasked.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::IndexWidth`]; [`Error::Device`] where the memory is not to be
    /// had after all.
    pub fn new(file: GraphFile, scope: &Scope, limit_bytes: usize) -> Result<Self> {
        if !file.is_empty() {
            file.ready::<I>(0)?;
        }
        file.verify()?;
        let blocks = file.blocks();
        let limit_bytes = scope.device().free_bytes().map_or(limit_bytes, |free| free.min(limit_bytes));
        let whole = blocks.len() <= limit_bytes;
        let (memory, places, taken) = if whole {
            (
                Buffer::from_slice(scope, blocks)?,
                (0..file.len()).map(|graph| Some(file.block_start(graph))).collect(),
                blocks.len(),
            )
        } else {
            (Buffer::zeros(scope, limit_bytes)?, vec![None; file.len()], 0)
        };
        Ok(Resident { file, memory, places, taken, whole, indices: PhantomData })
    }

    /// True if all graphs are on the device for good.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Memory that is taken on the device, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Sees to it that `graphs` are on the device; returns how many bytes had to be copied. Where
    /// not all can be, those of earlier calls stay as long as there is room, and then all of them
    /// go.
    ///
    /// # Errors
    /// [`Error::NoGraph`]; [`Error::BatchTooLarge`] for graphs that are more than the memory, which
    /// is then as it was; [`Error::Device`].
    pub fn load(&mut self, graphs: &[usize]) -> Result<usize> {
        graphs.iter().try_for_each(|&graph| self.file.ready::<I>(graph))?;
        let mut missing = self.missing(graphs, &self.places);
        if self.taken + missing.1 > self.memory.len() {
            missing = self.missing(graphs, &vec![None; self.places.len()]);
            if missing.1 > self.memory.len() {
                return Err(Error::BatchTooLarge { needed_bytes: missing.1, limit_bytes: self.memory.len() });
            }
            self.places.fill(None);
            self.taken = 0;
        }
        for graph in missing.0 {
            let (block, _) = self.file.block::<I>(graph)?;
            self.memory.copy_from_at(self.taken, block)?;
            self.places[graph] = Some(self.taken);
            self.taken += block.len();
        }
        Ok(missing.1)
    }

    /// Those of `graphs` that have no place, each once, and the bytes of their blocks.
    fn missing(&self, graphs: &[usize], places: &[Option<usize>]) -> (Vec<usize>, usize) {
        let mut missing: Vec<usize> = graphs.iter().copied().filter(|&graph| places[graph].is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        let bytes = missing.iter().map(|&graph| self.file.block_bytes(graph)).sum();
        (missing, bytes)
    }

    /// Where the arrays of a graph are until the next [`Resident::load`]; `None` for one that is
    /// not on the device.
    ///
    /// # Panics
    /// If there are not so many graphs.
    pub fn addresses(&self, graph: usize) -> Option<Addresses> {
        let start = self.memory.address() + self.places[graph]? as u64;
        let (_, layout) = self.file.block::<I>(graph).expect("it was looked through when it was loaded");
        let at = |array: &Range<usize>| start + array.start as u64;
        Some(Addresses {
            nodes: at(&layout.nodes),
            row_ptr: at(&layout.row_ptr),
            col: at(&layout.col),
            csc_offsets: at(&layout.csc_offsets),
            csc_rows: at(&layout.csc_rows),
            csc_edges: at(&layout.csc_edges),
            weights: at(&layout.weights),
            edge_attributes: at(&layout.edge_attributes),
            node_features: at(&layout.node_features),
            targets: at(&layout.targets),
        })
    }

    /// A graph where it is on a device in host memory; `None` for one that is not there.
    ///
    /// # Panics
    /// If there are not so many graphs, or the device is a GPU.
    pub fn graph(&self, graph: usize) -> Option<StoredGraph<'_, I>> {
        let start = self.places[graph]?;
        let (block, layout): (_, BlockLayout) =
            self.file.block::<I>(graph).expect("it was looked through when it was loaded");
        let copy = &self.memory.as_slice()[start..start + block.len()];
        // SAFETY: the bytes are a copy of a block that was looked through under this shape and
        // layout, for indices of type `I`; only `load` writes to the memory, and it takes `self`
        // exclusively.
        Some(unsafe { StoredGraph::new_unchecked(self.file.shape(), layout, copy, self.file.known_time(graph)) })
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;
    use crate::file::tests::written;

    #[test]
    fn what_fits_is_copied_once_and_lies_where_the_addresses_say() {
        let (file, _) = written(5);
        let scope = Device::cpu().scope("graphs");
        let mut resident = Resident::<u32>::new(file.clone(), &scope, usize::MAX).unwrap();
        assert!(resident.is_whole());
        assert_eq!(resident.load(&[4, 0, 4]).unwrap(), 0);
        assert_eq!(scope.usage().allocated_bytes, resident.bytes());
        for index in 0..5 {
            let graph = resident.graph(index).unwrap();
            assert_eq!(graph.to_graph(), file.graph(index).unwrap().to_graph());
            let addresses = resident.addresses(index).unwrap();
            assert_eq!(addresses.col, graph.csr().col().as_ptr().addr() as u64);
            assert_eq!(addresses.targets, graph.targets().as_ptr().addr() as u64);
        }
    }

    #[test]
    fn what_does_not_fit_is_streamed_within_its_limit() {
        let (file, _) = written(6);
        let block = |graph| file.block_bytes(graph);
        let limit = block(3) + block(4) + block(5);
        let scope = Device::cpu().scope("graphs");
        let mut resident = Resident::<u32>::new(file.clone(), &scope, limit).unwrap();
        assert!(!resident.is_whole() && resident.graph(5).is_none());
        let mut seen = Vec::new();
        for graphs in [&[5, 4, 5][..], &[4, 5], &[3], &[0], &[0, 1, 0]] {
            seen.push(resident.load(graphs).unwrap());
            for &graph in graphs {
                assert_eq!(resident.graph(graph).unwrap().to_graph(), file.graph(graph).unwrap().to_graph());
            }
            assert_eq!(scope.usage().allocated_bytes, limit);
        }
        assert_eq!(seen, [block(4) + block(5), 0, block(3), block(0), block(1)]);
        let error = resident.load(&[2, 3, 4, 5]).unwrap_err();
        assert!(matches!(error, Error::BatchTooLarge { limit_bytes, .. } if limit_bytes == limit), "{error}");
        assert_eq!(resident.load(&[0, 1]).unwrap(), 0, "a batch that is refused drives none out");
        assert!(matches!(resident.load(&[6]), Err(Error::NoGraph { index: 6, .. })));
    }

    #[test]
    fn indices_are_as_wide_as_the_file_says() {
        let (file, _) = written(1);
        let error = Resident::<u64>::new(file, &Device::cpu().scope("graphs"), 0).unwrap_err();
        assert!(error.to_string().contains("indices have 32 bits and 64 are asked for"), "{error}");
    }
}
