//! Whole series and bars, put together from pieces, for tests that look at all of them.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

use megabatch_bars::{
    Bar, BarSource, Bars, Error, Excluded, Moment, Proof, ReadOptions, Recording, Result, Scalers, Scaling,
    SeriesHeader, SeriesPiece, SeriesPlan, SeriesSpec, StreamedInstrument, SymbolRows, Timeframe, TimeframeHeader,
    Window, prove_samples,
};

pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// All arrays of a series, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WholeSeries {
    pub(crate) header: SeriesHeader,
    pub(crate) timeframes: Vec<WholeTimeframe>,
    pub(crate) sample_time: Vec<i64>,
    pub(crate) sample_instrument: Vec<i32>,
    pub(crate) receptive_start: Vec<i64>,
    pub(crate) label_end_time: Vec<i64>,
    /// Empty where all samples count alike.
    pub(crate) weight: Vec<f32>,
    /// `[N, K]`.
    pub(crate) targets: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WholeTimeframe {
    pub(crate) window: Window,
    /// Number of features F.
    pub(crate) width: usize,
    /// `[bars, F]`.
    pub(crate) values: Vec<f32>,
    pub(crate) close_time: Vec<i64>,
    pub(crate) end: Vec<i64>,
}

impl WholeSeries {
    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.sample_time.len()
    }

    pub(crate) fn scalers(&self) -> &Scalers {
        &self.header.scalers
    }

    fn empty(header: &SeriesHeader, horizon: usize) -> Self {
        let (samples, width) = (header.samples, header.features().len());
        let timeframe = |timeframe: &TimeframeHeader| WholeTimeframe {
            window: timeframe.window,
            width,
            values: vec![f32::NAN; timeframe.rows * width],
            close_time: vec![0; timeframe.rows],
            end: vec![-1; samples],
        };
        WholeSeries {
            header: header.clone(),
            timeframes: header.timeframes.iter().map(timeframe).collect(),
            sample_time: vec![0; samples],
            sample_instrument: vec![-1; samples],
            receptive_start: vec![0; samples],
            label_end_time: vec![0; samples],
            weight: Vec::new(),
            targets: vec![f32::NAN; samples * horizon],
        }
    }

    fn put(&mut self, piece: &SeriesPiece, horizon: usize) {
        let first = piece.first_sample;
        fn put<T: Copy>(all: &mut [T], first: usize, piece: &[T]) {
            all[first..first + piece.len()].copy_from_slice(piece);
        }
        put(&mut self.sample_time, first, &piece.sample_time);
        put(&mut self.sample_instrument, first, &piece.sample_instrument);
        put(&mut self.receptive_start, first, &piece.receptive_start);
        put(&mut self.label_end_time, first, &piece.label_end_time);
        if !piece.weight.is_empty() {
            self.weight.resize(self.sample_time.len(), f32::NAN);
            put(&mut self.weight, first, &piece.weight);
        }
        put(&mut self.targets, first * horizon, &piece.targets);
        for (timeframe, piece) in self.timeframes.iter_mut().zip(&piece.timeframes) {
            put(&mut timeframe.values, piece.first_row * timeframe.width, &piece.values);
            put(&mut timeframe.close_time, piece.first_row, &piece.close_time);
            put(&mut timeframe.end, first, &piece.end);
        }
    }
}

impl WholeTimeframe {
    /// Window of sample `n`: `[seq_len, F]`.
    pub(crate) fn window(&self, n: usize) -> &[f32] {
        let after = self.end[n] as usize + 1;
        &self.values[(after - self.window.seq_len) * self.width..after * self.width]
    }

    /// When the bar of each row opens.
    pub(crate) fn open_time(&self) -> Vec<i64> {
        self.close_time.iter().map(|close_time| close_time - self.window.timeframe.duration_ns()).collect()
    }
}

pub(crate) fn go_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub(crate) fn instrument<'a>(name: &'a str, bars: &'a Bars, pip_size: f64) -> StreamedInstrument<'a> {
    StreamedInstrument { name, bars, pip_size, fitted_until: None }
}

fn written(plan: &SeriesPlan<'_>, header: &SeriesHeader, horizon: usize) -> WholeSeries {
    let whole = Mutex::new(WholeSeries::empty(header, horizon));
    let sink = |piece: &SeriesPiece| -> Result<()> {
        whole.lock().unwrap().put(piece, horizon);
        Ok(())
    };
    plan.write(header, &go_on, &sink).unwrap();
    whole.into_inner().unwrap()
}

/// The series of all the instruments, whose scalers are fitted up to a time, if one is given.
pub(crate) fn align_until(
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
    fit_end_time: Option<i64>,
) -> Result<WholeSeries> {
    let folder = tempfile::tempdir().unwrap();
    let plan = SeriesPlan::new(instruments, spec, fit_end_time, folder.path(), &go_on)?;
    Ok(written(&plan, &plan.fit(&go_on)?, spec.targets()))
}

/// The series of all the instruments.
pub(crate) fn align(instruments: &[StreamedInstrument<'_>], spec: &SeriesSpec) -> Result<WholeSeries> {
    align_until(instruments, spec, None)
}

/// The series of the instruments that can be used, and the others.
pub(crate) fn align_usable(
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
) -> Result<(WholeSeries, Vec<Excluded>)> {
    let folder = tempfile::tempdir().unwrap();
    let (plan, excluded) = SeriesPlan::from_usable(instruments, spec, None, folder.path(), &go_on)?;
    Ok((written(&plan, &plan.fit(&go_on)?, spec.targets()), excluded))
}

/// The series of all the instruments, scaled by given scalers.
pub(crate) fn align_with(
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
    scalers: &Scalers,
) -> Result<WholeSeries> {
    let folder = tempfile::tempdir().unwrap();
    // Nothing is fitted, so that no instrument has too few bars to fit on.
    let spec = SeriesSpec { scaling: Scaling::None, ..spec.clone() };
    let plan = SeriesPlan::new(instruments, &spec, Some(scalers.fit_end_time), folder.path(), &go_on)?;
    Ok(written(&plan, &plan.with_scalers(scalers, Vec::new())?, spec.targets()))
}

/// The proof of one sample.
pub(crate) fn prove(
    instrument: StreamedInstrument<'_>,
    spec: &SeriesSpec,
    scalers: &Scalers,
    moment: Moment,
) -> Result<Proof> {
    let found = Mutex::new(None);
    let keep = |_: usize, proof: Proof| {
        *found.lock().unwrap() = Some(proof);
        Ok::<(), Error>(())
    };
    prove_samples(instrument, spec, scalers, &[moment], &keep)?;
    Ok(found.into_inner().unwrap().expect("a sample without error is proven"))
}

/// Bars of a longer timeframe: those of each bin that has closed by the close of the last bar.
pub(crate) fn resample(bars: &Bars, timeframe: Timeframe) -> Bars {
    resample_on(bars, timeframe, &|_| 0).bars
}

/// Bars and their ends.
pub(crate) struct Resampled {
    pub(crate) bars: Bars,
    pub(crate) close_time: Vec<i64>,
}

/// The same on a clock that shows UTC and `ahead_ns`, which changes by hours: it moves the bins of
/// H4 and longer timeframes.
pub(crate) fn resample_on(bars: &Bars, timeframe: Timeframe, ahead_ns: &dyn Fn(i64) -> i64) -> Resampled {
    let bin_ns = timeframe.duration_ns();
    let is_moved = timeframe > Timeframe::H1;
    let bin = |time: i64| (time + if is_moved { ahead_ns(time) } else { 0 }).div_euclid(bin_ns);
    // Bins begin and end at whole hours, or at whole bins of shorter timeframes.
    let step_ns = HOUR_NS.min(bin_ns);
    let edge = |time: i64, step_ns: i64, own: i64| {
        let mut edge = time;
        while bin(edge + step_ns.min(0)) == own {
            edge += step_ns;
        }
        edge
    };
    let mut found = Resampled { bars: Bars::with_capacity(timeframe, 0), close_time: Vec::new() };
    let Some(last) = bars.len().checked_sub(1) else { return found };
    let places: Vec<usize> = (0..bars.len()).collect();
    for places in places.chunk_by(|&one, &next| bin(bars.open_time[one]) == bin(bars.open_time[next])) {
        let (first, after) = (places[0], places[places.len() - 1] + 1);
        let (time, own) = (bars.open_time[first], bin(bars.open_time[first]));
        let hour = time.div_euclid(step_ns) * step_ns;
        let (open_time, end) = (edge(hour, -step_ns, own), edge(hour, step_ns, own));
        if end > bars.close_time(last) {
            break;
        }
        found.close_time.push(end);
        found.bars.push(Bar {
            open_time,
            open: bars.open[first],
            high: bars.high[first..after].iter().copied().fold(f64::MIN, f64::max),
            low: bars.low[first..after].iter().copied().fold(f64::MAX, f64::min),
            close: bars.close[after - 1],
            volume: bars.volume[first..after].iter().sum(),
            spread: bars.bar(after - 1).spread,
            columns: bars.bar(after - 1).columns,
        });
    }
    found
}

/// Lead over UTC of the clock `new-york+7`.
pub(crate) fn broker_ahead_ns(time: i64) -> i64 {
    let zone = jiff::tz::TimeZone::get("America/New_York").unwrap();
    let offset = zone.to_offset(jiff::Timestamp::from_nanosecond(time.into()).unwrap());
    i64::from(offset.seconds()) * 1_000_000_000 + 7 * HOUR_NS
}

/// Reads bid and ask of one symbol.
pub(crate) fn read_pair<P: AsRef<Path>>(bid: &[P], ask: &[P], options: &ReadOptions) -> Result<Recording> {
    let folder = tempfile::tempdir().unwrap();
    let (spool, go_on) = (folder.path().join("bars"), |_| ControlFlow::Continue(()));
    let read = SymbolRows::default().read_pair_spooled(bid, ask, options, &spool, &go_on)?;
    let mut bars = Bars::with_capacity(read.summary.base, 0);
    read.bars.read(0..read.bars.len(), &mut bars)?;
    Ok(Recording { symbol: read.symbol, bars, summary: read.summary })
}
