#![forbid(unsafe_code)]

//! What the LSTMs take of a device, from shapes.

use super::{Layer, Lstms, all_are_read};
use crate::device::bars::Bars;
use crate::device::between::Between;
use crate::device::cell::{Cells, Shared};
use crate::device::tally::Tally;
use crate::device::top::Top;
use crate::footprint::{BACKWARD, BOTH, FORWARD};
use crate::ops::{Gradients, InputWeights, MaskNumbers, Operand, Reads, RecurrentWeights, States, WorkList};
use crate::tuning::Tuning;

impl<T: Operand> Lstms<T> {
    /// Counts what [`Lstms::new`] takes, and what batches do.
    pub(in crate::device) fn tally(tally: &mut Tally<'_>) {
        let (model, batch) = (tally.model, tally.batch);
        for (k, lstm) in model.lstms().iter().enumerate() {
            Bars::tally::<T>(tally, k, lstm.sizes);
        }
        let layers = model.config().layers;
        (0..layers).for_each(|l| Layer::<T>::tally(tally, l));
        let parts = (0..layers).map(|l| Layer::<T>::parts(tally, l)).max().unwrap_or(0);
        Shared::tally(tally, parts, batch.bars.iter().copied().max().unwrap_or(0));
        let of_top = Top::bytes(model, Self::vectors(tally), &tally.rows);
        tally.put("activations", "what is read of windows", of_top, BOTH);
        Self::tally_all_layers(tally);
        Self::tally_lists(tally);
    }

    /// The most vectors of each timeframe that samples read: one a window, or one for each step of
    /// a run's.
    fn vectors<'a>(tally: &'a Tally<'_>) -> &'a [usize] {
        if tally.config.purpose().runs().is_some() { &tally.rows } else { &tally.batch.windows }
    }

    /// What is there once for all layers.
    fn tally_all_layers(tally: &mut Tally<'_>) {
        let (config, batch) = (tally.model.config(), tally.batch);
        let (rows, windows): (usize, usize) = (tally.rows.iter().sum(), batch.windows.iter().sum());
        let features: Vec<usize> = tally.model.lstms().iter().map(|lstm| lstm.sizes.features).collect();
        // Windows that are stored share nothing, and of series they may.
        let projects_itself = batch.series.is_none() && InputWeights::<T>::are_possible(config.hidden, &features);
        let bars: usize = if projects_itself { 0 } else { batch.bars.iter().sum() };
        let projected = if config.layers > 1 { bars.max(rows) } else { bars };
        let projected = projected * 4 * config.hidden * size_of::<f32>();
        tally.put("activations", "projected inputs", projected, BOTH);
        let back = Gradients::<T>::bytes(rows, windows, config.hidden);
        let back = back + Gradients::<T>::scratch_bytes_on_gpu(&batch.windows, config.hidden);
        tally.put("activations", "gradients of states and gates", back, BACKWARD);
        let are_read = all_are_read(tally.model, tally.config.purpose().runs());
        let d_outputs = if are_read { rows * config.hidden * size_of::<f32>() } else { 0 };
        tally.put("activations", "gradients of outputs", d_outputs, BACKWARD);
    }

    /// What a batch tells the device of its windows.
    fn tally_lists(tally: &mut Tally<'_>) {
        let (model, batch) = (tally.model, tally.batch);
        let (layers, timeframes) = (model.config().layers, model.lstms().len());
        let samples = batch.sizes.iter().copied().max().unwrap_or(0);
        let lists = WorkList::mail_bytes(&batch.windows).into_iter();
        tally.put_mail("work list of the first layer", lists.clone());
        tally.put_mail("work list of those above", lists.filter(|_| layers > 1));
        let reads = Reads::mail_bytes(samples, timeframes, Self::vectors(tally).iter().sum());
        tally.put_mail("what samples read", reads);
        let masks = tally.config.dropout_between_layers().then_some((layers - 1) * timeframes);
        tally.put_mail("masks", masks.map(|masks| masks * size_of::<MaskNumbers>()));
    }
}

impl<T: Operand> Layer<T> {
    /// Counts layer `l`.
    fn tally(tally: &mut Tally<'_>, l: usize) {
        let (model, batch) = (tally.model, tally.batch);
        let (config, drops) = (model.config(), tally.config.dropout_between_layers());
        let [weights, gradients] = Cells::<T>::bytes(model, l);
        let features: Vec<usize> = model.lstms().iter().map(|lstm| lstm.sizes.features).collect();
        let of_input = if l == 0 { InputWeights::<T>::bytes_on_gpu(config.hidden, &features) } else { 0 };
        let weights = weights + of_input + RecurrentWeights::<T>::bytes_on_gpu(config.hidden, model.lstms().len());
        tally.put("parameters", format!("layer {l} in the order of operations"), weights, BOTH);
        tally.put("gradients", format!("layer {l} in the order of operations"), gradients, BACKWARD);
        let rows_and_windows = [tally.rows.iter().sum(), batch.windows.iter().sum()];
        let may_differ = tally.config.tuning == Tuning::Fast;
        let states = States::<T>::bytes(rows_and_windows, config.hidden);
        tally.put("activations", format!("layer {l}: states and gates"), states, BOTH);
        let between_launches = States::<T>::scratch_bytes_on_gpu(&batch.windows, config.hidden, may_differ);
        tally.put("activations", format!("layer {l}: between launches"), between_launches, FORWARD);
        if l + 1 < config.layers {
            let changed = Between::<T>::bytes(model, &tally.rows, drops);
            tally.put("activations", format!("layer {l}: outputs for the next"), changed, BOTH);
        }
    }

    /// Numbers that the cells of layer `l` ask for between launches.
    fn parts(tally: &Tally<'_>, l: usize) -> usize {
        let config = tally.model.config();
        let of_cell = |(k, lstm): (usize, &crate::lstm::Lstm)| {
            let read = if l == 0 { tally.batch.bars[k] } else { tally.rows[k] };
            Cells::<T>::parts(config.hidden, lstm.sizes.input(l), config.bias, read, tally.rows[k])
        };
        tally.model.lstms().iter().enumerate().map(of_cell).max().unwrap_or(0)
    }
}
