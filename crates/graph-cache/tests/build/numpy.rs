//! numpy's graphs, as `numpy_fixture.py` wrote them.

use megabatch_graph_cache::Graph;
use megabatch_graph_cache::build::*;
use serde::Deserialize;

use crate::data::Data;
use crate::oracle::{self, Edges};

#[derive(Deserialize)]
struct Fixture {
    lookback: usize,
    k: usize,
    /// In units of 1 / 1024.
    panel: Vec<Vec<Option<i32>>>,
    graphs: Vec<Case>,
    features: Features,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    t: usize,
    half_life: Option<f64>,
    #[serde(default)]
    demean: bool,
    #[serde(default)]
    absolute: bool,
    nodes: Vec<u32>,
    edges: Vec<(usize, usize, f64)>,
}

#[derive(Deserialize)]
struct Features {
    cosine: Vec<(usize, usize, f64)>,
    euclidean: Vec<(usize, usize, f64)>,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../numpy_fixture.json")).unwrap()
}

fn number(units: Option<i32>) -> f64 {
    units.map_or(f64::NAN, |units| f64::from(units) / 1024.0)
}

fn check(graph: &Graph, numbers: &[f32], edges: &[(usize, usize, f64)]) {
    let mut rows: Edges = vec![Vec::new(); graph.len()];
    edges.iter().for_each(|&(row, column, value)| rows[row].push((column, value)));
    oracle::check(graph, numbers, &rows);
}

#[test]
fn correlations() {
    let fixture = fixture();
    let values = fixture.panel.iter().flatten().map(|&units| number(units)).collect();
    let data = Data::from_values(fixture.panel[0].len(), values);
    for case in &fixture.graphs {
        let options = Correlation {
            lookback: fixture.lookback,
            k: fixture.k,
            min_observations: 10,
            half_life: case.half_life,
            demeaning: if case.demean { Demeaning::CrossSectional } else { Demeaning::None },
            sign: if case.absolute { Sign::Absolute } else { Sign::Signed },
            ..Correlation::default()
        };
        let graph = options.build(&data.panel(), case.t).unwrap();
        assert_eq!(graph.nodes, case.nodes, "{}", case.name);
        check(&graph, &graph.weights, &case.edges);
    }
}

#[test]
fn features() {
    let fixture = fixture();
    let whole = fixture.panel.iter().filter(|row| row.iter().all(Option::is_some));
    let values: Vec<f64> = whole.flatten().map(|&units| number(units)).collect();
    let points = Points::new(&values, fixture.panel[0].len()).unwrap();
    let build = |metric| Knn { metric, k: fixture.k, ..Knn::default() }.build(&points).unwrap();
    let graph = build(Metric::Cosine);
    check(&graph, &graph.weights, &fixture.features.cosine);
    let graph = build(Metric::Euclidean);
    check(&graph, &graph.edge_attributes, &fixture.features.euclidean);
}
