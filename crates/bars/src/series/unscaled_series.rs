use std::ops::Range;

use crate::error::excluded::Excluded;
use crate::error::{Error, Result};
use crate::series::instrument::{Instrument, SegmentBars, checked_base, pieces};
use crate::series::scale::{Scaler, Scaling};
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::SeriesSpec;
use crate::series::track::Track;
use crate::series::warnings::{self, ConstantFeature};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// The bars of all segments and timeframes as features, before they are scaled.
pub(crate) struct UnscaledSeries<'a> {
    pub(crate) instruments: &'a [Instrument<'a>],
    pub(crate) spec: &'a SeriesSpec,
    /// The timeframe of the bars.
    pub(crate) base: Timeframe,
    /// The segments, instrument by instrument and in order of time within each.
    pub(crate) pieces: Vec<SegmentBars>,
    /// One entry a timeframe, shortest first.
    pub(crate) tracks: Vec<Track>,
}

/// Scalers, and what is to be said of the data that they were fitted on.
pub(crate) struct FittedScalers {
    pub(crate) scalers: Scalers,
    pub(crate) warnings: Vec<String>,
}

impl<'a> UnscaledSeries<'a> {
    pub(crate) fn of(instruments: &'a [Instrument<'a>], spec: &'a SeriesSpec) -> Result<Self> {
        let windows = spec.checked_windows()?;
        let base = checked_base(instruments)?;
        let pieces = pieces(instruments, spec.holes);
        let tracks = windows.into_iter().map(|window| Track::of(instruments, &pieces, spec, window));
        let tracks = tracks.collect::<Result<Vec<Track>>>()?;
        Ok(UnscaledSeries { instruments, spec, base, pieces, tracks })
    }

    /// The segments of one instrument.
    pub(crate) fn segments_of(&self, instrument: usize) -> Range<usize> {
        let before = |end: usize| self.pieces.partition_point(|piece| piece.instrument < end);
        before(instrument)..before(instrument + 1)
    }

    /// Fits a scaler an instrument and timeframe on the rows before `fit_end_time`; or says which
    /// instruments lack them.
    pub(crate) fn fit(&self, fit_end_time: i64) -> Result<FittedScalers, Vec<Excluded>> {
        let lacking: Vec<Excluded> = (0..self.instruments.len())
            .filter_map(|place| {
                let error = self.tracks.iter().find_map(|track| self.too_few_to_fit(track, place, fit_end_time))?;
                Some(self.excluded(place, error))
            })
            .collect();
        if lacking.is_empty() { Ok(self.fitted(fit_end_time)) } else { Err(lacking) }
    }

    fn fitted(&self, fit_end_time: i64) -> FittedScalers {
        let mut constant = Vec::new();
        let mut timeframes = Vec::with_capacity(self.tracks.len());
        for track in &self.tracks {
            let timeframe = track.window.timeframe;
            let mut fitted = TimeframeScaler { timeframe, center: Vec::new(), scale: Vec::new() };
            for place in 0..self.instruments.len() {
                let rows = self.rows_to_fit(track, place, fit_end_time);
                let scaler = Scaler::fit(self.spec.scaling, &self.spec.features, rows);
                fitted.center.extend(scaler.center);
                fitted.scale.extend(scaler.scale);
                let whose = self.whose(place);
                let place = |feature| ConstantFeature { feature, place: format!("{whose}{timeframe}") };
                constant.extend(scaler.constant.into_iter().map(place));
            }
            timeframes.push(fitted);
        }
        let instruments = self.instruments.iter().map(|instrument| instrument.name.to_owned()).collect();
        let (kind, features) = (self.spec.scaling, self.spec.features.clone());
        let everywhere = self.tracks.len() * self.instruments.len();
        let warnings = warnings::of_constant(&self.spec.features, &constant, everywhere);
        FittedScalers { scalers: Scalers { kind, fit_end_time, instruments, features, timeframes }, warnings }
    }

    /// The rows of one instrument that have closed by its last base bar before `fit_end_time`.
    fn rows_to_fit<'t>(&self, track: &'t Track, place: usize, fit_end_time: i64) -> &'t [f32] {
        let bars = self.instruments[place].bars;
        let duration_ns = self.base.duration_ns();
        // A bin that closes in a hole is known to be whole only when the next base bar comes, so
        // that base bars set the end.
        let base_bars = bars.open_time.partition_point(|open_time| open_time + duration_ns < fit_end_time);
        let end = base_bars.checked_sub(1).map_or(i64::MIN, |last| bars.close_time(last));
        track.values_closed_at(self.segments_of(place), end)
    }

    fn too_few_to_fit(&self, track: &Track, place: usize, fit_end_time: i64) -> Option<Error> {
        let rows = self.rows_to_fit(track, place, fit_end_time);
        let (bars, needed) = (rows.len() / self.spec.features.len(), track.window.seq_len);
        (bars < needed && self.spec.scaling != Scaling::None).then(|| Error::TooFewToFit {
            instrument: self.instruments[place].name.to_owned(),
            timeframe: track.window.timeframe,
            bars,
            needed,
            trained_until: display_utc(fit_end_time.saturating_sub(1)),
        })
    }

    /// Prefix of a message about one of several instruments.
    pub(crate) fn whose(&self, instrument: usize) -> String {
        warnings::whose(&self.names(), instrument)
    }

    pub(crate) fn names(&self) -> Vec<&'a str> {
        self.instruments.iter().map(|instrument| instrument.name).collect()
    }
}
