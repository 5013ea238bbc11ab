#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::model::scalar::Scalar;

/// Level at which a model over graphs predicts: each node, or a graph as a whole from its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readout {
    /// For each node, as it is.
    #[default]
    Node,
    /// For the graph, from the mean over its nodes.
    Mean,
    /// For the graph, from the sum over its nodes.
    Sum,
    /// For the graph, from the largest number of any node, unit by unit; the first node's where
    /// several have it.
    Max,
}

impl Readout {
    /// Rows of what is predicted for a graph of `nodes` nodes.
    pub(crate) fn rows(self, nodes: usize) -> usize {
        if self == Readout::Node { nodes } else { 1 }
    }

    /// Reads [N, W] into [W]; `arguments` [W] are then the nodes that a maximum is from.
    pub(crate) fn forward<S: Scalar>(self, nodes: &[S], to: &mut [S], arguments: &mut [usize]) {
        let width = to.len();
        to.copy_from_slice(&nodes[..width]);
        arguments.fill(0);
        for (node, row) in nodes.chunks_exact(width).enumerate().skip(1) {
            for ((to, &value), argument) in to.iter_mut().zip(row).zip(&mut *arguments) {
                match self {
                    Readout::Max if exceeds(value, *to) => (*to, *argument) = (value, node),
                    Readout::Max => {}
                    Readout::Mean | Readout::Sum | Readout::Node => *to += value,
                }
            }
        }
        if self == Readout::Mean {
            let share = S::from_f64(width as f64 / nodes.len() as f64);
            to.iter_mut().for_each(|to| *to *= share);
        }
    }

    /// Writes the gradient of the nodes [N, W] from that of what was read [W].
    pub(crate) fn backward<S: Scalar>(self, d_read: &[S], arguments: &[usize], d_nodes: &mut [S]) {
        let width = d_read.len();
        let share = match self {
            Readout::Mean => S::from_f64(width as f64 / d_nodes.len() as f64),
            _ => S::ONE,
        };
        for (node, row) in d_nodes.chunks_exact_mut(width).enumerate() {
            for ((to, &d), &argument) in row.iter_mut().zip(d_read).zip(arguments) {
                *to = if self == Readout::Max && argument != node { S::ZERO } else { d * share };
            }
        }
    }
}

/// True if `value` takes the place of the maximum so far. What is not a number does, and keeps it,
/// so that it is passed on.
fn exceeds<S: Scalar>(value: S, most: S) -> bool {
    value > most || (value.to_f64().is_nan() && !most.to_f64().is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_read_by_hand() {
        let nodes = [1.0, -2.0, 3.0, -4.0, 2.0, -2.0];
        for (readout, expected, gradient) in [
            (Readout::Mean, [2.0, -8.0 / 3.0], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]),
            (Readout::Sum, [6.0, -8.0], [3.0, 6.0, 3.0, 6.0, 3.0, 6.0]),
            (Readout::Max, [3.0, -2.0], [0.0, 6.0, 3.0, 0.0, 0.0, 0.0]),
        ] {
            let (mut read, mut arguments, mut d_nodes) = ([f64::NAN; 2], [9; 2], [f64::NAN; 6]);
            readout.forward(&nodes, &mut read, &mut arguments);
            readout.backward(&[3.0, 6.0], &arguments, &mut d_nodes);
            let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-12);
            assert!(!apart(&read, &expected) && !apart(&d_nodes, &gradient), "{readout:?}: {read:?}, {d_nodes:?}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_passed_on() {
        for readout in [Readout::Mean, Readout::Sum, Readout::Max] {
            let (mut read, mut arguments) = ([0.0f32], [0]);
            for nodes in [[1.0, f32::NAN, 2.0], [f32::NAN, 1.0, 2.0]] {
                readout.forward(&nodes, &mut read, &mut arguments);
                assert!(read[0].is_nan(), "{readout:?}");
            }
        }
    }
}
