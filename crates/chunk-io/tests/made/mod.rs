//! Made-up series for the tests, small and of any shape.

use megabatch_chunk_io::{Instruments, Scaler, Series, SeriesTimeframe};

/// Dimensions of a made-up timeframe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeframePlan {
    pub(crate) name: &'static str,
    /// Base bars in a bar.
    pub(crate) base_bars: usize,
    /// Window length T.
    pub(crate) steps: usize,
    /// Number of features F.
    pub(crate) features: usize,
}

pub(crate) const fn timeframe(name: &'static str, base_bars: usize, steps: usize, features: usize) -> TimeframePlan {
    TimeframePlan { name, base_bars, steps, features }
}

/// Dimensions of a made-up series.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The first is the base.
    pub(crate) timeframes: Vec<TimeframePlan>,
    /// Base bars of each instrument.
    pub(crate) base_bars: Vec<usize>,
    pub(crate) horizons: usize,
}

impl Plan {
    pub(crate) fn small() -> Self {
        Plan { timeframes: vec![timeframe("M1", 1, 4, 3), timeframe("M5", 5, 2, 2)], base_bars: vec![40], horizons: 2 }
    }

    pub(crate) fn two_instruments() -> Self {
        Plan { base_bars: vec![40, 30], ..Plan::small() }
    }
}

const MINUTE_NS: i64 = 60_000_000_000;

/// A series in which every value differs, with a sample wherever each timeframe has a full window.
pub(crate) fn series(plan: &Plan) -> Series {
    let mut series = Series::default();
    let mut sample_instrument = Vec::new();
    for (i, &bars) in plan.base_bars.iter().enumerate() {
        for base in 0..bars {
            if plan.timeframes.iter().all(|timeframe| (base + 1) / timeframe.base_bars >= timeframe.steps) {
                series.sample_time.push((base as i64 + 1) * MINUTE_NS);
                sample_instrument.push(i as i32);
            }
        }
    }
    series.timeframes =
        plan.timeframes.iter().map(|timeframe| made_timeframe(plan, timeframe, &series, &sample_instrument)).collect();
    series.targets = (0..series.sample_time.len() * plan.horizons).map(|i| i as f32 * 0.25 - 7.0).collect();
    if plan.base_bars.len() > 1 {
        let names = (0..plan.base_bars.len()).map(|i| format!("PAIR{i} €")).collect();
        let ends = series.sample_time.iter().map(|time| time + plan.horizons as i64 * MINUTE_NS);
        series.sample_label_end_time = ends.collect();
        series.sample_reach_time = series.sample_time.iter().map(|time| time - 20 * MINUTE_NS).collect();
        series.sample_weight = (0..series.sample_time.len()).map(|i| i as f32 * 0.125).collect();
        series.instruments = Some(Instruments { names, sample_instrument });
    }
    series.attributes.insert("symbol".into(), "EURUSD".into());
    series.attributes.insert("pip_size".into(), 0.0001.into());
    series.attributes.insert("horizon_bars".into(), (plan.horizons as i64).into());
    series
}

fn made_timeframe(
    plan: &Plan,
    timeframe: &TimeframePlan,
    series: &Series,
    sample_instrument: &[i32],
) -> SeriesTimeframe {
    let TimeframePlan { name, base_bars: per, steps, features } = *timeframe;
    let mut starts = vec![0_i64];
    let mut close_time = Vec::new();
    for bars in plan.base_bars.iter().map(|bars| bars / per) {
        close_time.extend((1..=bars).map(|bar| (bar * per) as i64 * MINUTE_NS));
        starts.push(close_time.len() as i64);
    }
    // An instrument without bars has no segment.
    let mut segments: Vec<i64> = starts.windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| pair[0]).collect();
    segments.truncate(if plan.base_bars.len() > 1 { segments.len() } else { 0 });
    let end = |(time, &instrument): (&i64, &i32)| starts[instrument as usize] + time / MINUTE_NS / per as i64 - 1;
    SeriesTimeframe {
        name: name.to_owned(),
        steps,
        feature_names: (0..features).map(|feature| format!("feature_{feature}")).collect(),
        values: (0..close_time.len() * features).map(|i| (i as f32 + per as f32 * 1e-3).sin()).collect(),
        sample_end: series.sample_time.iter().zip(sample_instrument).map(end).collect(),
        close_time,
        scaler: Some(Scaler {
            kind: "robust".to_owned(),
            center: (0..features).map(|feature| feature as f64 * 0.1).collect(),
            scale: vec![1.0; features],
            fit_end_time: 20 * MINUTE_NS,
        }),
        segment_start: segments,
        instrument_start: if plan.base_bars.len() > 1 { starts } else { Vec::new() },
    }
}
