use serde::Serialize;

/// Dimensions of a file's samples, whichever its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Number of samples, N.
    pub samples: usize,
    /// The timeframes, shortest first (see [`timeframe_order`](crate::timeframe_order)).
    pub timeframes: Vec<TimeframeShape>,
    /// Number of targets of a sample, K.
    pub horizons: usize,
}

/// Dimensions of one timeframe's windows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeframeShape {
    /// Name such as `M5`; `None` for the one timeframe of a file whose features are `/features`
    /// itself.
    pub name: Option<String>,
    /// Length of a window in bars, T.
    pub steps: usize,
    /// Number of features, F.
    pub features: usize,
}

impl TimeframeShape {
    /// Elements of one window, T · F.
    pub fn window_len(&self) -> usize {
        self.steps * self.features
    }
}

/// A batch of samples in memory, as the model sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleBlock {
    /// Number of samples, n.
    pub samples: usize,
    /// One array `[n, T, F]` a timeframe, row-major, in the order of [`Shape::timeframes`].
    pub features: Vec<Vec<f32>>,
    /// `[n, K]`, row-major.
    pub targets: Vec<f32>,
}

impl SampleBlock {
    /// Zeros for `samples` samples of `shape`.
    pub fn zeros(shape: &Shape, samples: usize) -> Self {
        SampleBlock {
            samples,
            features: shape.timeframes.iter().map(|timeframe| vec![0.0; samples * timeframe.window_len()]).collect(),
            targets: vec![0.0; samples * shape.horizons],
        }
    }

    /// The block as memory for [`Source::read`](crate::Source::read) and
    /// [`Source::gather`](crate::Source::gather).
    pub fn slices(&mut self) -> SampleSlices<'_> {
        SampleSlices { features: self.features.iter_mut().map(Vec::as_mut_slice).collect(), targets: &mut self.targets }
    }
}

/// The caller's memory for a batch of samples; laid out as in [`SampleBlock`].
#[derive(Debug)]
pub struct SampleSlices<'a> {
    /// One array `[n, T, F]` a timeframe.
    pub features: Vec<&'a mut [f32]>,
    /// `[n, K]`.
    pub targets: &'a mut [f32],
}
