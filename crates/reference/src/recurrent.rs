//! Recurrent layers over the sequences of one timeframe, step by step, as torch.nn.LSTM and the
//! other cells have them.

use megabatch_nn::model::{Cell, Dropout, ModelConfig, Timeframe};

use crate::cell::{GateProducts, State};
use crate::inputs::Sequences;
use crate::parameters::Weights;
use crate::tape::{Matrix, Tape, Var};
use crate::{gru, lstm};

/// States and outputs of the layers of a timeframe.
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
        let given = sequences.initial.get(layer);
        let initial_state = |values: Option<&Vec<f64>>| match values {
            None => tape.zeros(count, hidden),
            Some(values) => tape.leaf(Matrix::new(count, hidden, values.clone())),
        };
        let before = State {
            hidden: initial_state(given.map(|state| &state.hidden)),
            cell: config.cell.has_cell_state().then(|| initial_state(given.map(|state| &state.cell))),
        };
        let parameters = Layer::new(weights, config, timeframe, layer);
        let mut state = before;
        let after: Vec<State<'t>> = outputs
            .iter()
            .map(|&x| {
                state = parameters.step(x, state);
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

/// The parameters of one layer, of G gates.
struct Layer<'t> {
    cell: Cell,
    hidden: usize,
    weight_ih: Var<'t>,       // [GH, F]
    weight_hh: Var<'t>,       // [GH, H]
    bias_ih: Option<Var<'t>>, // [1, GH]
    bias_hh: Option<Var<'t>>, // [1, GH]
}

impl<'t> Layer<'t> {
    fn new(weights: &Weights<'t>, config: &ModelConfig, timeframe: &Timeframe, layer: usize) -> Self {
        // Not the library's: this is what it is compared with.
        let (prefix, gates) = match config.cell {
            Cell::Lstm => ("lstm", 4),
            Cell::Gru => ("gru", 3),
        };
        let (hidden, rows, prefix) = (config.hidden, gates * config.hidden, prefixed(prefix, timeframe));
        let input = if layer == 0 { timeframe.features } else { hidden };
        let get =
            |part: &str, rows: usize, columns: usize| weights.get(&format!("{prefix}.{part}_l{layer}"), rows, columns);
        Layer {
            cell: config.cell,
            hidden,
            weight_ih: get("weight_ih", rows, input),
            weight_hh: get("weight_hh", rows, hidden),
            bias_ih: config.bias.then(|| get("bias_ih", 1, rows)),
            bias_hh: config.bias.then(|| get("bias_hh", 1, rows)),
        }
    }

    fn step(&self, x: Var<'t>, before: State<'t>) -> State<'t> {
        let products = GateProducts {
            hidden: self.hidden,
            input: x.linear(self.weight_ih, self.bias_ih),
            recurrent: before.hidden.linear(self.weight_hh, self.bias_hh),
        };
        match self.cell {
            Cell::Lstm => lstm::step(products, before),
            Cell::Gru => gru::step(products, before),
        }
    }
}
