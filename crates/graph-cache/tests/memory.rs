//! Memory of a process that reads a file again and again. A program of its own, so that no other
//! test takes memory meanwhile.
#![cfg(target_os = "linux")]

use megabatch_graph_cache::{
    BlockDiagonal, BuildOptions, Builder, Graph, GraphFile, Identity, Result, Schema, build_cached, unwatched,
};

const GRAPHS: usize = 128;
const BATCH: usize = 32;

struct Rings(Schema, Vec<String>);

impl Builder for Rings {
    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn schema(&self) -> &Schema {
        &self.0
    }

    fn keys(&self) -> &[String] {
        &self.1
    }

    fn build(&self, index: usize) -> Result<Graph> {
        let nodes = 64 + index as u32;
        let edges: Vec<_> = (0..10 * nodes).map(|k| (k % nodes, (7 * k + k / nodes) % nodes, 1.0)).collect();
        Graph::from_edges(&self.0, (0..nodes).collect(), &edges)
    }
}

/// Pages of this process that are in memory.
fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Reads every index of every graph, in batches whose order is another in each epoch.
fn read(batch: &mut BlockDiagonal, epoch: usize) -> u64 {
    let mut sum = 0;
    for start in (0..GRAPHS).step_by(BATCH) {
        let graphs: [usize; BATCH] = std::array::from_fn(|place| (start + place) * (2 * epoch + 1) % GRAPHS);
        batch.set(&graphs).unwrap();
        for block in batch.blocks() {
            let (csr, csc) = (block.csr(), block.csc());
            sum += [csr.row_ptr(), csr.col(), csc.offsets(), csc.edges()]
                .into_iter()
                .flatten()
                .map(|&i| u64::from(i))
                .sum::<u64>();
        }
    }
    sum
}

#[test]
fn a_thousand_epochs_leave_memory_flat() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.mbg");
    let builder = Rings(Schema { weighted: true, ..Schema::default() }, (0..GRAPHS).map(|k| k.to_string()).collect());
    build_cached(&path, &builder, &BuildOptions::default(), &mut unwatched).unwrap();
    let mut batch = BlockDiagonal::new(GraphFile::open(&path).unwrap());
    let sum = read(&mut batch, 0);
    assert_eq!(read(&mut batch, 1), sum);
    let before = resident_pages();
    for epoch in 0..1000 {
        assert_eq!(read(&mut batch, epoch), sum);
    }
    let grown = resident_pages().saturating_sub(before);
    assert!(grown <= 16, "{grown} pages more than after the first epochs");
}
