//! The losses that compare the outputs of a row, or the rows of a graph, with each other, and their
//! gradients. [`Loss::graph_sum`] has the definitions.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/graph_loss.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;
use megabatch_nn::loss::Loss;

use super::graph_lists::GraphLists;
#[cfg(feature = "conformance")]
use super::loss::cpu::add_to;
use super::loss::{LossScaling, THREADS, add_totals};
use super::operand::TensorSlice;
use super::scratch::Scratch;

/// Inputs of a loss of graphs: rows of K outputs and as many targets. Where not all targets of a
/// row are known, they are NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphRows<'a> {
    pub(crate) lists: &'a GraphLists,
    /// True if each node has a row, and not each graph.
    pub(crate) by_node: bool,
    /// `[R, K]`
    pub(crate) outputs: &'a Buffer<f32>,
    pub(crate) targets: &'a Buffer<f32>,
    /// K.
    pub(crate) width: usize,
}

impl GraphRows<'_> {
    /// R.
    fn rows(&self) -> usize {
        if self.by_node { self.lists.nodes() } else { self.lists.graphs() }
    }
}

/// Blocks of the kernels over so many graphs, whose rows are so many.
fn blocks(loss: Loss, graphs: usize, rows: usize, width: usize) -> usize {
    if loss.ranks() { graphs * width } else { rows.div_ceil(THREADS) }
}

/// Scratch length, in f64, for the loss of `[graphs, rows, outputs]`.
pub(crate) fn graph_loss_partials_len(loss: Loss, sizes: [usize; 3]) -> usize {
    2 * blocks(loss, sizes[0], sizes[1], sizes[2])
}

/// Writes the gradient of the objective by the outputs, `d_outputs` `[R, K]`; adds to `totals`
/// `[2]` the sum of the losses of all graphs, which is neither scaled nor divided, and the number
/// of its terms, [`Loss::graph_terms`].
///
/// # Panics
/// For a loss that compares each output with its own target alone, which is one of
/// [`loss`](super::loss); if an array is shorter than the rows.
pub(crate) fn graph_loss(
    loss: Loss,
    graph_rows: GraphRows<'_>,
    objective: LossScaling<'_>,
    d_outputs: &mut Buffer<f32>,
    totals: &mut Buffer<f64>,
    scratch: &mut Scratch,
) -> Result<()> {
    let (device, len) = (graph_rows.lists.device().clone(), graph_rows.rows() * graph_rows.width);
    assert!(
        loss == Loss::CrossEntropy || loss.ranks() && graph_rows.by_node,
        "{} is no loss of rows of graphs",
        loss.name()
    );
    [graph_rows.outputs, graph_rows.targets, &*d_outputs]
        .into_iter()
        .for_each(|array| TensorSlice::from(array).assert_has(len, &device));
    let LossScaling { terms, scale } = objective;
    assert_eq!(
        (totals.len(), terms.len(), scale.len()),
        (2, 1, 1),
        "a sum and a number of terms; what terms are divided by; a scale"
    );
    [terms.scope(), scale.scope(), totals.scope()].into_iter().for_each(|scope| device.assert_beside(scope.device()));
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda(device, loss, graph_rows, objective, d_outputs, totals, scratch),
        _ => cpu_arm!(add_to(totals, cpu::graph_loss(loss, graph_rows, objective, d_outputs.as_mut_slice()))),
    }
}

fn cuda(
    device: &Cuda,
    loss: Loss,
    graph_rows: GraphRows<'_>,
    LossScaling { terms, scale }: LossScaling<'_>,
    d_outputs: &mut Buffer<f32>,
    totals: &mut Buffer<f64>,
    scratch: &mut Scratch,
) -> Result<()> {
    let (rows, width) = (graph_rows.rows(), graph_rows.width as u32);
    let sizes = [graph_rows.lists.graphs(), rows, graph_rows.width];
    let parts = scratch.address_of::<f64>(graph_loss_partials_len(loss, sizes))?;
    let (outputs, targets, d_outputs) =
        (graph_rows.outputs.address(), graph_rows.targets.address(), d_outputs.address());
    let (graphs, terms, scale) = (graph_rows.lists.on_device.graphs.address(), terms.address(), scale.address());
    let arguments = match loss {
        Loss::RankPairwise => arguments![graphs, outputs, targets, width, terms, scale, d_outputs, parts],
        Loss::RankListwise { temperature } => {
            arguments![graphs, outputs, targets, width, temperature, terms, scale, d_outputs, parts]
        }
        _ => arguments![outputs, targets, rows as u64, width, terms, scale, d_outputs, parts],
    };
    let kernel = Kernel { module: "nn/graph_loss", ptx: megabatch_gpu_core::ptx!("graph_loss"), name: loss.name() };
    // SAFETY: a block reads rows of a graph, which are among those that the arrays were seen to
    // have, and writes a gradient for each and a part of its own; the parts are added after that,
    // in the order of the default stream.
    unsafe {
        kernel.submit(device, launch(loss, sizes), &arguments)?;
        add_totals(device, parts, blocks(loss, sizes[0], sizes[1], sizes[2]), totals)
    }
}

fn launch(loss: Loss, sizes: [usize; 3]) -> Option<Launch> {
    Launch::for_blocks(blocks(loss, sizes[0], sizes[1], sizes[2])).map(|launch| launch.with_threads(THREADS as u32))
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::attention::tests::graphs;
    use super::super::harness::{HARNESS, noise};
    use super::super::loss::{Terms, launch_of_totals};
    use super::*;

    const LOSSES: [Loss; 3] = [Loss::CrossEntropy, Loss::RankPairwise, Loss::RankListwise { temperature: 0.3 }];

    /// Targets of which some are equal, and of which every `gap`th row is not known.
    fn targets(rows: usize, width: usize, gap: usize) -> Vec<f32> {
        let mut targets: Vec<f32> =
            noise("targets", rows * width, 8.0).into_iter().map(|x| x.abs().floor() / 8.0).collect();
        for row in targets.chunks_exact_mut(width).skip(gap - 1).step_by(gap) {
            row.fill(f32::NAN);
        }
        targets
    }

    fn check(loss: Loss, sizes: &[usize], width: usize, gap: usize, reach: f32) {
        let scope = Device::cpu().scope("test");
        let graphs = graphs(sizes, 0);
        let lists = GraphLists::new(&scope, graphs.edges(false, 0)).unwrap();
        let rows = lists.nodes();
        let (y, known) = (noise("outputs", rows * width, reach), targets(rows, width, gap));
        let buffer = |values: &[f32]| Buffer::from_slice(&scope, values).unwrap();
        let (outputs, targets, scale) = (buffer(&y), buffer(&known), buffer(&[4.0]));
        let terms = Buffer::from_slice(&scope, &[Terms::new(loss, 7, &known)]).unwrap();
        let graph_rows = GraphRows { lists: &lists, by_node: true, outputs: &outputs, targets: &targets, width };
        let (mut d, mut totals) = (buffer(&vec![9.0; y.len()]), Buffer::from_slice(&scope, &[1.0, 2.0]).unwrap());
        let objective = LossScaling { terms: &terms, scale: &scale };
        graph_loss(loss, graph_rows, objective, &mut d, &mut totals, &mut Scratch::empty(&scope).unwrap()).unwrap();

        let all = [lists.graphs(), rows, width];
        let (mut found, mut parts, mut sums) =
            (vec![9.0f32; y.len()], vec![f64::NAN; graph_loss_partials_len(loss, all)], [1.0, 2.0]);
        let mut arguments = vec![Arg::from(&y[..]), Arg::from(&known[..])];
        match loss {
            Loss::CrossEntropy => arguments.push(Arg::from(rows as u64)),
            _ => arguments.insert(0, Arg::from(&lists.edges.graphs[..])),
        }
        arguments.push(Arg::from(width as u32));
        if let Loss::RankListwise { temperature } = loss {
            arguments.push(Arg::from(temperature));
        }
        arguments.extend([Arg::from(terms.as_slice()), Arg::from(scale.as_slice())]);
        arguments.extend([Arg::from(&mut found[..]), Arg::from(&mut parts[..])]);
        HARNESS.run(loss.name(), launch(loss, all), &mut arguments);
        drop(arguments);
        let mut arguments =
            [Arg::from(&parts[..]), Arg::from(blocks(loss, all[0], all[1], all[2]) as u32), Arg::from(&mut sums[..])];
        HARNESS.run("add_totals", launch_of_totals(), &mut arguments);
        let what = (loss, sizes, gap, reach);
        // Pairs are in single precision: their errors are those of the terms of a sum.
        let (least, tolerance) = match loss {
            Loss::RankPairwise => (d.as_slice().iter().fold(0.0, |least: f32, d| least.max(d.abs())), 1e-6),
            _ => (1e-6, 1e-11),
        };
        for (k, (found, expected)) in found.iter().zip(d.as_slice()).enumerate() {
            // Exponentials of another library, in f64; then rounded.
            assert!((found - expected).abs() <= 1e-6 * expected.abs().max(least), "{what:?} {k}: {found}, {expected}");
        }
        let totals = totals.as_slice();
        assert!((sums[0] - totals[0]).abs() <= tolerance * totals[0].abs(), "{what:?}: {sums:?} for {totals:?}");
        assert_eq!(sums[1], totals[1], "{what:?}");
    }

    #[test]
    fn the_kernels_have_the_losses_of_graphs() {
        for loss in LOSSES {
            // One node, a pair of which one is known, more nodes than a block has threads.
            check(loss, &[1], 1, 3, 2.0);
            check(loss, &[2, 1, 7], 2, 2, 2.0);
            check(loss, &[3, 300, 5], 1, 4, 2.0);
            // Outputs too far from each other for their exponentials.
            check(loss, &[9, 4], 3, 5, 1000.0);
            // Nothing known.
            check(loss, &[3, 2], 2, 1, 2.0);
        }
    }

    #[test]
    #[should_panic(expected = "mse is no loss of rows of graphs")]
    fn losses_of_single_targets_are_refused() {
        let scope = Device::cpu().scope("test");
        let lists = GraphLists::empty(&scope).unwrap();
        let (none, mut totals) = (Buffer::zeros(&scope, 0).unwrap(), Buffer::zeros(&scope, 2).unwrap());
        let (terms, scale) = (Buffer::zeros(&scope, 1).unwrap(), Buffer::zeros(&scope, 1).unwrap());
        let graph_rows = GraphRows { lists: &lists, by_node: true, outputs: &none, targets: &none, width: 1 };
        let (mut d, mut scratch) = (Buffer::zeros(&scope, 0).unwrap(), Scratch::empty(&scope).unwrap());
        let objective = LossScaling { terms: &terms, scale: &scale };
        let _ = graph_loss(Loss::Mse, graph_rows, objective, &mut d, &mut totals, &mut scratch);
    }
}
