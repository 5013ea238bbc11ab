//! Proof that no sample looks ahead.
//!
//! ```text
//! segment  past ................ | recent ........ sample | future
//!          gone through once,      computed three times a sample: with the true future,
//!          for all samples         with other values, and with other values and times
//! ```
//!
//! Recursive features depend on every bar since the segment began. Bars of the past can be touched
//! by no future: what they leave behind, the state of the features, is carried to the first bar
//! that a window of the sample reads. Own bars of longer timeframes are replaced as base bars are,
//! if their bin ends after the sample's time.

pub(crate) mod functions;
pub(crate) mod perturb;
mod recent;
mod replaced;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::bar_source::{BarSource, partition_point};
use crate::bars::Bars;
use crate::error::look_ahead::{LookAhead, LookAheadEffect, Perturbation};
use crate::error::{Error, Result};
use crate::proof::perturb::{OtherFuture, SplitMix64};
use crate::proof::recent::{Past, Recent, Sight};
use crate::proof::replaced::{ReplacedEnd, ReplacedOwnBars};
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::{SeriesSpec, Window, in_range};
use crate::series::streamed::segment_index::SegmentIndex;
use crate::series::streamed::{Observe, StreamedInstrument, fit_until};
use crate::time::timestamp::display_utc;

/// Start and random seed of the other future of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the sample, in nanoseconds since 1970 UTC. A bar that closes later had not
    /// closed.
    pub time: i64,
    /// Seed of the replaced futures; equal seeds draw equal ones.
    pub seed: u64,
}

/// Proof that one sample does not depend on later bars.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Proof {
    /// Windows of the sample, by timeframe, shortest first: `[seq_len, F]` each, to compare with a
    /// file.
    pub windows: Vec<Vec<f32>>,
    /// Number of base bars that were read, from the beginning of the segment on.
    pub bars: usize,
    /// Bars that had not closed, and were replaced.
    pub replaced: usize,
}

/// Proves that samples of one instrument depend on no bar that had not closed at their time.
///
/// The proof of a sample replaces those bars by others, twice: once in their values, once also in
/// number and times. The features of the sample's windows are computed with each future, up to a
/// little after its horizon, with the given scalers. The windows must stay the same to the last
/// bit. The instrument's bars are gone through once for all samples. `each` gets the place of every
/// moment and its proof, from several threads and in any order.
///
/// # Errors
/// [`Error::LookAhead`] for windows that change; [`Error::NoSample`] for a time without a sample;
/// those of [`SeriesStream::new`](crate::SeriesStream::new) and [`SeriesStream::push`]; those of
/// `each`.
///
/// [`SeriesStream::push`]: crate::SeriesStream::push
pub fn prove_samples<E: From<Error> + Send>(
    instrument: StreamedInstrument<'_>,
    spec: &SeriesSpec,
    scalers: &Scalers,
    moments: &[Moment],
    each: &(dyn Fn(usize, Proof) -> Result<(), E> + Sync),
) -> Result<(), E> {
    let mut past = Past::new(instrument, spec, scalers)?;
    let segments = segments(instrument, spec)?;
    let mut ordered: Vec<usize> = (0..moments.len()).collect();
    ordered.sort_by_key(|&place| moments[place].time);
    // Some for each thread: their recent bars are held meanwhile.
    for together in ordered.chunks(2 * rayon::current_num_threads()) {
        let mut queries = Vec::with_capacity(together.len());
        for &place in together {
            let query = ProofQuery { name: instrument.name, spec, moment: moments[place] };
            queries.push((place, query, query.recent(&mut past, &segments)?));
        }
        queries.into_par_iter().with_max_len(1).try_for_each(|(place, query, recent)| {
            let see = |bars: &Bars, own: &[Bars]| recent.sight(bars, own, query.spec);
            let proof = query.prove(&recent.bars, &recent.own, &see)?;
            each(place, Proof { bars: recent.before + proof.bars, ..proof })
        })?;
    }
    Ok(())
}

/// The places of the bars of each segment.
fn segments(instrument: StreamedInstrument<'_>, spec: &SeriesSpec) -> Result<Vec<Range<usize>>> {
    let index = SegmentIndex::count(instrument.bars, spec, &spec.checked_windows()?)?.map_err(|bad| bad.error)?;
    Ok(index.segments.into_iter().map(|segment| segment.bars).collect())
}

/// Proves that scalers do not depend on any bar that had not closed at a time at which they were
/// fitted already. Temporary files lie in `folder`.
///
/// # Errors
/// [`Error::LookAhead`] for scalers that do; [`Error::Scalers`] where fitting gives other scalers
/// in the first place; [`Error::Invalid`] for a time before their `fit_end_time`;
/// [`Error::TooFewToFit`] where an instrument has less than a window of bars to fit on;
/// [`Error::Spool`] and [`Error::Interrupted`].
pub fn prove_scalers(
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
    scalers: &Scalers,
    moment: Moment,
    folder: &Path,
    observe: Observe<'_>,
) -> Result<()> {
    let spec = SeriesSpec { scaling: scalers.kind, ..spec.clone() };
    let fit = |instrument: StreamedInstrument<'_>| fit_until(instrument, &spec, scalers.fit_end_time, folder, observe);
    prove_scalers_by(&fit, instruments, &spec, scalers, Future { moment, spec: &spec, bars_min: 0 })
}

/// Windows of the sample in bars, and own bars of each timeframe, with one future; `None` where
/// there is no sample.
type See<'a> = dyn Fn(&Bars, &[Bars]) -> Result<Option<Sight>> + 'a;
/// Fits the scalers of one instrument.
type Fit<'a> = dyn Fn(StreamedInstrument<'_>) -> Result<Scalers> + Sync + 'a;

/// The sample that a proof is about.
#[derive(Clone, Copy)]
struct ProofQuery<'a> {
    name: &'a str,
    spec: &'a SeriesSpec,
    moment: Moment,
}

impl ProofQuery<'_> {
    /// Proves that `see` sees the same of the sample in `bars` and `own` bars, and in others that
    /// have another future.
    fn prove(&self, bars: &Bars, own: &[Bars], see: &See<'_>) -> Result<Proof> {
        let before = see(bars, own)?.ok_or_else(|| self.no_sample())?;
        let future = Future { moment: self.moment, spec: self.spec, bars_min: self.spec.bars_after_sample() };
        let own_future = Future { bars_min: 0, ..future };
        for perturbation in Perturbation::ALL {
            let other_own: Vec<Bars> = own.iter().map(|own| own_future.instead_of(own, perturbation)).collect();
            let after = see(&future.instead_of(bars, perturbation), &other_own)?;
            if let Some(difference) = after.map_or(Some(LookAheadEffect::Gone), |after| before.difference(&after)) {
                return Err(future.leak(self.name, perturbation, difference));
            }
        }
        let open = |bars: &Bars| {
            let is_open = |&&open_time: &&i64| bars.close_after(open_time) > self.moment.time;
            bars.open_time.iter().rev().take_while(is_open).count()
        };
        let replaced: usize = std::iter::once(bars).chain(own).map(open).sum();
        Ok(Proof { windows: before.windows, bars: bars.len(), replaced })
    }

    /// The bars around the sample, up to the close of every bin that is open then, and the state of
    /// features before them, to which `past` goes on.
    fn recent(&self, past: &mut Past<'_>, segments: &[Range<usize>]) -> Result<Recent> {
        let (source, time) = (past.source(), self.moment.time);
        let base_ns = source.timeframe().duration_ns();
        let place = partition_point(source, |open_time| open_time + base_ns < time)?;
        let mut found = Vec::new();
        if place < source.len() {
            source.read_open_times(place..place + 1, &mut found)?;
        }
        if found.first() != Some(&(time - base_ns)) {
            return Err(self.no_sample());
        }
        let segment = segments.iter().find(|segment| segment.contains(&place)).expect("a bar lies in a segment");
        let windows = self.spec.checked_windows()?;
        let close_by = |window: &Window| {
            let bin = self.spec.bins.bin(window.timeframe, time);
            bin.end.max(time + window.timeframe.duration_ns())
        };
        let last_close = windows.iter().map(close_by).max().unwrap_or(time);
        let all_closed = partition_point(source, |open_time| open_time < last_close)?;
        let end = (all_closed.max(place + self.spec.bars_after_sample()) + 2).min(source.len());
        // A bin has as many base bars at most, and one more bin may be open. The state of features
        // has the bars of a bin that began before: they make up for hours by which bins are longer.
        let reach = |seq_len: usize, duration_ns: i64| (seq_len + 1).saturating_mul((duration_ns / base_ns) as usize);
        let reach = windows.iter().map(|window| reach(window.seq_len, window.timeframe.duration_ns())).max();
        let first = segment.start.max((place + 1).saturating_sub(reach.unwrap_or(0)));
        past.advance_to(first, segment.start)?;
        past.recent(first..end, place - first, segment.start, &self.spec.bins)
    }

    fn no_sample(&self) -> Error {
        Error::NoSample { instrument: self.name.to_owned(), time: display_utc(self.moment.time) }
    }
}

/// The futures that replace the true one.
#[derive(Clone, Copy)]
struct Future<'a> {
    moment: Moment,
    spec: &'a SeriesSpec,
    /// Number of bars that must follow without a forbidden hole: the horizon, where a sample shall
    /// remain.
    bars_min: usize,
}

impl Future<'_> {
    fn instead_of(&self, bars: &Bars, perturbation: Perturbation) -> Bars {
        let Future { moment: Moment { time, seed }, spec, bars_min } = *self;
        let (random, bins, holes) = (SplitMix64(seed), spec.bins.clone(), spec.holes);
        OtherFuture { random, perturbation, time, bars_min, bins, holes }.replace_in(bars)
    }

    fn leak(&self, instrument: &str, perturbation: Perturbation, difference: LookAheadEffect) -> Error {
        let (instrument, time) = (instrument.to_owned(), self.moment.time);
        Error::LookAhead(Box::new(LookAhead { instrument, time, perturbation, difference }))
    }
}

/// Bars of a future that are kept for a fit, which must not read any: without those after them, a
/// fit that reads farther gives other scalers too.
const FUTURE_BARS: usize = 1_024;

fn prove_scalers_by(
    fit: &Fit<'_>,
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
    scalers: &Scalers,
    future: Future<'_>,
) -> Result<()> {
    let Moment { time, .. } = future.moment;
    let names: Vec<&str> = instruments.iter().map(|instrument| instrument.name).collect();
    let given = scalers.chosen(&names, spec)?;
    in_range("time", &display_utc(time), "no time before the scalers' fit_end_time", time >= given.fit_end_time)?;
    // An instrument has scalers of its own: one that depends on another has others without it.
    let each = |instrument: &StreamedInstrument<'_>| {
        prove_instrument(fit, *instrument, &given.chosen(&[instrument.name], spec)?, future)
    };
    instruments.iter().try_for_each(each)
}

fn prove_instrument(
    fit: &Fit<'_>,
    instrument: StreamedInstrument<'_>,
    given: &Scalers,
    future: Future<'_>,
) -> Result<()> {
    let StreamedInstrument { bars: all, .. } = instrument;
    let (base_ns, time) = (all.timeframe().duration_ns(), future.moment.time);
    let known = partition_point(all, |open_time| open_time + base_ns <= time)?;
    let (first, end) = future_end(all, known)?;
    let own = own_ends(all, future)?;
    let different = |end: Bars, own: Vec<ReplacedOwnBars>| {
        let own = own.into_iter().map(|own| Arc::new(own) as Arc<dyn BarSource + Send>).collect();
        let bars = &ReplacedEnd { source: all, first, end, own };
        Ok::<_, Error>(different_scaler(given, &fit(StreamedInstrument { bars, ..instrument })?))
    };
    if let Some(difference) = different(end.clone(), own.clone())? {
        let fitted_until = display_utc(given.fit_end_time);
        let found = format!("for {} {difference}", instrument.name);
        return Err(Error::Scalers { found, expected: format!("what fitting up to {fitted_until} gives") });
    }
    let found: Vec<Result<Option<LookAheadEffect>>> = Perturbation::ALL
        .into_par_iter()
        .map(|perturbation| {
            let replaced = |own: &ReplacedOwnBars| {
                let end = future.instead_of(&own.end, perturbation);
                ReplacedOwnBars { end, ..own.clone() }
            };
            different(future.instead_of(&end, perturbation), own.iter().map(replaced).collect())
        })
        .collect();
    for (perturbation, found) in Perturbation::ALL.into_iter().zip(found) {
        if let Some(difference) = found? {
            return Err(future.leak(instrument.name, perturbation, difference));
        }
    }
    Ok(())
}

/// The last of the first `known` bars, which the future follows, and those after it: the place of
/// the first of them, and the bars.
fn future_end(source: &dyn BarSource, known: usize) -> Result<(usize, Bars)> {
    let first = known.saturating_sub(1);
    let mut end = Bars::with_capacity(source.timeframe(), 0);
    source.read(first..source.len().min(known + FUTURE_BARS), &mut end)?;
    Ok((first, end))
}

/// Own bars of `all` in the timeframes of the series, of which those after the moment can be
/// replaced.
fn own_ends(all: &dyn BarSource, future: Future<'_>) -> Result<Vec<ReplacedOwnBars>> {
    let (spec, time) = (future.spec, future.moment.time);
    let mut ends = Vec::new();
    for Window { timeframe, .. } in spec.checked_windows()? {
        let Some(source) = all.own_bars(timeframe) else { continue };
        let known = partition_point(&*source, |open_time| spec.bins.bin(timeframe, open_time).end <= time)?;
        let (first, mut end) = future_end(&*source, known)?;
        end.bins = spec.bins.clone();
        ends.push(ReplacedOwnBars { source, first, end, own: Vec::new() });
    }
    Ok(ends)
}

/// The first feature of one instrument that is scaled differently, bit for bit.
fn different_scaler(before: &Scalers, after: &Scalers) -> Option<LookAheadEffect> {
    before.timeframes.iter().zip(&after.timeframes).find_map(|(before_scaler, after_scaler)| {
        let values = |scaler: &TimeframeScaler, place: usize| [scaler.center[place], scaler.scale[place]];
        let bits = |scaler, place| values(scaler, place).map(f64::to_bits);
        let differs = |&place: &usize| bits(before_scaler, place) != bits(after_scaler, place);
        let place = (0..before_scaler.center.len()).find(differs)?;
        let (before_values, after_values) = (values(before_scaler, place), values(after_scaler, place));
        let (timeframe, feature) = (before_scaler.timeframe, before.features[place].name().to_owned());
        Some(LookAheadEffect::Scaler { timeframe, feature, before: before_values, after: after_values })
    })
}

#[cfg(test)]
mod tests;
