//! A graph where it lies.

#![allow(unsafe_code, reason = "lists were checked before")]

use bytemuck::Pod;
use half::f16;
use megabatch_gpu_core::convert::f16_to_f32;
use megabatch_segment::{Csc, Csr, Index};

use super::encode::{array, first_wrong, is_target, unnamed};
use super::layout::{BlockLayout, BlockShape, FloatWidth, IndexWidth};
use crate::graph::{Graph, Targets};
use crate::schema::TargetLevel;

/// A graph in the memory of a file, used in place. N nodes, E edges; A, F and K as in the
/// [`Schema`](crate::Schema).
#[derive(Clone, Debug)]
pub struct StoredGraph<'a, I = u32> {
    shape: BlockShape,
    layout: BlockLayout,
    block: &'a [u8],
    known_time: Option<i64>,
    indices: std::marker::PhantomData<I>,
}

impl<'a, I: Index> StoredGraph<'a, I> {
    /// The graph of a block.
    ///
    /// # Safety
    /// [`check_block`] has found nothing wrong with the block, under this shape and
    /// this layout, for indices of type `I`.
    pub(crate) unsafe fn new_unchecked(
        shape: BlockShape,
        layout: BlockLayout,
        block: &'a [u8],
        known_time: Option<i64>,
    ) -> Self {
        StoredGraph { shape, layout, block, known_time, indices: std::marker::PhantomData }
    }

    /// N.
    pub fn len(&self) -> usize {
        self.nodes().len()
    }

    /// True if the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[N]` the place of each node's name in the schema's list; `0..N` where there are no names.
    pub fn nodes(&self) -> &'a [u32] {
        array(self.block, &self.layout.nodes)
    }

    /// The edges by the nodes that receive them.
    pub fn csr(&self) -> Csr<'a, I> {
        let (row_ptr, col) = (array(self.block, &self.layout.row_ptr), array(self.block, &self.layout.col));
        // SAFETY: `Csr::new` is a part of the check that `new_unchecked` asks for.
        unsafe { Csr::new_unchecked(row_ptr, col, self.len()) }
    }

    /// The edges by the nodes that they come from.
    pub fn csc(&self) -> Csc<'a, I> {
        let BlockLayout { csc_offsets, csc_rows, csc_edges, .. } = &self.layout;
        // SAFETY: as above, of `Csc::new`.
        unsafe {
            Csc::new_unchecked(
                array(self.block, csc_offsets),
                array(self.block, csc_rows),
                array(self.block, csc_edges),
            )
        }
    }

    /// `[E]` in the order of [`csr`](Self::csr), or none at all where edges have no weights.
    pub fn weights(&self) -> Floats<'a> {
        Floats::new(array(self.block, &self.layout.weights), self.shape.widths.edges)
    }

    /// [E, A] row-major, in the order of [`csr`](Self::csr).
    pub fn edge_attributes(&self) -> Floats<'a> {
        Floats::new(array(self.block, &self.layout.edge_attributes), self.shape.widths.edges)
    }

    /// [N, F] row-major.
    pub fn node_features(&self) -> Floats<'a> {
        Floats::new(array(self.block, &self.layout.node_features), self.shape.widths.features)
    }

    /// [N, K] row-major, `[K]`, or none, as [`Schema::target_level`](crate::Schema::target_level)
    /// says. One that is not known is NaN.
    pub fn targets(&self) -> &'a [f32] {
        array(self.block, &self.layout.targets)
    }

    /// A copy in its own memory.
    pub fn to_graph(&self) -> Graph<I> {
        let targets = self.targets().to_vec();
        Graph {
            nodes: self.nodes().to_vec(),
            row_ptr: self.csr().row_ptr().to_vec(),
            col: self.csr().col().to_vec(),
            weights: self.weights().to_vec(),
            edge_attributes: self.edge_attributes().to_vec(),
            node_features: self.node_features().to_vec(),
            targets: match self.shape.level {
                TargetLevel::None => Targets::None,
                TargetLevel::Node => Targets::Nodes(targets),
                TargetLevel::Graph => Targets::Graph(targets),
            },
            known_time: self.known_time,
        }
    }
}

/// Floats in the width that they are stored in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floats<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision; widening is exact.
    F16(&'a [f16]),
}

impl<'a> Floats<'a> {
    fn new(bytes: &'a [u8], width: FloatWidth) -> Self {
        fn cast<T: Pod>(bytes: &[u8]) -> &[T] {
            bytemuck::cast_slice(bytes)
        }
        match width {
            FloatWidth::F32 => Floats::F32(cast(bytes)),
            FloatWidth::F16 => Floats::F16(cast(bytes)),
        }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(values) => values.len(),
            Floats::F16(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in place, if they are f32.
    pub fn as_f32(&self) -> Option<&'a [f32]> {
        match *self {
            Floats::F32(values) => Some(values),
            Floats::F16(_) => None,
        }
    }

    /// Writes all of them to `out`.
    ///
    /// # Panics
    /// If `out` is longer or shorter.
    pub fn copy_to(&self, out: &mut [f32]) {
        match self {
            Floats::F32(values) => out.copy_from_slice(values),
            Floats::F16(values) => f16_to_f32(values, out),
        }
    }

    /// The first of them that is NaN or infinite, with its position.
    pub(super) fn first_not_finite(&self) -> Option<(usize, f32)> {
        match *self {
            Floats::F32(values) => first_wrong(values, f32::is_finite).map(|position| (position, values[position])),
            Floats::F16(values) => {
                first_wrong(values, f16::is_finite).map(|position| (position, values[position].to_f32()))
            }
        }
    }

    /// A copy as f32.
    pub fn to_vec(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.len()];
        self.copy_to(&mut values);
        values
    }
}

/// Checks that a block's edges join existing nodes, are the same by rows and by columns, that nodes
/// have valid names, and its floats. The error is the fault in words.
pub(crate) fn check_block(shape: &BlockShape, layout: &BlockLayout, block: &[u8]) -> Result<(), String> {
    match shape.widths.indices {
        IndexWidth::U32 => check_topology::<u32>(layout, block)?,
        IndexWidth::U64 => check_topology::<u64>(layout, block)?,
    }
    let nodes = array(block, &layout.nodes);
    match unnamed(nodes, shape.names) {
        None => check_floats(shape, layout, block),
        Some(node) => Err(format!("node {node} has the name {} of {}", nodes[node], shape.names)),
    }
}

/// Checks that the floats of a block are finite; an unknown target is NaN. Files that were written
/// by earlier versions may have others.
pub(crate) fn check_floats(shape: &BlockShape, layout: &BlockLayout, block: &[u8]) -> Result<(), String> {
    let arrays = [
        ("weights", &layout.weights, shape.widths.edges),
        ("edge_attributes", &layout.edge_attributes, shape.widths.edges),
        ("node_features", &layout.node_features, shape.widths.features),
    ];
    let wrong = |name, position, value| format!("{name}[{position}] is {value}: expected a finite number");
    for (name, range, width) in arrays {
        if let Some((position, value)) = Floats::new(array(block, range), width).first_not_finite() {
            return Err(wrong(name, position, value));
        }
    }
    let targets: &[f32] = array(block, &layout.targets);
    first_wrong(targets, is_target).map_or(Ok(()), |position| Err(wrong("targets", position, targets[position])))
}

fn check_topology<I: Index>(layout: &BlockLayout, block: &[u8]) -> Result<(), String> {
    let nodes = layout.nodes.len() / size_of::<u32>();
    let indices = |range| array::<I>(block, range);
    let csr = Csr::new(indices(&layout.row_ptr), indices(&layout.col), nodes).map_err(|error| error.to_string())?;
    let csc = Csc::new(indices(&layout.csc_offsets), indices(&layout.csc_rows), indices(&layout.csc_edges), nodes)
        .map_err(|error| format!("by columns, {error}"))?;
    if csc.is_of(&csr) { Ok(()) } else { Err("its edges by columns are not those by rows".to_owned()) }
}
