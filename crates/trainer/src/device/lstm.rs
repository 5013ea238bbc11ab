#![forbid(unsafe_code)]

//! The LSTMs of all timeframes on a device, forward and backward.
//!
//! Buffers grow to what the largest batch takes and are used again. Arrays of several timeframes follow one another in the order of the model's timeframes: B
//! distinct windows of T steps each.

use megabatch_gpu_core::{Buffer, Scope};

use super::bars::Bars;
use super::cell::{Cell, Shared, Steps};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::ops::{
    Gradients, Inputs, Operand, Part, RecurrentWeights, Sequence, States, TileWindows, WorkList, make_room, recurrence,
    recurrence_backward, sum_by_bar,
};
use crate::samples::Samples;
use crate::view::BatchView;

/// Windows above which a block takes 16 of them: as many as fill a large GPU by eights.
const WINDOWS_BY_EIGHTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Lstms<T: Operand> {
    hidden: usize,
    series: Scope,
    bars: Vec<Bars<T>>,
    layers: Vec<Layer<T>>,
    /// What the first layer works on, which reads bars, and those above, which read the layer below.
    over_bars: WorkList,
    over_states: WorkList,
    projected: Buffer<f32>, // [rows, H, 4] of the layer that is computed
    back: Gradients<T>,
    /// Of what each layer gives to the one above, [Σ T·B, H]; none where there is one layer.
    d_outputs: Option<Buffer<f32>>,
    shared: Shared<T>,
}

/// One layer of all timeframes.
#[derive(Debug)]
struct Layer<T: Operand> {
    cells: Vec<Cell<T>>,
    recurrent: RecurrentWeights<T>,
    states: States<T>,
}

impl<T: Operand> Lstms<T> {
    /// The LSTMs of `model`, on scopes below `scope`. Memory for batches is taken when they come.
    pub(super) fn new(scope: &Scope, model: &Model) -> Result<Self> {
        let (weights, activations, batches) =
            (scope.child("model/parameters/packed"), scope.child("activations"), scope.child("batches"));
        let (hidden, sequences) = (model.config().hidden, model.lstms().len());
        let over_bars = WorkList::empty(&batches, hidden)?;
        let layer = |l: usize| {
            let cells = model.lstms().iter().map(|lstm| Cell::new(&weights, (model, lstm), l));
            Ok(Layer {
                cells: cells.collect::<Result<_>>()?,
                recurrent: RecurrentWeights::zeros(&weights, hidden, sequences)?,
                states: States::zeros(&activations, &over_bars)?,
            })
        };
        Ok(Lstms {
            hidden,
            series: scope.child("series"),
            bars: model.lstms().iter().map(|lstm| Bars::new(&batches, lstm.sizes)).collect::<Result<_>>()?,
            layers: (0..model.config().layers).map(layer).collect::<Result<_>>()?,
            over_states: WorkList::empty(&batches, hidden)?,
            projected: Buffer::zeros(&activations, 0)?,
            back: Gradients::zeros(&activations, &over_bars)?,
            d_outputs: (model.config().layers > 1).then(|| Buffer::zeros(&activations, 0)).transpose()?,
            shared: Shared::new(&activations, hidden)?,
            over_bars,
        })
    }

    /// Keeps the series of `samples` on the device, where their windows are slices of some.
    pub(super) fn keep_series(&mut self, samples: &dyn Samples) -> Result<()> {
        // Samples that load themselves ahead come as windows.
        let view = samples.series().filter(|_| samples.load_ahead().is_none());
        for (k, bars) in self.bars.iter_mut().enumerate() {
            bars.keep(&self.series, view.as_ref().map(|view| view.timeframes[k].values))?;
        }
        Ok(())
    }

    /// Makes ready for `parameters`.
    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        for Layer { cells, recurrent, .. } in &mut self.layers {
            for (k, cell) in cells.iter_mut().enumerate() {
                cell.load(parameters, (recurrent, k), &mut self.shared)?;
            }
        }
        Ok(())
    }

    /// Takes the windows of a batch from their first bar to their last.
    pub(super) fn forward(&mut self, batch: &BatchView<'_>) -> Result<()> {
        self.bars.iter_mut().enumerate().try_for_each(|(k, bars)| bars.take(batch, k))?;
        self.lay_out()?;
        for l in 0..self.layers.len() {
            self.project(l)?;
            let list = if l == 0 { &self.over_bars } else { &self.over_states };
            let Layer { recurrent, states, .. } = &mut self.layers[l];
            states.make_room(list)?;
            states.start_from_zero(list)?;
            recurrence(list, &Inputs { weights: recurrent, projected: &self.projected }, states)?;
        }
        Ok(())
    }

    /// Work lists of the windows found, and room for what they take.
    fn lay_out(&mut self) -> Result<()> {
        let windows: usize = self.bars.iter().map(Bars::windows).sum();
        let rows: usize = self.bars.iter().map(|bars| bars.windows() * bars.steps()).sum();
        // Bars are no more than steps of windows.
        if u32::try_from(4 * (rows + windows + 32) * self.hidden).is_err() {
            let expected = "less on a GPU, with more gradient accumulation: 4 H numbers for each step of its windows must be fewer than 2^32";
            return Err(Error::setting("training.batch_size", &self.bars[0].samples(), expected));
        }
        let tile = if windows > WINDOWS_BY_EIGHTS { TileWindows::Sixteen } else { TileWindows::Eight };
        self.over_bars.set(tile, &self.bars.iter().map(Bars::sequence).collect::<Vec<_>>())?;
        let mut projected_rows = self.over_bars.projected_rows();
        if self.layers.len() > 1 {
            let firsts: Vec<u32> = (0..windows as u32).collect();
            let of = |bars: &Bars<T>| Sequence {
                steps: bars.steps(),
                first: &firsts[..bars.windows()],
                row_step: bars.windows(),
                projected_rows: bars.windows() * bars.steps(),
            };
            self.over_states.set(tile, &self.bars.iter().map(of).collect::<Vec<_>>())?;
            projected_rows = projected_rows.max(rows);
            self.d_outputs.iter_mut().try_for_each(|d_outputs| make_room(d_outputs, rows * self.hidden))?;
        }
        make_room(&mut self.projected, projected_rows * 4 * self.hidden)?;
        let most = |of: fn(&Bars<T>) -> usize| self.bars.iter().map(of).max().unwrap_or(0);
        let steps = if self.layers.len() > 1 { most(|bars| bars.windows() * bars.steps()) } else { 0 };
        self.shared.make_room(most(Bars::count), steps)?;
        self.back.make_room(&self.over_bars)
    }

    /// x · W_ihᵀ + b of layer `l`: of bars, or of the states below after each step.
    fn project(&mut self, l: usize) -> Result<()> {
        let gates = 4 * self.hidden;
        let (below, above) = self.layers.split_at(l);
        for (k, (cell, bars)) in above[0].cells.iter().zip(&self.bars).enumerate() {
            match below.last() {
                None => {
                    let to = (&mut self.projected, self.over_bars.projected_row(k) * gates);
                    cell.project((&bars.narrow).into(), bars.count(), to)?;
                }
                Some(below) => {
                    let to = (&mut self.projected, self.over_states.projected_row(k) * gates);
                    let rows = bars.windows() * bars.steps();
                    cell.project(below.states_of(k, &self.over_bars, bars.windows()), rows, to)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what each sample's windows end in to `encodings`, `[B, D]`, a row a sample. Waits for the device.
    pub(super) fn read_last(&self, encodings: &mut [f32]) -> Result<()> {
        let (hidden, width) = (self.hidden, self.bars.len() * self.hidden);
        let states = &self.layers.last().expect("a model has a layer").states;
        for (k, bars) in self.bars.iter().enumerate() {
            let mut last = vec![T::narrow(0.0); bars.windows() * hidden];
            let row = self.over_bars.states_row(k) + bars.steps() * bars.windows();
            states.hidden.copy_to_at(row * hidden, &mut last)?;
            for (row, window) in encodings.chunks_exact_mut(width).zip(bars.of_sample()) {
                let to = &mut row[k * hidden..][..hidden];
                to.iter_mut().zip(&last[window * hidden..]).for_each(|(to, from)| *to = from.widen());
            }
        }
        Ok(())
    }

    /// Sets the gradients of the last states to those of samples, `[B, D]`: of a window the sum over its samples.
    fn write_d_last(&mut self, d_encodings: &[f32]) -> Result<()> {
        let (hidden, width) = (self.hidden, self.bars.len() * self.hidden);
        let mut d_last = vec![0.0; self.over_bars.windows() * hidden];
        let mut rest = d_last.as_mut_slice();
        for (k, bars) in self.bars.iter().enumerate() {
            let (own, others) = rest.split_at_mut(bars.windows() * hidden);
            rest = others;
            for (row, window) in d_encodings.chunks_exact(width).zip(bars.of_sample()) {
                let terms = &row[k * hidden..][..hidden];
                own[window * hidden..].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
        Ok(self.back.hidden.copy_from_at(0, &d_last)?)
    }

    /// Goes back from the gradients of samples' last states, `[B, D]`, after [`Lstms::forward`] of the same batch; adds those of the parameters.
    pub(super) fn backward(&mut self, d_encodings: &[f32], gradients: &mut Buffer<f32>) -> Result<()> {
        let top = self.layers.len() - 1;
        self.write_d_last(d_encodings)?;
        for l in (0..=top).rev() {
            if l < top {
                self.back.hidden.set_zero()?;
            }
            self.back.cell.set_zero()?;
            let list = if l == 0 { &self.over_bars } else { &self.over_states };
            let Layer { recurrent, states, .. } = &self.layers[l];
            // The layer above has left them there, and the next one does when these are read.
            self.back.outputs = if l < top { self.d_outputs.take() } else { None };
            let done = recurrence_backward(list, recurrent, states, &mut self.back);
            self.d_outputs = self.back.outputs.take().or(self.d_outputs.take());
            done?;
            self.add_gradients(l, gradients)?;
        }
        Ok(())
    }

    /// Gradients of the parameters of layer `l`, and of what it read of the layer below.
    fn add_gradients(&mut self, l: usize, gradients: &mut Buffer<f32>) -> Result<()> {
        let hidden = self.hidden;
        let (below, above) = self.layers.split_at_mut(l);
        let Layer { cells, states, .. } = &mut above[0];
        for (k, (cell, bars)) in cells.iter_mut().zip(&self.bars).enumerate() {
            let gates_row = self.over_bars.gates_row(k);
            let steps = Steps {
                d_gates: Part { buffer: &self.back.gates, start: gates_row * 4 * hidden },
                hidden_before: Part { buffer: &states.hidden, start: self.over_bars.states_row(k) * hidden },
                rows: bars.windows() * bars.steps(),
            };
            match below.last() {
                None => {
                    sum_by_bar(&self.over_bars, k, &self.back.gates, &mut self.shared.by_bar)?;
                    cell.add_by_bar(&steps, (&bars.wide, bars.count()), (&self.shared, gradients))?;
                }
                Some(below) => {
                    let x = below.states_of(k, &self.over_bars, bars.windows());
                    cell.add_by_step(&steps, x, (&self.shared, gradients))?;
                    let d_outputs = self.d_outputs.as_mut().expect("there are several layers");
                    cell.d_input(&steps, (d_outputs, gates_row * hidden))?;
                }
            }
        }
        Ok(())
    }
}

impl<T: Operand> Layer<T> {
    /// The hidden states of timeframe `k` after each step, `[T·B, H]`.
    fn states_of(&self, k: usize, list: &WorkList, windows: usize) -> Part<'_, T> {
        Part { buffer: &self.states.hidden, start: (list.states_row(k) + windows) * list.hidden() }
    }
}
