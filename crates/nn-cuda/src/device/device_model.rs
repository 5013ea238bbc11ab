//! The interface of models on a device.

use std::fmt::Debug;

use megabatch_amp::ops::DeviceScaler;
use megabatch_gpu_core::{Buffer, FilledTables, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::graph::{EdgeForm, Graphs};
use megabatch_nn::memory::LargestBatch;
use megabatch_nn::model::{Model, StepDropout, TensorSet};

use super::head::LossInput;

/// A model on a device: one implementation, of three types of operands.
pub(super) trait DeviceModel: Debug + Send {
    /// Keeps the series on the device, where windows are slices of some.
    fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()>;

    /// Takes memory on the device for stored windows of each timeframe.
    fn keep_windows(&mut self, windows: usize) -> Result<()>;

    /// Copies the windows of `batch` to the place of window `first` and those after it.
    fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()>;

    /// Takes `chunk`, stored windows of each timeframe in bytes of operands, for the batches of its
    /// windows, in the place of the chunk that it returns. A model over graphs takes none.
    fn exchange_chunk(&mut self, _chunk: Option<FilledTables<u8>>) -> Option<FilledTables<u8>> {
        None
    }

    /// True if it keeps series or windows.
    fn keeps_bars(&self) -> bool;

    /// Keeps the edges of all `graphs` on the device, where the model is over graphs; `None` takes
    /// them batch by batch.
    fn keep_graphs(&mut self, _graphs: Option<&dyn Graphs>) -> Result<()> {
        Ok(())
    }

    /// Form of the edges of batches of graphs.
    fn edge_form(&self) -> EdgeForm {
        EdgeForm::Views
    }

    /// Carries the states at the bars `rows` of each timeframe from step to step, in the place of
    /// those before, beginning with `states`; steps have up to `step_samples` samples. A model over
    /// graphs carries none.
    fn carry_states(
        &mut self,
        _scope: &Scope,
        _rows: &[Vec<usize>],
        _step_samples: usize,
        _states: &TensorSet,
    ) -> Result<()> {
        Ok(())
    }

    /// Gives the carried states to the host, where there are any. Waits for the device.
    fn store_states(&self, _states: &mut TensorSet) -> Result<()> {
        Ok(())
    }

    /// Puts in place the states that the step has computed, if the step that `control` judged was
    /// accepted. Does not wait.
    fn commit_states(&mut self, _control: &DeviceScaler) -> Result<()> {
        Ok(())
    }

    /// Pads batches from now on to the size of the largest that is trained on, of which `largest`
    /// has the bound, if `batch` takes less memory. True if so; never in dense training, for stored
    /// windows, or over graphs.
    fn pad_to_largest(&mut self, _batch: &BatchView<'_>, _position: usize, _largest: &LargestBatch) -> Result<bool> {
        Ok(false)
    }

    /// Ends what [`DeviceModel::pad_to_largest`] began.
    fn end_padding(&mut self) {}

    /// Begins a step with `parameters`.
    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()>;

    /// Has the LSTMs multiply by matrices in eight bits from now on, made of `parameters`, for
    /// predictions in single precision.
    fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()>;

    /// Adds the gradients of a batch's loss.
    fn accumulate_gradients(
        &mut self,
        batch: &BatchView<'_>,
        dropout_seed: DropoutSeed,
        loss_input: LossInput<'_>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()>;

    /// Computes the outputs of a batch.
    fn predict(&mut self, batch: &BatchView<'_>, parameters: &Buffer<f32>) -> Result<()>;

    /// Last computed outputs, `[B, K]`, and room behind them.
    fn outputs(&self) -> &Buffer<f32>;

    /// `[2]`: the sum of the losses since the step began, and the number of its terms.
    fn totals(&self) -> &Buffer<f64>;

    /// The same, for writing.
    fn totals_mut(&mut self) -> &mut Buffer<f64>;
}

/// Dropout of a step: none in a prediction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DropoutSeed {
    pub(super) dropout: Option<StepDropout>,
    /// Position of the batch's first sample in the epoch's order, by which dense training finds its
    /// runs.
    pub(super) position: usize,
}
