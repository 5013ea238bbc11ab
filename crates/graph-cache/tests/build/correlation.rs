use megabatch_graph_cache::build::*;
use proptest::prelude::*;

use crate::oracle::{self, Random};

/// Random walks' steps, some of them moving together, with every `hole`-th observation missing.
struct Data {
    names: Vec<String>,
    times: Vec<i64>,
    values: Vec<f64>,
}

impl Data {
    fn new(nodes: usize, days: usize, (seed, hole): (u64, f64)) -> Data {
        let mut random = Random(seed);
        let market: Vec<f64> = (0..days).map(|_| random.next() - 0.5).collect();
        let value = |random: &mut Random, day: usize| match random.next() < hole {
            true => f64::NAN,
            false => 0.01 * (random.next() - 0.5 + 0.7 * market[day]),
        };
        let values = (0..nodes * days).map(|at| value(&mut random, at % days)).collect();
        Data {
            names: (0..nodes).map(|k| format!("N{k}")).collect(),
            times: (0..days as i64).map(|day| day * 86_400_000_000_000).collect(),
            values,
        }
    }

    fn panel(&self) -> Panel<'_> {
        Panel::new(&self.names, (&self.times, &self.times), &self.values).unwrap()
    }

    fn check(&self, options: &Correlation, t: usize) {
        let panel = self.panel();
        let (nodes, edges) = oracle::correlation(options, &panel, t);
        let graph = options.build(&panel, t).unwrap();
        assert_eq!(graph.nodes.iter().map(|&node| node as usize).collect::<Vec<_>>(), nodes);
        // Weights are rounded to single precision once.
        oracle::check(&graph, &edges, 6e-8);
    }
}

fn options() -> impl Strategy<Value = Correlation> {
    // Two or three days always correlate, which makes ties that only rounding breaks.
    let sizes = (5usize..40, 1usize..30, prop::option::of(1.0f64..40.0), 0.0f64..1.0, 0.0f64..1.0);
    let kinds = (any::<[bool; 3]>(), prop::option::of(-0.5f64..0.9), 0usize..3);
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
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn graphs_are_those_of_the_formula(
        options in options(), nodes in 0usize..50, seed in any::<u64>(), days in 2usize..60, hole in 0usize..3,
    ) {
        let data = Data::new(nodes, days, (seed, [0.0, 0.01, 0.3][hole]));
        data.check(&options, days);
        data.check(&options, days - 1);
    }
}
