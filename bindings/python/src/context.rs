//! Bars of other instruments beside those of a series.

use std::collections::BTreeMap;
use std::path::PathBuf;

use megabatch_run::Error;
use megabatch_run::ingest::{
    Bars, BinClock, ColumnFeature, ContextBars, ContextTable, ContextTiming, Feature, FeatureList, Timeframe, Zone,
    context_bars as closed_bars, context_start as first_place, names_in_context,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::commands::recipe;
use crate::convert::{Named, numbers};
use crate::failure::{OrRaise as _, exception};
use crate::functions::{
    Arrays, PRICES, base_of_context, bytes, close_times, features_of_context, features_that_look_back, named_columns,
};
use crate::host::PythonHost;
use crate::process;

/// Open times, length of a bar, columns, and doubts about the bars.
type TableRead<'py> = (Bound<'py, PyBytes>, i64, Arrays<'py>, Vec<String>);

/// Bars of an instrument in a file, read as those of a context are by options of `ingest`, and by a
/// timing: the timeframe beside which they stand, and the clock of their dates.
#[pyfunction]
pub(crate) fn read_context(
    py: Python<'_>,
    path: PathBuf,
    options: Vec<(String, String)>,
    timing: (String, Option<String>),
) -> PyResult<TableRead<'_>> {
    process::check(py)?;
    let usage = |message: String| exception(py, &Error::usage(message));
    let (beside, day_zone) = timing;
    let beside = beside.parse::<Timeframe>().map_err(|error| usage(error.to_string()))?;
    let day_zone = day_zone.map(|zone| zone.parse::<Zone>()).transpose().map_err(|error| usage(error.to_string()))?;
    let timing = ContextTiming { beside, day_zone };
    let mut recipe = recipe(py, vec![path], &options)?;
    if options.iter().all(|(name, _)| name != "features") {
        recipe.features = FeatureList(Vec::new());
    }
    let host = PythonHost::new(None, None);
    let read = host.run_on_bars(py, |host| ContextTable::read(&recipe, &timing, host))?;
    let ContextTable { bars, columns, warnings } = &read;
    let named = named_columns(py, bars, columns.iter().map(String::as_str));
    Ok((bytes(py, &bars.open_time), bars.timeframe.duration_ns(), named, warnings.clone()))
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

/// Open times of base bars of an instrument, and the close of a bar that sees them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ContextStartCall {
    time_ns: Vec<u8>,
    /// Length of a base bar.
    base_ns: i64,
    /// Timeframe of the bar.
    timeframe: String,
    /// Clock of the bins, as `ingest` takes it.
    bins: String,
    /// As `ingest` takes them.
    features: Vec<String>,
    /// When the bar closes.
    close_ns: i64,
}

/// Place of the first base bar that features read beside a bar: the last one of their timeframe
/// that has closed then, and those of the warm-up before it.
#[pyfunction]
pub(crate) fn context_start(py: Python<'_>, call: Named<ContextStartCall>) -> PyResult<usize> {
    process::check(py)?;
    let Named(call) = call;
    let usage = |message: String| exception(py, &Error::usage(message));
    let features = features_that_look_back(&call.features).map_err(usage)?;
    let base = base_of_context(call.base_ns).map_err(usage)?;
    let timeframe = call.timeframe.parse::<Timeframe>().map_err(|error| usage(error.to_string()))?;
    let bins = call.bins.parse::<BinClock>().map_err(|error| usage(error.to_string()))?;
    let open_times: Vec<i64> = numbers(&call.time_ns)?;
    let found = first_place(base, &open_times, &features, timeframe, &bins, call.close_ns);
    found.map_err(Error::from).or_raise(py)
}

/// Open times, close times, length, columns and features of bars.
type ClosedBars<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, i64, Arrays<'py>, Arrays<'py>);

/// Open and close times of the closed bars of a timeframe, its length, their columns, and those of
/// the features that another instrument has too. Such features are computed ones that are neither
/// of the clock nor in pips, and columns that it has.
#[pyfunction]
pub(crate) fn context_bars<'py>(py: Python<'py>, call: Named<ContextCall>) -> PyResult<ClosedBars<'py>> {
    process::check(py)?;
    let Named(call) = call;
    let usage = |message: String| exception(py, &Error::usage(message));
    let has_column = |column: &str| !PRICES.contains(&column) && call.columns.contains_key(column);
    let features = features_of_context(&call.features, &has_column).map_err(usage)?;
    let base = base_of_context(call.base_ns).map_err(usage)?;
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
