//! Readout of a graph from its nodes, and back.

use megabatch_nn::model::Readout;

/// Reads [N, W] into [W]; `arguments` [W] are then the nodes that a maximum is from.
pub(crate) fn forward(readout: Readout, nodes: &[f32], to: &mut [f32], arguments: &mut [usize]) {
    let width = to.len();
    to.copy_from_slice(&nodes[..width]);
    arguments.fill(0);
    for (node, row) in nodes.chunks_exact(width).enumerate().skip(1) {
        for ((to, &value), argument) in to.iter_mut().zip(row).zip(&mut *arguments) {
            match readout {
                Readout::Max if exceeds(value, *to) => (*to, *argument) = (value, node),
                Readout::Max => {}
                Readout::Mean | Readout::Sum | Readout::Node => *to += value,
            }
        }
    }
    if readout == Readout::Mean {
        let share = (width as f64 / nodes.len() as f64) as f32;
        to.iter_mut().for_each(|to| *to *= share);
    }
}

/// Writes the gradient of the nodes [N, W] from that of what was read [W].
pub(crate) fn backward(readout: Readout, d_read: &[f32], arguments: &[usize], d_nodes: &mut [f32]) {
    let width = d_read.len();
    let share = match readout {
        Readout::Mean => (width as f64 / d_nodes.len() as f64) as f32,
        _ => 1.0,
    };
    for (node, row) in d_nodes.chunks_exact_mut(width).enumerate() {
        for ((to, &d), &argument) in row.iter_mut().zip(d_read).zip(arguments) {
            *to = if readout == Readout::Max && argument != node { 0.0 } else { d * share };
        }
    }
}

/// True if `value` takes the place of the maximum so far. What is not a number does, and keeps it,
/// so that it is passed on.
fn exceeds(value: f32, most: f32) -> bool {
    value > most || (value.is_nan() && !most.is_nan())
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
            let (mut read, mut arguments, mut d_nodes) = ([f32::NAN; 2], [9; 2], [f32::NAN; 6]);
            forward(readout, &nodes, &mut read, &mut arguments);
            backward(readout, &[3.0, 6.0], &arguments, &mut d_nodes);
            let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-6);
            assert!(!apart(&read, &expected) && !apart(&d_nodes, &gradient), "{readout:?}: {read:?}, {d_nodes:?}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_passed_on() {
        for readout in [Readout::Mean, Readout::Sum, Readout::Max] {
            let (mut read, mut arguments) = ([0.0f32], [0]);
            for nodes in [[1.0, f32::NAN, 2.0], [f32::NAN, 1.0, 2.0]] {
                forward(readout, &nodes, &mut read, &mut arguments);
                assert!(read[0].is_nan(), "{readout:?}");
            }
        }
    }
}
