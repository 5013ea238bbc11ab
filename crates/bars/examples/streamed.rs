//! Seconds and peak memory of each pass over files of bars in bounded memory:
//!
//! ```text
//! cargo run --release -p megabatch-bars --example streamed -- FOLDER FILE…
//! ```
//!
//! Parsed bars go to FOLDER, which must be empty; the series goes nowhere.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use megabatch_bars::{
    BarSource as _, ReadOptions, SeriesPiece, SeriesPlan, SeriesSpec, SpooledRecording, StreamedInstrument, TargetKind,
    read_spooled,
};
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or("name a folder and files")?;
    let files: Vec<PathBuf> = arguments.collect();
    let go_on = |_: usize| ControlFlow::Continue(());
    let mut start = Instant::now();
    let mut passed = |label: &str, bars: usize| {
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{label:>6}: {seconds:6.2} s, {:.2} million bars a second, peak {} MB",
            bars as f64 / seconds / 1e6,
            peak_mb()
        );
        start = Instant::now();
    };
    let options = ReadOptions::default();
    let read = |file: &PathBuf| {
        let spool = folder.join(file.file_name().unwrap_or_default()).with_extension("bars");
        read_spooled(&[file], &options, &spool, &|_| ControlFlow::Continue(()))
    };
    let recordings = files.par_iter().with_max_len(1).map(read).collect::<Result<Vec<SpooledRecording>, _>>()?;
    let bars = recordings.iter().map(|recording| recording.bars.len()).sum();
    passed("read", bars);
    let spec = SeriesSpec { target_kind: TargetKind::Cumulative, ..SeriesSpec::default() };
    let instruments: Vec<StreamedInstrument<'_>> = recordings.iter().map(instrument).collect();
    let plan = SeriesPlan::new(&instruments, &spec, None, &folder, &go_on)?;
    passed("count", bars);
    let header = plan.fit(&go_on)?;
    passed("fit", bars);
    let sink = |_: &SeriesPiece| -> megabatch_bars::Result<()> { Ok(()) };
    plan.write(&header, &go_on, &sink)?;
    passed("write", bars);
    Ok(())
}

fn instrument(recording: &SpooledRecording) -> StreamedInstrument<'_> {
    StreamedInstrument { name: &recording.symbol, bars: &recording.bars, pip_size: 1.0, fitted_until: None }
}

/// Largest resident memory so far, in MB; 0 where the system does not say.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) / 1024
}
