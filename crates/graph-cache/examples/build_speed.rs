//! Times the building of correlation graphs, for `benches/peers/graph_build.py`: one line of JSON
//! with the fastest time of each in seconds.
//!
//! `build_speed NODES WINDOW K GRAPHS THREADS REPEATS`

use std::hint::black_box;
use std::time::Instant;

use megabatch_graph_cache::build::{Correlation, CorrelationGraphs, Panel};
use megabatch_graph_cache::{Builder, Result};
use rayon::prelude::*;

fn main() -> Result<()> {
    let words: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [nodes, window, k, graphs, threads, repeats] = words[..] else { panic!("six numbers") };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("nobody has made the pool yet");
    let options = Correlation { lookback: window, k, min_observations: 2, ..Correlation::default() };
    let names: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();

    // As many panels as graphs, none of which has a day in common with another; and one long one,
    // whose graphs follow each other.
    let apart: Vec<Vec<f64>> = (0..graphs).map(|seed| normal(nodes * window, seed as u64)).collect();
    let days: Vec<i64> = (0..(window + graphs) as i64).collect();
    let together = normal(nodes * days.len(), graphs as u64);
    let window_panel = |values| Panel::new(&names, &days[..window], &days[..window], values).expect("a panel");
    let panels: Vec<Panel<'_>> = apart.iter().map(|values| window_panel(values)).collect();
    let run = CorrelationGraphs::new(options.clone(), Panel::new(&names, &days, &days, &together)?)?;
    let run_starts: Vec<usize> = (0..graphs).step_by(run.run_length()).collect();
    let run_edges = |&start: &usize| {
        let mut edges = 0;
        run.build_run(start..graphs.min(start + run.run_length()), &mut |_, graph| {
            edges += graph.col.len();
            Ok(())
        })?;
        Ok(edges)
    };

    let cases: [(&str, &dyn Fn() -> Result<usize>); 4] = [
        ("one", &|| Ok(options.build(&panels[0], window)?.col.len())),
        ("loop", &|| panels.iter().map(|panel| Ok(options.build(panel, window)?.col.len())).sum()),
        ("parallel", &|| panels.par_iter().map(|panel| Ok(options.build(panel, window)?.col.len())).sum()),
        ("days", &|| run_starts.par_iter().map(run_edges).sum()),
    ];
    let mut times = Vec::new();
    for (name, work) in cases {
        let mut fastest = f64::INFINITY;
        for _ in 0..=repeats {
            let start = Instant::now();
            black_box(work()?);
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        times.push(format!("\"{name}\": {fastest}"));
    }
    println!("{{{}}}", times.join(", "));
    Ok(())
}

/// Numbers of a normal distribution, nearly: sums of twelve uniform ones.
fn normal(len: usize, seed: u64) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..len).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
}
