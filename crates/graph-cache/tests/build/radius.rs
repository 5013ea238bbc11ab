use megabatch_graph_cache::Graph;
use megabatch_graph_cache::build::*;
use proptest::prelude::*;

use crate::data::Random;

/// Every image of every point, tried.
fn brute_force(radius: &Radius, points: &Points<'_>, images: i64) -> Vec<(u32, u32, f32)> {
    let images = if radius.cell.is_some() { images } else { 0 };
    let vectors = radius.cell.map_or([[0.0; 3]; 3], |cell| cell.vectors());
    let mut edges = Vec::new();
    for (i, j) in (0..points.len()).flat_map(|i| (0..points.len()).map(move |j| (i, j))) {
        let mut squares = Vec::new();
        for a in -images..=images {
            for b in -images..=images {
                for c in -images..=images {
                    let times = [a, b, c].map(|times| times as f64);
                    let along = |k: usize| {
                        let shift = times[0] * vectors[0][k] + times[1] * vectors[1][k] + times[2] * vectors[2][k];
                        points.row(j)[k] - points.row(i)[k] + shift
                    };
                    let square = along(0) * along(0) + along(1) * along(1) + along(2) * along(2);
                    let own = i == j && [a, b, c] == [0; 3];
                    let counts = if own { radius.self_loops == SelfLoops::Added } else { true };
                    if counts && square <= radius.radius * radius.radius {
                        squares.push(square);
                    }
                }
            }
        }
        squares.sort_by(f64::total_cmp);
        edges.extend(squares.into_iter().map(|square| (i as u32, j as u32, square.sqrt() as f32)));
    }
    edges
}

fn edges(graph: &Graph) -> Vec<(u32, u32, f32)> {
    let csr = graph.csr().unwrap();
    let rows = (0..csr.rows()).flat_map(|row| std::iter::repeat_n(row as u32, csr.edges_of(row).len()));
    rows.zip(&graph.col)
        .zip(&graph.edge_attributes)
        .map(|((row, &column), &distance)| (row, column, distance))
        .collect()
}

/// A cell with edges of about 1, which need not be at right angles.
fn cell(random: &mut Random, kind: usize) -> Option<UnitCell> {
    let mut edge = |axis: usize| {
        let mut edge = [0.0; 3].map(|_: f64| if kind == 2 { 0.3 * (random.next() - 0.5) } else { 0.0 });
        edge[axis] = 0.7 + random.next();
        edge
    };
    let vectors = [edge(0), edge(1), edge(2)];
    (kind > 0).then(|| UnitCell::new(vectors).unwrap())
}

proptest! {
    #[test]
    fn graphs_are_those_of_all_pairs(
        nodes in 0usize..24, seed in any::<u64>(), radius in 0.05f64..1.3, kind in 0usize..3, own in any::<bool>(),
        spread in 0.2f64..1.5,
    ) {
        let mut random = Random(seed);
        let cell = cell(&mut random, kind);
        // Beyond the cell as well as in it.
        let values: Vec<f64> = (0..nodes * 3).map(|_| spread * (random.next() - 0.3)).collect();
        let points = Points::new(&values, 3).unwrap();
        let self_loops = if own { SelfLoops::Added } else { SelfLoops::None };
        let radius = Radius { radius: radius / (1.0 + nodes as f64 / 12.0), cell, self_loops };
        let graph = radius.build(&points).unwrap();
        prop_assert_eq!(edges(&graph), brute_force(&radius, &points, 6));
        prop_assert!(graph.weights.is_empty());
    }
}

#[test]
fn a_radius_longer_than_the_cell_meets_many_images() {
    let radius =
        Radius { radius: 2.0, cell: Some(UnitCell::orthorhombic(1.0, 1.0, 1.0).unwrap()), self_loops: SelfLoops::None };
    let graph = radius.build(&Points::new(&[0.25, 0.5, 7.0], 3).unwrap()).unwrap();
    // Points of a cubic lattice up to 2 away: 6 at 1, 12 at √2, 8 at √3, 6 at 2.
    let counts =
        [1.0, 2f32.sqrt(), 3f32.sqrt(), 2.0].map(|d| graph.edge_attributes.iter().filter(|&&x| x == d).count());
    assert_eq!((counts, graph.col.len()), ([6, 12, 8, 6], 32));
}

#[test]
fn points_in_a_row_and_in_one_place() {
    let values: Vec<f64> = (0..3000).map(|k| if k % 3 == 0 { f64::from(k / 3) } else { 0.0 }).collect();
    let graph = Radius::new(1.0).build(&Points::new(&values, 3).unwrap()).unwrap();
    assert_eq!((graph.col.len(), &graph.col[..4]), (2 * 999, &[1, 0, 2, 1][..]), "exactly the radius apart is near");
    let graph = Radius::new(1e-3).build(&Points::new(&[4.0; 9], 3).unwrap()).unwrap();
    assert_eq!((graph.col, graph.edge_attributes), (vec![1, 2, 0, 2, 0, 1], vec![0.0; 6]));
    let far = [[-1e90; 3], [1e90; 3], [1e90; 3]].concat();
    let graph = Radius::new(1e-3).build(&Points::new(&far, 3).unwrap()).unwrap();
    assert_eq!(graph.row_ptr, [0, 0, 1, 2]);
}

#[test]
fn what_has_no_radius_graph_is_said() {
    let places = [0.0; 3];
    let points = Points::new(&places, 3).unwrap();
    for radius in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Radius::new(radius).build(&points).unwrap_err().to_string();
        assert!(error.starts_with("option radius: expected a positive number"), "{error}");
    }
    let error = Radius::new(1.0).build(&Points::new(&[0.0; 2], 2).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "points of 2 numbers: expected three, which a place in space has");
    let cell = Some(UnitCell::orthorhombic(1.0, 1.0, 1.0).unwrap());
    let far = Radius { cell, ..Radius::new(1.0) }.build(&Points::new(&[0.0, 0.0, 0.0, 0.0, 2e4, 0.0], 3).unwrap());
    assert!(far.unwrap_err().to_string().starts_with("point 1, at [0.0, 20000.0, 0.0], in a cell"));
}
