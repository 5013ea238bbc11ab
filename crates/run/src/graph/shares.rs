//! Correlation graphs of shares: files of bars, one a share, become a panel of log returns.

use std::path::PathBuf;

use megabatch_bars::{Bars, ReadOptions, ReturnPanel, Universe, bar_files, listed, read_all, return_panel};
use megabatch_graph_cache::Builder as _;
use megabatch_graph_cache::build::{Correlation, CorrelationGraphs, Panel};
use megabatch_graph_cache::import::{Text, channels};
use serde_json::{Value, json};

use super::note_on_k;
use super::options::Options;
use super::request::Source;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::ingest::universe;
use crate::text::{plural, utc};

pub(super) fn with_shares(
    inputs: &[PathBuf],
    options: &Options,
    then: &mut dyn FnMut(Source<'_>) -> Result<CommandReport>,
) -> Result<CommandReport> {
    let files = inputs.iter().map(|input| Ok(bar_files(input)?)).collect::<Result<Vec<_>>>()?.concat();
    let reading = ReadOptions {
        on_error: options.on_error(),
        symbol_pattern: options.symbol_pattern.clone(),
        ..ReadOptions::default()
    };
    let shares = read_all(&files, &reading)?;
    let instruments: Vec<(&str, &Bars)> =
        shares.recordings.iter().map(|share| (share.symbol.as_str(), &share.bars)).collect();
    let returns = return_panel(&instruments)?;
    require_two_shares(&shares, &returns)?;
    let panel = Panel::new(&returns.names, &returns.open_times, &returns.times, &returns.values)?;
    let mut correlation = options.correlation();
    if let Some(path) = &options.similarities {
        correlation.channels = channels(&Text::read(path)?, &returns.names)?;
    }
    let (lookback, k) = (correlation.lookback, correlation.k);
    let warnings: Vec<String> =
        constant_correlation_warning(&correlation).into_iter().chain(other_calendars(&instruments, &returns)).collect();
    let graphs = CorrelationGraphs::new(correlation, panel)?;
    if graphs.keys().is_empty() {
        return Err(Error::data(format!(
            "there are {}, and a graph sees the {lookback} returns before its own day; give more days, or a shorter --lookback",
            plural(returns.open_times.len(), "day")
        )));
    }
    let mut facts = facts(&returns);
    facts["universe"] = universe::facts(&shares);
    let mut found = universe::describe(&shares) + &describe(&returns) + &note_on_k(k, returns.names.len(), "share");
    warnings.iter().for_each(|warning| found.push_str(&format!("warning: {warning}\n")));
    // The universe's text has the warnings of its files in it.
    let all: Vec<String> = warnings.into_iter().chain(universe::file_warnings(&shares.recordings)).collect();
    facts["warnings"] = json!(all);
    then(Source { builder: &graphs, found, facts })
}

/// Refuses a panel of fewer shares than a correlation is between.
fn require_two_shares(shares: &Universe, returns: &ReturnPanel) -> Result<()> {
    let found = match returns.names.as_slice() {
        [] => "no share has returns".to_owned(),
        [name] => format!("{name} is the only share with returns"),
        _ => return Ok(()),
    };
    let without_returns = returns.excluded.iter().map(ToString::to_string);
    let left_out: Vec<String> = shares.describe_excluded().into_iter().chain(without_returns).collect();
    let left_out = if left_out.is_empty() { String::new() } else { format!("; left out: {}", listed(&left_out)) };
    Err(Error::data(format!(
        "{found}: expected the bars of two shares or more, as correlations are between shares; give each share a file or frame of its own, or rows with a column `symbol`{left_out}"
    )))
}

/// A warning where a correlation may be that of two returns.
fn constant_correlation_warning(correlation: &Correlation) -> Option<String> {
    let least = correlation.min_observations.min(correlation.lookback);
    (least <= 2).then(|| {
        format!(
            "a share is a node with {} in the look-back, and a correlation of two returns is always +1 or -1: take more with --min-observations and --lookback",
            plural(least, "return")
        )
    })
}

/// Shares with a bar on less than this part of the days between their first and their last have
/// another calendar.
const OWN_CALENDAR_MAX: f64 = 0.8;

/// A warning of the shares that miss many days of the panel.
fn other_calendars(instruments: &[(&str, &Bars)], returns: &ReturnPanel) -> Option<String> {
    let days = &returns.open_times;
    let place = |time: &i64| days.partition_point(|day| day < time);
    let misses = |(name, bars): &(&str, &Bars)| {
        let trading_days = place(&(bars.open_time.last()? + 1)) - place(bars.open_time.first()?);
        let present = bars.open_time.iter().filter(|&time| days.binary_search(time).is_ok()).count();
        ((present as f64) < OWN_CALENDAR_MAX * trading_days as f64)
            .then(|| format!("{name} ({present} of {trading_days})"))
    };
    let named: Vec<String> = instruments.iter().filter_map(misses).collect();
    (!named.is_empty()).then(|| {
        format!(
            "{} with bars on few of the days of the others: {}; a day without a bar is a return less, and without enough of them a share is no node: ask for fewer with --min-observations, or leave the files out",
            plural(named.len(), "share"),
            listed(&named)
        )
    })
}

fn describe(returns: &ReturnPanel) -> String {
    let mut text =
        format!("returns of {} on {}\n", plural(returns.names.len(), "share"), plural(returns.open_times.len(), "day"));
    if !returns.excluded.is_empty() {
        let left_out: Vec<String> = returns.excluded.iter().map(ToString::to_string).collect();
        text.push_str(&format!("  left out, {}\n", listed(&left_out)));
    }
    if !returns.days_excluded.is_empty() {
        let days: Vec<String> = returns.days_excluded.iter().map(|&day| date(day)).collect();
        text.push_str(&format!(
            "  {} left out, on which fewer than half of the listed shares have a bar: {}\n",
            plural(days.len(), "day"),
            listed(&days)
        ));
    }
    text
}

fn facts(returns: &ReturnPanel) -> Value {
    let left_out = returns.excluded.iter().map(|left_out| json!({ "symbol": left_out.name, "bars": left_out.bars }));
    json!({
        "symbols": returns.names,
        "days": returns.open_times.len(),
        "first_day": returns.open_times.first().map(|&day| date(day)),
        "last_day": returns.open_times.last().map(|&day| date(day)),
        "days_left_out": returns.days_excluded.iter().map(|&day| date(day)).collect::<Vec<_>>(),
        "without_returns": left_out.collect::<Vec<_>>(),
    })
}

/// The UTC date of a time.
fn date(time_ns: i64) -> String {
    utc(time_ns).chars().take("2021-04-21".len()).collect()
}
