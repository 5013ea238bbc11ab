#![forbid(unsafe_code)]

use std::time::Instant;

use megabatch_gpu_core::{Buffer, Scope};

use crate::cost::ReadCost;
use crate::error::Result;
use crate::series::SeriesFile;
use crate::shape::SampleSlices;

/// A series file with its bars and targets in memory.
#[derive(Debug)]
pub struct ResidentSeries {
    file: SeriesFile,
    /// One array `[bars, F]` a timeframe.
    values: Vec<Buffer<f32>>,
    /// `[N, K]`.
    targets: Buffer<f32>,
}

impl ResidentSeries {
    /// Reads the bars and targets of `file` into memory booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Hdf5`](crate::Error::Hdf5) or [`Error::Memory`](crate::Error::Memory).
    pub fn load(file: SeriesFile, scope: &Scope) -> Result<Self> {
        let timeframes = 0..file.timeframes().len();
        let values = timeframes.map(|timeframe| file.read_values(timeframe, scope)).collect::<Result<_>>()?;
        let targets = file.read_targets(scope)?;
        Ok(ResidentSeries { file, values, targets })
    }

    /// The file, with its index arrays.
    pub fn file(&self) -> &SeriesFile {
        &self.file
    }

    /// The scaled bars of a timeframe, `[bars, F]`, row-major.
    pub fn values(&self, timeframe: usize) -> &[f32] {
        self.values[timeframe].as_slice()
    }

    /// `[N, K]`, row-major.
    pub fn targets(&self) -> &[f32] {
        self.targets.as_slice()
    }

    /// Close time of the first bar of each sample's window, `[N]`, ns since 1970 UTC: nothing in
    /// the window is older than the bar that closed then.
    pub fn window_start_times(&self, timeframe: usize) -> impl Iterator<Item = i64> + '_ {
        let timeframe = &self.file.timeframes()[timeframe];
        let (close_times, steps) = (timeframe.close_times(), timeframe.steps());
        timeframe.sample_ends().iter().map(move |&end| close_times[end as usize + 1 - steps])
    }

    /// Close time of the bar that lies `bars` bars of the shortest timeframe after each sample's
    /// last closed one, `[N]`, ns since 1970 UTC; `None` beyond its instrument's last bar.
    pub fn close_times_ahead(&self, bars: usize) -> impl Iterator<Item = Option<i64>> + '_ {
        let base = &self.file.timeframes()[0];
        let instruments = self.file.sample_instruments();
        let all = base.close_times().len();
        base.sample_ends().iter().enumerate().map(move |(n, &end)| {
            let bars_end = instruments.map_or(all, |of| base.instrument_starts()[of[n] as usize + 1] as usize);
            base.close_times()[..bars_end].get((end as usize).saturating_add(bars)).copied()
        })
    }

    /// Copies samples into memory of the right size; each is a sample of the file.
    pub(super) fn gather(&self, samples: impl Iterator<Item = usize> + Clone, out: SampleSlices<'_>) -> ReadCost {
        let started = Instant::now();
        for (timeframe, features) in out.features.into_iter().enumerate() {
            self.gather_windows(timeframe, samples.clone(), features);
        }
        let horizons = self.file.shape().horizons;
        for (row, sample) in out.targets.chunks_exact_mut(horizons).zip(samples) {
            row.copy_from_slice(&self.targets()[sample * horizons..(sample + 1) * horizons]);
        }
        ReadCost { copy: started.elapsed(), ..ReadCost::default() }
    }

    /// The window of a sample is `steps` consecutive rows of the bars, so that it is one copy.
    fn gather_windows(&self, timeframe: usize, samples: impl Iterator<Item = usize>, out: &mut [f32]) {
        let index = &self.file.timeframes()[timeframe];
        let features = index.feature_names().len();
        let values = self.values(timeframe);
        for (window, sample) in out.chunks_exact_mut(index.steps() * features).zip(samples) {
            let end = (index.sample_ends()[sample] as usize + 1) * features;
            window.copy_from_slice(&values[end - window.len()..end]);
        }
    }
}
