//! Operators that read a timeframe's windows: LSTM layers, their norms, and pooling.

use megabatch_nn::model::{ModelConfig, Pooling, Timeframe};

use super::graph::{Graph, Node};
use super::{Weights, pooling};

/// The gates' places in PyTorch's order i, f, g, o, in ONNX's order i, o, f, c.
const GATES: [usize; 4] = [0, 3, 1, 2];

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
        let mut node = Node::new("LSTM", &[x], "").int("hidden_size", self.config.hidden as i64);
        node.inputs.extend(self.lstm_constants(graph, layer));
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

    /// W [1, 4H, F], R [1, 4H, H] and, of LSTMs that have biases, B [1, 8H].
    fn lstm_constants(&self, graph: &mut Graph, layer: usize) -> Vec<String> {
        let hidden = self.config.hidden;
        let rows = GATES.len() * hidden;
        let name = |part: &str| self.parameter("lstm", &format!("l{layer}.{part}"));
        let gates =
            |part: &str| in_onnx_order(self.weights.get(&self.parameter("lstm", &format!("{part}_l{layer}"))), hidden);
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

/// The rows [4H, ..] of a parameter in ONNX's order of gates.
fn in_onnx_order(rows: &[f32], hidden: usize) -> Vec<f32> {
    let gate_len = rows.len() / GATES.len();
    assert_eq!(gate_len % hidden, 0, "rows of all gates");
    GATES.iter().flat_map(|gate| rows[gate * gate_len..][..gate_len].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_change_their_order() {
        let rows: Vec<f32> = (0..16u8).map(f32::from).collect();
        let expected = [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11u8].map(f32::from);
        assert_eq!(in_onnx_order(&rows, 2), expected, "rows of two numbers, two a gate");
    }
}
