//! Oracle of the builders: the formulas, in loops over everything.

use megabatch_graph_cache::Graph;
use megabatch_graph_cache::build::{Correlation, Demeaning, Panel, SelfLoops, Sign, Symmetry};

/// Rows of (column, value), columns ascending.
pub(crate) type Edges = Vec<Vec<(usize, f64)>>;

/// Nodes and edges of the graph of day `t`.
pub(crate) fn correlation(options: &Correlation, panel: &Panel<'_>, t: usize) -> (Vec<usize>, Edges) {
    let days: Vec<usize> = (t.saturating_sub(options.lookback)..t).collect();
    let all: Vec<usize> = (0..panel.names().len()).collect();
    let at = |node: usize, day: usize| panel.series(node)[day];
    let observed = |node: usize| days.iter().filter(|&&day| at(node, day).is_finite()).count();
    let nodes: Vec<usize> = all.iter().copied().filter(|&node| observed(node) >= options.min_observations).collect();
    let day_mean = |day: usize| {
        let there: Vec<f64> = all.iter().map(|&node| at(node, day)).filter(|x| x.is_finite()).collect();
        there.iter().sum::<f64>() / there.len() as f64
    };
    let day_means: Vec<f64> = (0..t).map(day_mean).collect();
    let demeaned = |node: usize, day: usize| match options.demeaning {
        Demeaning::None => at(node, day),
        Demeaning::CrossSectional => at(node, day) - day_means[day],
    };
    let r = |a: usize, b: usize| {
        let common: Vec<usize> =
            days.iter().copied().filter(|&day| at(a, day).is_finite() && at(b, day).is_finite()).collect();
        let w = |day: usize| options.half_life.map_or(1.0, |h| 0.5f64.powf((t - 1 - day) as f64 / h));
        let sum = |f: &dyn Fn(usize) -> f64| common.iter().map(|&day| w(day) * f(day)).sum::<f64>();
        let mean = |node: usize| sum(&|day| demeaned(node, day)) / sum(&|_| 1.0);
        let (mean_a, mean_b) = (mean(a), mean(b));
        let moment = |(p, mean_p): (usize, f64), (q, mean_q): (usize, f64)| {
            sum(&|day| (demeaned(p, day) - mean_p) * (demeaned(q, day) - mean_q))
        };
        let same = |node: usize| common.windows(2).all(|pair| at(node, pair[0]) == at(node, pair[1]));
        if common.len() < options.min_observations || same(a) || same(b) {
            return f64::NAN;
        }
        let squares = moment((a, mean_a), (a, mean_a)) * moment((b, mean_b), (b, mean_b));
        moment((a, mean_a), (b, mean_b)) / squares.sqrt()
    };
    let values: Vec<Vec<f64>> = nodes.iter().map(|&a| nodes.iter().map(|&b| r(a, b)).collect()).collect();
    (nodes, edges(options, &values))
}

/// The edges that options make of all values, of which NaN is none.
pub(crate) fn edges(options: &Correlation, values: &[Vec<f64>]) -> Edges {
    let key = |x: f64| if options.sign == Sign::Absolute { x.abs() } else { x };
    let nearest: Vec<Vec<usize>> = (0..values.len())
        .map(|i| {
            let mut order: Vec<usize> = (0..values.len()).filter(|&j| j != i && !values[i][j].is_nan()).collect();
            order.sort_by(|&a, &b| key(values[i][b]).total_cmp(&key(values[i][a])));
            order
        })
        .collect();
    let kept = |i: usize, j: usize| nearest[i].iter().take(options.min_degree).any(|&column| column == j);
    let has = |i: usize, j: usize| {
        let far = options.threshold.is_some_and(|threshold| key(values[i][j]) < threshold);
        kept(i, j) || nearest[i].iter().take(options.k).any(|&column| column == j) && !far
    };
    let joined = |i: usize, j: usize| match options.symmetry {
        Symmetry::None => has(i, j),
        Symmetry::Union => has(i, j) || has(j, i),
        Symmetry::Mutual => has(i, j) && has(j, i) || kept(i, j) || kept(j, i),
    };
    let row = |i: usize| {
        let columns = (0..values.len()).map(move |j| (j, if i == j { 1.0 } else { values[i][j] }));
        columns.filter(|&(j, _)| if i == j { options.self_loops == SelfLoops::Added } else { joined(i, j) }).collect()
    };
    (0..values.len()).map(row).collect()
}

/// Holds a graph to its oracle: the same edges, and numbers of its edges that are the values
/// rounded to single precision once.
pub(crate) fn check(graph: &Graph, numbers: &[f32], edges: &Edges) {
    let csr = graph.csr().unwrap();
    assert_eq!((csr.rows(), csr.edges()), (edges.len(), numbers.len()));
    for (row, expected) in edges.iter().enumerate() {
        let columns: Vec<usize> = csr.columns_of(row).iter().map(|&column| column as usize).collect();
        let expected_columns: Vec<usize> = expected.iter().map(|edge| edge.0).collect();
        assert_eq!(columns, expected_columns, "row {row}");
        for (number, (column, value)) in numbers[csr.edges_of(row)].iter().zip(expected) {
            let off = (f64::from(*number) - value).abs();
            assert!(off <= 6e-8 * value.abs() + 1e-14, "{row} ← {column}: {number} for {value}");
        }
    }
}
