//! torch.nn.LSTM over the sequences of one timeframe, step by step.

use megabatch_nn::model::{Dropout, ModelConfig, Timeframe};

use crate::inputs::Sequences;
use crate::parameters::Weights;
use crate::tape::{Matrix, Tape, Var};

/// States and outputs of the LSTM of a timeframe.
pub(crate) struct Recurrence<'t> {
    /// The inputs, [N · S, F].
    pub(crate) bars: Var<'t>,
    /// The states of each layer before the first step, [N, H].
    pub(crate) initial: Vec<State<'t>>,
    /// The states of each layer after every step, [N, H].
    pub(crate) states: Vec<Vec<State<'t>>>,
    /// The outputs of the top layer at every step, after its norm if there is one, [N, H].
    pub(crate) outputs: Vec<Var<'t>>,
}

/// Hidden and cell state.
#[derive(Clone, Copy)]
pub(crate) struct State<'t> {
    pub(crate) hidden: Var<'t>,
    pub(crate) cell: Var<'t>,
}

/// The name of a part of the model in `timeframe`, which may have none.
pub(crate) fn prefixed(part: &str, timeframe: &Timeframe) -> String {
    if timeframe.name.is_empty() { part.to_owned() } else { format!("{part}.{}", timeframe.name) }
}

/// The bars of every step, without a layer over them.
pub(crate) fn bars_as_they_are<'t>(tape: &'t Tape, timeframe: &Timeframe, sequences: &Sequences) -> Recurrence<'t> {
    let (count, steps) = (sequences.len(), sequences.steps(timeframe.features));
    let bars = tape.leaf(Matrix::new(count * steps, timeframe.features, sequences.bars.clone()));
    let step_bars = |t: usize| bars.gather(&(0..count).map(|sequence| sequence * steps + t).collect::<Vec<_>>());
    Recurrence { bars, initial: Vec::new(), states: Vec::new(), outputs: (0..steps).map(step_bars).collect() }
}

/// All layers, one after the other. Between two of them are a norm and dropout.
pub(crate) fn forward<'t>(
    tape: &'t Tape,
    weights: &Weights<'t>,
    config: &ModelConfig,
    timeframe: &Timeframe,
    sequences: &Sequences,
    dropout: Option<Dropout>,
) -> Recurrence<'t> {
    let (count, hidden) = (sequences.len(), config.hidden);
    let Recurrence { bars, mut initial, mut states, mut outputs } = bars_as_they_are(tape, timeframe, sequences);
    for layer in 0..config.layers {
        let before = match sequences.initial.get(layer) {
            None => State { hidden: tape.zeros(count, hidden), cell: tape.zeros(count, hidden) },
            Some(state) => {
                let leaf = |values: &[f64]| tape.leaf(Matrix::new(count, hidden, values.to_vec()));
                State { hidden: leaf(&state.hidden), cell: leaf(&state.cell) }
            }
        };
        let cell = Cell::new(weights, config, timeframe, layer);
        let mut state = before;
        let after: Vec<State<'t>> = outputs
            .iter()
            .map(|&x| {
                state = cell.step(x, state);
                state
            })
            .collect();
        outputs = after.iter().map(|state| state.hidden).collect();
        if config.layer_norm {
            let norm = format!("{}.l{layer}", prefixed("norm", timeframe));
            outputs.iter_mut().for_each(|output| *output = weights.layer_norm(&norm, *output));
        }
        if let Some(dropout) = dropout.filter(|_| layer + 1 < config.layers) {
            let mask = dropout.mask(&timeframe.name, layer);
            for (t, output) in outputs.iter_mut().enumerate() {
                let factors = Matrix::from_fn(count, hidden, |n, unit| mask.factor(sequences.ends[n], t, unit));
                *output = *output * tape.leaf(factors);
            }
        }
        initial.push(before);
        states.push(after);
    }
    Recurrence { bars, initial, states, outputs }
}

/// Gates of the cell, i, f, g, o.
const GATES: usize = 4;

/// The parameters of one layer.
struct Cell<'t> {
    hidden: usize,
    weight_ih: Var<'t>,       // [4H, F]
    weight_hh: Var<'t>,       // [4H, H]
    bias_ih: Option<Var<'t>>, // [1, 4H]
    bias_hh: Option<Var<'t>>, // [1, 4H]
}

impl<'t> Cell<'t> {
    fn new(weights: &Weights<'t>, config: &ModelConfig, timeframe: &Timeframe, layer: usize) -> Self {
        let (hidden, rows) = (config.hidden, GATES * config.hidden);
        let input = if layer == 0 { timeframe.features } else { hidden };
        let prefix = prefixed("lstm", timeframe);
        let get =
            |part: &str, rows: usize, columns: usize| weights.get(&format!("{prefix}.{part}_l{layer}"), rows, columns);
        Cell {
            hidden,
            weight_ih: get("weight_ih", rows, input),
            weight_hh: get("weight_hh", rows, hidden),
            bias_ih: config.bias.then(|| get("bias_ih", 1, rows)),
            bias_hh: config.bias.then(|| get("bias_hh", 1, rows)),
        }
    }

    /// The equations of torch.nn.LSTM:
    ///
    /// ```text
    /// i = σ(W_ii x + b_ii + W_hi h + b_hi)      c' = f ⊙ c + i ⊙ g
    /// f = σ(W_if x + b_if + W_hf h + b_hf)      h' = o ⊙ tanh(c')
    /// g = tanh(W_ig x + b_ig + W_hg h + b_hg)
    /// o = σ(W_io x + b_io + W_ho h + b_ho)
    /// ```
    fn step(&self, x: Var<'t>, before: State<'t>) -> State<'t> {
        let gates = x.linear(self.weight_ih, self.bias_ih) + before.hidden.linear(self.weight_hh, self.bias_hh);
        let gate = |k: usize| gates.slice(k * self.hidden..(k + 1) * self.hidden);
        let (i, f, g, o) = (gate(0).sigmoid(), gate(1).sigmoid(), gate(2).tanh(), gate(3).sigmoid());
        let cell = f * before.cell + i * g;
        State { hidden: o * cell.tanh(), cell }
    }
}
