use megabatch_graph_cache::build::*;
use proptest::prelude::*;

use crate::data::Data;
use crate::oracle;

fn check(data: &Data, options: &Correlation, t: usize) {
    let panel = data.panel();
    let (nodes, edges) = oracle::correlation(options, &panel, t);
    let graph = options.build(&panel, t).unwrap();
    assert_eq!(graph.nodes.iter().map(|&node| node as usize).collect::<Vec<_>>(), nodes);
    oracle::check(&graph, &graph.weights, &edges);
}

pub(crate) fn options() -> impl Strategy<Value = Correlation> {
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
    #[test]
    fn graphs_are_those_of_the_formula(
        options in options(), nodes in 0usize..50, seed in any::<u64>(), days in 2usize..60, hole in 0usize..3,
    ) {
        let data = Data::new(nodes, days, seed, [0.0, 0.01, 0.3][hole]);
        check(&data, &options, days);
        check(&data, &options, days - 1);
    }
}
