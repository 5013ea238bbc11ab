//! Graphs out of observations: one of 256 nodes that looks back on 60 days, and runs of days of an
//! S&P 500's size.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use megabatch_benches::noise;
use megabatch_graph_cache::Builder;
use megabatch_graph_cache::build::{Correlation, CorrelationGraphs, Knn, Metric, Panel, Points, Radius, UnitCell};

const RUN: usize = 65;

fn values(len: usize) -> Vec<f64> {
    noise(len).into_iter().map(f64::from).collect()
}

fn correlation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("graph_build");
    for (nodes, lookback) in [(256, 60), (504, 60), (504, 250)] {
        let options = Correlation { lookback, ..Correlation::default() };
        let names: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
        let days = lookback + RUN;
        let times: Vec<i64> = (0..days as i64).collect();
        let values = values(nodes * days);
        let panel = Panel::new(&names, &times, &times, &values).expect("the arrays have the panel's sizes");
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{nodes} nodes, {lookback} days, one alone"), |bencher| {
            bencher.iter(|| options.build(&panel, days).expect("the options are sound"));
        });
        group.throughput(Throughput::Elements(RUN as u64));
        group.bench_function(format!("{nodes} nodes, {lookback} days, {RUN} in a row"), |bencher| {
            let graphs = CorrelationGraphs::new(options.clone(), panel).expect("the options are sound");
            bencher.iter(|| graphs.build_run(0..RUN, &mut |_, _| Ok(())).expect("the options are sound"));
        });
    }
    group.finish();
}

fn points(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("graph_build");
    let features = values(2_000 * 64);
    let features = Points::new(&features, 64).expect("whole rows");
    for metric in [Metric::Cosine, Metric::Euclidean] {
        let knn = Knn { metric, ..Knn::default() };
        group.bench_function(format!("10 nearest of 2000 by 64 features, {metric:?}"), |bencher| {
            bencher.iter(|| knn.build(&features).expect("the options are sound"));
        });
    }
    let places = values(3 * 20_000);
    let places = Points::new(&places, 3).expect("whole rows");
    let cell = Some(UnitCell::orthorhombic(2.0, 2.0, 2.0).expect("it spans space"));
    let radius = Radius { cell, ..Radius::new(0.1) };
    group.bench_function("20000 points in a periodic box, 10 near each", |bencher| {
        bencher.iter(|| radius.build(&places).expect("the options are sound"));
    });
    group.finish();
}

criterion_group!(benches, correlation, points);
criterion_main!(benches);
