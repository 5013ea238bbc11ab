//! Device memory of the LSTMs, from shapes.

use megabatch_nn::memory::{BACKWARD, BOTH, FORWARD, LargestBatch};

use super::{LstmLayer, Lstms};
use crate::device::carried::Carried;
use crate::device::cell::{Cells, inputs};
use crate::device::memory_estimate::{MemoryEstimate, MostRows};
use crate::device::top::Top;
use crate::ops::{InputWeights, Operand, TileWindows, WorkList, ensure_capacity};
use crate::tuning::{Tuner, Tuning};

impl<T: Operand> Lstms<T> {
    /// Counts what [`Lstms::new`] takes, and what batches do.
    pub(in crate::device) fn estimate(estimate: &mut MemoryEstimate<'_>) {
        let (model, config, learnt) = (estimate.model, estimate.config, estimate.learnt);
        let mut lstms = estimate.dry_run(|scope| Lstms::<T>::new(scope, model, config, &Tuner::off()));
        lstms.bars.iter_mut().enumerate().for_each(|(k, bars)| bars.estimate::<T>(estimate, k));
        let counts = &estimate.batch.bars;
        let rounded: usize = lstms.bars.iter().zip(counts).map(|(bars, count)| count * bars.width()).sum();
        estimate.book("batches", "rounded bars of a batch", BOTH, |_| ensure_capacity(&mut lstms.rows, rounded));
        let layers = model.config().layers;
        (0..layers).for_each(|l| LstmLayer::<T>::estimate(estimate, l));
        let parts = (0..layers).map(|l| LstmLayer::<T>::partial_sums_len(estimate, l)).max().unwrap_or(0);
        lstms.shared.estimate(estimate, parts, learnt.bars.iter().copied().max().unwrap_or(0));
        let (vectors, rows) = (Self::vectors(estimate), estimate.rows);
        estimate.book("activations", "what is read of windows", BOTH, |scope| {
            let mut top = Top::new(scope, model, config.arithmetic)?;
            top.reserve(vectors, rows, model.config().hidden)?;
            Ok(top)
        });
        lstms.tally_all_layers(estimate);
        lstms.tally_lists(estimate);
        Carried::estimate(estimate);
    }

    /// The most vectors of each timeframe that samples read: one a window, or one for each step of
    /// a run's.
    fn vectors<'a>(estimate: &MemoryEstimate<'a>) -> MostRows<'a> {
        match estimate.config.runs {
            Some(_) => estimate.rows,
            None => MostRows { all: &estimate.batch.windows, learnt: &estimate.learnt.windows },
        }
    }

    /// Counts memory that exists once for all layers.
    fn tally_all_layers(&mut self, estimate: &mut MemoryEstimate<'_>) {
        let (config, batch, learnt) = (estimate.model.config(), estimate.batch, estimate.learnt);
        let MostRows { all, learnt: rows_learnt } = estimate.rows;
        let (rows, rows_learnt) = (all.iter().sum::<usize>(), rows_learnt.iter().sum::<usize>());
        // Windows that are stored share nothing, and of series they may.
        let projects_itself = !batch.shares_bars && self.input.is_some();
        let bars: usize = if projects_itself { 0 } else { batch.bars.iter().sum() };
        let projected = if config.layers > 1 { bars.max(rows) } else { bars };
        estimate.book("activations", "projected inputs", BOTH, |_| self.ensure_projected_capacity(projected));
        estimate.book("activations", "gradients of states and gates", BACKWARD, |_| {
            self.back.reserve(rows_learnt, learnt.windows.iter().sum(), config.hidden)?;
            self.back.reserve_scratch(&learnt.windows, config.hidden)
        });
        estimate.book("activations", "gradients of outputs", BACKWARD, |_| self.ensure_d_outputs_capacity(rows_learnt));
    }

    /// Lists of windows that a batch uploads.
    fn tally_lists(&mut self, estimate: &mut MemoryEstimate<'_>) {
        let (model, batches) = (estimate.model, [estimate.batch, estimate.learnt].map(Some));
        let (layers, timeframes) = (model.config().layers, model.recurrent_layers().len());
        let smallest = TileWindows::smallest::<T>(model.config().hidden);
        estimate.book_upload("work list of the first layer", batches, |upload, batch| {
            self.over_bars.plan_upload(&batch.windows, smallest, upload)
        });
        if layers > 1 {
            estimate.book_upload("work list of those above", batches, |upload, batch| {
                self.over_states.plan_upload(&batch.windows, smallest, upload)
            });
        }
        let vectors = Self::vectors(estimate);
        let read = |batch: &LargestBatch, vectors: &[usize]| {
            let samples = batch.sizes.iter().copied().max().unwrap_or(0);
            Some([samples * timeframes, vectors.iter().sum()])
        };
        let read = [read(estimate.batch, vectors.all), read(estimate.learnt, vectors.learnt)];
        estimate.book_upload("what samples read", read, |upload, [reads, vectors]| {
            self.reads.plan_upload(reads, vectors, upload)
        });
        // A prediction drops nothing.
        let masks = estimate.config.drops_between_layers.then_some((layers - 1) * timeframes);
        estimate.book_upload("masks", [None, masks], |upload, masks| upload.put(&mut self.masks, masks));
    }
}

impl<T: Operand> LstmLayer<T> {
    /// Counts layer `l`.
    fn estimate(estimate: &mut MemoryEstimate<'_>, l: usize) {
        let (model, compute, windows) = (estimate.model, estimate.config, &estimate.batch.windows);
        let (config, name) = (model.config(), format!("layer {l} in the order of operations"));
        let (mut layer, _) = estimate.book("parameters", &name, BOTH, |scope| {
            let list = WorkList::empty(scope, config.hidden)?;
            let layer = LstmLayer::<T>::new(scope, model, l, &list, compute.arithmetic)?;
            let input = match l {
                0 => InputWeights::<T>::where_possible(scope, config.hidden, &inputs(model, 0))?,
                _ => None,
            };
            Ok((layer, input))
        });
        estimate.book("gradients", &name, BACKWARD, |_| layer.cells.ensure_gradient_capacity());
        let [most_rows, most_windows]: [usize; 2] = [estimate.rows.all.iter().sum(), windows.iter().sum()];
        let (is_top, is_checkpointed) = (l + 1 == config.layers, compute.gradient_checkpointing);
        let held = if is_checkpointed { "hidden states" } else { "states and gates" };
        estimate.book("activations", format!("layer {l}: {held}"), BOTH, |_| {
            layer.states.reserve_hidden(most_rows, most_windows, config.hidden)?;
            if is_checkpointed {
                return Ok(());
            }
            layer.states.reserve_cells_and_gates(most_rows, most_windows, config.hidden)
        });
        if is_checkpointed && is_top {
            estimate.book("activations", "cell states and gates of one layer", BOTH, |_| {
                layer.states.reserve_cells_and_gates(most_rows, most_windows, config.hidden)
            });
        }
        let launched_in = if is_checkpointed && !is_top { BOTH } else { FORWARD };
        let may_differ = compute.autotune == Tuning::Fast;
        estimate.book("activations", format!("layer {l}: between launches"), launched_in, |_| {
            layer.states.reserve_scratch(windows, config.hidden, may_differ)
        });
        let rows = estimate.rows;
        if let Some(between) = &mut layer.between {
            estimate.book("activations", format!("layer {l}: outputs for the next"), BOTH, |_| {
                between.reserve(rows, config.hidden, compute.drops_between_layers)
            });
        }
    }

    /// Scratch length of the cells of layer `l` between launches.
    fn partial_sums_len(estimate: &MemoryEstimate<'_>, l: usize) -> usize {
        let (config, rows) = (estimate.model.config(), estimate.rows);
        let read = match l {
            0 => MostRows { all: &estimate.batch.bars, learnt: &estimate.learnt.bars },
            _ => rows,
        };
        let cell_parts = |(k, &input): (usize, &usize)| {
            let (projected, read) = (read.all[k], read.learnt[k]);
            Cells::<T>::partial_sums_len(config.hidden, input, config.bias, projected, read, rows.learnt[k])
        };
        inputs(estimate.model, l).iter().enumerate().map(cell_parts).max().unwrap_or(0)
    }
}
