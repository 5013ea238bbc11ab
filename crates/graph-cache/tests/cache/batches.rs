//! Batches against their definition.

use megabatch_graph_cache::{BlockDiagonal, BuildOptions, Builder, Error, GraphFile, build_cached, unwatched};
use proptest::prelude::*;

use crate::MadeUp;

fn file() -> (MadeUp, GraphFile) {
    let folder = tempfile::tempdir().unwrap();
    let builder = MadeUp::new(4, 20, 1);
    let file = build_cached(folder.path().join("a.mbg"), &builder, &BuildOptions::default(), &mut unwatched).unwrap();
    (builder, file)
}

proptest! {
    /// The edges of a batch are those of its graphs, each with the nodes of the graphs before it
    /// added.
    #[test]
    fn edges_are_those_of_the_graphs_with_their_nodes_moved_on(
        batches in prop::collection::vec(prop::collection::vec(0usize..20, 0..12), 1..5)
    ) {
        let (builder, file) = file();
        let mut batch = BlockDiagonal::<u32>::new(file);
        for graphs in batches {
            batch.set(&graphs).unwrap();
            let (mut from, mut to) = (Vec::new(), Vec::new());
            let mut nodes = 0;
            for &index in &graphs {
                let graph = builder.build(index).unwrap();
                for row in 0..graph.len() {
                    for edge in graph.row_ptr[row]..graph.row_ptr[row + 1] {
                        from.push(i64::from(graph.col[edge as usize]) + nodes);
                        to.push(row as i64 + nodes);
                    }
                }
                nodes += graph.len() as i64;
            }
            prop_assert_eq!((batch.nodes(), batch.edges()), (nodes as usize, from.len()));
            prop_assert_eq!(batch.edge_index(), [from, to].concat());
        }
    }
}

#[test]
fn a_batch_that_cannot_be_set_is_what_it_was() {
    let (_, file) = file();
    let mut batch = BlockDiagonal::<u32>::new(file);
    batch.set(&[3, 1]).unwrap();
    let before = (batch.graphs().to_vec(), batch.node_offsets().to_vec(), batch.edge_offsets().to_vec());
    assert!(matches!(batch.set(&[0, 20]), Err(Error::NoGraph { index: 20, .. })));
    let after = (batch.graphs().to_vec(), batch.node_offsets().to_vec(), batch.edge_offsets().to_vec());
    assert_eq!(after, before);
    assert_eq!(before.0, [3, 1]);
}

#[test]
fn nothing_of_a_block_is_copied() {
    let (_, file) = file();
    let mut batch = BlockDiagonal::<u32>::new(file.clone());
    batch.set(&[7, 7]).unwrap();
    let stored = file.graph(7).unwrap();
    for block in batch.blocks() {
        assert_eq!(block.csr().col().as_ptr(), stored.csr().col().as_ptr());
        assert_eq!(block.csc().edges().as_ptr(), stored.csc().edges().as_ptr());
    }
}
