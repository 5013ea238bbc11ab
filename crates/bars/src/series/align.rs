use std::ops::Range;

use crate::error::Result;
use crate::error::excluded::{Excluded, refused};
use crate::series::instrument::Instrument;
use crate::series::sampling::SampleLayout;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::SeriesSpec;
use crate::series::target::Horizon;
use crate::series::track::Track;
use crate::series::unscaled_series::{Fitted, UnscaledSeries};
use crate::series::{AlignedSeries, Segment, TimeframeSeries};

/// Makes aligned series of several timeframes from the bars of one, for one instrument or several.
///
/// A sample stands at the close of a base bar that has a full window in every timeframe and a full
/// horizon; with a stride, at every so-manieth of a segment, or, of several instruments, at the
/// bars of every so-manieth instant at which one of them has a bar. Windows and horizons are
/// counted in bars that exist, across holes that the spec's [`GapPolicy`](crate::GapPolicy) allows;
/// no sample reaches out of its segment. The bars of each timeframe before the longest warm-up of
/// its features are left out, and so are segments without a sample.
///
/// Scalers are fitted for each instrument on its bars before one time that all share: the time at
/// which the first `train_fraction` of all samples, rounded down to whole samples, ends, or that of
/// the instants at which there are samples, whichever is earlier: more and more instruments make
/// early instants count less by samples. Samples of one time are never parted. It is never later
/// than the time at which a split by the same fraction, of samples or of instants, ends its
/// training part.
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
    let (series, left_out) = align_usable(instruments, spec)?;
    if left_out.is_empty() { Ok(series) } else { Err(refused(instruments.len() - left_out.len(), left_out)) }
}

/// [`align`], but an instrument that has not one sample, or too few bars to fit its scalers on, is
/// left out and named.
///
/// The series is what [`align`] makes of the others: with fewer samples the training span may end
/// at another time, so that one instrument can cost another its place.
///
/// # Errors
/// As [`align`], where not one instrument is left.
pub fn align_usable(instruments: &[Instrument<'_>], spec: &SeriesSpec) -> Result<(AlignedSeries, Vec<Excluded>)> {
    let mut usable = instruments.to_vec();
    let mut left_out = Vec::new();
    loop {
        let lacking = match attempt(&usable, spec)? {
            Ok(series) => return Ok((series, left_out)),
            Err(lacking) => lacking,
        };
        usable.retain(|instrument| lacking.iter().all(|lacking| lacking.symbol != instrument.name));
        left_out.extend(lacking);
        if usable.is_empty() {
            return Err(refused(0, left_out));
        }
    }
}

/// The series of all the instruments, or those that cannot be in it.
fn attempt(instruments: &[Instrument<'_>], spec: &SeriesSpec) -> Result<Result<AlignedSeries, Vec<Excluded>>> {
    let draft = UnscaledSeries::of(instruments, spec)?;
    let placed = draft.place();
    let lacking = draft.without_samples(&placed);
    if !lacking.is_empty() {
        return Ok(Err(lacking));
    }
    let Fitted { scalers, warnings } = match draft.fit(fit_end_time(&placed.time, spec.train_fraction)) {
        Ok(fitted) => fitted,
        Err(lacking) => return Ok(Err(lacking)),
    };
    let mut series = finish(draft, placed, scalers);
    series.warnings.extend(warnings);
    Ok(Ok(series))
}

/// [`align`] with scalers that are given instead of fitted: new data looks to a model as the data
/// did that it was trained on.
///
/// The scalers may know more instruments and timeframes than are asked for. The spec's `scaling`
/// and `train_fraction` mean nothing here.
///
/// # Errors
/// As [`align`], but for [`TooFewToFit`](crate::Error::TooFewToFit);
/// [`Scalers`](crate::Error::Scalers) where the scalers lack an instrument or timeframe, are of
/// other features, or hold a number that cannot scale.
pub fn align_with(instruments: &[Instrument<'_>], spec: &SeriesSpec, scalers: &Scalers) -> Result<AlignedSeries> {
    let scalers = scalers.chosen(instruments, spec)?;
    let draft = UnscaledSeries::of(instruments, spec)?;
    let placed = draft.place();
    let lacking = draft.without_samples(&placed);
    if lacking.is_empty() {
        Ok(finish(draft, placed, scalers))
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

/// Scales the draft, leaves out the segments without samples, and looks the windows up.
fn finish(draft: UnscaledSeries<'_>, mut placed: SampleLayout, scalers: Scalers) -> AlignedSeries {
    let targets = targets(&draft, &placed);
    let label_end_time = label_end_time(&draft, &placed);
    let segments_of: Vec<Range<usize>> = (0..draft.instruments.len()).map(|place| draft.segments_of(place)).collect();
    let is_kept: Vec<bool> = placed.segments.iter().map(|segment| !segment.samples.is_empty()).collect();
    let (kept, left_out) = placed.segments.into_iter().partition(|segment| !segment.samples.is_empty());
    placed.segments = kept;
    let warnings = draft.left_out_warnings(&left_out);

    let spec = draft.spec;
    let mut timeframes = Vec::with_capacity(draft.tracks.len());
    for (mut track, scaler) in draft.tracks.into_iter().zip(scalers.timeframes) {
        for (place, own) in segments_of.iter().enumerate() {
            track.scale(own.clone(), &scaler, place);
        }
        track.retain(&is_kept);
        timeframes.push(timeframe_series(track, scaler, spec, &placed));
    }
    AlignedSeries {
        base: draft.base,
        instruments: scalers.instruments,
        timeframes,
        sample_time: placed.time,
        sample_instrument: placed.instrument,
        label_end_time,
        targets,
        scaling: scalers.kind,
        fit_end_time: scalers.fit_end_time,
        segments: placed.segments,
        left_out,
        warnings,
    }
}

fn targets(draft: &UnscaledSeries<'_>, placed: &SampleLayout) -> Vec<f32> {
    let &SeriesSpec { horizon: len, target_kind: kind, .. } = draft.spec;
    let mut targets = Vec::with_capacity(placed.time.len() * len);
    for (piece, bars) in draft.pieces.iter().zip(&placed.bars) {
        let Instrument { bars: all, pip_size, .. } = draft.instruments[piece.instrument];
        // Cut at the segment's end, so that a horizon that left it would be a panic and not a wrong
        // number.
        let close = &all.close[..piece.bars.end];
        Horizon { kind, len, pip_size }.extend(&mut targets, close, bars.iter().copied());
    }
    targets
}

/// When the last base bar closes that each sample's targets read: the horizon's last.
fn label_end_time(draft: &UnscaledSeries<'_>, placed: &SampleLayout) -> Vec<i64> {
    let horizon = draft.spec.horizon;
    let of_pieces = draft.pieces.iter().zip(&placed.bars).flat_map(|(piece, bars)| {
        let all = draft.instruments[piece.instrument].bars;
        bars.iter().map(move |&t| all.close_time(t + horizon))
    });
    of_pieces.collect()
}

/// The series of a track that holds the segments with samples only.
fn timeframe_series(
    track: Track,
    scaler: TimeframeScaler,
    spec: &SeriesSpec,
    placed: &SampleLayout,
) -> TimeframeSeries {
    let segments = &placed.segments;
    let mut end = Vec::with_capacity(placed.time.len());
    for (place, segment) in segments.iter().enumerate() {
        end.extend(track.last_closed(place, &placed.time[segment.samples.clone()]));
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
