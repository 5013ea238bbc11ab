//! Graphs that are made one from another.

use megabatch_graph_cache::Builder;
use megabatch_graph_cache::build::*;
use proptest::prelude::*;

use crate::data::{Data, Random};
use crate::oracle;

/// Asserts that every graph of a run is, bit for bit, the one that is built alone.
fn check(options: &Correlation, panel: &Panel<'_>) {
    let graphs = CorrelationGraphs::new(options.clone(), *panel).unwrap();
    let len = graphs.keys().len();
    let mut next = 0;
    for start in (0..len).step_by(graphs.run_length()) {
        let check = &mut |index, graph| {
            assert_eq!(index, next, "days come in order");
            assert_eq!(graph, graphs.build(index).unwrap(), "graph {index}");
            next += 1;
            Ok(())
        };
        graphs.build_run(start..len.min(start + graphs.run_length()), check).unwrap();
    }
    assert_eq!(next, len);
}

proptest! {
    #[test]
    fn a_run_has_the_graphs_that_are_built_alone(
        options in options(), nodes in 0usize..40, seed in any::<u64>(), days in 2usize..180, hole in 0usize..3,
    ) {
        let data = Data::new(nodes, days, seed, [0.0, 0.001, 0.05][hole]);
        check(&Correlation { lookback: options.lookback + 20, ..options }, &data.panel());
    }
}

#[test]
fn sums_outlive_what_would_spoil_them() {
    let mut random = Random(7);
    let (nodes, days) = (33, 220);
    let value = |random: &mut Random, node: usize, day: usize| match (node % 11, day) {
        // Days with returns a thousand times the usual ones, which go out of the window again.
        (0, 70 | 75) => 10.0 * (random.next() - 0.5),
        // Hardly any change for longer than the window, between ordinary ones.
        (1, 60..140) => 1e-7 * random.next(),
        // None at all.
        (2, 60..140) => 0.0,
        // Another level, where the mean is all and the deviations are little.
        (3, 100..) => 1e4 + random.next(),
        // Far from the other numbers.
        (4, _) => 1e30 * (random.next() - 0.5),
        (5, _) => 1e-30 * (random.next() - 0.5),
        // From the least to the most that single precision knows, and beyond.
        (7, 80..) => 1e25 * (random.next() - 0.5),
        (7, _) => 1e-25 * (random.next() - 0.5),
        // Late, and gone for a time.
        (6, 0..30 | 110..160) => f64::NAN,
        _ => 0.01 * (random.next() - 0.5),
    };
    let values = (0..nodes * days).map(|at| value(&mut random, at / days, at % days)).collect();
    let data = Data::from_values(days, values);
    for half_life in [None, Some(20.0)] {
        for sign in [Sign::Signed, Sign::Absolute] {
            check(
                &Correlation { lookback: 40, k: 5, half_life, sign, min_observations: 20, ..Correlation::default() },
                &data.panel(),
            );
        }
    }
}

#[test]
fn threads_change_nothing() {
    let data = Data::new(100, 150, 3, 0.001);
    let panel = data.panel();
    let options = Correlation::default();
    let run = CorrelationGraphs::new(options.clone(), panel).unwrap();
    let built = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut graphs = vec![options.build(&panel, 100).unwrap()];
            let push = &mut |_, graph| {
                graphs.push(graph);
                Ok(())
            };
            run.build_run(0..65, push).unwrap();
            graphs
        })
    };
    assert_eq!(built(1), built(3));
}

fn check_against_oracle(data: &Data, options: &Correlation, t: usize) {
    let panel = data.panel();
    let (nodes, edges) = oracle::correlation(options, &panel, t);
    let graph = options.build(&panel, t).unwrap();
    assert_eq!(graph.nodes.iter().map(|&node| node as usize).collect::<Vec<_>>(), nodes);
    oracle::check(&graph, &graph.weights, &edges);
}

fn options() -> impl Strategy<Value = Correlation> {
    // Two or three days always correlate, which makes ties that only rounding breaks.
    let sizes = (5usize..40, 1usize..30, prop::option::weighted(0.5, 1.0f64..40.0), 0.0f64..1.0, 0.0f64..1.0);
    let kinds = (any::<[bool; 3]>(), prop::option::weighted(0.5, -0.5f64..0.9), 0usize..3);
    (sizes, kinds).prop_map(|((lookback, k, half_life, least, degree), ([a, b, c], threshold, symmetry))| Correlation {
        lookback,
        k,
        half_life,
        min_observations: 5 + (least * (lookback - 5) as f64) as usize,
        min_degree: (degree * k as f64) as usize,
        sign: if a { Sign::Absolute } else { Sign::Signed },
        demeaning: if b { Demeaning::CrossSectional } else { Demeaning::None },
        self_loops: if c { SelfLoops::Added } else { SelfLoops::None },
        threshold,
        symmetry: [Symmetry::None, Symmetry::Union, Symmetry::Mutual][symmetry],
        channels: Vec::new(),
    })
}

proptest! {
    #[test]
    fn graphs_are_those_of_the_formula(
        options in options(), nodes in 0usize..50, seed in any::<u64>(), days in 2usize..60, hole in 0usize..3,
    ) {
        let data = Data::new(nodes, days, seed, [0.0, 0.01, 0.3][hole]);
        check_against_oracle(&data, &options, days);
        check_against_oracle(&data, &options, days - 1);
    }
}
