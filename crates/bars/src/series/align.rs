use std::ops::Range;

use crate::error::Result;
use crate::error::excluded::{Excluded, refused};
use crate::series::instrument::Instrument;
use crate::series::sampling::SampleLayout;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::SeriesSpec;
use crate::series::target::Horizon;
use crate::series::track::Track;
use crate::series::unscaled_series::{FittedScalers, UnscaledSeries};
use crate::series::{AlignedSeries, Segment, TimeframeSeries};

/// Makes aligned series of several timeframes from the bars of one, for one instrument or several.
///
/// A sample stands at the close of a base bar that has a full window in every timeframe and a full
/// horizon; with a stride s, at every s-th of a segment, or, for several instruments, at the bars
/// of every s-th instant at which one of them has a bar. Windows and horizons are counted in bars
/// that exist, spanning holes that the spec's [`GapPolicy`](crate::GapPolicy) allows; no sample
/// reaches out of its segment. The bars of each timeframe before the longest warm-up of its
/// features are excluded, and so are segments without a sample.
///
/// Scalers are fitted for each instrument on its bars before one time that all share: the time at
/// which the first `train_fraction` of all samples, rounded down to whole samples, ends, or that of
/// the instants at which there are samples, whichever is earlier. (Where the number of instruments
/// grows, the first fraction of samples ends later than that of instants.) Samples of one time are
/// never separated. It is never later than the time at which a split by the same fraction, of
/// samples or of instants, ends its training part.
///
/// # Errors
/// [`Error::Invalid`] for a value out of range, or instruments that do not go together;
/// [`Error::NotAMultiple`] and [`Error::Straddles`] as in [`resample`]; [`Error::TooShort`] where
/// an instrument has not one sample; [`Error::TooFewToFit`] where one has too few bars before the
/// time up to which scalers are fitted; [`Error::Several`] where that is so of several, all of
/// which it names.
///
/// [`Error::Invalid`]: crate::Error::Invalid
/// [`Error::NotAMultiple`]: crate::Error::NotAMultiple
/// [`Error::Straddles`]: crate::Error::Straddles
/// [`Error::TooShort`]: crate::Error::TooShort
/// [`Error::TooFewToFit`]: crate::Error::TooFewToFit
/// [`Error::Several`]: crate::Error::Several
/// [`resample`]: crate::resample
pub fn align(instruments: &[Instrument<'_>], spec: &SeriesSpec) -> Result<AlignedSeries> {
    let (series, excluded) = align_usable(instruments, spec)?;
    if excluded.is_empty() { Ok(series) } else { Err(refused(instruments.len() - excluded.len(), excluded)) }
}

/// [`align`], but an instrument that has not one sample, or too few bars to fit its scalers on, is
/// excluded and named.
///
/// The series is what [`align`] makes of the others: with fewer samples the training span may end
/// at another time, so that excluding one instrument can exclude another.
///
/// # Errors
/// As [`align`], where not one instrument is left.
pub fn align_usable(instruments: &[Instrument<'_>], spec: &SeriesSpec) -> Result<(AlignedSeries, Vec<Excluded>)> {
    let mut usable = instruments.to_vec();
    let mut excluded = Vec::new();
    loop {
        let lacking = match attempt(&usable, spec)? {
            Ok(series) => return Ok((series, excluded)),
            Err(lacking) => lacking,
        };
        usable.retain(|instrument| lacking.iter().all(|lacking| lacking.symbol != instrument.name));
        excluded.extend(lacking);
        if usable.is_empty() {
            return Err(refused(0, excluded));
        }
    }
}

/// The series of all the instruments, or those that cannot be in it.
fn attempt(instruments: &[Instrument<'_>], spec: &SeriesSpec) -> Result<Result<AlignedSeries, Vec<Excluded>>> {
    let unscaled = UnscaledSeries::of(instruments, spec)?;
    let layout = unscaled.place();
    let lacking = unscaled.without_samples(&layout);
    if !lacking.is_empty() {
        return Ok(Err(lacking));
    }
    let FittedScalers { scalers, warnings } = match unscaled.fit(fit_end_time(&layout.time, spec.train_fraction)) {
        Ok(fitted) => fitted,
        Err(lacking) => return Ok(Err(lacking)),
    };
    let mut series = finish(unscaled, layout, scalers);
    series.warnings.extend(warnings);
    Ok(Ok(series))
}

/// [`align`] with given scalers instead of fitted ones: new data is scaled as the training data
/// was.
///
/// The scalers may know more instruments and timeframes than are asked for. The spec's `scaling`
/// and `train_fraction` mean nothing here.
///
/// # Errors
/// As [`align`], but for [`TooFewToFit`](crate::Error::TooFewToFit);
/// [`Scalers`](crate::Error::Scalers) where the scalers lack an instrument or timeframe, are of
/// other features, or hold a number that cannot scale.
pub fn align_with(instruments: &[Instrument<'_>], spec: &SeriesSpec, scalers: &Scalers) -> Result<AlignedSeries> {
    let names: Vec<&str> = instruments.iter().map(|instrument| instrument.name).collect();
    let scalers = scalers.chosen(&names, spec)?;
    let unscaled = UnscaledSeries::of(instruments, spec)?;
    let layout = unscaled.place();
    let lacking = unscaled.without_samples(&layout);
    if lacking.is_empty() {
        Ok(finish(unscaled, layout, scalers))
    } else {
        Err(refused(instruments.len() - lacking.len(), lacking))
    }
}

/// One nanosecond after the last sample of the training span: of the first samples, or of the first
/// instants, whichever ends earlier.
fn fit_end_time(sample_time: &[i64], train_fraction: f64) -> i64 {
    let mut sorted = sample_time.to_vec();
    sorted.sort_unstable();
    let by_samples = end_of_training(&sorted, train_fraction);
    sorted.dedup();
    by_samples.min(end_of_training(&sorted, train_fraction))
}

/// One nanosecond after the last of the first `train_fraction` of sorted times.
fn end_of_training(sorted: &[i64], train_fraction: f64) -> i64 {
    let trained = ((sorted.len() as f64 * train_fraction) as usize).max(1);
    let next = sorted.get(trained).copied().unwrap_or(i64::MAX);
    // Where instruments share the time of the next sample, all of its samples come after training.
    let before_next = sorted.partition_point(|&time| time < next).max(1);
    sorted[before_next - 1] + 1
}

/// Scales the series, excludes segments without samples, and looks the windows up.
fn finish(unscaled: UnscaledSeries<'_>, mut layout: SampleLayout, scalers: Scalers) -> AlignedSeries {
    let targets = targets(&unscaled, &layout);
    let label_end_time = label_end_time(&unscaled, &layout);
    let segments_of: Vec<Range<usize>> =
        (0..unscaled.instruments.len()).map(|place| unscaled.segments_of(place)).collect();
    let is_kept: Vec<bool> = layout.segments.iter().map(|segment| !segment.samples.is_empty()).collect();
    let (kept, excluded) = layout.segments.into_iter().partition(|segment| !segment.samples.is_empty());
    layout.segments = kept;
    let warnings = unscaled.excluded_warnings(&excluded);

    let spec = unscaled.spec;
    let mut timeframes = Vec::with_capacity(unscaled.tracks.len());
    for (mut track, scaler) in unscaled.tracks.into_iter().zip(scalers.timeframes) {
        for (place, own) in segments_of.iter().enumerate() {
            track.scale(own.clone(), &scaler, place);
        }
        track.retain(&is_kept);
        timeframes.push(timeframe_series(track, scaler, spec, &layout));
    }
    AlignedSeries {
        base: unscaled.base,
        instruments: scalers.instruments,
        timeframes,
        sample_time: layout.time,
        sample_instrument: layout.instrument,
        label_end_time,
        targets,
        scaling: scalers.kind,
        fit_end_time: scalers.fit_end_time,
        segments: layout.segments,
        excluded,
        warnings,
    }
}

fn targets(unscaled: &UnscaledSeries<'_>, layout: &SampleLayout) -> Vec<f32> {
    let &SeriesSpec { horizon: len, target_kind: kind, .. } = unscaled.spec;
    let mut targets = Vec::with_capacity(layout.time.len() * len);
    for (piece, bars) in unscaled.pieces.iter().zip(&layout.bars) {
        let Instrument { bars: all, pip_size, .. } = unscaled.instruments[piece.instrument];
        // Cut at the segment's end, so that a horizon that left it would be a panic and not a wrong
        // number.
        let close = &all.close[..piece.bars.end];
        Horizon { kind, len, pip_size }.extend(&mut targets, close, bars.iter().copied());
    }
    targets
}

/// Close time of the last base bar of each sample's horizon.
fn label_end_time(unscaled: &UnscaledSeries<'_>, layout: &SampleLayout) -> Vec<i64> {
    let horizon = unscaled.spec.horizon;
    let of_pieces = unscaled.pieces.iter().zip(&layout.bars).flat_map(|(piece, bars)| {
        let all = unscaled.instruments[piece.instrument].bars;
        bars.iter().map(move |&t| all.close_time(t + horizon))
    });
    of_pieces.collect()
}

/// The series of a track that holds the segments with samples only.
fn timeframe_series(
    track: Track,
    scaler: TimeframeScaler,
    spec: &SeriesSpec,
    layout: &SampleLayout,
) -> TimeframeSeries {
    let segments = &layout.segments;
    let mut end = Vec::with_capacity(layout.time.len());
    for (place, segment) in segments.iter().enumerate() {
        end.extend(track.last_closed(place, &layout.time[segment.samples.clone()]));
    }
    TimeframeSeries {
        timeframe: track.window.timeframe,
        seq_len: track.window.seq_len,
        features: spec.features.clone(),
        instrument_start: instrument_start(&track, segments),
        segment_start: track.parts.iter().map(|part| part.rows.start as i64).collect(),
        look_back: spec.look_back(),
        warm_up_open_time: track.parts.iter().flat_map(|part| part.warm_up_open_time.iter().copied()).collect(),
        values: track.values,
        open_time: track.open_time,
        close_time: track.close_time,
        center: scaler.center,
        scale: scaler.scale,
        end,
    }
}

/// First row of each instrument, each of which has a segment, and the number of rows.
fn instrument_start(track: &Track, segments: &[Segment]) -> Vec<i64> {
    let mut starts = Vec::new();
    let mut instrument = None;
    for (segment, part) in segments.iter().zip(&track.parts) {
        if instrument.replace(segment.instrument) != Some(segment.instrument) {
            starts.push(part.rows.start as i64);
        }
    }
    starts.push(track.close_time.len() as i64);
    starts
}
