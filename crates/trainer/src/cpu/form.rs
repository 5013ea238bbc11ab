#![forbid(unsafe_code)]

//! The two forms of the model behind one interface.

use std::ops::Range;

use megabatch_amp::Precision;
use megabatch_gpu_core::Scope;
use serde::{Deserialize, Serialize};

use crate::batch::view::BatchView;
use crate::cpu::carried::{Carried, Initial};
use crate::cpu::decoder::GraphShard;
use crate::cpu::fast::{self, PackedWeights};
use crate::cpu::step::{Capacity, Purpose};
use crate::error::Result;
use crate::model::Model;
use crate::model::dropout::{Dropout, Mask};
use crate::model::tensor::TensorSet;
use crate::reference::lstm::InputGradients;
use crate::reference::pass::Pass;

/// Form of a model's computation: the same mathematics, equal up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Window by window, in plain loops and products: the reference for the other.
    Plain,
    /// Shares the computation that windows have in common, with kernels for the CPU at hand.
    #[default]
    Fast,
}

/// The weights of a model, as they are and as the fast form has packed them.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet<f32>,
    pub(crate) packed: Option<&'a PackedWeights>,
    /// Precision of the inputs of products; the weights are rounded already.
    pub(crate) precision: Precision,
}

/// Some samples of a batch, and what their windows are computed with beside the weights.
#[derive(Clone, Debug)]
pub(crate) struct Shard<'a> {
    pub(crate) batch: &'a BatchView<'a>,
    pub(crate) samples: Range<usize>,
    /// The same in runs, each of which is one sequence; none where each sample's window is.
    pub(crate) runs: &'a [Range<usize>],
    /// The graph that these samples are the nodes of, for a model over graphs.
    pub(crate) graph: Option<GraphShard<'a>>,
    /// The states that windows start from, if not from zero.
    pub(crate) carried: Option<&'a Carried>,
    pub(crate) dropout: Option<Dropout>,
}

/// Workspace of a shard, by form.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one a thread, and all are of one form")]
pub(crate) enum ShardWorkspace {
    Plain(Pass<f32>),
    Fast(fast::Pass),
}

impl<'a> Weights<'a> {
    fn packed(self) -> &'a PackedWeights {
        self.packed.expect("an engine of the fast form has packed weights")
    }
}

impl<'a> Shard<'a> {
    /// Row among the batch's bars of the first bar of each window of timeframe `k`.
    pub(crate) fn starts(&self, k: usize) -> &'a [usize] {
        &self.batch.starts(k)[self.samples.clone()]
    }

    /// Identity of the windows of timeframe `k`, see [`BatchView::ends`].
    pub(crate) fn ends(&self, k: usize) -> &'a [usize] {
        &self.batch.ends(k)[self.samples.clone()]
    }

    /// The number of samples of each run; none where each sample's window is a sequence of its own.
    pub(crate) fn run_lens(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs.iter().map(Range::len)
    }

    /// Dropout of the outputs of layer `layer` in timeframe `k`.
    pub(crate) fn mask(&self, k: usize, layer: usize) -> Option<Mask> {
        self.dropout.map(|dropout| dropout.mask(&self.batch.shape().timeframes[k].name, layer))
    }

    /// The last bars of every timeframe side by side: a row of `to` a sample.
    pub(crate) fn last_bars(&self, to: &mut [f32]) {
        let mut to = to.iter_mut();
        for sample in self.samples.clone() {
            for (k, timeframe) in self.batch.shape().timeframes.iter().enumerate() {
                let window = self.batch.window(k, sample);
                let last = &window[window.len() - timeframe.features..];
                to.by_ref().zip(last).for_each(|(to, &from)| *to = from);
            }
        }
    }

    /// Initial states of the windows of timeframe `k`.
    pub(crate) fn initial(&self, k: usize) -> Initial<'a> {
        self.carried.map_or(Initial::Zero, |carried| carried.initial(k))
    }
}

impl ShardWorkspace {
    /// Memory for shards of up to `room`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, model: &Model, form: Form, room: Capacity, purpose: Purpose) -> Result<Self> {
        Ok(match (form, purpose) {
            (Form::Fast, _) => ShardWorkspace::Fast(fast::Pass::new(scope, model, room, purpose)?),
            (Form::Plain, Purpose::Training { dropout: true, .. }) => {
                let pass = Pass::with_room(scope, model, room, InputGradients::Skip)?;
                ShardWorkspace::Plain(pass.with_room_for_dropout(scope)?)
            }
            (Form::Plain, _) => ShardWorkspace::Plain(Pass::with_room(scope, model, room, InputGradients::Skip)?),
        })
    }

    /// Takes the memory, on `scope`, for predictions with weights in eight bits.
    ///
    /// # Panics
    /// For the plain form.
    pub(crate) fn make_room_for_bytes(&mut self, scope: &Scope) -> Result<()> {
        match self {
            ShardWorkspace::Plain(_) => panic!("the plain form computes in single precision"),
            ShardWorkspace::Fast(pass) => pass.make_room_for_bytes(scope),
        }
    }

    /// Computes the outputs [R, K] of a shard; they and, for writing, their gradient.
    pub(crate) fn forward(&mut self, weights: Weights<'_>, shard: &Shard<'_>) -> (&[f32], &mut [f32]) {
        let Weights { model, parameters, .. } = weights;
        match self {
            ShardWorkspace::Plain(pass) => {
                load(pass, model, shard);
                pass.forward(model, parameters, shard.graph);
                pass.outputs_and_gradient_mut()
            }
            ShardWorkspace::Fast(pass) => {
                pass.forward(model, parameters, weights.packed(), shard);
                pass.outputs_and_gradient_mut()
            }
        }
    }

    /// Adds the parameters' gradients, from that of the outputs, to `gradients`.
    pub(crate) fn backward(&mut self, weights: Weights<'_>, shard: &Shard<'_>, gradients: &mut TensorSet<f32>) {
        let Weights { model, parameters, .. } = weights;
        match self {
            ShardWorkspace::Plain(pass) => pass.backward(model, parameters, shard.graph, gradients),
            ShardWorkspace::Fast(pass) => pass.backward(model, parameters, weights.packed(), shard, gradients),
        }
    }

    /// Goes on from `state` [layers, 2, H] of timeframe `k` over `bars` [n, F], at most T of them;
    /// `state` is then that after them.
    pub(crate) fn advance(&mut self, weights: Weights<'_>, k: usize, bars: &[f32], state: &mut [f32]) {
        match self {
            ShardWorkspace::Plain(pass) => pass.advance(weights.model, weights.parameters, k, bars, state),
            ShardWorkspace::Fast(pass) => pass.advance(weights.packed(), k, bars, state),
        }
    }

    /// Writes the state [layers, 2, H] of the sample `sample` of the shard in timeframe `k` after
    /// step `t`.
    pub(crate) fn read_state(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        match self {
            ShardWorkspace::Plain(pass) => pass.read_state(k, sample, t, to),
            ShardWorkspace::Fast(pass) => pass.read_state(k, sample, t, to),
        }
    }

    /// Writes the top layer's hidden state [H] of the sample `sample` of the shard in timeframe `k`
    /// after step `t`.
    pub(crate) fn read_top(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        match self {
            ShardWorkspace::Plain(pass) => pass.read_top(k, sample, t, to),
            ShardWorkspace::Fast(pass) => pass.read_top(k, sample, t, to),
        }
    }

    /// Writes the weights [heads, T] with which the sample `sample` of the shard was pooled in
    /// timeframe `k`.
    pub(crate) fn read_pooling(&self, model: &Model, k: usize, sample: usize, to: &mut [f32]) {
        match self {
            ShardWorkspace::Plain(pass) => to.copy_from_slice(pass.pooling_weights(model, k, sample)),
            ShardWorkspace::Fast(pass) => pass.read_pooling(k, sample, to),
        }
    }

    /// The weights [heads, n, n] with which the timeframes of the sample `sample` of the shard were
    /// fused.
    pub(crate) fn fusion_weights(&self, model: &Model, sample: usize) -> &[f32] {
        match self {
            ShardWorkspace::Plain(pass) => pass.fusion_weights(model, sample),
            ShardWorkspace::Fast(pass) => pass.fusion_weights(model, sample),
        }
    }
}

/// Takes a shard's windows, their initial states and their dropout.
fn load(pass: &mut Pass<f32>, model: &Model, shard: &Shard<'_>) {
    let timeframes = 0..shard.batch.shape().timeframes.len();
    let windows = |k: usize| {
        let len = shard.batch.shape().window_len(k);
        &shard.batch.features(k)[shard.samples.start * len..shard.samples.end * len]
    };
    pass.load(shard.samples.len(), timeframes.clone().map(windows));
    if model.lstms().is_empty() {
        return;
    }
    for k in timeframes.clone() {
        let states: Vec<_> = shard.ends(k).iter().map(|&end| shard.initial(k).of_window(end)).collect();
        pass.set_initial_states(k, &states);
    }
    if let Some(dropout) = shard.dropout {
        pass.set_dropout(model, dropout, timeframes.map(|k| shard.ends(k)));
    }
}
