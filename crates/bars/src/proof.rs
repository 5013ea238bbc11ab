//! Proof that no sample looks ahead.

pub(crate) mod perturb;

use crate::bars::Bars;
use crate::clean::gap::GapPolicy;
use crate::error::look_ahead::{LookAhead, LookAheadEffect, Perturbation};
use crate::error::{Error, Result};
use crate::proof::perturb::{OtherFuture, SplitMix64};
use crate::series::AlignedSeries;
use crate::series::align::align_with;
use crate::series::feature::Feature;
use crate::series::instrument::Instrument;
use crate::series::scalers::Scalers;
use crate::series::spec::{SeriesSpec, in_range};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// Start and random seed of the made-up future of a proof.
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
    /// Number of base bars that were aligned.
    pub bars: usize,
    /// Bars that had not closed, and were replaced.
    pub replaced: usize,
}

/// Proves that what a sample sees does not depend on any bar that had not closed at its time.
///
/// The proof replaces those bars by others, twice: once in their values, once also in number and
/// times. The segment of the sample is aligned up to a little after its horizon, with the given
/// scalers, and the windows must stay the same to the last bit.
///
/// # Errors
/// [`Error::LookAhead`] where they do not; [`Error::NoSample`] where no sample stands at that time;
/// others as [`align_with`].
pub fn prove_no_look_ahead(
    instrument: Instrument<'_>,
    spec: &SeriesSpec,
    scalers: &Scalers,
    moment: Moment,
) -> Result<Proof> {
    // Other instruments' bars may decide at which times samples stand, but never the values of a
    // sample.
    let spec = &SeriesSpec { stride: 1, ..spec.clone() };
    let align = |bars: &Bars| align_with(&[Instrument { bars, ..instrument }], spec, scalers);
    ProofQuery { instrument, spec, moment }.prove(&align)
}

/// Proves that scalers do not depend on any bar that had not closed at a time at which they were
/// fitted already.
///
/// # Errors
/// [`Error::LookAhead`] where they do; [`Error::Scalers`] where they are not what fitting gives in
/// the first place; [`Error::Invalid`] for a time before their `fit_end_time`; others as
/// [`Scalers::fit`].
pub fn prove_scalers(
    instruments: &[Instrument<'_>],
    spec: &SeriesSpec,
    scalers: &Scalers,
    moment: Moment,
) -> Result<()> {
    let spec = SeriesSpec { scaling: scalers.kind, ..spec.clone() };
    let given = scalers.chosen(instruments, &spec)?;
    let fit = |instruments: &[Instrument<'_>]| Scalers::fit(instruments, &spec, given.fit_end_time);
    prove_scalers_by(&fit, instruments, &given, Future { moment, holes: spec.holes, bars_min: 0 })
}

/// Aligns one instrument's bars.
type Align<'a> = dyn Fn(&Bars) -> Result<AlignedSeries> + 'a;
/// Fits scalers.
type Fit<'a> = dyn Fn(&[Instrument<'_>]) -> Result<Scalers> + 'a;

/// The sample that a proof is about.
struct ProofQuery<'a> {
    instrument: Instrument<'a>,
    spec: &'a SeriesSpec,
    moment: Moment,
}

impl ProofQuery<'_> {
    fn prove(&self, align: &Align<'_>) -> Result<Proof> {
        let bars = self.bars().ok_or_else(|| self.no_sample())?;
        let before = self.sight(align(&bars))?.ok_or_else(|| self.no_sample())?;
        let future = Future { moment: self.moment, holes: self.spec.holes, bars_min: self.spec.horizon };
        for perturbation in Perturbation::ALL {
            let after = self.sight(align(&future.instead_of(&bars, perturbation)))?;
            if let Some(difference) = after.map_or(Some(LookAheadEffect::Gone), |after| before.difference(&after)) {
                return Err(future.leak(self.instrument.name, perturbation, difference));
            }
        }
        let is_open = |&&open_time: &&i64| open_time + bars.timeframe.duration_ns() > self.moment.time;
        let replaced = bars.open_time.iter().rev().take_while(is_open).count();
        Ok(Proof { windows: before.windows, bars: bars.len(), replaced })
    }

    /// Windows of the sample, if it exists.
    fn sight(&self, series: Result<AlignedSeries>) -> Result<Option<Sight>> {
        match series {
            Ok(series) => {
                let n = series.sample_time.binary_search(&self.moment.time);
                Ok(n.ok().map(|n| Sight::of(&series, n)))
            }
            Err(Error::TooShort { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The segment in which a bar closes at the sample's time, up to the close of every bin that is
    /// open then.
    fn bars(&self) -> Option<Bars> {
        let (bars, time) = (self.instrument.bars, self.moment.time);
        let t = bars.open_time.binary_search(&(time - bars.timeframe.duration_ns())).ok()?;
        let segment = self.spec.holes.segments(bars).into_iter().find(|segment| segment.contains(&t))?;
        let longest = self.spec.windows.iter().map(|window| window.timeframe.duration_ns()).max()?;
        let all_closed = bars.open_time.partition_point(|&open_time| open_time < time + longest);
        let end = (all_closed.max(t + self.spec.horizon) + 2).min(bars.len());
        let mut part = Bars::with_capacity(bars.timeframe, end - segment.start);
        (segment.start..end).for_each(|k| part.push(bars.bar(k)));
        Some(part)
    }

    fn no_sample(&self) -> Error {
        Error::NoSample { instrument: self.instrument.name.to_owned(), time: display_utc(self.moment.time) }
    }
}

/// The futures that replace the true one.
#[derive(Clone, Copy)]
struct Future {
    moment: Moment,
    holes: GapPolicy,
    /// Number of bars that must follow without a forbidden hole: the horizon, where a sample shall
    /// remain.
    bars_min: usize,
}

impl Future {
    fn instead_of(&self, bars: &Bars, perturbation: Perturbation) -> Bars {
        let Future { moment: Moment { time, seed }, holes, bars_min } = *self;
        OtherFuture { random: SplitMix64(seed), perturbation, time, bars_min, holes }.of(bars)
    }

    fn leak(&self, instrument: &str, perturbation: Perturbation, difference: LookAheadEffect) -> Error {
        let (instrument, time) = (instrument.to_owned(), self.moment.time);
        Error::LookAhead(Box::new(LookAhead { instrument, time, perturbation, difference }))
    }
}

/// Windows of a sample without the series, which is as long as the recording.
struct Sight {
    timeframes: Vec<Timeframe>,
    features: Vec<Feature>,
    /// One entry a timeframe: `[seq_len, F]`.
    windows: Vec<Vec<f32>>,
}

impl Sight {
    fn of(series: &AlignedSeries, n: usize) -> Self {
        Sight {
            timeframes: series.timeframes.iter().map(|series| series.timeframe).collect(),
            features: series.timeframes[0].features.clone(),
            windows: series.timeframes.iter().map(|series| series.window(n).to_vec()).collect(),
        }
    }

    /// The first value in which `after` is not the same, bit for bit.
    fn difference(&self, after: &Sight) -> Option<LookAheadEffect> {
        let pairs = self.timeframes.iter().zip(self.windows.iter().zip(&after.windows));
        pairs.into_iter().find_map(|(&timeframe, (window, after_window))| {
            let place = window.iter().zip(after_window).position(|(a, b)| a.to_bits() != b.to_bits())?;
            let (row, feature) = (place / self.features.len(), self.features[place % self.features.len()].name());
            Some(LookAheadEffect::Value { timeframe, row, feature, before: window[place], after: after_window[place] })
        })
    }
}

fn prove_scalers_by(fit: &Fit<'_>, instruments: &[Instrument<'_>], given: &Scalers, future: Future) -> Result<()> {
    let Moment { time, .. } = future.moment;
    in_range("time", &display_utc(time), "no time before the scalers' fit_end_time", time >= given.fit_end_time)?;
    if let Some((instrument, difference)) = different_scaler(given, &fit(instruments)?) {
        let (instrument, fitted_until) = (&given.instruments[instrument], display_utc(given.fit_end_time));
        let found = format!("for {instrument} {difference}");
        return Err(Error::Scalers { found, expected: format!("what fitting up to {fitted_until} gives") });
    }
    for perturbation in Perturbation::ALL {
        let other: Vec<Bars> = instruments.iter().map(|given| future.instead_of(given.bars, perturbation)).collect();
        let other: Vec<Instrument<'_>> =
            instruments.iter().zip(&other).map(|(given, bars)| Instrument { bars, ..*given }).collect();
        if let Some((instrument, difference)) = different_scaler(given, &fit(&other)?) {
            return Err(future.leak(&given.instruments[instrument], perturbation, difference));
        }
    }
    Ok(())
}

/// The first instrument and feature that are scaled differently, bit for bit.
fn different_scaler(before: &Scalers, after: &Scalers) -> Option<(usize, LookAheadEffect)> {
    let width = before.features.len();
    before.timeframes.iter().zip(&after.timeframes).find_map(|(before_scaler, after_scaler)| {
        let of = |place: usize| [before_scaler, after_scaler].map(|scaler| [scaler.center[place], scaler.scale[place]]);
        let differs = |place: &usize| of(*place)[0].map(f64::to_bits) != of(*place)[1].map(f64::to_bits);
        let place = (0..before_scaler.center.len()).find(differs)?;
        let [before_values, after_values] = of(place);
        let (timeframe, feature) = (before_scaler.timeframe, before.features[place % width].name());
        let difference = LookAheadEffect::Scaler { timeframe, feature, before: before_values, after: after_values };
        Some((place / width, difference))
    })
}

#[cfg(test)]
mod tests;
