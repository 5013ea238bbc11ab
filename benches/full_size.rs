//! Models of full size over made-up series.

use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_trainer::{InMemory, SeriesInMemory};

use crate::noise;

const TARGETS: usize = 36;

/// Windows of one timeframe.
#[derive(Clone, Copy, Debug)]
pub struct WindowSize {
    /// Name of the timeframe.
    pub timeframe: &'static str,
    /// Bars in a window.
    pub steps: usize,
    /// Minutes in a bar.
    pub minutes: usize,
}

const fn window(timeframe: &'static str, steps: usize, minutes: usize) -> WindowSize {
    WindowSize { timeframe, steps, minutes }
}

const MULTI: &[WindowSize] =
    &[window("M1", 480, 1), window("M5", 288, 5), window("M15", 192, 15), window("H1", 96, 60), window("H4", 48, 240)];
const SINGLE: &[WindowSize] = &[window("", 360, 1)];

/// A model of the size that docs/measurements/speed.md has, H = 128.
#[derive(Clone, Copy, Debug)]
pub struct FullSize {
    /// The measured operation.
    pub name: &'static str,
    /// Windows of each timeframe.
    pub windows: &'static [WindowSize],
    /// Features of a bar.
    pub features: usize,
    /// Samples of a batch.
    pub batch: usize,
    /// Minutes between samples: 1, or enough that few windows share bars.
    pub apart: usize,
}

/// The cases of docs/measurements/speed.md.
pub const FULL_SIZE: &[FullSize] = &[
    FullSize { name: "multi, consecutive", windows: MULTI, features: 128, batch: 64, apart: 1 },
    FullSize { name: "multi, far apart", windows: MULTI, features: 128, batch: 64, apart: 1009 },
    FullSize { name: "single, consecutive", windows: SINGLE, features: 167, batch: 128, apart: 1 },
    FullSize { name: "single, far apart", windows: SINGLE, features: 167, batch: 128, apart: 1009 },
];

/// Shape of samples with windows of these timeframes, by name and number of bars.
pub fn shape(timeframes: &[(&str, usize)], features: usize) -> SampleShape {
    let timeframe = |&(name, steps): &(&str, usize)| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: timeframes.iter().map(timeframe).collect(), outputs: TARGETS }
}

impl FullSize {
    /// Shape of a sample.
    pub fn shape(&self) -> SampleShape {
        let timeframes: Vec<_> = self.windows.iter().map(|window| (window.timeframe, window.steps)).collect();
        shape(&timeframes, self.features)
    }

    /// `samples` samples of made-up series.
    pub fn series(&self, samples: usize) -> SeriesInMemory {
        let series_shape = |&WindowSize { steps, minutes, .. }: &WindowSize| {
            let ends: Vec<i64> = (0..samples).map(|n| (steps - 1 + n * self.apart / minutes) as i64).collect();
            (noise((ends[samples - 1] as usize + 1) * self.features), ends)
        };
        let series = self.windows.iter().map(series_shape).collect();
        SeriesInMemory::new(self.shape(), series, noise(samples * TARGETS)).expect("the arrays have the shape's sizes")
    }

    /// `samples` samples of made-up windows.
    pub fn stored(&self, samples: usize) -> InMemory {
        let windows = self.windows.iter().map(|window| noise(samples * window.steps * self.features)).collect();
        InMemory::new(self.shape(), windows, noise(samples * TARGETS)).expect("the arrays have the shape's sizes")
    }
}
