//! `megabatch ticks`: ticks become bars, with the spread.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::ingest::{Bins, OnError, Zone};
use megabatch_run::ticks::{BarRule, TickFormat, TickOptions, TickPrice, TickVolume, ticks_to_bars};

use crate::answer::Answer;
use crate::host::host;

/// Make bars of ticks, in one pass: of any timeframe, with the spread, or of a number of ticks or a
/// volume
///
/// `ingest` reads bars of a timeframe. Bars of ticks or volume have no fixed length, which `ingest`
/// does not read; a column close_time says when each ends.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch ticks EURUSD_201801.csv --out eurusd.csv --bars M1 --zone new-york+7
  megabatch ticks EURUSD/2018/*/*/*.bi5 --out eurusd.csv --bars M5
  megabatch ticks BTCUSDT-trades-2024-01.zip --out btc.csv --bars volume:100")]
pub(crate) struct Args {
    /// Files of ticks of one symbol, or folders, in any order; plain, .gz, .zip, .parquet or .bi5
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The file of bars to write, .csv
    #[arg(long)]
    out: PathBuf,
    /// Bars: a timeframe from M1 to MN1, a number of ticks or a volume
    #[arg(long, default_value = "M1", value_name = "M1|ticks:N|volume:V")]
    bars: BarRule,
    /// Price of a tick: mid (mean of bid and ask), bid, ask or last [default: mid where both sides
    /// are there, else last]
    #[arg(long)]
    price: Option<TickPrice>,
    /// Volume of a bar: ticks (their number) or sum (of their volumes) [default: sum for trades and
    /// for Dukascopy, else ticks]
    #[arg(long)]
    volume: Option<TickVolume>,
    /// Format of the files: metatrader, dukascopy, csv, histdata, truefx, binance, bi5 [default:
    /// recognised]
    #[arg(long)]
    format: Option<TickFormat>,
    /// Zone of times without offset: UTC, +02:00, America/New_York, new-york+7 or london-5. Needed
    /// for MetaTrader [default: -05:00 for HistData, else that of the header, or UTC]
    #[arg(long, allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Clock at whose multiples of a timeframe bars start, weeks on Mondays: any zone, or exchange,
    /// which is that of --zone
    #[arg(long, default_value = "UTC", allow_hyphen_values = true)]
    bins: Bins,
    /// Price of a point in .bi5 files [default: 0.00001 for currency pairs, 0.001 for those in yen]
    #[arg(long)]
    point: Option<f64>,
    /// Treatment of defective ticks: fail, or skip (drop and count); nothing in a tick can be
    /// repaired
    #[arg(long, default_value_t = OnError::Fail)]
    on_error: OnError,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let options = TickOptions {
        bins: args.bins.in_zone(args.zone.as_ref())?,
        price: args.price,
        volume: args.volume,
        format: args.format,
        zone: args.zone.clone(),
        point: args.point,
        on_error: args.on_error,
        ..TickOptions::new(args.bars)
    };
    Ok(ticks_to_bars(&args.files, &args.out, options, &host())?.into())
}
