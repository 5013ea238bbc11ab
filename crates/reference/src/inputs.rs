//! Inputs of a model: sequences of bars, the steps at which samples read them, graphs.

use megabatch_nn::model::{Dropout, SampleShape};

use crate::graph::Graph;

/// The inputs of B samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// One a timeframe, in the order of the model's shape.
    pub timeframes: Vec<Sequences>,
    /// Graphs whose nodes are the samples, graph after graph; empty for a model that is not over
    /// graphs.
    pub graphs: Vec<Graph>,
    /// Dropout between recurrent layers, by the masks of the engines.
    pub dropout: Option<Dropout>,
}

/// N sequences of S bars of one timeframe, and the places at which B samples read them.
///
/// A sample by itself reads the last step of a window of its own. Samples that share a window read
/// the same sequence; those of a run in dense training read one sequence at one step after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequences {
    /// [N, S, F], row-major.
    pub bars: Vec<f64>,
    /// Identities of the N sequences, which their dropout masks are drawn by; see
    /// [`Mask::factor`](megabatch_nn::model::Mask::factor).
    pub ends: Vec<usize>,
    /// The states before the first step, one a layer; none for zeros.
    pub initial: Vec<LayerState>,
    /// One a sample.
    pub reads: Vec<Read>,
}

/// Hidden and cell state of a layer, [N, H] each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerState {
    /// h.
    pub hidden: Vec<f64>,
    /// c.
    pub cell: Vec<f64>,
}

/// The place at which a sample reads a timeframe. Pooling by attention reads the T steps that end
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Among the N sequences.
    pub sequence: usize,
    /// Counted from 0.
    pub step: usize,
}

impl Inputs {
    /// Samples with a window each of every timeframe, `windows` being [B, T, F] by timeframe, which
    /// start from states of zero.
    ///
    /// # Panics
    /// If there is not a window of `shape` for each sample.
    pub fn from_windows(shape: &SampleShape, samples: usize, windows: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let mut windows = windows.into_iter();
        let mut sequences = |steps: usize, features: usize| {
            let bars = windows.next().expect("windows of every timeframe");
            assert_eq!(bars.len(), samples * steps * features, "windows of [{samples}, {steps}, {features}]");
            let reads = (0..samples).map(|sequence| Read { sequence, step: steps - 1 }).collect();
            Sequences { bars, ends: (0..samples).collect(), initial: Vec::new(), reads }
        };
        let timeframes = shape.timeframes.iter().map(|timeframe| sequences(timeframe.steps, timeframe.features));
        Inputs { timeframes: timeframes.collect(), ..Inputs::default() }
    }

    /// B.
    pub(crate) fn samples(&self) -> usize {
        let samples = self.timeframes[0].reads.len();
        assert!(
            self.timeframes.iter().all(|sequences| sequences.reads.len() == samples),
            "each sample reads every timeframe"
        );
        samples
    }
}

impl Sequences {
    /// N.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// S, of bars of `features` numbers.
    pub(crate) fn steps(&self, features: usize) -> usize {
        let steps = self.bars.len() / (self.len() * features);
        assert_eq!(self.bars.len(), self.len() * steps * features, "sequences of whole bars");
        steps
    }
}
