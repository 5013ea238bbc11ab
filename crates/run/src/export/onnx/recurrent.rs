//! Operators that read a timeframe's windows: recurrent layers, their norms, and pooling.

use megabatch_nn::model::{Cell, ModelConfig, Pooling, Timeframe};

use super::graph::{Graph, Node};
use super::{Weights, pooling};

/// Operator of a cell, and its gates in ONNX's order as their places in PyTorch's.
///
/// | cell | ONNX | PyTorch |
/// | --- | --- | --- |
/// | LSTM | i, o, f, c | i, f, g, o |
/// | GRU | z, r, h | r, z, n |
fn operator(cell: Cell) -> (&'static str, &'static [usize]) {
    match cell {
        Cell::Lstm => ("LSTM", &[0, 3, 1, 2]),
        Cell::Gru => ("GRU", &[1, 0, 2]),
    }
}

/// Epsilon of torch.nn.LayerNorm.
const EPSILON: f32 = 1e-5;

/// One timeframe of a model.
pub(super) struct Reader<'a> {
    pub(super) weights: Weights<'a>,
    pub(super) config: ModelConfig,
    pub(super) timeframe: &'a Timeframe,
}

impl Reader<'_> {
    /// From windows [B, T, F] to their encodings [B, H].
    pub(super) fn add_to(&self, graph: &mut Graph, windows: &str) -> String {
        // The operator's layout [B, T, F] is one that ONNX Runtime does not compute.
        let transposed = Node::new("Transpose", &[windows], self.value("bars")).ints("perm", &[1, 0, 2]);
        let mut x = graph.add(transposed);
        let top = self.config.layers - 1;
        for layer in 0..top {
            x = self.layer(graph, &x, layer, Outputs::EveryStep);
        }
        match self.config.pooling {
            Pooling::Last => self.layer(graph, &x, top, Outputs::LastStep),
            Pooling::Attention { heads } => {
                let states = self.layer(graph, &x, top, Outputs::EveryStep);
                pooling::add_to(graph, self, &states, heads)
            }
        }
    }

    /// A layer and its norm: from [T, B, ..] to [T, B, H], or [B, H] after the last step.
    fn layer(&self, graph: &mut Graph, x: &str, layer: usize, outputs: Outputs) -> String {
        let (operator, _) = operator(self.config.cell);
        let mut node = Node::new(operator, &[x], "").int("hidden_size", self.config.hidden as i64);
        if self.config.cell == Cell::Gru {
            // Of PyTorch's r ⊙ (W_hn h + b_hn) and W_hn (r ⊙ h) + b_hn, it is the first.
            node = node.int("linear_before_reset", 1);
        }
        node.inputs.extend(self.weights_and_biases(graph, layer));
        // [T, 1, B, H] and [1, B, H]: the 1 is that of a single direction.
        let (named, axis) = match outputs {
            Outputs::EveryStep => (vec![self.value(&format!("l{layer}.each"))], 1),
            Outputs::LastStep => (vec![String::new(), self.value(&format!("l{layer}.last"))], 0),
        };
        node.outputs = named;
        let (states, axes) = (graph.add(node), graph.whole_numbers(&[axis]));
        let states = graph.add(Node::new("Squeeze", &[&states, &axes], self.value(&format!("l{layer}.states"))));
        if !self.config.layer_norm {
            return states;
        }
        let norm = self.parameter("norm", &format!("l{layer}"));
        layer_norm(graph, self.weights, &states, &norm)
    }

    /// W [1, GH, F] and R [1, GH, H] of G gates and, of layers that have biases, B [1, 2GH].
    fn weights_and_biases(&self, graph: &mut Graph, layer: usize) -> Vec<String> {
        let ModelConfig { cell, hidden, .. } = self.config;
        let rows = cell.gates() * hidden;
        let parameter = |part: &str| self.parameter(cell.name(), part);
        let name = |part: &str| parameter(&format!("l{layer}.{part}"));
        let gates = |part: &str| in_onnx_order(cell, self.weights.get(&parameter(&format!("{part}_l{layer}"))));
        let (input, recurrent) = (gates("weight_ih"), gates("weight_hh"));
        let width = input.len() / rows;
        let mut names = vec![
            graph.constant(name("W"), &[1, rows, width], input),
            graph.constant(name("R"), &[1, rows, hidden], recurrent),
        ];
        if self.config.bias {
            names.push(graph.constant(name("B"), &[1, 2 * rows], [gates("bias_ih"), gates("bias_hh")].concat()));
        }
        names
    }

    /// The name of a parameter, `part.<TF>.rest`.
    pub(super) fn parameter(&self, part: &str, rest: &str) -> String {
        match self.timeframe.name.as_str() {
            "" => format!("{part}.{rest}"),
            name => format!("{part}.{name}.{rest}"),
        }
    }

    /// The name of a value that is computed of this timeframe's windows.
    pub(super) fn value(&self, rest: &str) -> String {
        self.parameter("windows", rest)
    }
}

/// Which states are read.
#[derive(Clone, Copy)]
enum Outputs {
    EveryStep,
    LastStep,
}

/// torch.nn.LayerNorm of the last dimension, with the parameters `<norm>.weight` and `<norm>.bias`.
pub(super) fn layer_norm(graph: &mut Graph, weights: Weights<'_>, x: &str, norm: &str) -> String {
    let [weight, bias] = ["weight", "bias"].map(|part| weights.vector(graph, &format!("{norm}.{part}")));
    let node = Node::new("LayerNormalization", &[x, &weight, &bias], format!("{norm}.normed"));
    graph.add(node.int("axis", -1).float("epsilon", EPSILON))
}

/// The rows [GH, ..] of a parameter in ONNX's order of gates.
fn in_onnx_order(cell: Cell, rows: &[f32]) -> Vec<f32> {
    let (_, gates) = operator(cell);
    let gate_len = rows.len() / gates.len();
    gates.iter().flat_map(|gate| rows[gate * gate_len..][..gate_len].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_change_their_order() {
        let rows: Vec<f32> = (0..16u8).map(f32::from).collect();
        let expected = [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11u8].map(f32::from);
        assert_eq!(in_onnx_order(Cell::Lstm, &rows), expected, "two rows of two numbers a gate");
        let expected = [4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11u8].map(f32::from);
        assert_eq!(in_onnx_order(Cell::Gru, &rows[..12]), expected);
    }
}
