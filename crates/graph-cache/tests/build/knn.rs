use megabatch_graph_cache::build::*;
use proptest::prelude::*;

use crate::data::Random;
use crate::oracle;

fn check(values: &[f64], width: usize, knn: &Knn) {
    let points = Points::new(values, width).unwrap();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let key = |a: &[f64], b: &[f64]| match knn.metric {
        Metric::Cosine => dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt()),
        Metric::Euclidean => -a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt(),
    };
    let keys: Vec<Vec<f64>> = points.rows().map(|a| points.rows().map(|b| key(a, b)).collect()).collect();
    let options =
        Correlation { k: knn.k, symmetry: knn.symmetry, self_loops: knn.self_loops, ..Correlation::default() };
    let mut edges = oracle::edges(&options, &keys);
    let graph = knn.build(&points).unwrap();
    if knn.metric == Metric::Cosine {
        return oracle::check(&graph, &graph.weights, &edges);
    }
    for (row, edges) in edges.iter_mut().enumerate() {
        edges.iter_mut().for_each(|(column, value)| *value = if *column == row { 0.0 } else { -*value });
    }
    oracle::check(&graph, &graph.edge_attributes, &edges);
}

proptest! {
    #[test]
    fn graphs_are_those_of_the_formula(
        nodes in 0usize..90, width in 1usize..20, k in 1usize..40, seed in any::<u64>(),
        kinds in any::<[bool; 2]>(), symmetry in 0usize..3, (offset, outlier) in (0usize..3, any::<bool>()),
    ) {
        let mut random = Random(seed);
        let offset = [0.0, 1.0, 1e3][offset];
        let mut values: Vec<f64> = (0..nodes * width).map(|_| random.next() - 0.5 + offset).collect();
        // A point so far away that proposals tell nothing of the others; a row of zeros, which has
        // no cosine.
        if outlier && nodes > 3 {
            values[width..2 * width].fill(1e7);
            values[2 * width..3 * width].fill(0.0);
        }
        let knn = Knn {
            metric: if kinds[0] { Metric::Cosine } else { Metric::Euclidean },
            k,
            symmetry: [Symmetry::None, Symmetry::Union, Symmetry::Mutual][symmetry],
            self_loops: if kinds[1] { SelfLoops::Added } else { SelfLoops::None },
        };
        // One number's cosine is 1 or -1 with every other, and a far level leaves few bits to tell
        // cosines apart.
        if knn.metric == Metric::Euclidean || width > 2 && offset < 1e3 {
            check(&values, width, &knn);
        }
    }
}

#[test]
fn the_first_of_equal_columns_win() {
    let points = Points::new(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0], 1).unwrap();
    for metric in [Metric::Cosine, Metric::Euclidean] {
        let graph = Knn { metric, k: 2, ..Knn::default() }.build(&points).unwrap();
        assert_eq!(graph.col[..8], [1, 2, 0, 2, 0, 1, 0, 1], "{metric:?}");
    }
}

#[test]
fn no_neighbours_is_no_number_of_them() {
    let error = Knn { k: 0, ..Knn::default() }.build(&Points::new(&[], 1).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "option k: expected 1 or more, found 0");
}
