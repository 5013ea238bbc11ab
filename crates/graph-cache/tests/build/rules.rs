//! Promises of the options, on data where they can be seen.

use megabatch_graph_cache::build::*;
use megabatch_graph_cache::{Builder, Graph};

use crate::data::Data;

const NAN: f64 = f64::NAN;

fn options(lookback: usize, k: usize) -> Correlation {
    Correlation { lookback, k, min_observations: 2, ..Correlation::default() }
}

fn columns(graph: &Graph) -> Vec<Vec<u32>> {
    let csr = graph.csr().unwrap();
    (0..csr.rows()).map(|row| csr.columns_of(row).to_vec()).collect()
}

#[test]
fn a_graph_does_not_see_its_own_day_or_any_later_one() {
    let data = Data::new(60, 90, 1, 0.02);
    let t = 70;
    for demeaning in [Demeaning::None, Demeaning::CrossSectional] {
        let sizes = ChannelValues::Sizes(data.values.iter().map(|x| x.abs()).collect());
        let channels = |values| vec![Channel { name: "size".into(), values }];
        let options = Correlation { demeaning, channels: channels(sizes), ..Correlation::default() };
        let graph = options.build(&data.panel(), t).unwrap();
        let mut changed = data.clone();
        for day in t..90 {
            for node in 0..60 {
                changed.values[node * 90 + day] = if day % 2 == 0 { 1e9 * node as f64 } else { NAN };
            }
        }
        let sizes = ChannelValues::Sizes(changed.values.iter().map(|x| x.abs()).collect());
        let options_changed = Correlation { channels: channels(sizes), ..options.clone() };
        assert_eq!(options_changed.build(&changed.panel(), t).unwrap(), graph);
        let mut last_of_run = None;
        let take = &mut |_, graph| {
            last_of_run = Some(graph);
            Ok(())
        };
        let graphs = CorrelationGraphs::new(options_changed.clone(), changed.panel()).unwrap();
        graphs.build_run(0..t + 1 - options.lookback, take).unwrap();
        assert_eq!(last_of_run, Some(graph.clone()));
        // And it does see the day before.
        changed.values[69] += 0.01;
        assert_ne!(options_changed.build(&changed.panel(), t).unwrap(), graph);
    }
}

#[test]
fn few_nodes_and_few_days_make_small_graphs() {
    let neighbours = |nodes: usize, days: usize, k: usize| {
        let data = Data::new(nodes, days, 5, 0.0);
        columns(&options(10, k).build(&data.panel(), days).unwrap())
    };
    assert_eq!(neighbours(0, 10, 3), [[0; 0]; 0]);
    assert_eq!(neighbours(1, 10, 3), [[0; 0]; 1]);
    assert_eq!(neighbours(2, 10, 3), [[1], [0]]);
    assert_eq!(neighbours(3, 10, 9), [[1, 2], [0, 2], [0, 1]]);
    assert_eq!(neighbours(3, 10, usize::MAX), [[1, 2], [0, 2], [0, 1]]);
    assert_eq!(neighbours(3, 1, 2), [[0; 0]; 0], "one observation is not enough");
    assert_eq!(neighbours(3, 0, 2), [[0; 0]; 0]);
}

#[test]
fn the_first_columns_of_equal_correlations_win() {
    // Every series is one of two, up to a scale that is a power of two and changes no bit.
    let days = 9;
    let value = |node: usize, day: usize| ((day * day + node % 2 * day * 3) % 7) as f64 * [1.0, 0.5, 8.0][node % 3];
    let data = Data::from_values(days, (0..40 * days).map(|at| value(at / days, at % days)).collect());
    let graph = options(days, 3).build(&data.panel(), days).unwrap();
    for (row, columns) in columns(&graph).into_iter().enumerate() {
        let same = (0..40).filter(|column| column % 2 == row as u32 % 2 && *column != row as u32);
        assert_eq!(columns, same.take(3).collect::<Vec<_>>(), "row {row}");
    }
}

#[test]
fn what_does_not_vary_or_is_hardly_there_has_no_edges() {
    #[rustfmt::skip]
    let values = vec![
        1.0, 2.0, 4.0, 3.0, 5.0, 0.1,
        7.0, 7.0, 7.0, 7.0, 7.0, 7.0, // constant: a node without edges
        2.0, 1.0, 3.0, 3.0, 6.0, 0.0,
        NAN, NAN, NAN, NAN, NAN, NAN, // nothing: no node
        5.0, NAN, NAN, f64::INFINITY, NAN, 1.0, // two: no node
        NAN, 4.0, NAN, 1.0, 2.0, NAN, // three, of which no two pairs are too few
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        1.0, 2.0, 2.0, 2.0, 2.0, 1.0, // constant on the days that it shares with the one before the last
        0.1, 0.2, 0.1 + 0.2, 0.3, 1e101, -1e300, // the last two are out of range
    ];
    let data = Data::from_values(6, values);
    let graph = Correlation { min_observations: 3, ..options(6, 9) }.build(&data.panel(), 6).unwrap();
    assert_eq!(graph.nodes, [0, 1, 2, 5, 6, 7, 8]);
    let expected: [&[u32]; 7] = [&[2, 3, 5, 6], &[], &[0, 3, 5, 6], &[0, 2], &[], &[0, 2, 6], &[0, 2, 5]];
    assert_eq!(columns(&graph), expected);
    assert!(graph.weights.iter().all(|weight| weight.abs() <= 1.0), "{:?}", graph.weights);
}

#[test]
fn the_nearest_are_kept_whatever_the_threshold_says() {
    let data = Data::new(30, 20, 9, 0.0);
    let base = options(20, 6);
    let degrees = |options: &Correlation| {
        let graph = options.build(&data.panel(), 20).unwrap();
        columns(&graph).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(degrees(&Correlation { threshold: Some(1.0), ..base.clone() }), [0; 30]);
    assert_eq!(degrees(&Correlation { threshold: Some(1.0), min_degree: 2, ..base.clone() }), [2; 30]);
    assert_eq!(degrees(&Correlation { threshold: Some(-1.0), ..base.clone() }), [6; 30]);
    let mutual = Correlation { symmetry: Symmetry::Mutual, min_degree: 3, ..base };
    assert!(degrees(&mutual).iter().all(|&degree| degree >= 3));
}

#[test]
fn signs_count_or_do_not() {
    let x = [1.0, -2.0, 3.0, 0.5];
    let values = [x, x.map(|x| -x), [1.0, 2.0, 3.0, 0.0], [0.0; 4].map(|_: f64| 0.0)].concat();
    let data = Data::from_values(4, values);
    let build = |sign| Correlation { sign, ..options(4, 1) }.build(&data.panel(), 4).unwrap();
    assert_eq!(columns(&build(Sign::Signed))[0], [2]);
    let graph = build(Sign::Absolute);
    assert_eq!((columns(&graph)[0].as_slice(), graph.weights[0]), ([1].as_slice(), -1.0), "the weight keeps its sign");
}

#[test]
fn a_graph_is_known_when_the_last_day_that_it_sees_is() {
    let data = Data::new(3, 5, 2, 0.0);
    let known = [10, 20, 30, 40, 86_400_000_000_005];
    let panel = Panel::new(&data.names, &data.times, &known, &data.values).unwrap();
    let build = |t| options(3, 1).build(&panel, t).unwrap().known_time;
    assert_eq!([0, 1, 4, 5].map(build), [None, Some(10), Some(40), Some(86_400_000_000_005)]);
}

#[test]
fn channels_are_attributes_of_edges() {
    let data = Data::new(4, 8, 11, 0.0);
    let labels = ["Energy", "Health", "Energy", ""].map(str::to_owned).to_vec();
    let channels = vec![
        Channel { name: "size".into(), values: ChannelValues::Sizes(vec![1.0, 2.0, 4.0, 8.0]) },
        Channel { name: "sector".into(), values: ChannelValues::Labels(labels) },
    ];
    let options = Correlation { channels, self_loops: SelfLoops::Added, ..options(8, 3) };
    assert_eq!(options.schema(&data.panel()).edge_attributes, ["size", "sector"]);
    let graph = options.build(&data.panel(), 8).unwrap();
    let rows: Vec<&[f32]> = graph.edge_attributes.chunks(2).take(4).collect();
    assert_eq!(rows, [[1.0, 1.0], [0.5, 0.0], [0.25, 1.0], [0.125, 0.0]]);
    assert_eq!(graph.weights[0], 1.0, "a self-loop's weight");
}

#[test]
fn options_out_of_range_are_refused() {
    let data = Data::new(3, 8, 2, 0.0);
    let base = options(5, 2);
    let cases: &[(Correlation, &str)] = &[
        (Correlation { lookback: 1, ..base.clone() }, "option lookback: expected 2 days or more, found 1"),
        (Correlation { k: 0, ..base.clone() }, "option k: expected 1 or more, found 0"),
        (Correlation { half_life: Some(0.0), ..base.clone() }, "option half_life: expected a positive number of days"),
        (
            Correlation { min_observations: 6, ..base.clone() },
            "option min_observations: expected from 2 to the look-back",
        ),
        (Correlation { min_degree: 3, ..base.clone() }, "option min_degree: expected k or less, found 3"),
        (Correlation { threshold: Some(NAN), ..base.clone() }, "option threshold: expected from -1 to 1"),
        (
            Correlation {
                channels: vec![Channel { name: "size".into(), values: ChannelValues::Sizes(vec![1.0; 4]) }],
                ..base
            },
            "channel \"size\" with 4 values: expected one for each of 3 nodes",
        ),
    ];
    for (options, expected) in cases {
        let error = options.build(&data.panel(), 8).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
