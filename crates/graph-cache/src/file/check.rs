//! Checks of a block before anyone follows its indices.

#![forbid(unsafe_code)]

use megabatch_segment::{Csc, Csr, Index};

use super::encode::{array, unnamed};
use super::layout::{BlockLayout, IndexWidth, Shape};

/// Looks through a block once: that its edges go between nodes that there are, are the same by rows
/// and by columns, and that nodes have names. What is wrong is said in words.
pub(crate) fn check(shape: &Shape, layout: &BlockLayout, block: &[u8]) -> Result<(), String> {
    match shape.widths.indices {
        IndexWidth::U32 => check_topology::<u32>(layout, block)?,
        IndexWidth::U64 => check_topology::<u64>(layout, block)?,
    }
    let nodes = array(block, &layout.nodes);
    match unnamed(nodes, shape.names) {
        None => Ok(()),
        Some(node) => Err(format!("node {node} has the name {} of {}", nodes[node], shape.names)),
    }
}

fn check_topology<I: Index>(layout: &BlockLayout, block: &[u8]) -> Result<(), String> {
    let nodes = layout.nodes.len() / size_of::<u32>();
    let indices = |range| array::<I>(block, range);
    let csr = Csr::new(indices(&layout.row_ptr), indices(&layout.col), nodes).map_err(|error| error.to_string())?;
    let csc = Csc::new(indices(&layout.csc_offsets), indices(&layout.csc_rows), indices(&layout.csc_edges), nodes)
        .map_err(|error| format!("by columns, {error}"))?;
    if csc.is_of(&csr) { Ok(()) } else { Err("its edges by columns are not those by rows".to_owned()) }
}
