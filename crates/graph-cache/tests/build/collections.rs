//! Collections of graphs, as a cache asks for them.

use megabatch_graph_cache::build::*;
use megabatch_graph_cache::{Builder, Identity};

use crate::data::Data;

#[test]
fn days_with_a_whole_look_back_have_a_graph() {
    let mut data = Data::new(20, 100, 4, 0.0);
    // Returns have none on the first day.
    (0..20).for_each(|node| data.values[node * 100] = f64::NAN);
    let options = Correlation { lookback: 30, k: 3, min_observations: 25, ..Correlation::default() };
    let graphs = CorrelationGraphs::new(options.clone(), data.panel()).unwrap();
    assert_eq!((graphs.keys().len(), graphs.keys()[0].as_str()), (69, "1970-02-01"));
    assert_eq!(graphs.keys()[68], "1970-04-10");
    assert_eq!(graphs.build(5).unwrap(), options.build(&data.panel(), 36).unwrap());
    let mut built = Vec::new();
    for start in (0..69).step_by(graphs.run_length()) {
        let run = start..69.min(start + graphs.run_length());
        let take = &mut |index, graph| {
            built.push((index, graph));
            Ok(())
        };
        graphs.build_run(run, take).unwrap();
    }
    for (expected, (index, graph)) in built.iter().enumerate() {
        assert_eq!((*index, graph), (expected, &graphs.build(expected).unwrap()));
    }
    assert_eq!(built.len(), 69);
    assert_eq!(graphs.schema().names, data.names);
    let long = Correlation { lookback: 99, ..Correlation::default() };
    assert!(CorrelationGraphs::new(long, data.panel()).unwrap().keys().is_empty());
}

#[test]
fn identities_tell_data_and_options_apart() {
    let data = Data::new(5, 70, 4, 0.0);
    let sized = |size: f64| Correlation {
        channels: vec![Channel { name: "size".into(), values: ChannelValues::Sizes(vec![size; 5]) }],
        ..Correlation::default()
    };
    let identity =
        |options: Correlation, data: &Data| CorrelationGraphs::new(options, data.panel()).unwrap().identity();
    let plain = identity(Correlation::default(), &data);
    assert_eq!(plain, identity(Correlation::default(), &data));
    assert_eq!(plain.builder, "correlation/1");
    let expected = r#"{"lookback":60,"k":10,"half_life":null,"demeaning":"none","min_observations":40,"min_degree":0,"sign":"signed","#;
    assert!(plain.parameters.starts_with(expected), "{}", plain.parameters);

    let k = identity(Correlation { k: 9, ..Correlation::default() }, &data);
    assert!(k.data == plain.data && k.parameters != plain.parameters);
    let mut changed = [data.clone(), data.clone(), data.clone()];
    changed[0].values[17] = changed[0].values[17].next_up();
    changed[1].names[2] = "N2b".to_owned();
    changed[2].times[69] += 1;
    let differ = |a: &Identity, b: &Identity| a.data != b.data && a.parameters == b.parameters;
    assert!(changed.iter().all(|data| differ(&identity(Correlation::default(), data), &plain)));
    assert!(differ(&identity(sized(1.0), &data), &identity(sized(2.0), &data)));
}

#[test]
fn sets_of_points_have_a_graph_each() {
    let (three, one) = ([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 9.0, 9.0, 9.0], [0.0; 3]);
    let sets = |key: &str| {
        let points = |values| Points::new(values, 3).unwrap();
        vec![("three".to_owned(), points(&three)), (key.to_owned(), points(&one))]
    };
    let radius = PointGraphs::new(PointRule::Radius(Radius::new(1.5)), sets("one")).unwrap();
    let knn = PointGraphs::new(PointRule::Neighbours(Knn::default()), sets("one")).unwrap();
    assert_eq!((radius.keys(), &radius.schema().edge_attributes[..]), (knn.keys(), &["distance".to_owned()][..]));
    assert_eq!([&radius.build(0).unwrap(), &radius.build(1).unwrap()].map(|graph| graph.col.len()), [2, 0]);
    let (radius, knn) = (radius.identity(), knn.identity());
    assert_eq!((radius.builder.as_str(), knn.builder.as_str()), ("radius/1", "knn/1"));
    assert_eq!(radius.parameters, r#"{"radius":1.5,"cell":null,"self_loops":"none"}"#);
    let renamed = PointGraphs::new(PointRule::Radius(Radius::new(1.5)), sets("other")).unwrap().identity();
    assert!(radius.data == knn.data && radius.data != renamed.data);
    let error = PointGraphs::new(PointRule::Radius(Radius::new(1.5)), sets("three")).err().expect("a key twice");
    assert_eq!(error.to_string(), "the key \"three\" is there twice: expected a key of one graph");
}
