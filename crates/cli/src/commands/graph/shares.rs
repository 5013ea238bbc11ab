//! Correlation graphs of shares: files of bars, one a share, become a panel of log returns.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_bars::{Bars, ReadOptions, ReturnPanel, bar_files, read_all, return_panel};
use megabatch_graph_cache::Builder as _;
use megabatch_graph_cache::build::{CorrelationGraphs, Panel};
use megabatch_graph_cache::import::{Text, channels};
use serde_json::{Value, json};

use super::options::Options;
use super::source::Source;
use super::{counted, note_on_k};
use crate::adapt::split::utc;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::universe;

pub(super) fn with_shares(
    inputs: &[PathBuf],
    options: &Options,
    then: &mut dyn FnMut(Source<'_>) -> Result<Answer>,
) -> Result<Answer> {
    let files = inputs.iter().map(|input| Ok(bar_files(input)?)).collect::<Result<Vec<_>>>()?.concat();
    let shares = read_all(&files, &ReadOptions { on_error: options.on_error(), ..ReadOptions::default() })?;
    let instruments: Vec<(&str, &Bars)> =
        shares.recordings.iter().map(|share| (share.symbol.as_str(), &share.bars)).collect();
    let returns = return_panel(&instruments)?;
    let panel = Panel::new(&returns.names, (&returns.open_times, &returns.times), &returns.values)?;
    let mut correlation = options.correlation();
    if let Some(path) = &options.similarities {
        correlation.channels = channels(&Text::read(path)?, &returns.names)?;
    }
    let (lookback, k) = (correlation.lookback, correlation.k);
    let graphs = CorrelationGraphs::new(correlation, panel)?;
    if graphs.keys().is_empty() {
        return Err(Failure::data(format!(
            "there are {}, and a graph sees the {lookback} returns before its own day; give more days, or a shorter --lookback",
            counted(returns.open_times.len(), "day")
        )));
    }
    let mut facts = facts(&returns);
    facts["universe"] = universe::facts(&shares);
    let found = universe::describe(&shares) + &describe(&returns) + &note_on_k(k, returns.names.len(), "share");
    then(Source { builder: &graphs, found, facts })
}

fn describe(returns: &ReturnPanel) -> String {
    let mut text = format!(
        "returns of {} on {}\n",
        counted(returns.names.len(), "share"),
        counted(returns.open_times.len(), "day")
    );
    for left_out in &returns.left_out {
        text.push_str(&format!("  left out, {left_out}\n"));
    }
    if !returns.days_left_out.is_empty() {
        let days: Vec<String> = returns.days_left_out.iter().map(|&day| date(day)).collect();
        text.push_str(&format!("  days left out, on which few shares have a bar: {}\n", days.join(", ")));
    }
    text
}

fn facts(returns: &ReturnPanel) -> Value {
    let left_out = returns.left_out.iter().map(|left_out| json!({ "symbol": left_out.name, "bars": left_out.bars }));
    json!({
        "symbols": returns.names,
        "days": returns.open_times.len(),
        "first_day": returns.open_times.first().map(|&day| date(day)),
        "last_day": returns.open_times.last().map(|&day| date(day)),
        "days_left_out": returns.days_left_out.iter().map(|&day| date(day)).collect::<Vec<_>>(),
        "without_returns": left_out.collect::<Vec<_>>(),
    })
}

/// The UTC date of a time.
fn date(time_ns: i64) -> String {
    utc(time_ns).chars().take("2021-04-21".len()).collect()
}
