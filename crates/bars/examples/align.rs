//! Reads the bars of one symbol, aligns five timeframes and says how long it took.
//!
//! `cargo run --release --example align -- EURUSD_2018.csv.gz`

use std::time::Instant;

use megabatch_bars::{Instrument, ReadOptions, Result, SeriesSpec, align, pip_size_of, read};

fn main() -> Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let start = Instant::now();
    let recording = read(&paths, &ReadOptions::default())?;
    println!("{}\nread in {:.2?}", recording.summary, start.elapsed());

    let start = Instant::now();
    let name = recording.symbol.as_str();
    let instrument = Instrument { name, bars: &recording.bars, pip_size: pip_size_of(name)? };
    let series = align(&[instrument], &SeriesSpec::default())?;
    println!("{} samples, aligned in {:.2?}", series.len(), start.elapsed());
    for timeframe in &series.timeframes {
        let (bars, features) = (timeframe.close_time.len(), timeframe.features.len());
        println!("  {:>3}: {bars} bars of {features} features, windows of {}", timeframe.timeframe, timeframe.seq_len);
    }
    series.warnings.iter().for_each(|warning| println!("  warning: {warning}"));
    Ok(())
}
