//! Functions of a Python program that compute features from bars.

use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use megabatch_run::Error;
use megabatch_run::ingest::{
    BarFunctions, Bars, BarsError, BinClock, ContextReach, ContextTiming, Feature, FeatureList, FunctionCall,
    FunctionColumn, FunctionFault, FunctionTargets, Timeframe, context_reach, shared_features,
};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert::{Named, numbers};
use crate::failure::{OrRaise as _, exception};

/// Functions, as `megabatch._functions` gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FunctionsCall {
    /// An object with the methods `features` and `targets`, which take what [`arguments`] gives,
    /// `read_context` and `context_times`.
    call: Py<PyAny>,
    frames: String,
    has_target: bool,
    /// False for other instruments alone, which are looked up at the close of each bar.
    needs_all_bars: bool,
    fingerprints: Vec<(String, String)>,
}

/// A column that a function gave: function, name, 64-bit floats, and whether they had 32 bits.
type Column = (String, String, Vec<u8>, bool);

pub(crate) struct PythonFunctions {
    call: Py<PyAny>,
    frames: String,
    has_target: bool,
    needs_all_bars: bool,
    /// Fingerprints of functions, and of other instruments that were read.
    fingerprints: Mutex<Vec<(String, String)>>,
    /// The last exception.
    raised: Mutex<Option<PyErr>>,
}

impl PythonFunctions {
    pub(crate) fn new(functions: Named<FunctionsCall>) -> Self {
        let Named(FunctionsCall { call, frames, has_target, needs_all_bars, fingerprints }) = functions;
        let (fingerprints, raised) = (Mutex::new(fingerprints), Mutex::new(None));
        PythonFunctions { call, frames, has_target, needs_all_bars, fingerprints, raised }
    }

    /// The last exception of a function.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answer of a method of `megabatch._functions` for bars.
    fn called<T: for<'a> FromPyObjectOwned<'a>>(&self, method: &str, call: &FunctionCall<'_>) -> Result<T, BarsError> {
        Python::attach(|py| {
            let found = arguments(py, call).and_then(|arguments| self.call.bind(py).call_method1(method, arguments));
            let found = found.and_then(|found| found.extract().map_err(Into::into));
            found.map_err(|raised| self.failed(raised, call.instrument, call.bars.timeframe))
        })
    }

    /// Keeps an exception and gives its error.
    fn failed(&self, raised: PyErr, instrument: &str, timeframe: Timeframe) -> BarsError {
        let fault = Box::new(FunctionFault::Failed(raised.to_string()));
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
        BarsError::Function { function: "functions".to_owned(), instrument: instrument.to_owned(), timeframe, fault }
    }
}

/// Instrument, timeframe, its length in nanoseconds, the clock of bins, and the columns of bars.
type Arguments<'py> = (String, &'static str, i64, String, Bound<'py, PyDict>);

fn arguments<'py>(py: Python<'py>, call: &FunctionCall<'_>) -> PyResult<Arguments<'py>> {
    let bars = call.bars;
    let columns = PyDict::new(py);
    for (name, values) in named_columns(py, bars, call.columns.iter().map(String::as_str)) {
        columns.set_item(name, values)?;
    }
    columns.set_item("time", bytes(py, &bars.open_time))?;
    columns.set_item("close_time", bytes(py, &close_times(bars)))?;
    let (timeframe, bins) = (bars.timeframe, call.bins.to_string());
    Ok((call.instrument.to_owned(), timeframe.name(), timeframe.duration_ns(), bins, columns))
}

/// When each bar closes, in nanoseconds since 1970 UTC.
pub(crate) fn close_times(bars: &Bars) -> Vec<i64> {
    (0..bars.len()).map(|bar| bars.close_time(bar)).collect()
}

/// The timeframe beside which bars of other instruments stand, and the clock of their dates.
pub(crate) type Timing = (&'static str, Option<String>);

/// A timing as Python has it.
pub(crate) fn timing_arguments(timing: &ContextTiming) -> Timing {
    (timing.beside.name(), timing.day_zone.as_ref().map(ToString::to_string))
}

fn column(given: Column) -> FunctionColumn {
    let (function, name, values, is_single) = given;
    let (values, _) = values.as_chunks();
    FunctionColumn { function, name, values: values.iter().copied().map(f64::from_ne_bytes).collect(), is_single }
}

pub(crate) fn bytes<'py, T: Pod>(py: Python<'py>, values: &[T]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytemuck::cast_slice(values))
}

/// Names of the columns that every bar has.
pub(crate) const PRICES: [&str; 6] = ["open", "high", "low", "close", "volume", "spread"];

/// Columns of numbers by name, 64 bits each.
pub(crate) type Arrays<'py> = Vec<(String, Bound<'py, PyBytes>)>;

/// The columns of bars, of which the further ones are called `further`. A spread that is not known
/// is 0.
pub(crate) fn named_columns<'py, 'a>(
    py: Python<'py>,
    bars: &Bars,
    further: impl Iterator<Item = &'a str>,
) -> Arrays<'py> {
    let mut spread = bars.spread.clone();
    spread.resize(bars.len(), 0.0);
    let prices = [&bars.open, &bars.high, &bars.low, &bars.close, &bars.volume, &spread];
    let columns = PRICES.into_iter().zip(prices).chain(further.zip(&bars.columns));
    columns.map(|(name, values)| (name.to_owned(), bytes(py, values))).collect()
}

/// Features that another instrument has, among those `named` as `ingest` takes them.
pub(crate) fn features_of_context(named: &[String], has_column: &dyn Fn(&str) -> bool) -> Result<Vec<Feature>, String> {
    let stated = if named.is_empty() { FeatureList(Vec::new()) } else { named.join(",").parse::<FeatureList>()? };
    Ok(shared_features(&stated.0, has_column))
}

/// Features that another instrument may have, among those `named` as `ingest` takes them: columns
/// look back at no bar, whether it has them or not.
pub(crate) fn features_that_look_back(named: &[String]) -> Result<Vec<Feature>, String> {
    features_of_context(named, &|_: &str| true)
}

/// Timeframe of bars that last `base_ns`.
pub(crate) fn base_of_context(base_ns: i64) -> Result<Timeframe, String> {
    Timeframe::from_duration_ns(base_ns).ok_or_else(|| format!("bars of {base_ns} ns are of no timeframe"))
}

/// Another instrument: symbol, open times of its base bars, length of one, and features as `ingest`
/// takes them.
type ContextTimes = (String, Vec<u8>, i64, Vec<String>);

/// Reach of the features of another instrument in a timeframe, but for functions.
fn reach(py: Python<'_>, context: &ContextTimes, timeframe: Timeframe, bins: &BinClock) -> PyResult<ContextReach> {
    let usage = |message: String| exception(py, &Error::usage(message));
    let (symbol, time_ns, base_ns, named) = context;
    let features = features_that_look_back(named).map_err(usage)?;
    let (base, open_times) = (base_of_context(*base_ns).map_err(usage)?, numbers::<i64>(time_ns)?);
    let found = context_reach(symbol, base, &open_times, &features, timeframe, bins);
    found.map_err(Error::from).or_raise(py)
}

impl BarFunctions for PythonFunctions {
    fn read_context(&self, timing: &ContextTiming) -> Result<(), BarsError> {
        let found = Python::attach(|py| -> PyResult<Vec<(String, String)>> {
            let found = self.call.bind(py).call_method1("read_context", timing_arguments(timing))?;
            let fingerprints: Vec<(String, String)> = found.extract()?;
            Ok(fingerprints)
        });
        let found = found.map_err(|raised| self.failed(raised, "context", timing.beside))?;
        *self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    fn columns(&self, call: &FunctionCall<'_>) -> Result<Vec<FunctionColumn>, BarsError> {
        let columns: Vec<Column> = self.called("features", call)?;
        Ok(columns.into_iter().map(column).collect())
    }

    fn needs_all_bars(&self) -> bool {
        self.needs_all_bars
    }

    fn context_reach(&self, timeframe: Timeframe, bins: &BinClock) -> Result<Vec<ContextReach>, BarsError> {
        let found = Python::attach(|py| -> PyResult<Vec<ContextReach>> {
            let found = self.call.bind(py).call_method0("context_times")?;
            let times: Vec<ContextTimes> = found.extract()?;
            times.iter().map(|own| reach(py, own, timeframe, bins)).collect()
        });
        found.map_err(|raised| self.failed(raised, "context", timeframe))
    }

    fn has_targets(&self) -> bool {
        self.has_target
    }

    fn targets(&self, call: &FunctionCall<'_>) -> Result<FunctionTargets, BarsError> {
        let (columns, label_end): (Vec<Column>, Option<Column>) = self.called("targets", call)?;
        let columns = columns.into_iter().map(column).collect();
        Ok(FunctionTargets { columns, label_end: label_end.map(column) })
    }

    fn frames(&self) -> &str {
        &self.frames
    }

    fn fingerprints(&self) -> Vec<(String, String)> {
        self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
