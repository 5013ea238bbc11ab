//! Bars of other instruments beside those of a series.

use std::collections::BTreeMap;

use megabatch_run::Error;
use megabatch_run::ingest::{
    Bars, BinClock, ColumnFeature, ContextBars, Feature, FeatureList, Timeframe, Zone, adjusted_prices as adjusted,
    context_bars as closed_bars, names_in_context, shared_features,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{Named, numbers};
use crate::failure::{OrRaise as _, exception};
use crate::functions::{Arrays, PRICES, bytes, close_times, named_columns};
use crate::process;

/// Times in order by a clock without offset, 64-bit integers, ns since 1970, as those of UTC.
#[pyfunction]
pub(crate) fn utc_times<'py>(py: Python<'py>, wall_ns: Vec<u8>, zone: &str) -> PyResult<Bound<'py, PyBytes>> {
    process::check(py)?;
    let zone: Zone = zone.parse().map_err(Error::from).or_raise(py)?;
    Ok(bytes(py, &zone.utc_in_order(&numbers(&wall_ns)?)))
}

/// Open, high, low and close of bars times their factors, as rows of files are adjusted.
#[pyfunction]
pub(crate) fn adjusted_prices(
    py: Python<'_>,
    prices: Vec<Vec<u8>>,
    factors: Vec<u8>,
) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    process::check(py)?;
    let mut columns: Vec<Vec<f64>> = prices.iter().map(|own| numbers(own)).collect::<PyResult<_>>()?;
    for (row, factor) in numbers::<f64>(&factors)?.into_iter().enumerate() {
        let quoted = [0, 1, 2, 3].map(|place| columns[place][row]);
        for (column, price) in columns.iter_mut().zip(adjusted(quoted, factor)) {
            column[row] = price;
        }
    }
    Ok(columns.iter().map(|own| bytes(py, own)).collect())
}

/// Base bars of an instrument in order of time, numbers by the names of their columns.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ContextCall {
    time_ns: Vec<u8>,
    columns: BTreeMap<String, Vec<u8>>,
    /// Length of a base bar.
    base_ns: i64,
    /// Timeframe of the bars to make.
    timeframe: String,
    /// Clock of the bins, as `ingest` takes it.
    bins: String,
    /// As `ingest` takes them.
    features: Vec<String>,
    /// When the last bar ends.
    until_ns: i64,
}

/// Open times, close times, length, columns and features of bars.
type ClosedBars<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, i64, Arrays<'py>, Arrays<'py>);

/// Open and close times of the closed bars of a timeframe, its length, their columns, and those of
/// the features that another instrument has too: computed ones that are neither of the clock nor in
/// pips, and columns that it has.
#[pyfunction]
pub(crate) fn context_bars<'py>(py: Python<'py>, call: Named<ContextCall>) -> PyResult<ClosedBars<'py>> {
    process::check(py)?;
    let Named(call) = call;
    let usage = |message: String| exception(py, &Error::usage(message));
    let stated = match call.features.is_empty() {
        true => FeatureList(Vec::new()),
        false => call.features.join(",").parse().map_err(usage)?,
    };
    let features = shared_features(&stated.0, &|column| call.columns.contains_key(column));
    let base = Timeframe::from_duration_ns(call.base_ns);
    let base = base.ok_or_else(|| usage(format!("bars of {} ns are of no timeframe", call.base_ns)))?;
    let own: Vec<&str> = features.iter().filter_map(Feature::as_column).map(ColumnFeature::column).collect();
    let is_other = |name: &&str| !PRICES.contains(name) && !own.contains(name);
    let further: Vec<&str> = call.columns.keys().map(String::as_str).filter(is_other).collect();
    let names: Vec<&str> = own.iter().chain(&further).copied().collect();
    let open_time: Vec<i64> = numbers(&call.time_ns)?;
    let column = |name: &str| match call.columns.get(name) {
        Some(own) => numbers(own),
        None => Ok(vec![0.0; open_time.len()]),
    };
    let [open, high, low, close, volume, spread] = PRICES.map(column);
    let columns = names.iter().map(|name| column(name)).collect::<PyResult<_>>()?;
    let base = Bars {
        timeframe: base,
        bins: BinClock::default(),
        open: open?,
        high: high?,
        low: low?,
        close: close?,
        volume: volume?,
        spread: spread?,
        columns,
        open_time,
    };
    let timeframe = call.timeframe.parse::<Timeframe>().map_err(|error| usage(error.to_string()))?;
    let bins = call.bins.parse::<BinClock>().map_err(|error| usage(error.to_string()))?;
    let made = py.detach(|| closed_bars(&base, &features, timeframe, &bins, call.until_ns));
    let ContextBars { bars, features: values } = made.map_err(Error::from).or_raise(py)?;
    let named = |(name, values): (&str, &Vec<f64>)| (name.to_owned(), bytes(py, values));
    Ok((
        bytes(py, &bars.open_time),
        bytes(py, &close_times(&bars)),
        bars.timeframe.duration_ns(),
        named_columns(py, &bars, names.iter().copied()),
        names_in_context(&features).into_iter().zip(&values).map(named).collect(),
    ))
}
