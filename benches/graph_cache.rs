//! Files of graphs: batches by offsets, opening, and looking through what they hold. 128 graphs of
//! 256 nodes with ten edges each.

use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use megabatch_graph_cache::{
    BlockDiagonal, BuildOptions, Builder, Graph, GraphFile, Identity, Result, Schema, build_cached, unwatched,
};

const GRAPHS: usize = 128;
const NODES: u32 = 256;
const K: u32 = 10;

/// Graphs whose nodes gather from K others each, all over the graph.
struct Scattered(Schema, Vec<String>);

impl Builder for Scattered {
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
        let from = |node: u32, k: u32| (node + 1 + (k * 25 + index as u32) % (NODES - 1)) % NODES;
        let edges: Vec<_> = (0..NODES).flat_map(|node| (0..K).map(move |k| (from(node, k), node, 0.5))).collect();
        Graph::from_edges(&self.0, (0..NODES).collect(), &edges)
    }
}

fn written(path: &Path) -> GraphFile {
    let schema = Schema { weighted: true, ..Schema::default() };
    let graphs = Scattered(schema, (0..GRAPHS).map(|index| index.to_string()).collect());
    build_cached(path, &graphs, &BuildOptions::default(), &mut unwatched).expect("there is room for a few megabytes")
}

fn graph_cache(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("graphs.mbg");
    let file = written(&path);
    let orders: [Vec<usize>; 2] = [(0..GRAPHS).collect(), (0..GRAPHS).rev().collect()];
    let mut batch = BlockDiagonal::<u32>::new(file.clone());

    let mut group = criterion.benchmark_group("graph_cache");
    group.throughput(Throughput::Elements(GRAPHS as u64));
    let mut turn = 0;
    group.bench_function(BenchmarkId::new("batch", "another"), |bencher| {
        bencher.iter(|| {
            turn ^= 1;
            batch.set(&orders[turn]).expect("the file is sound");
            batch.edges()
        });
    });
    group.bench_function(BenchmarkId::new("batch", "the same"), |bencher| {
        bencher.iter(|| batch.set(&orders[turn]).expect("the file is sound"));
    });
    group.bench_function(BenchmarkId::new("batch", "another, with every block's CSR and CSC"), |bencher| {
        bencher.iter(|| {
            turn ^= 1;
            batch.set(&orders[turn]).expect("the file is sound");
            batch.blocks().map(|block| block.csr().edges() + block.csc().columns()).sum::<usize>()
        });
    });
    group.bench_function("edge_index", |bencher| bencher.iter(|| batch.edge_index()));
    group.bench_function("open", |bencher| bencher.iter(|| GraphFile::open(&path).expect("the file is sound")));
    group.throughput(Throughput::Bytes(file.bytes() as u64));
    group.bench_function("verify", |bencher| bencher.iter(|| file.verify().expect("the file is sound")));
    group.finish();
}

criterion_group!(benches, graph_cache);
criterion_main!(benches);
