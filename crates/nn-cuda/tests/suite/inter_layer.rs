//! Operations between the layers of a model and behind them, each on the device beside the CPU.

use half::bf16;
use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::loss::{Ascending, Classes, Loss};
use megabatch_nn::model::Dropout;

use super::noise;
use super::uploaded::{gather_index, work_list};
use megabatch_nn_cuda::ops::{
    Arithmetic, BatchUploader, Dropped, FuseMemory, FuseSizes, FuseWeights, LossScaling, LossTable, NormWeights,
    Normed, Operand, PoolMemory, PoolSizes, PoolSlots, PoolWeights, Predictions, ReadFrom, RowGranularity, Scratch,
    Sequence, TensorSlice, Terms, TileWindows, add_column_sums, drop_gradients, drop_outputs, fuse, fuse_backward,
    join, layer_norm, layer_norm_backward, loss, pool, pool_backward, round_to, scatter_add,
};

/// H, and rows of it.
const HIDDEN: usize = 36;
const ROWS: usize = 300;

/// Result of `run` on the device is within `tolerance` of that on the CPU, of the largest number or
/// 1.
pub(super) fn same(device: &Device, tolerance: f32, run: impl Fn(&Scope) -> Result<Vec<f32>>) -> Result<()> {
    let (found, expected) = (run(&device.scope("ops"))?, run(&Device::cpu().scope("ops"))?);
    let most = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    assert_eq!(found.len(), expected.len());
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * most, "number {k} is {found} where {expected} is right");
    }
    Ok(())
}

pub(super) fn buffer(scope: &Scope, name: &'static str, len: usize) -> Result<Buffer<f32>> {
    Ok(Buffer::from_slice(scope, &noise(1, name, len, 1.0))?)
}

pub(super) fn narrow<T: Operand>(scope: &Scope, name: &'static str, len: usize) -> Result<Buffer<T>> {
    let numbers: Vec<T> = noise(1, name, len, 1.0).into_iter().map(T::narrow).collect();
    Ok(Buffer::from_slice(scope, &numbers)?)
}

pub(super) fn wide<T: Operand>(buffer: &Buffer<T>) -> Result<Vec<f32>> {
    Ok(buffer.to_vec()?.into_iter().map(T::widen).collect())
}

/// Bits are equal but for exponentials.
pub(super) fn losses(device: &Device) -> Result<()> {
    same(device, 1e-6, |scope| {
        let levels = Ascending::new(&[0.1, 0.5]).expect("levels ascend");
        let mut all = Vec::new();
        for loss_kind in [
            Loss::Mse,
            Loss::Huber { delta: 0.4 },
            Loss::Quantile { levels },
            Loss::Classes(Classes::Thresholds(levels)),
        ] {
            let (table, mut targets) = (LossTable::new(scope, loss_kind, 2)?, noise(1, "targets", 2 * ROWS, 1.0));
            targets.iter_mut().step_by(5).for_each(|target| *target = f32::NAN);
            let outputs = buffer(scope, "outputs", ROWS * loss_kind.outputs(2))?;
            let terms = Buffer::from_slice(scope, &[Terms::new(loss_kind, 7, &targets)])?;
            let targets = Buffer::from_slice(scope, &targets)?;
            let scale = Buffer::from_slice(scope, &[8.0f32])?;
            let (mut d, mut totals) = (Buffer::<f32>::zeros(scope, outputs.len())?, Buffer::zeros(scope, 2)?);
            let mut scratch = Scratch::empty(scope)?;
            let predictions = Predictions { outputs: &outputs, targets: &targets, weights: None, rows: ROWS };
            loss(&table, predictions, LossScaling { terms: &terms, scale: &scale }, &mut d, &mut totals, &mut scratch)?;
            all.extend(d.to_vec()?);
            all.extend(totals.to_vec()?.into_iter().map(|total| (total / ROWS as f64) as f32));
        }
        Ok(all)
    })
}

pub(super) fn rows(device: &Device) -> Result<()> {
    same(device, 0.0, |scope| {
        let (x, mut d) = (narrow::<bf16>(scope, "x", ROWS * HIDDEN)?, buffer(scope, "d", ROWS * HIDDEN)?);
        let (parameters, mut gradients) = (buffer(scope, "norm", 2 * HIDDEN)?, buffer(scope, "gradients", 3 * HIDDEN)?);
        let mut scratch = Scratch::empty(scope)?;
        add_column_sums(TensorSlice::from(&x), ROWS, HIDDEN, &mut gradients, 2 * HIDDEN, &mut scratch)?;
        let [weight, bias] = [0, HIDDEN].map(|start| TensorSlice { buffer: &parameters, start });
        let (mut y, mut moments) = (Buffer::<f32>::zeros(scope, ROWS * HIDDEN)?, Buffer::zeros(scope, 2 * ROWS)?);
        layer_norm(TensorSlice::from(&x), NormWeights { weight, bias }, ROWS, HIDDEN, &mut y, 0, &mut moments)?;
        let normed = Normed { rows: ROWS, width: HIDDEN, x: TensorSlice::from(&x), moments: &moments, weight };
        layer_norm_backward(normed, &mut d, 0, &mut gradients, [0, HIDDEN], &mut scratch)?;

        let ends = Buffer::from_slice(scope, &[0u64, 77, 1 << 40, 3, 4, 9])?;
        let masks = Buffer::from_slice(scope, &[Dropout::for_step(0.25, 3, 4)?.mask("M1", 0).into()])?;
        let dropped = Dropped { mask: (&masks, 0), ends: (&ends, 0), shape: [ROWS / 6, 6, HIDDEN] };
        let mut to = Buffer::<bf16>::zeros(scope, ROWS * HIDDEN)?;
        drop_outputs(dropped, TensorSlice::from(&y), &mut to, 0)?;
        drop_gradients(dropped, &mut d, 0)?;
        round_to::<bf16>(&mut d)?;
        Ok([y.to_vec()?, wide(&to)?, d.to_vec()?, gradients.to_vec()?].concat())
    })
}

/// Uploads of several sizes, to arrays that grow and that have more room than they take, some of
/// them in more than one copy command.
pub(super) fn upload(device: &Device) -> Result<()> {
    let scope = device.scope("ops");
    let mut uploader = BatchUploader::new(&scope)?;
    let (mut numbers, mut places) = (Buffer::<f32>::zeros(&scope, 0)?, Buffer::<u64>::zeros(&scope, 4)?);
    for (round, len) in [3, 10_000, 0, 4097].into_iter().enumerate() {
        let values = noise(round, "mail", len, 3.0);
        let ends: Vec<u64> = (0..3).map(|k| (round as u64) << 40 | k).collect();
        let mut upload = uploader.upload();
        upload.put(&mut numbers, &values)?;
        upload.put(&mut places, &ends)?;
        upload.send()?;
        let (found, places) = (numbers.to_vec()?, places.to_vec()?);
        assert_eq!((&found[..len], &places[..3], places[3]), (&values[..], &ends[..], 0), "round {round}");
    }
    Ok(())
}

pub(super) fn joins(device: &Device) -> Result<()> {
    same(device, 0.0, |scope| {
        let sequence = |steps, first| Sequence { steps, first, row_step: 1, projected_rows: 20 };
        let list = work_list(scope, HIDDEN, TileWindows::Eight, &[sequence(3, &[0, 4, 9][..]), sequence(1, &[2, 3])])?;
        let (windows, steps) = ([[2, 0, 2, 2], [1, 1, 0, 1]], [[2, 0, 1, 2], [0; 4]]);
        let reads = |vectors, from| {
            let step = |s: usize, n: usize| if vectors == RowGranularity::OfSteps { steps[s][n] } else { 2 - 2 * s };
            let positions = [0, 1].map(|s| [0, 1, 2, 3].map(|n| (windows[s][n], step(s, n))));
            gather_index(scope, &list, vectors, from, &[&positions[0], &positions[1]])
        };
        let hidden = narrow::<bf16>(scope, "hidden", (list.rows() + list.windows()) * HIDDEN)?;
        let (vectors, d) = (buffer(scope, "vectors", list.rows() * HIDDEN)?, buffer(scope, "d", 8 * HIDDEN)?);
        let mut all = Vec::new();
        for granularity in [RowGranularity::OfWindows, RowGranularity::OfSteps] {
            let (from_states, from_vectors) =
                (reads(granularity, ReadFrom::States)?, reads(granularity, ReadFrom::RowGranularity)?);
            let (mut wide_joined, mut joined) =
                (Buffer::<f32>::zeros(scope, 8 * HIDDEN)?, Buffer::<bf16>::zeros(scope, 8 * HIDDEN)?);
            join(&from_states, &hidden, &mut joined)?;
            all.extend(wide(&joined)?);
            join(&from_states, &hidden, &mut wide_joined)?;
            all.extend(wide_joined.to_vec()?);
            join(&from_vectors, &vectors, &mut joined)?;
            all.extend(wide(&joined)?);
            let mut d_vectors = buffer(scope, "before", list.rows() * HIDDEN)?;
            scatter_add::<bf16>(&from_vectors, &d, &mut d_vectors)?;
            all.extend(d_vectors.to_vec()?);
        }
        Ok(all)
    })
}

/// Products add in another order than the CPU.
pub(super) fn pooling(device: &Device) -> Result<()> {
    same(device, 1e-5, |scope| {
        let (sizes, slots) =
            (PoolSizes { steps: 9, windows: 5, heads: 3, hidden: HIDDEN as u32 }, PoolSlots::from(4, HIDDEN));
        let (parameters, states) =
            (buffer(scope, "pool", slots.out_bias + HIDDEN)?, narrow::<bf16>(scope, "states", 45 * HIDDEN)?);
        let weights = PoolWeights { parameters: &parameters, slots, arithmetic: Arithmetic::Exact };
        let (mut memory, mut pooled) = (PoolMemory::zeros(scope, sizes)?, Buffer::zeros(scope, 5 * HIDDEN)?);
        pool(weights, TensorSlice::from(&states), &mut memory, &mut pooled, 0)?;
        let d_pooled = buffer(scope, "d", 5 * HIDDEN)?;
        let (mut d_states, mut gradients) =
            (Buffer::zeros(scope, 45 * HIDDEN)?, Buffer::zeros(scope, parameters.len())?);
        pool_backward(
            weights,
            TensorSlice::from(&states),
            TensorSlice::from(&d_pooled),
            &mut memory,
            &mut d_states,
            0,
            &mut gradients,
        )?;
        Ok([pooled.to_vec()?, d_states.to_vec()?, gradients.to_vec()?].concat())
    })
}

pub(super) fn fusion(device: &Device) -> Result<()> {
    same(device, 2e-5, |scope| {
        let sizes = FuseSizes { samples: 6, tokens: 3, heads: 4, hidden: HIDDEN, inner: 2 * HIDDEN };
        let (parameters, tokens) =
            (buffer(scope, "fuse", 5 + sizes.parameters())?, buffer(scope, "tokens", 18 * HIDDEN)?);
        let weights = FuseWeights { parameters: &parameters, start: 5, arithmetic: Arithmetic::Exact };
        let (mut memory, mut fused) = (FuseMemory::zeros(scope, sizes)?, Buffer::zeros(scope, 6 * HIDDEN)?);
        fuse::<f32>(weights, &tokens, &mut memory, &mut fused)?;
        let mut gradients = Buffer::zeros(scope, parameters.len())?;
        fuse_backward::<f32>(weights, &tokens, &buffer(scope, "d", 6 * HIDDEN)?, &mut memory, &mut gradients)?;
        Ok([fused.to_vec()?, memory.d_tokens.to_vec()?, gradients.to_vec()?].concat())
    })
}
