//! The loss of a batch of samples that stand alone, and its gradient.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/loss.rs"]
pub(super) mod cpu;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope, arguments};
use megabatch_nn::Result;
use megabatch_nn::loss::{Ascending, Classes, Loss, Tasks};

use super::operand::Operand;
use super::scratch::Scratch;

/// Threads of a block: that of loss.cu.
pub(super) const THREADS: usize = 256;

const PTX: &str = megabatch_gpu_core::ptx!("loss");

/// Comparison of each target's outputs with the target, on a device.
#[derive(Debug)]
pub struct LossTable {
    #[cfg(feature = "conformance")]
    groups: Vec<megabatch_nn::loss::Group>,
    targets: usize,
    outputs: usize,
    on_device: Buffer<TargetLoss>,
}

/// `TargetLoss` of loss.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct TargetLoss {
    /// The delta, or levels, or thresholds.
    numbers: [f64; Ascending::MAX],
    kind: u32,
    /// Number of values.
    len: u32,
    /// M.
    outputs: u32,
    /// The first of them in a row of outputs.
    first: u32,
    group: u32,
    none: u32,
}

/// Divisor and factors of the terms of a loss, read on the device: `Terms` of loss.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Terms {
    pub(super) count: f64,
    /// Factors of the groups of targets: 1 but for [`Loss::Tasks`].
    factors: [f64; Tasks::MAX],
}

/// Inputs of a loss.
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    /// `[B, K · M]`, see [`Loss::outputs`].
    pub outputs: &'a Buffer<f32>,
    /// `[B, K]`; NaN for a target that is not known.
    pub targets: &'a Buffer<f32>,
    /// `[B]`: weights of the rows; `None` where all are 1.
    pub weights: Option<&'a Buffer<f32>>,
    /// B. Behind the rows, there may be room for more.
    pub rows: usize,
}

/// Objective of a gradient: Σ factor · weight · term · scale / count.
#[derive(Clone, Copy, Debug)]
pub struct LossScaling<'a> {
    /// `[1]`: the count and the factors.
    pub terms: &'a Buffer<Terms>,
    /// `[1]`: the loss scale.
    pub scale: &'a Buffer<f32>,
}

impl LossTable {
    /// The table of `loss` for samples of K = `targets` targets.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// For a loss that compares outputs with each other, which is one of graphs.
    pub fn new(scope: &Scope, loss: Loss, targets: usize) -> Result<Self> {
        let groups = loss.groups(targets);
        let mut rows = Vec::with_capacity(targets);
        for (number, group) in (0..).zip(&groups) {
            let each = group.loss.outputs_per_target();
            for first in group.outputs.clone().step_by(each) {
                rows.push(TargetLoss {
                    group: number,
                    outputs: each as u32,
                    first: first as u32,
                    ..TargetLoss::new(group.loss)
                });
            }
        }
        assert_eq!(rows.len(), targets, "every target is in a group");
        let on_device = Buffer::from_slice(scope, &rows)?;
        Ok(LossTable {
            #[cfg(feature = "conformance")]
            groups,
            targets,
            outputs: loss.outputs(targets),
            on_device,
        })
    }
}

/// Kinds of losses, as in loss.cu, where those from `LABELS` on are classes.
mod kind {
    pub(super) const MSE: u32 = 0;
    pub(super) const HUBER: u32 = 1;
    pub(super) const QUANTILE: u32 = 2;
    pub(super) const LABELS: u32 = 3;
    pub(super) const THRESHOLDS: u32 = 4;
}

impl TargetLoss {
    fn new(loss: Loss) -> Self {
        let target_loss = |kind, given: &[f64]| {
            let mut numbers = [0.0; Ascending::MAX];
            numbers[..given.len()].copy_from_slice(given);
            TargetLoss { numbers, kind, len: given.len() as u32, ..TargetLoss::zeroed() }
        };
        match loss {
            Loss::Mse => target_loss(kind::MSE, &[]),
            Loss::Huber { delta } => target_loss(kind::HUBER, &[delta]),
            Loss::Quantile { levels } => target_loss(kind::QUANTILE, levels.as_slice()),
            Loss::Classes(Classes::Labels(_)) => target_loss(kind::LABELS, &[]),
            Loss::Classes(Classes::Thresholds(thresholds)) => target_loss(kind::THRESHOLDS, thresholds.as_slice()),
            Loss::CrossEntropy | Loss::RankPairwise | Loss::RankListwise { .. } | Loss::Tasks(_) => {
                panic!("{} has no value for one target", loss.name())
            }
        }
    }
}

impl Terms {
    /// Terms of `loss`, divided by `count` ≥ 1, such as the number of them in a step; of tasks
    /// multiplied by the number of terms that each has in the step, or in `targets` `[.., K]` where
    /// the step is not known.
    pub fn new(loss: Loss, count: usize, targets: &[f32]) -> Self {
        let mut factors = [1.0; Tasks::MAX];
        if let Loss::Tasks(tasks) = loss {
            factors.iter_mut().zip(tasks.factors(targets)).for_each(|(to, factor)| *to = factor);
        }
        Terms { count: count as f64, factors }
    }
}

/// Writes the gradient of the objective by the outputs, `d_outputs` `[B, K · M]`, rounded to `T`;
/// adds to `totals` `[2]` the weighted sum of all terms, which is neither scaled nor divided, and
/// their number. Outputs whose target is not known have a gradient of zero. Losses are in f64;
/// their sum is in a fixed order.
///
/// The gradient of squares, Huber's function and quantiles has [`Loss::gradient`]'s bits on every
/// device. That of classes goes through an exponential, and a sum of losses is added in the
/// device's order: they may differ by a unit in the last place of f32 and by a few 1e-15 of the sum
/// of magnitudes.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch, or that there
/// is no memory for the sums of every 256 targets, in `scratch`.
///
/// # Panics
/// If a buffer has not the shape of the table, and if arrays are on several devices.
pub fn loss<T: Operand>(
    table: &LossTable,
    predictions: Predictions<'_>,
    objective: LossScaling<'_>,
    d_outputs: &mut Buffer<T>,
    totals: &mut Buffer<f64>,
    scratch: &mut Scratch,
) -> Result<()> {
    assert!(predictions.rows * table.targets <= predictions.targets.len(), "rows of {} targets", table.targets);
    let weights = predictions.weights;
    assert!(weights.is_none_or(|weights| predictions.rows <= weights.len()), "a weight for each row");
    let len = predictions.rows * table.outputs;
    assert!(len <= predictions.outputs.len() && len <= d_outputs.len(), "rows of {} outputs", table.outputs);
    let singles = [objective.scale.len(), objective.terms.len()];
    assert_eq!((totals.len(), singles), (2, [1, 1]), "a sum and a number of terms; a scale; what terms are divided by");
    let device = d_outputs.scope().device().clone();
    let LossScaling { terms, scale } = objective;
    let scopes = [
        predictions.outputs.scope(),
        predictions.targets.scope(),
        terms.scope(),
        scale.scope(),
        totals.scope(),
        table.on_device.scope(),
    ];
    let scopes = scopes.into_iter().chain(weights.map(Buffer::scope));
    scopes.for_each(|scope| device.assert_beside(scope.device()));
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda(device, table, predictions, objective, d_outputs, totals, scratch),
        _ => cpu_arm!(cpu::add_to(totals, cpu::loss(table, predictions, objective, d_outputs.as_mut_slice()))),
    }
}

/// Scratch length, in f64, for the loss of up to that many targets.
pub(crate) fn loss_partials_len(targets: usize) -> usize {
    2 * targets.div_ceil(THREADS)
}

fn cuda<T: Operand>(
    device: &Cuda,
    table: &LossTable,
    predictions: Predictions<'_>,
    LossScaling { terms, scale }: LossScaling<'_>,
    d_outputs: &mut Buffer<T>,
    totals: &mut Buffer<f64>,
    scratch: &mut Scratch,
) -> Result<()> {
    let len = predictions.rows * table.targets;
    let parts = scratch.address_of::<f64>(loss_partials_len(len))?;
    let name = kernel::<T>();
    let kernel = Kernel { module: "nn/loss", ptx: PTX, name: &name };
    let (rows, targets, width) = (table.on_device.address(), table.targets as u32, table.outputs as u32);
    let (outputs, known, d_outputs) =
        (predictions.outputs.address(), predictions.targets.address(), d_outputs.address());
    let (terms, scale) = (terms.address(), scale.address());
    let weights = predictions.weights.map_or(0, Buffer::address);
    let arguments =
        arguments![rows, targets, outputs, width, known, weights, len as u64, terms, scale, d_outputs, parts];
    // SAFETY: a thread reads and writes the outputs of one target of one row, which the buffers
    // were seen to have, and a block its own part; the parts are added after that, in the order of
    // the default stream.
    unsafe {
        kernel.submit(device, Launch::for_threads(len), &arguments)?;
        add_totals(device, parts, len.div_ceil(THREADS), totals)
    }
}

/// Adds so many parts `[blocks, 2]`, which begin at an address, to `totals` `[2]`, in order.
///
/// # Safety
/// There are so many parts, and nothing else touches them meanwhile.
pub(super) unsafe fn add_totals(device: &Cuda, parts: u64, blocks: usize, totals: &mut Buffer<f64>) -> Result<()> {
    let kernel = Kernel { module: "nn/loss", ptx: PTX, name: "add_totals" };
    let arguments = arguments![parts, blocks as u32, totals.address()];
    // SAFETY: a thread reads its number of each part, as the caller promised, and writes its own
    // total.
    Ok(unsafe { kernel.submit(device, launch_of_totals(), &arguments) }?)
}

fn kernel<T: Operand>() -> String {
    format!("loss_{}", T::SUFFIX)
}

pub(super) fn launch_of_totals() -> Option<Launch> {
    Launch::for_blocks(1).map(|launch| launch.with_threads(2))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_nn::loss::{Task, TaskLoss, weigh_gradient};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    fn ascending(numbers: &[f64]) -> Ascending {
        Ascending::new(numbers).unwrap()
    }

    fn losses() -> Vec<(Loss, usize)> {
        let task = |targets, loss, weight| Task { targets, loss, weight };
        let tasks = [
            task([0, 2], TaskLoss::Huber { delta: 0.3 }, 0.5),
            task([2, 3], TaskLoss::Quantile { levels: ascending(&[0.1, 0.5, 0.9]) }, 0.2),
            task([3, 4], TaskLoss::Mse, 0.3),
        ];
        vec![
            (Loss::Mse, 1),
            (Loss::Mse, 3),
            (Loss::Huber { delta: 0.7 }, 2),
            (Loss::Quantile { levels: ascending(&[0.1, 0.5, 0.8]) }, 2),
            (Loss::Classes(Classes::Thresholds(ascending(&[-0.5, 0.5]))), 2),
            (Loss::Classes(Classes::Labels(3)), 2),
            (Loss::Tasks(Tasks::new(&tasks).unwrap()), 4),
        ]
    }

    fn check<T: Operand>(loss_of: Loss, targets: usize, rows: usize, is_weighted: bool) {
        let scope = Device::cpu().scope("test");
        let table = LossTable::new(&scope, loss_of, targets).unwrap();
        let buffer = |values: &[f32]| Buffer::from_slice(&scope, values).unwrap();
        let mut known = noise("targets", rows * targets, 1.5);
        if let Loss::Classes(Classes::Labels(count)) = loss_of {
            known.iter_mut().enumerate().for_each(|(k, target)| *target = (k % count) as f32);
        }
        known.iter_mut().skip(1).step_by(4).for_each(|target| *target = f32::NAN);
        let mut y = noise("outputs", rows * table.outputs, 1.5);
        // An error of exactly zero, where quantiles have a corner.
        if !y.is_empty() {
            y[0] = known[0];
        }
        let (outputs, scale) = (buffer(&y), buffer(&[4.0]));
        let terms = Buffer::from_slice(&scope, &[Terms::new(loss_of, 7, &known)]).unwrap();
        let targets_of = buffer(&known);
        // 0 for some rows, and powers of two: their products are exact.
        let weights: Vec<f32> = (0..rows).map(|row| [1.0, 0.0, 2.0, 0.5][row % 4]).collect();
        let weights = is_weighted.then_some(weights);
        let weights_buffer = weights.as_ref().map(|weights| buffer(weights));
        let predictions =
            Predictions { outputs: &outputs, targets: &targets_of, weights: weights_buffer.as_ref(), rows };
        let objective = LossScaling { terms: &terms, scale: &scale };
        let mut expected =
            (Buffer::<T>::zeros(&scope, y.len()).unwrap(), Buffer::from_slice(&scope, &[1.0, 2.0]).unwrap());
        loss(&table, predictions, objective, &mut expected.0, &mut expected.1, &mut Scratch::empty(&scope).unwrap())
            .unwrap();
        let weights = weights.as_deref();
        assert_near_the_loss(loss_of, &y, &known, weights, expected.0.as_slice(), expected.1.as_slice());

        let blocks = known.len().div_ceil(THREADS);
        let (mut d, mut parts, mut totals) = (vec![T::narrow(9.0); y.len()], vec![f64::NAN; 2 * blocks], [1.0, 2.0]);
        let mut arguments = [
            Arg::from(table.on_device.as_slice()),
            Arg::from(targets as u32),
            Arg::from(&y[..]),
            Arg::from(table.outputs as u32),
            Arg::from(&known[..]),
            weights.map_or_else(Arg::null, Arg::from),
            Arg::from(known.len() as u64),
            Arg::from(terms.as_slice()),
            Arg::from(scale.as_slice()),
            Arg::from(&mut d[..]),
            Arg::from(&mut parts[..]),
        ];
        HARNESS.run(&kernel::<T>(), Launch::for_threads(known.len()), &mut arguments);
        let mut arguments = [Arg::from(&parts[..]), Arg::from(blocks as u32), Arg::from(&mut totals[..])];
        HARNESS.run("add_totals", launch_of_totals(), &mut arguments);
        let wide = |values: &[T]| values.iter().map(|x| x.widen()).collect::<Vec<f32>>();
        assert_eq!(wide(&d), wide(expected.0.as_slice()), "{loss_of:?}, {rows} rows");
        let sums = expected.1.as_slice();
        assert!(
            (totals[0] - sums[0]).abs() <= 1e-13 * sums[0].abs() && totals[1] == sums[1],
            "{totals:?} for {sums:?}"
        );
    }

    /// Value of [`Loss`] itself for the whole batch.
    fn assert_near_the_loss<T: Operand>(
        loss: Loss,
        y: &[f32],
        targets: &[f32],
        weights: Option<&[f32]>,
        d: &[T],
        totals: &[f64],
    ) {
        let mut slopes = vec![0.0f32; y.len()];
        loss.gradient(y, targets, 7, &mut slopes);
        weigh_gradient(&mut slopes, weights);
        for (found, slope) in d.iter().zip(slopes) {
            assert_eq!(found.widen(), T::narrow(slope * 4.0).widen(), "{loss:?}");
        }
        let (sum, terms) = (1.0 + loss.weighted_sum(y, targets, weights), 2.0 + loss.terms(targets) as f64);
        let [found, count] = [totals[0], totals[1]];
        assert!((found - sum).abs() <= 1e-13 * sum.abs() && count == terms, "{loss:?}: {found} and {count}");
    }

    #[test]
    fn the_kernels_have_the_cpus_losses_and_gradients() {
        for (loss, targets) in losses() {
            for rows in [0, 1, 5, 300] {
                for is_weighted in [false, true] {
                    check::<f32>(loss, targets, rows, is_weighted);
                    check::<f16>(loss, targets, rows, is_weighted);
                    check::<bf16>(loss, targets, rows, is_weighted);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "rank_pairwise has no value for one target")]
    fn losses_of_graphs_are_refused() {
        let _ = LossTable::new(&Device::cpu().scope("test"), Loss::RankPairwise, 1);
    }
}
