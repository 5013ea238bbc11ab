//! The LSTMs of all timeframes on a device, forward and backward.
//!
//! Buffers grow to what the largest batch takes and are used again. Arrays of several timeframes
//! follow one another in the order of the model's timeframes: B distinct windows of T steps each,
//! or in dense training of as many as the longest run of samples has.

mod batch_layout;
mod checkpointing;
mod counting;
mod reading;
mod tuning;

use megabatch_amp::ops::DeviceScaler;
use megabatch_gpu_core::{Buffer, FilledTables, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, Runs, SeriesView};
use megabatch_nn::model::pooling::Pooling;
use megabatch_nn::model::{Dropout, Model, TensorSet};

use super::bars::Bars;
use super::bucketing::BatchSizes;
use super::carried::Carried;
use super::cell::{Cells, Shared, Steps, inputs};
use super::device_model::DropoutSeed;
use super::inter_layer::InterLayer;
use super::outputs::{OutputRows, Outputs};
use super::top::Top;
use crate::ComputeConfig;
use crate::ops::{
    Arithmetic, DeviceInt8Matrix, Dropped, GATES, GatherIndex, Gradients, InputWeights, MaskNumbers, Operand,
    RecurrenceSchedule, RecurrentInt8, RecurrentWeights, RowGranularity, States, TensorSlice, UploadBatch, WorkList,
    recurrence_backward, sum_per_bar,
};
use crate::tuning::{Choices, Tuner};
use tuning::ScheduleKey;

#[derive(Debug)]
pub(super) struct Lstms<T: Operand> {
    hidden: usize,
    resident: Scope,
    /// Timeframe names.
    names: Vec<String>,
    bars: Vec<Bars>,
    /// Chunk of stored windows, a table of bytes of operands a timeframe.
    chunk: Option<FilledTables<u8>>,
    /// Bars of all timeframes, rounded, each timeframe's from an element on.
    rows: Buffer<T>,
    row_starts: Vec<usize>,
    /// For windows that share no bar, whose recurrence projects them itself, if they are narrow
    /// enough.
    input: Option<InputWeights<T>>,
    layers: Vec<LstmLayer<T>>,
    /// The layer that has cell states and gates, with gradient checkpointing; `None` where each has
    /// its own.
    gates_layer: Option<usize>,
    /// Work of the first layer, which reads bars, and of those above, which read the layer below.
    over_bars: WorkList,
    over_states: WorkList,
    projected: Buffer<f32>, // [rows, H, 4] of the layer that is computed
    back: Gradients<T>,
    /// Gradients of the outputs of each layer for the one above, and of the top one for pooling, [Σ
    /// T·B, H]; `None` without either.
    d_outputs: Option<Buffer<f32>>,
    shared: Shared,
    top: Top,
    reads: GatherIndex,
    /// Vectors of the batch.
    vectors: RowGranularity,
    /// Sizes that batches are padded to at least.
    padded_to: Option<Vec<BatchSizes>>,
    /// For dense training: how samples that follow one another become one window.
    runs: Option<Runs>,
    /// Dropout of the batch, if any, and then the masks of the outputs for the layers above,
    /// [layers - 1, timeframes].
    dropout: Option<Dropout>,
    masks: Buffer<MaskNumbers>,
    schedules: Choices<ScheduleKey, RecurrenceSchedule>,
    /// Layout of the batch's windows, where nobody has measured it.
    unmeasured: Option<ScheduleKey>,
    /// States carried from step to step, where they are.
    carried: Option<Carried>,
    /// True if the batch's windows start from carried states: those of a prediction do not.
    starts_carried: bool,
}

/// One layer of all timeframes.
#[derive(Debug)]
struct LstmLayer<T: Operand> {
    cells: Cells<T>,
    recurrent: RecurrentWeights<T>,
    /// The same in eight bits, in their place.
    int8_weights: Option<RecurrentInt8>,
    states: States<T>,
    /// Norm and dropout below the layer above; `None` for the top one.
    between: Option<InterLayer<T>>,
}

impl<T: Operand> Lstms<T> {
    /// The LSTMs of `model` in a run with `config`, on scopes below `scope`, whose kernels `tuner`
    /// chooses. Memory for batches is taken when they come.
    pub(super) fn new(scope: &Scope, model: &Model, config: &ComputeConfig, tuner: &Tuner) -> Result<Self> {
        let (arithmetic, runs) = (config.arithmetic, config.runs);
        let (weights, activations, batches) =
            (scope.child("model/parameters/packed"), scope.child("activations"), scope.child("batches"));
        let hidden = model.config().hidden;
        let over_bars = WorkList::empty(&batches, hidden)?;
        let layer = |l| LstmLayer::new(scope, model, l, &over_bars, arithmetic);
        let top = Top::new(&activations, model, arithmetic)?;
        Ok(Lstms {
            hidden,
            names: model.shape().timeframes.iter().map(|timeframe| timeframe.name.clone()).collect(),
            resident: scope.child("bars"),
            bars: model.recurrent_layers().iter().map(|lstm| Bars::new(&batches, lstm.sizes)).collect::<Result<_>>()?,
            chunk: None,
            rows: Buffer::zeros(&batches, 0)?,
            row_starts: Vec::new(),
            input: InputWeights::where_possible(&weights, hidden, &inputs(model, 0))?,
            layers: (0..model.config().layers).map(layer).collect::<Result<_>>()?,
            gates_layer: config.gradient_checkpointing.then_some(0),
            over_states: WorkList::empty(&batches, hidden)?,
            projected: Buffer::zeros(&activations, 0)?,
            back: Gradients::zeros(&activations, &over_bars)?,
            d_outputs: all_are_read(model, runs).then(|| Buffer::zeros(&activations, 0)).transpose()?,
            shared: Shared::new(&activations, tuner)?,
            schedules: Choices::new(tuner),
            unmeasured: None,
            carried: None,
            starts_carried: false,
            top,
            reads: GatherIndex::empty(&batches)?,
            vectors: RowGranularity::OfWindows,
            padded_to: None,
            runs,
            dropout: None,
            masks: Buffer::zeros(&batches, 0)?,
            over_bars,
        })
    }

    /// Keeps the series on the device, where windows are slices of some.
    pub(super) fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        for (k, bars) in self.bars.iter_mut().enumerate() {
            bars.keep_series(&self.resident, series.map(|view| view.timeframes[k].values))?;
        }
        Ok(())
    }

    /// Takes memory on the device for stored windows of each timeframe.
    pub(super) fn keep_windows(&mut self, windows: usize) -> Result<()> {
        self.bars.iter_mut().try_for_each(|bars| bars.keep_windows::<T>(&self.resident, windows))
    }

    /// Copies the windows of `batch` to the place of window `first` and those after it.
    pub(super) fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()> {
        self.bars.iter_mut().enumerate().try_for_each(|(k, bars)| bars.put_windows::<T>(first, batch.features(k)))
    }

    /// Takes `chunk` for the batches of its windows, in the place of the chunk that it returns.
    pub(super) fn exchange_chunk(&mut self, chunk: Option<FilledTables<u8>>) -> Option<FilledTables<u8>> {
        std::mem::replace(&mut self.chunk, chunk)
    }

    /// True if it keeps series or all stored windows.
    pub(in crate::device) fn keeps_bars(&self) -> bool {
        self.bars.iter().all(Bars::are_kept)
    }

    /// Carries the states at the bars `rows` of each timeframe from now on, in the place of those
    /// before, beginning with `states`; steps have up to `step_samples` samples. Memory is taken
    /// below `scope`.
    pub(super) fn carry_states(
        &mut self,
        scope: &Scope,
        rows: &[Vec<usize>],
        step_samples: usize,
        states: &TensorSet,
    ) -> Result<()> {
        // Given back before the new memory is taken.
        self.carried = None;
        self.carried = Some(Carried::new(scope, &self.bars, self.layers.len(), rows, step_samples, states)?);
        Ok(())
    }

    /// Gives the carried states to the host, where there are any. Waits for the device.
    pub(super) fn store_states(&self, states: &mut TensorSet) -> Result<()> {
        self.carried.as_ref().map_or(Ok(()), |carried| carried.store(states))
    }

    /// Puts in place the states that the step has computed, if the step that `control` judged was
    /// accepted.
    pub(super) fn commit_states(&mut self, control: &DeviceScaler) -> Result<()> {
        self.carried.as_mut().map_or(Ok(()), |carried| carried.commit(control))
    }

    /// Makes ready for `parameters`, and for another step.
    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.carried.as_mut().map_or(Ok(()), Carried::discard)?;
        for LstmLayer { cells, recurrent, .. } in &mut self.layers {
            cells.load(parameters)?;
            recurrent.set(parameters)?;
        }
        self.input.as_mut().map_or(Ok(()), |input| self.layers[0].cells.set_input(input))
    }

    /// Multiplies by matrices in eight bits from now on, made of `parameters`.
    pub(super) fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()> {
        let scope = scope.child("model/parameters/int8");
        for (l, layer) in self.layers.iter_mut().enumerate() {
            let (mut inputs, mut recurrent) = (Vec::new(), Vec::new());
            for lstm in model.recurrent_layers() {
                let [input, recurrent_matrix] = lstm.layers[l].quantized(lstm.sizes.hidden, parameters)?;
                inputs.push(DeviceInt8Matrix::new(&scope, &input)?);
                recurrent.push(recurrent_matrix);
            }
            layer.cells.set_int8_weights(inputs);
            layer.int8_weights = Some(RecurrentInt8::new(&scope, &recurrent)?);
        }
        Ok(())
    }

    /// Finds the windows of a batch, and gives `upload` what the device has to know of them. Takes
    /// memory for gradients where the batch `learns`.
    pub(super) fn enqueue<'a>(
        &'a mut self,
        batch: &BatchView<'_>,
        seed: DropoutSeed,
        learns: bool,
        upload: &mut UploadBatch<'a>,
    ) -> Result<()> {
        let dropout = seed.dropout.and_then(|dropout| dropout.between_layers);
        self.dropout = dropout;
        self.find(batch, seed.position, learns)?;
        self.fill_up()?;
        self.build_layout(learns)?;
        if learns {
            self.ensure_gradient_capacity()?;
        }
        self.starts_carried = learns && self.carried.is_some();
        let Lstms { names, layers, bars, over_bars, over_states, reads, masks, carried, .. } = self;
        let mut carried = carried.as_mut().filter(|_| learns);
        if let Some(carried) = &mut carried {
            carried.find(batch, bars);
        }
        for (k, bars) in bars.iter_mut().enumerate() {
            bars.enqueue(batch, k, dropout.is_some(), upload)?;
        }
        if let Some(dropout) = dropout {
            let layer_masks = |l| names.iter().map(move |name| dropout.mask(name, l).into());
            upload.put(masks, &(0..layers.len() - 1).flat_map(layer_masks).collect::<Vec<_>>())?;
        }
        if let Some(carried) = carried {
            carried.enqueue(upload)?;
        }
        over_bars.enqueue(upload)?;
        over_states.enqueue(upload)?;
        reads.enqueue(upload)
    }

    /// Takes the windows that were found from their first bar to their last, and makes a vector of
    /// each.
    pub(super) fn forward(&mut self, weights: &Buffer<f32>) -> Result<()> {
        let Lstms { bars, rows, row_starts, chunk, .. } = self;
        for (k, (bars, &start)) in bars.iter_mut().zip(&*row_starts).enumerate() {
            bars.take(rows, start, chunk.as_ref().map(|chunk| chunk.table(k)))?;
        }
        for l in 0..self.layers.len() {
            self.states_forward(l)?;
            self.note_states(l)?;
            self.layer_forward(l, weights)?;
        }
        Ok(())
    }

    /// States and gates of layer `l` from its inputs.
    fn states_forward(&mut self, l: usize) -> Result<()> {
        self.give_gates(l);
        if l > 0 || !self.projects_itself() {
            self.project(l)?;
        }
        let list = if l == 0 { &self.over_bars } else { &self.over_states };
        let LstmLayer { states, .. } = &mut self.layers[l];
        states.ensure_capacity(list)?;
        match &self.carried {
            Some(carried) if self.starts_carried => carried.start(list, l, states)?,
            _ => states.start_from_zero(list)?,
        }
        self.recur(l)
    }

    /// Notes the states of layer `l` that are to be carried, after its recurrence.
    fn note_states(&mut self, l: usize) -> Result<()> {
        let Lstms { carried: Some(carried), starts_carried: true, layers, over_bars, over_states, .. } = self else {
            return Ok(());
        };
        let list = if l == 0 { over_bars } else { over_states };
        carried.note(list, l, &layers[l].states)
    }

    /// Has the outputs of layer `l` become what is read of them: by the layer above, or of the top
    /// one.
    fn layer_forward(&mut self, l: usize, weights: &Buffer<f32>) -> Result<()> {
        let Lstms { over_bars: list, layers, top, reads, bars, masks, dropout, .. } = self;
        let LstmLayer { states, between, .. } = &mut layers[l];
        let outputs = Outputs { list, hidden: &states.hidden };
        let masks = dropout.map(|_| &*masks);
        match between {
            Some(between) => between.forward(outputs, |k| Some(dropped(masks?, l, bars, k)), weights),
            None => top.forward(outputs, reads, weights),
        }
    }

    /// From the gradients of what the layer above layer `l` read to those of its outputs.
    fn layer_backward(&mut self, l: usize, weights: &Buffer<f32>, gradients: &mut Buffer<f32>) -> Result<()> {
        let Lstms { over_bars: list, layers, bars, masks, dropout, d_outputs, .. } = self;
        let LstmLayer { states, between, .. } = &mut layers[l];
        let outputs = Outputs { list, hidden: &states.hidden };
        let (Some(between), Some(d_outputs)) = (between, d_outputs) else { return Ok(()) };
        let masks = dropout.map(|_| &*masks);
        between.backward(outputs, |k| Some(dropped(masks?, l, bars, k)), d_outputs, weights, gradients)
    }

    /// Joins the vectors of each sample's windows, `[samples, N · H]`, after [`Lstms::forward`].
    pub(super) fn join<To: Operand>(&self, joined: &mut Buffer<To>) -> Result<()> {
        let states = &self.layers.last().expect("a model has a layer").states;
        self.top.join(Outputs { list: &self.over_bars, hidden: &states.hidden }, &self.reads, joined)
    }

    /// Backward pass from the gradients of what was joined, after [`Lstms::join`] of the same
    /// batch; adds those of the parameters.
    pub(super) fn backward(
        &mut self,
        d_joined: &Buffer<f32>,
        weights: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let top = self.layers.len() - 1;
        let outputs = Outputs { list: &self.over_bars, hidden: &self.layers[top].states.hidden };
        self.top.backward(
            outputs,
            &self.reads,
            d_joined,
            &mut self.back,
            self.d_outputs.as_mut(),
            weights,
            gradients,
        )?;
        for l in (0..=top).rev() {
            if l < top {
                self.back.hidden.set_zero()?;
                self.restore_gates(l)?;
            }
            self.back.cell.set_zero()?;
            self.recurrence_backward(l)?;
            self.add_gradients(l, gradients)?;
            if l > 0 {
                self.layer_backward(l - 1, weights, gradients)?;
            }
        }
        Ok(())
    }

    /// Backward pass of the recurrence of layer `l`.
    fn recurrence_backward(&mut self, l: usize) -> Result<()> {
        let reads_every_step = self.vectors == RowGranularity::OfSteps || self.top.reads_every_step();
        let every_step = l + 1 < self.layers.len() || reads_every_step;
        let list = if l == 0 { &self.over_bars } else { &self.over_states };
        let LstmLayer { recurrent, states, .. } = &self.layers[l];
        // Gradients from above, if every step has one.
        self.back.outputs = if every_step { self.d_outputs.take() } else { None };
        let done = recurrence_backward(list, recurrent, states, &mut self.back);
        self.d_outputs = self.back.outputs.take().or(self.d_outputs.take());
        done
    }

    /// Gradients of the parameters of layer `l`, and of what it read of the layer below.
    fn add_gradients(&mut self, l: usize, gradients: &mut Buffer<f32>) -> Result<()> {
        let hidden = self.hidden;
        let (below, above) = self.layers.split_at_mut(l);
        let LstmLayer { cells, states, .. } = &mut above[0];
        cells.zero_bias_gradients()?;
        for (k, bars) in self.bars.iter().enumerate() {
            let gates_row = self.over_bars.gates_row(k);
            let steps = Steps {
                d_gates: TensorSlice { buffer: &self.back.gates, start: gates_row * GATES * hidden },
                hidden_before: TensorSlice { buffer: &states.hidden, start: self.over_bars.states_row(k) * hidden },
                rows: bars.windows() * bars.steps(),
            };
            match below.last() {
                None => {
                    sum_per_bar(&self.over_bars, k, &self.back.gates, &mut self.shared.per_bar_gates)?;
                    cells.weight_grads_per_bar(k, &steps, &bars.wide, bars.count(), &mut self.shared)?;
                }
                Some(below) => {
                    let read = below.read(k, &self.over_bars).part;
                    cells.weight_grads_by_step(k, &steps, read, &mut self.shared)?;
                    let d_outputs = self.d_outputs.as_mut().expect("there are several layers");
                    cells.d_input(k, &steps, d_outputs, gates_row * hidden, &mut self.shared)?;
                }
            }
        }
        cells.add_gradients(gradients)
    }
}

impl<T: Operand> LstmLayer<T> {
    /// Layer `l` of `model`, over an empty `list`; memory for batches is taken when they come.
    fn new(scope: &Scope, model: &Model, l: usize, list: &WorkList, arithmetic: Arithmetic) -> Result<Self> {
        let (weights, activations) = (scope.child("model/parameters/packed"), scope.child("activations"));
        let starts = model.recurrent_layers().iter().map(|lstm| model.layout().range(lstm.layers[l].weight_hh).start);
        let has_layer_above = l + 1 < model.config().layers;
        Ok(LstmLayer {
            cells: Cells::new(&weights, model, l, arithmetic)?,
            recurrent: RecurrentWeights::zeros(&weights, list.hidden(), &starts.collect::<Vec<_>>())?,
            int8_weights: None,
            states: States::zeros(&activations, list)?,
            between: has_layer_above.then(|| InterLayer::new(&activations, model, l)).transpose()?,
        })
    }

    /// Input of the layer above in timeframe `k`.
    fn read<'a>(&'a self, k: usize, list: &'a WorkList) -> OutputRows<'a, T> {
        let between = self.between.as_ref().expect("there is a layer above");
        between.read(Outputs { list, hidden: &self.states.hidden }, k)
    }
}

/// True if outputs after every step get a gradient in some layer, and not the last ones alone.
fn all_are_read(model: &Model, runs: Option<Runs>) -> bool {
    model.config().layers > 1 || model.config().pooling != Pooling::Last || runs.is_some()
}

/// Dropout of the output of layer `l` in timeframe `k`.
fn dropped<'a>(masks: &'a Buffer<MaskNumbers>, l: usize, all: &'a [Bars], k: usize) -> Dropped<'a> {
    let (mask, bars) = ((masks, l * all.len() + k), &all[k]);
    Dropped { mask, ends: (&bars.ends, 0), shape: [bars.steps(), bars.windows(), bars.hidden()] }
}
