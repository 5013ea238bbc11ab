//! Time of a bar from its line to its prediction, without data that have to be read.

use std::path::Path;
use std::time::Instant;

use megabatch_bars::{
    Bar, BarLines, Feature, Instrument, ReadOptions, Scalers, Scaling, SeriesSpec, SeriesStream, TargetKind, Timeframe,
    TimeframeScaler, Window, Zone,
};
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, ModelConfig, SampleShape, save_weights};
use megabatch_nn_cpu::StreamingPredictor;
use serde_json::{Value, json};

use super::series::ModelKind;
use crate::command_report::CommandReport;
use crate::error::{Context as _, Result};
use crate::predict::bar_stream::{BarStream, Streaming};
use crate::synth::write_csv;

/// Days of synthetic minutes before those that are timed: the features and the window of 48 bars of
/// H4 take less.
const WARM_UP_DAYS: u32 = 28;
/// Minutes of a day of trading, at least: some are missing.
const DAY_BARS: u32 = 1000;
/// K: targets of a sample.
const TARGETS: usize = 36;

/// Bars to follow.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// The model.
    pub model: ModelKind,
    /// Hidden units.
    pub hidden: usize,
    /// LSTM layers.
    pub layers: usize,
    /// Timed minutes, after four untimed weeks.
    pub bars: u32,
}

/// The stages of a bar, and their total.
const PARTS: [&str; 4] = ["text", "features", "model", "all"];

/// Measures the latency of a bar that is followed, by part: from a line of text over features to
/// predictions.
///
/// # Errors
/// A capacity error for a model that does not fit into memory.
pub fn follow(options: &FollowOptions) -> Result<CommandReport> {
    let mut live = live(options)?;
    let mut lines = BarLines::new(
        Path::new("made-up bars"),
        &ReadOptions { zone: Some(Zone::utc()), ..ReadOptions::default() },
        Timeframe::M1,
        None,
    );
    let mut csv = Vec::new();
    write_csv(&mut csv, WARM_UP_DAYS + (options.bars / DAY_BARS + 1) * 7 / 5 + 2, 0)?;
    let mut times_us = [const { Vec::new() }; PARTS.len()];
    for line in csv.split_inclusive(|&byte| byte == b'\n').skip_while(|line| !line.ends_with(b"volume\n")) {
        let Some((parts_us, predicted)) = timed(&mut live, &mut lines, line)? else { continue };
        if predicted {
            times_us.iter_mut().zip(parts_us).for_each(|(all, time_us)| all.push(time_us));
        }
    }
    let times_us = times_us.map(|mut all| {
        let mut last = all.split_off(all.len().saturating_sub(options.bars as usize));
        last.sort_by(f64::total_cmp);
        last
    });
    Ok(report(&times_us))
}

/// The microseconds that a line takes, by part, and whether there is a prediction for it; `None`
/// for a line without a bar.
fn timed(live: &mut BarStream<'_>, lines: &mut BarLines, line: &[u8]) -> Result<Option<([f64; PARTS.len()], bool)>> {
    let start = Instant::now();
    let bars: Vec<Bar> = lines.push(line)?;
    let read = Instant::now();
    let Some(bar) = bars.first() else { return Ok(None) };
    let step = live.close(bar)?;
    let closed = Instant::now();
    let outputs = std::hint::black_box(live.predict(step));
    let end = Instant::now();
    let us = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e6;
    Ok(Some(([us(start, read), us(read, closed), us(closed, end), us(start, end)], outputs.is_some())))
}

/// A model with the weights that training begins with, and synthetic scalers, before the first bar.
fn live(options: &FollowOptions) -> Result<BarStream<'static>> {
    let device = Device::cpu();
    let windows = match options.model {
        ModelKind::Multi => SeriesSpec::default().windows,
        ModelKind::Single => vec![Window { timeframe: Timeframe::M1, seq_len: 360 }],
    };
    let (features, width) = (Feature::DEFAULT.to_vec(), Feature::DEFAULT.len());
    let scaler = |window: &Window| TimeframeScaler {
        timeframe: window.timeframe,
        center: vec![0.0; width],
        scale: vec![1.0; width],
    };
    let timeframe = |window: &Window| megabatch_nn::model::Timeframe {
        name: window.timeframe.to_string(),
        steps: window.seq_len,
        features: width,
    };
    let scalers = Scalers {
        kind: Scaling::None,
        fit_end_time: 0,
        instruments: vec!["made-up".to_owned()],
        features: features.clone(),
        timeframes: windows.iter().map(scaler).collect(),
    };
    let shape = SampleShape { timeframes: windows.iter().map(timeframe).collect(), outputs: TARGETS };
    let spec = SeriesSpec { windows, features, target_kind: TargetKind::LogReturn, ..SeriesSpec::default() };
    let series =
        SeriesStream::new(Instrument { name: "made-up", base: Timeframe::M1, pip_size: 1.0 }, &spec, &scalers)?;
    let config = ModelConfig { hidden: options.hidden, layers: options.layers, ..ModelConfig::default() };
    let model = Model::new(shape, config)?;
    let folder = tempfile::tempdir().context("a folder for the weights")?;
    let weights = folder.path().join("weights.safetensors");
    save_weights(&weights, &model.initial_parameters(&device.scope("initial"), 0)?)?;
    Ok(BarStream::new(series, StreamingPredictor::open(&device, model, &weights)?, Streaming::Carried))
}

/// The report from sorted times.
fn report(times_us: &[Vec<f64>; PARTS.len()]) -> CommandReport {
    let at = |times: &[f64], share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let mut text = format!("{} bars, microseconds a bar\n\n", times_us[0].len());
    text.push_str(&format!("{:<9} {:>9} {:>9} {:>9}\n", "part", "median", "p99", "longest"));
    let mut json = serde_json::Map::new();
    for (part, times) in PARTS.iter().zip(times_us) {
        let [median, p99, longest] = [0.5, 0.99, 1.0].map(|share| at(times, share));
        text.push_str(&format!("{part:<9} {median:>9.1} {p99:>9.1} {longest:>9.1}\n"));
        json.insert((*part).to_owned(), json!({ "median_us": median, "p99_us": p99, "longest_us": longest }));
    }
    json.insert("bars".to_owned(), times_us[0].len().into());
    CommandReport::new(text, &Value::Object(json))
}
