//! Reads the bars of one symbol, aligns five timeframes, proves the last sample and says how long
//! each took.
//!
//! `cargo run --release --example align -- EURUSD_2018.csv.gz`

use std::time::Instant;

use megabatch_bars::{
    Instrument, Moment, ReadOptions, Result, SeriesSpec, align, pip_size_of, prove_no_look_ahead, read,
};

fn main() -> Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let start = Instant::now();
    let recording = read(&paths, &ReadOptions::default())?;
    println!("{}\nread in {:.2?}", recording.summary, start.elapsed());

    let name = recording.symbol.as_str();
    let instrument = Instrument { name, bars: &recording.bars, pip_size: pip_size_of(name)? };
    let spec = SeriesSpec::default();
    let start = Instant::now();
    let series = align(&[instrument], &spec)?;
    let segments = series.segments.len();
    println!("{} samples in {segments} segments, aligned in {:.2?}", series.len(), start.elapsed());
    for timeframe in &series.timeframes {
        let (bars, features) = (timeframe.close_time.len(), timeframe.features.len());
        println!("  {:>3}: {bars} bars of {features} features, windows of {}", timeframe.timeframe, timeframe.seq_len);
    }
    series.warnings.iter().for_each(|warning| println!("  warning: {warning}"));

    let moment = Moment { time: series.sample_time[series.len() - 1], seed: 1 };
    let start = Instant::now();
    let proof = prove_no_look_ahead(instrument, &spec, &series.scalers(), moment)?;
    println!("the last sample proven over {} bars in {:.2?}", proof.bars, start.elapsed());
    Ok(())
}
