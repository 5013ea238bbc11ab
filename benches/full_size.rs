//! Models of full size over made-up series.

use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_trainer::SeriesInMemory;

use crate::noise;

const TARGETS: usize = 36;

/// Name, bars in a window and minutes in a bar of each timeframe.
pub type Windows = &'static [(&'static str, usize, usize)];

const MULTI: Windows = &[("M1", 480, 1), ("M5", 288, 5), ("M15", 192, 15), ("H1", 96, 60), ("H4", 48, 240)];
const SINGLE: Windows = &[("", 360, 1)];

/// A model of the size that docs/measurements/speed.md has, H = 128.
#[derive(Clone, Copy, Debug)]
pub struct FullSize {
    /// What is measured.
    pub name: &'static str,
    /// Of each timeframe.
    pub windows: Windows,
    /// F.
    pub features: usize,
    /// B.
    pub batch: usize,
    /// Minutes between samples: 1, or so many that few windows have bars in common.
    pub apart: usize,
}

/// The cases of docs/measurements/speed.md.
pub const FULL_SIZE: &[FullSize] = &[
    FullSize { name: "multi, consecutive", windows: MULTI, features: 128, batch: 64, apart: 1 },
    FullSize { name: "multi, far apart", windows: MULTI, features: 128, batch: 64, apart: 1009 },
    FullSize { name: "single, consecutive", windows: SINGLE, features: 167, batch: 128, apart: 1 },
    FullSize { name: "single, far apart", windows: SINGLE, features: 167, batch: 128, apart: 1009 },
];

/// Samples with windows of so many bars of each timeframe.
pub fn shape(timeframes: &[(&str, usize)], features: usize) -> SampleShape {
    let timeframe = |&(name, steps): &(&str, usize)| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: timeframes.iter().map(timeframe).collect(), outputs: TARGETS }
}

impl FullSize {
    /// What a sample has.
    pub fn shape(&self) -> SampleShape {
        let timeframes: Vec<_> = self.windows.iter().map(|&(name, steps, _)| (name, steps)).collect();
        shape(&timeframes, self.features)
    }

    /// So many samples of a series.
    pub fn series(&self, samples: usize) -> SeriesInMemory {
        let of = |&(_, steps, minutes): &(&str, usize, usize)| {
            let ends: Vec<i64> = (0..samples).map(|n| (steps - 1 + n * self.apart / minutes) as i64).collect();
            (noise((ends[samples - 1] as usize + 1) * self.features), ends)
        };
        let series = self.windows.iter().map(of).collect();
        SeriesInMemory::new(self.shape(), series, noise(samples * TARGETS)).expect("the arrays have the shape's sizes")
    }
}
