//! Made-up data that the benchmarks share: deterministic, and of no meaning.
pub mod full_size;
// Its tests are chunk-io's.
#[cfg(not(test))]
mod stored;

#[cfg(not(test))]
pub use stored::StoredChunk;

use megabatch_bars::{Bar, Bars, Timeframe};
use megabatch_chunk_io::{Series, SeriesTimeframe};
use megabatch_nn::model::SampleShape;
use megabatch_trainer::InMemory;

/// Numbers in [-1, 1) that look random: the golden ratio's multiplicative hash of their index.
pub fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// `count` one-minute bars without gaps.
pub fn bars(count: usize) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::M1, count);
    let mut close = 1.2;
    for (k, step) in (0i64..).zip(noise(count)) {
        let open = close;
        close += 1e-4 * f64::from(step);
        bars.push(Bar {
            open_time: k * Timeframe::M1.duration_ns(),
            open,
            high: open.max(close) + 1e-5,
            low: open.min(close) - 1e-5,
            close,
            volume: 10.0,
            ..Bar::default()
        });
    }
    bars
}

/// A series of one timeframe with windows of `steps` bars and a sample at every bar that has one.
pub fn series(bars: usize, steps: usize, features: usize) -> Series {
    let close_time: Vec<i64> = (1..=bars as i64).map(|k| k * Timeframe::M1.duration_ns()).collect();
    let sample_end: Vec<i64> = (steps as i64 - 1..bars as i64).collect();
    let timeframe = SeriesTimeframe {
        name: "M1".to_owned(),
        steps,
        feature_names: (0..features).map(|f| format!("feature_{f}")).collect(),
        values: noise(bars * features),
        sample_end: sample_end.clone(),
        close_time: close_time.clone(),
        ..SeriesTimeframe::default()
    };
    Series {
        targets: noise(sample_end.len() * 36),
        sample_time: close_time[steps - 1..].to_vec(),
        timeframes: vec![timeframe],
        ..Series::default()
    }
}

/// `count` samples of `shape`, whole in memory.
pub fn samples(shape: &SampleShape, count: usize) -> InMemory {
    let windows = shape.timeframes.iter().map(|timeframe| noise(count * timeframe.steps * timeframe.features));
    let targets = noise(count * shape.outputs);
    InMemory::new(shape.clone(), windows.collect(), targets).expect("the arrays have the shape's sizes")
}
