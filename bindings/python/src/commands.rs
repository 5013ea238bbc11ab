//! Commands on data, graphs and memory.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bytemuck::Pod;
use megabatch_run::config::SettingSources;
use megabatch_run::graph::{BoxEdges, BuildRequest, Destination, GraphKind, Options, Symmetry, Widths};
use megabatch_run::ingest::{
    BarClock, BarColumn, BarColumns, BarTimeColumn, BarTimes, Bins, Feature, FeatureList, FunctionInputs, Recipe,
    TableColumns, Timeframe, Zone, is_iso_time, is_utc_name, likely_symbol as likely,
};
use megabatch_run::memory::{Policies, ReplayOptions, SnapshotOptions, Trace, replay, snapshot};
use megabatch_run::synth::{self, Filter, Layout, SampleOptions, SampleWindows};
use megabatch_run::text::ByteSize;
use megabatch_run::ticks::{TickOptions, ticks_to_bars};
use megabatch_run::{CommandReport, Error, leak as proof};
use pyo3::prelude::*;

use crate::convert::{Facts, Named, facts, numbers};
use crate::failure::{OrRaise as _, exception};
use crate::functions::{FunctionsCall, PythonFunctions, Timing, timing_arguments};
use crate::host::PythonHost;
use crate::process;
use crate::training::{Told, told};

/// Bars in columns: 64-bit integers of times, and floats by the names that a header may have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Columns {
    time_ns: Vec<u8>,
    is_utc: bool,
    /// Seconds east of UTC on the clock of each row, 32 bits each; UTC where there are none.
    east_s: Option<Vec<u8>>,
    /// The clock of times that are not UTC; that of the recipe where there is none.
    zone: Option<String>,
    columns: Vec<(String, Vec<u8>)>,
    time_columns: Vec<(String, Vec<u8>)>,
}

/// Columns of numbers by name, from the bytes of numpy arrays.
fn named_numbers<T: Pod>(columns: Vec<(String, Vec<u8>)>) -> PyResult<Vec<(String, Vec<T>)>> {
    columns.into_iter().map(|(name, bytes)| Ok((name, numbers(&bytes)?))).collect()
}

/// Writes bars as CSV.
#[pyfunction]
pub(crate) fn write_bars(py: Python<'_>, path: PathBuf, columns: Named<Columns>) -> PyResult<()> {
    process::check(py)?;
    let Named(Columns { time_ns, is_utc, east_s, zone, columns, time_columns }) = columns;
    let time_ns: Vec<i64> = numbers(&time_ns)?;
    let columns: Vec<(String, Vec<f64>)> = named_numbers(columns)?;
    let columns: Vec<BarColumn<'_>> = columns.iter().map(|(name, values)| BarColumn { name, values }).collect();
    let time_columns: Vec<(String, Vec<i64>)> = named_numbers(time_columns)?;
    let time_columns: Vec<BarTimeColumn<'_>> =
        time_columns.iter().map(|(name, time_ns)| BarTimeColumn { name, time_ns }).collect();
    let zone: Option<Zone> = zone.map(|zone| zone.parse()).transpose().map_err(Error::from).or_raise(py)?;
    let east_s: Option<Vec<i32>> = east_s.map(|bytes| numbers(&bytes)).transpose()?;
    let times = match (&zone, &east_s) {
        (_, Some(east_s)) if is_utc => BarTimes::UtcAt(east_s),
        _ if is_utc => BarTimes::Utc,
        (Some(zone), _) => BarTimes::WallIn(zone),
        (None, _) => BarTimes::Wall,
    };
    let bars = BarColumns { time_ns: &time_ns, times, columns: &columns, time_columns: &time_columns };
    py.detach(|| bars.write_csv(&path)).or_raise(py)
}

/// Places of a table's columns by role, and of those without one.
type Places = (Option<usize>, Option<usize>, Option<usize>, Vec<(&'static str, usize)>, Vec<usize>);

/// Places of stamp, date, clock, numbers and other columns in a table with columns of these names,
/// as a file has them; numbers with the names that a header may have.
#[pyfunction]
pub(crate) fn bar_columns(names: Vec<String>) -> Places {
    let TableColumns { stamp, date, clock, numbers, others, .. } = TableColumns::find(&names);
    (stamp, date, clock, numbers.iter().map(|column| (column.name, column.place)).collect(), others)
}

/// Places of the columns with names as those of symbols have them, the first choice first: of those
/// that have symbols whatever their rows are, and of others.
#[pyfunction]
pub(crate) fn symbol_columns(names: Vec<String>) -> (Vec<usize>, Vec<usize>) {
    let TableColumns { symbols, likely_symbols, .. } = TableColumns::find(&names);
    (symbols, likely_symbols)
}

/// A time in the shortest month, in nanoseconds since 1970.
const FEBRUARY_NS: i64 = 31 * 86_400_000_000_000;

/// Names of timeframes, shortest first, and the least duration of their bars in nanoseconds.
#[pyfunction]
pub(crate) fn timeframes() -> Vec<(&'static str, i64)> {
    let least_ns = |timeframe: Timeframe| {
        let bar = timeframe.bin(FEBRUARY_NS);
        bar.end - bar.start
    };
    Timeframe::ALL.into_iter().map(|timeframe| (timeframe.name(), least_ns(timeframe))).collect()
}

/// Name of the timeframe that a text such as `m5`, `5min` or `1d` stands for; `None` for others.
#[pyfunction]
pub(crate) fn timeframe_name(text: &str) -> Option<&'static str> {
    text.parse::<Timeframe>().ok().map(Timeframe::name)
}

/// Names that stand for features by themselves.
#[pyfunction]
pub(crate) fn feature_names() -> Vec<String> {
    let computed = Feature::ALL.iter().map(|feature| feature.name().to_owned());
    ["default", "all"].map(str::to_owned).into_iter().chain(computed).collect()
}

/// Names of the columns among features: `rsi` of `column:rsi:mean`.
#[pyfunction]
pub(crate) fn feature_columns(features: Vec<String>) -> Vec<String> {
    let features = features.iter().filter_map(|name| name.parse::<Feature>().ok());
    features.filter_map(|feature| feature.as_column().map(|column| column.column().to_owned())).collect()
}

/// Columns, a library, features, options by name, and a timing.
type Inputs = (Vec<String>, Option<String>, Vec<String>, Vec<(String, String)>, Timing);

/// Columns of the bars of a series file that only functions see, the library of their frames, the
/// features that are of no function, the options by which rows are read, and the timing of other
/// instruments: the timeframe beside which they stand, and the clock of their dates.
#[pyfunction]
pub(crate) fn function_inputs(py: Python<'_>, path: PathBuf) -> PyResult<Inputs> {
    process::check(py)?;
    let inputs = py.detach(|| FunctionInputs::read(&path)).or_raise(py)?;
    let FunctionInputs { columns, frames, features, reading, timing } = inputs;
    Ok((columns, frames, features, reading, timing_arguments(&timing)))
}

/// A clock with whether it was stated, and symbols.
type ClockAndSymbols = (Option<(String, bool)>, Vec<String>);

/// The clock of the bars of a series file with whether it was stated, and its symbols; no clock for
/// files of several clocks, and for times with offsets.
#[pyfunction]
pub(crate) fn clock_and_symbols(py: Python<'_>, path: PathBuf) -> PyResult<ClockAndSymbols> {
    process::check(py)?;
    let (clock, symbols) = py.detach(|| Recipe::clock_and_symbols(&path)).or_raise(py)?;
    Ok((clock.map(|BarClock { zone, is_stated }| (zone.to_string(), is_stated)), symbols))
}

/// True for a text that is the time of a bar, as `push` takes it.
#[pyfunction]
pub(crate) fn is_time(text: &str) -> bool {
    is_iso_time(text)
}

/// True for a name of UTC: clocks of other zones may have its offset for a time.
#[pyfunction]
pub(crate) fn is_utc(zone: &str) -> bool {
    is_utc_name(zone)
}

/// The first of `symbols` that `name` may be another name of.
#[pyfunction]
pub(crate) fn likely_symbol(name: &str, symbols: Vec<String>) -> Option<String> {
    likely(name, &symbols).map(str::to_owned)
}

/// Recipe of a series of files of bars.
pub(crate) fn recipe(py: Python<'_>, bars: Vec<PathBuf>, options: &[(String, String)]) -> PyResult<Recipe> {
    Recipe::from_options(bars, options.iter().map(|(name, value)| (name.as_str(), value.as_str()))).or_raise(py)
}

/// Makes a series file from files of bars, with options named as in `megabatch ingest`.
#[pyfunction]
pub(crate) fn ingest<'py>(
    py: Python<'py>,
    bars: Vec<PathBuf>,
    options: Vec<(String, String)>,
    out: PathBuf,
    functions: Option<Named<FunctionsCall>>,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let mut recipe = recipe(py, bars, &options)?;
    if functions.is_some() && options.iter().all(|(name, _)| name != "features") {
        recipe.features = FeatureList(Vec::new());
    }
    let host = PythonHost::new(None, None).with_functions(functions.map(PythonFunctions::new));
    let report = host.run_on_bars(py, |host| megabatch_run::ingest::ingest(&recipe, &out, host))?;
    told(py, &report)
}

/// Adds the bars of files to the series `out`. `options` must be those that it was made with.
#[pyfunction]
pub(crate) fn append<'py>(
    py: Python<'py>,
    bars: Vec<PathBuf>,
    options: Vec<(String, String)>,
    out: PathBuf,
    functions: Option<Named<FunctionsCall>>,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let stated: Vec<String> = options.iter().map(|(name, _)| name.clone()).collect();
    let recipe = recipe(py, bars, &options)?;
    let host = PythonHost::new(None, None).with_functions(functions.map(PythonFunctions::new));
    let appended = host.run_on_bars(py, |host| megabatch_run::ingest::append(&recipe, &stated, &out, host))?;
    told(py, &appended)
}

/// Ticks that become bars.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TicksCall {
    files: Vec<PathBuf>,
    out: PathBuf,
    bars: String,
    price: Option<String>,
    volume: Option<String>,
    format: Option<String>,
    zone: Option<String>,
    bins: String,
    point: Option<f64>,
    on_error: String,
    display: Option<Py<PyAny>>,
}

impl TicksCall {
    fn options(&self) -> megabatch_run::Result<TickOptions> {
        let zone: Option<Zone> = self.zone.as_deref().map(str::parse).transpose()?;
        let bins: Bins = self.bins.parse()?;
        Ok(TickOptions {
            bins: bins.in_zone(zone.as_ref())?,
            price: self.price.as_deref().map(str::parse).transpose()?,
            volume: self.volume.as_deref().map(str::parse).transpose()?,
            format: self.format.as_deref().map(str::parse).transpose()?,
            zone,
            point: self.point,
            on_error: self.on_error.parse()?,
            ..TickOptions::new(self.bars.parse()?)
        })
    }
}

/// Writes bars of ticks as CSV.
#[pyfunction]
pub(crate) fn bars_of_ticks(py: Python<'_>, call: Named<TicksCall>) -> PyResult<Told<'_>> {
    process::check(py)?;
    let Named(call) = call;
    let options = call.options().or_raise(py)?;
    let TicksCall { files, out, display, .. } = call;
    let host = PythonHost::new(None, display);
    let report = host.run(py, |host| ticks_to_bars(&files, &out, options, host))?.or_raise(py)?;
    told(py, &report)
}

/// Proves that no sample of a series file sees the future.
#[pyfunction]
pub(crate) fn leak<'py>(
    py: Python<'py>,
    path: PathBuf,
    source: Vec<PathBuf>,
    context: Vec<String>,
    samples: usize,
    seed: u64,
    set: Vec<String>,
    functions: Option<Named<FunctionsCall>>,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let context =
        context.iter().map(|file| file.parse().map_err(|message: String| exception(py, &Error::usage(message))));
    let context = context.collect::<PyResult<_>>()?;
    let options = proof::Options {
        source,
        context,
        leaves_functions: false,
        samples,
        seed,
        settings: SettingSources { file: None, set },
    };
    let host = PythonHost::new(None, None).with_functions(functions.map(PythonFunctions::new));
    let report = host.run_on_bars(py, |host| proof::prove(&path, &options, host))?;
    told(py, &report)
}

/// Graphs to build.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GraphCall {
    inputs: Vec<PathBuf>,
    kind: String,
    out: PathBuf,
    rewire: Option<u64>,
    threads: Option<NonZeroUsize>,
    options: GraphOptions,
    display: Option<Py<PyAny>>,
}

/// Options of the kinds of graphs.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GraphOptions {
    lookback: Option<usize>,
    k: Option<usize>,
    half_life: Option<f64>,
    demean: bool,
    min_observations: Option<usize>,
    min_degree: Option<usize>,
    absolute: bool,
    threshold: Option<f64>,
    symmetry: Option<String>,
    self_loops: bool,
    similarities: Option<PathBuf>,
    symbol_pattern: Option<String>,
    on_error: Option<String>,
    radius: Option<f32>,
    periodic: Option<[f64; 3]>,
    normalize_features: bool,
    targets: Option<PathBuf>,
    target: Vec<String>,
    positions: bool,
}

impl GraphOptions {
    fn options(self) -> megabatch_run::Result<Options> {
        let on_error = self.on_error.map(|text| text.parse()).transpose()?;
        let symbol_pattern = self.symbol_pattern.map(|text| text.parse()).transpose()?;
        Ok(Options {
            lookback: self.lookback,
            k: self.k,
            half_life: self.half_life,
            demean: self.demean,
            min_observations: self.min_observations,
            min_degree: self.min_degree,
            absolute: self.absolute,
            threshold: self.threshold,
            symmetry: self.symmetry.as_deref().map(symmetry).transpose()?,
            self_loops: self.self_loops,
            similarities: self.similarities,
            symbol_pattern,
            on_error,
            radius: self.radius,
            periodic: self.periodic.map(BoxEdges),
            normalize_features: self.normalize_features,
            targets: self.targets,
            target: self.target,
            positions: self.positions,
        })
    }
}

fn symmetry(name: &str) -> megabatch_run::Result<Symmetry> {
    match name {
        "none" => Ok(Symmetry::None),
        "union" => Ok(Symmetry::Union),
        "mutual" => Ok(Symmetry::Mutual),
        _ => Err(Error::usage(format!("symmetry={name}: expected none, union or mutual"))),
    }
}

const KINDS: [GraphKind; 8] = [
    GraphKind::Correlation,
    GraphKind::Cosine,
    GraphKind::Euclidean,
    GraphKind::Radius,
    GraphKind::Tu,
    GraphKind::EdgeList,
    GraphKind::Sdf,
    GraphKind::EdgeIndex,
];

fn kind(name: &str) -> megabatch_run::Result<GraphKind> {
    KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        Error::usage(format!("kind={name}: expected {}", names.join(", ")))
    })
}

/// Builds graphs into a file.
#[pyfunction]
pub(crate) fn build_graphs<'py>(py: Python<'py>, call: Named<GraphCall>) -> PyResult<Told<'py>> {
    process::check(py)?;
    let Named(GraphCall { inputs, kind: name, out, rewire, threads, options, display }) = call;
    let (kind, options) = (kind(&name).or_raise(py)?, options.options().or_raise(py)?);
    let request = BuildRequest {
        inputs,
        kind,
        destination: Destination::File(out),
        options,
        rewire,
        widths: Widths::default(),
        threads,
    };
    let host = PythonHost::new(None, display);
    let report = host.run(py, |host| megabatch_run::graph::build(&request, host))?.or_raise(py)?;
    told(py, &report)
}

/// Plays a trace of allocations on memory pools.
#[pyfunction]
pub(crate) fn replay_memory<'py>(
    py: Python<'py>,
    trace: PathBuf,
    capacity: &str,
    policies: &str,
    max_split_size: Option<&str>,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let usage = |message: String| exception(py, &Error::usage(message));
    let capacity = capacity.parse::<ByteSize>().map_err(usage)?;
    let policies = policies.parse::<Policies>().map_err(usage)?;
    let max_split_size = max_split_size.map(str::parse::<ByteSize>).transpose().map_err(usage)?;
    let options = ReplayOptions { capacity, policies, max_split_size };
    let report = py.detach(|| replay(&Trace::File(trace), &options)).or_raise(py)?;
    told(py, &report)
}

/// Memory in a snapshot, or in the latest one of a run, also as the files `pickle` and `svg`.
#[pyfunction]
pub(crate) fn memory_snapshot(
    py: Python<'_>,
    path: PathBuf,
    pickle: Option<PathBuf>,
    svg: Option<PathBuf>,
) -> PyResult<Told<'_>> {
    process::check(py)?;
    let options = SnapshotOptions { pickle, svg };
    let report = py.detach(|| snapshot(&path, &options)).or_raise(py)?;
    told(py, &report)
}

/// Faults of a GPU set-up, and whether training on a GPU is possible.
#[pyfunction]
pub(crate) fn doctor<'py>(py: Python<'py>, python: Option<PathBuf>) -> PyResult<(bool, String, Facts<'py>)> {
    process::check(py)?;
    let options = megabatch_run::doctor::Options { python, fix_script: None };
    let host = PythonHost::new(None, None);
    let report = host.run(py, |host| megabatch_run::doctor::examine(&options, host))?.or_raise(py)?;
    Ok((report.verdict.is_none(), report.to_string(), facts(py, &report.json)?))
}

/// Made-up data to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SynthCall {
    what: String,
    path: PathBuf,
    days: u32,
    count: NonZeroUsize,
    seed: u64,
    layout: String,
    timeframes: String,
    features: NonZeroUsize,
    targets: NonZeroUsize,
    compression: String,
}

/// Writes synthetic bars, shares or samples.
#[pyfunction]
pub(crate) fn synthesize<'py>(py: Python<'py>, call: Named<SynthCall>) -> PyResult<Told<'py>> {
    process::check(py)?;
    let report = py.detach(|| synthesized(&call.0)).or_raise(py)?;
    told(py, &report)
}

fn synthesized(call: &SynthCall) -> megabatch_run::Result<CommandReport> {
    match call.what.as_str() {
        "bars" => return synth::make_bars(&call.path, call.days, call.seed),
        "shares" => return synth::make_shares(&call.path, call.count, call.days, call.seed),
        _ => {}
    }
    let compression = match call.compression.as_str() {
        "contiguous" => Filter::Contiguous,
        "none" => Filter::None,
        "gzip" => Filter::Gzip,
        "lzf" => Filter::Lzf,
        other => {
            return Err(Error::usage(format!("compression={other}: expected contiguous, none, gzip or lzf")));
        }
    };
    let options = SampleOptions {
        layout: if call.layout == "windows" { Layout::Windows } else { Layout::Series },
        samples: call.count,
        windows: SampleWindows::Named(call.timeframes.parse().map_err(|fault: String| Error::usage(fault))?),
        features: call.features,
        targets: call.targets,
        compression,
        chunk_rows: None,
        seed: call.seed,
    };
    synth::make_samples(&call.path, &options)
}
