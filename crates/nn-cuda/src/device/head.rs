//! The linear head and the loss on a device.

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::loss::Loss;
use megabatch_nn::memory::BOTH;
use megabatch_nn::model::Model;

use super::memory_estimate::MemoryEstimate;
use super::workspace_cache::WorkspaceCache;
use crate::ops::{
    Arithmetic, LossScaling, LossTable, Operand, Output, PlannedUpload, Predictions, Product, Scratch, Table,
    TableRows, TensorSlice, Terms, Transpose, UploadBatch, add_column_sums, column_sum_partials_len, loss,
    loss_partials_len, multiply, product_partials_len, rows_partials_len, take_rows,
};

#[derive(Debug)]
pub(super) struct DeviceHead<T: Operand> {
    batches: Scope,
    /// W of what the head reads, K of outputs and of targets.
    width: usize,
    outputs: usize,
    targets: usize,
    arithmetic: Arithmetic,
    weight_start: usize,
    bias_start: usize,
    packed: PackedHead<T>,
    sums: LossSums,
    scratch: Scratch,
    workspaces: WorkspaceCache<HeadBuffers<T>>,
}

/// The weight that the head multiplies by, and the table of its loss.
#[derive(Debug)]
struct PackedHead<T: Operand> {
    /// Places of the weight's numbers among all parameters.
    places: Buffer<u32>,
    weight: Buffer<T>,        // [K, W]
    weight_fp32: Buffer<f32>, // [K, W], the same numbers
    table: LossTable,
}

/// Terms and sums of a loss.
#[derive(Debug)]
pub(super) struct LossSums {
    /// Terms of the batch.
    pub(super) terms: Buffer<Terms>, // [1]
    /// The sum of the losses since a step began, and the number of its terms.
    pub(super) totals: Buffer<f64>, // [2]
}

/// Buffers of a batch.
#[derive(Debug)]
struct HeadBuffers<T: Operand> {
    samples: usize,
    read: Buffer<T>,              // [B, W]
    d_read: Buffer<f32>,          // [B, W]
    outputs: Buffer<f32>,         // [B, K]
    d_outputs: Buffer<T>,         // [B, K]
    targets: Buffer<f32>,         // [B, targets]
    weights: Option<Buffer<f32>>, // [B], in training on weighted samples
}

/// Loss of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossInput<'a> {
    pub(super) targets: &'a [f32],
    /// `[B]`, where samples have weights.
    pub(super) weights: Option<&'a [f32]>,
    pub(super) loss: Loss,
    pub(super) count: usize,
    /// `[1]`: the loss scale.
    pub(super) scale: &'a Buffer<f32>,
}

impl<T: Operand> PackedHead<T> {
    /// The weight of `model` that lies at `weight` among its parameters, and the table of `loss`.
    fn new(scope: &Scope, model: &Model, weight: Range<usize>, loss: Loss) -> Result<Self> {
        let places: Vec<u32> = weight.map(|place| place as u32).collect();
        Ok(PackedHead {
            places: Buffer::from_slice(scope, &places)?,
            weight: Buffer::zeros(scope, places.len())?,
            weight_fp32: Buffer::zeros(scope, places.len())?,
            table: LossTable::new(scope, loss, model.shape().outputs)?,
        })
    }
}

impl LossSums {
    /// Sums of zero.
    pub(super) fn zeros(scope: &Scope) -> Result<Self> {
        Ok(LossSums { terms: Buffer::zeros(scope, 1)?, totals: Buffer::zeros(scope, 2)? })
    }
}

impl<T: Operand> DeviceHead<T> {
    /// The head of `model`.
    ///
    /// # Panics
    /// If attention over graphs gives the outputs.
    pub(super) fn new(scope: &Scope, model: &Model, loss: Loss, arithmetic: Arithmetic) -> Result<Self> {
        let (weights, batches) = (scope.child("model/parameters/packed"), scope.child("batches"));
        let [weight, bias] = weight_and_bias(model);
        let (width, outputs, targets) = (model.decoder().widths.top, model.outputs(), model.shape().outputs);
        Ok(DeviceHead {
            width,
            outputs,
            targets,
            arithmetic,
            weight_start: weight.start,
            bias_start: bias.start,
            packed: PackedHead::new(&weights, model, weight, loss)?,
            sums: LossSums::zeros(&batches)?,
            scratch: Scratch::empty(&batches)?,
            workspaces: WorkspaceCache::default(),
            batches,
        })
    }

    /// Counts what [`DeviceHead::new`] takes, and [`DeviceHead::select_workspace`] for batches.
    pub(super) fn estimate(estimate: &mut MemoryEstimate<'_>) {
        let (model, config, batch) = (estimate.model, estimate.config, estimate.batch);
        let mut head = estimate.dry_run(|scope| DeviceHead::<T>::new(scope, model, config.loss, config.arithmetic));
        let DeviceHead { width, outputs, targets, .. } = head;
        estimate.book("parameters", "head in the order of operations", BOTH, |scope| {
            let [weight, _] = weight_and_bias(model);
            PackedHead::<T>::new(scope, model, weight, config.loss)
        });
        // The product of a prediction starts from a bias, and is not split.
        let samples = batch.sizes_learnt.iter().copied().max().unwrap_or(0);
        let sum = [outputs, width, samples];
        let parts = product_partials_len(sum)
            .max(rows_partials_len(samples, width, outputs))
            .max(column_sum_partials_len(samples, outputs));
        estimate.book("batches", "sums of losses", BOTH, LossSums::zeros);
        estimate.book("batches", "parts of sums of the head", BOTH, |_| {
            head.scratch.reserve::<f32>(parts)?;
            head.scratch.reserve::<f64>(loss_partials_len(samples * targets))
        });
        for &samples in &batch.sizes {
            let name = format!("head of {samples} samples");
            estimate.book("batches", name, BOTH, |_| head.select_workspace(samples));
        }
        for &samples in batch.sizes_learnt.iter().filter(|_| batch.is_weighted) {
            estimate.book("batches", format!("weights of {samples} samples"), BOTH, |_| {
                head.select_workspace(samples)?;
                let DeviceHead { batches, workspaces, .. } = &mut head;
                sample_weights(&mut workspaces.selected_mut().weights, batches, samples)?;
                Ok(())
            });
        }
        estimate.book_upload("targets", [None, Some(samples)], |upload, samples| {
            head.select_workspace(samples)?;
            head.plan_upload(upload)
        });
    }

    /// Plans the upload of a batch that is trained on, after [`DeviceHead::select_workspace`].
    fn plan_upload(&mut self, upload: &mut PlannedUpload) -> Result<()> {
        let HeadBuffers { samples, targets, weights, .. } = self.workspaces.selected_mut();
        upload.put(&mut self.sums.terms, 1)?;
        upload.put(targets, *samples * self.targets)?;
        weights.iter_mut().try_for_each(|weights| upload.put(weights, *samples))
    }

    /// Packs the weights of `parameters`, and sets the totals of the losses to zero.
    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        let PackedHead { places, weight, weight_fp32, .. } = &mut self.packed;
        let (table, count) = (Table::Fp32(parameters), places.len());
        let numbers = TableRows { table, rows: places, count, bars: 1, width: 1, stride: 1 };
        take_rows(&numbers, weight, 0, weight_fp32)?;
        Ok(self.sums.totals.set_zero()?)
    }

    /// Selects the workspace for a batch of `samples` samples.
    pub(super) fn select_workspace(&mut self, samples: usize) -> Result<()> {
        let &mut DeviceHead { ref batches, width, outputs, targets, ref mut workspaces, .. } = self;
        workspaces.select(samples, || {
            Ok(HeadBuffers {
                samples,
                read: Buffer::zeros(batches, samples * width)?,
                d_read: Buffer::zeros(batches, samples * width)?,
                outputs: Buffer::zeros(batches, samples * outputs)?,
                d_outputs: Buffer::zeros(batches, samples * outputs)?,
                targets: Buffer::zeros(batches, samples * targets)?,
                weights: None,
            })
        })
    }

    /// Gives `upload` the targets and weights of the batch, and the divisor of the terms of their
    /// losses, after [`DeviceHead::select_workspace`].
    pub(super) fn enqueue<'a>(&'a mut self, loss_input: LossInput<'_>, upload: &mut UploadBatch<'a>) -> Result<()> {
        let workspace = self.workspaces.selected_mut();
        assert_eq!(loss_input.targets.len(), workspace.targets.len(), "targets of the batch's samples");
        upload.put(&mut self.sums.terms, &[Terms::new(loss_input.loss, loss_input.count, loss_input.targets)])?;
        upload.put(&mut workspace.targets, loss_input.targets)?;
        let Some(weights) = loss_input.weights else { return Ok(()) };
        upload.put(sample_weights(&mut workspace.weights, &self.batches, workspace.samples)?, weights)
    }

    /// Input of the head by sample, `[B, W]`, for writing.
    pub(super) fn read_mut(&mut self) -> &mut Buffer<T> {
        &mut self.workspaces.selected_mut().read
    }

    /// The gradient of what was read, `[B, W]`, after [`DeviceHead::accumulate_gradients`].
    pub(super) fn d_read(&self) -> &Buffer<f32> {
        &self.workspaces.selected().d_read
    }

    /// From what was read to the outputs.
    pub(super) fn predict(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        let workspace = self.workspaces.selected_mut();
        let product = Product {
            a: (&workspace.read).into(),
            b: (&self.packed.weight).into(),
            bias: Some(TensorSlice { buffer: parameters, start: self.bias_start }),
            shape: [workspace.samples, self.outputs, self.width],
            layout: Transpose::Nt,
            arithmetic: self.arithmetic,
        };
        multiply(&product, Output::Overwrite, &mut workspace.outputs, 0, &mut self.scratch)
    }

    /// Last computed outputs, `[B, K]`.
    pub(super) fn outputs(&self) -> &Buffer<f32> {
        &self.workspaces.selected().outputs
    }

    /// From what was read to the loss, which is multiplied by `scale` `[1]`, and back: adds the
    /// head's gradients, and leaves those of what was read.
    pub(super) fn accumulate_gradients(
        &mut self,
        scale: &Buffer<f32>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        self.predict(parameters)?;
        let DeviceHead { width, outputs, arithmetic, .. } = *self;
        let (workspace, scratch) = (self.workspaces.selected_mut(), &mut self.scratch);
        let HeadBuffers { samples: rows, outputs: y, targets, weights, d_outputs, .. } = workspace;
        let predictions = Predictions { outputs: y, targets, weights: weights.as_ref(), rows: *rows };
        let objective = LossScaling { terms: &self.sums.terms, scale };
        loss(&self.packed.table, predictions, objective, d_outputs, &mut self.sums.totals, scratch)?;

        let weight = TensorSlice::from(&self.packed.weight);
        let d_outputs = TensorSlice::from(&workspace.d_outputs);
        let weight_gradient =
            arithmetic.product(d_outputs, (&workspace.read).into(), [outputs, width, workspace.samples], Transpose::Tn);
        multiply(&weight_gradient, Output::Add, gradients, self.weight_start, scratch)?;
        add_column_sums(d_outputs, workspace.samples, outputs, gradients, self.bias_start, scratch)?;
        let read_gradient = arithmetic.product(d_outputs, weight, [workspace.samples, width, outputs], Transpose::Nn);
        multiply(&read_gradient, Output::Overwrite, &mut workspace.d_read, 0, scratch)
    }

    /// `[2]`: the sum of the losses since [`DeviceHead::load`], and the number of its terms.
    pub(super) fn totals(&self) -> &Buffer<f64> {
        &self.sums.totals
    }

    pub(super) fn totals_mut(&mut self) -> &mut Buffer<f64> {
        &mut self.sums.totals
    }
}

/// Places of the head's weight and bias among the parameters of `model`.
fn weight_and_bias(model: &Model) -> [Range<usize>; 2] {
    let head = model.decoder().head.as_ref().expect("a model of samples that stand alone has a head");
    head.slots().map(|slot| model.layout().range(slot))
}

/// Memory for the weights of a batch of `samples` samples, which is taken where there is none.
fn sample_weights<'a>(
    weights: &'a mut Option<Buffer<f32>>,
    scope: &Scope,
    samples: usize,
) -> Result<&'a mut Buffer<f32>> {
    Ok(match weights {
        Some(weights) => weights,
        none => none.insert(Buffer::zeros(scope, samples)?),
    })
}
