//! Inputs of layers: bars or the layer below, projected before or by the recurrence itself.

use megabatch_nn::Result;

use super::{LstmLayer, Lstms};
use crate::device::bars::Bars;
use crate::ops::{
    GATES, Operand, RecurrenceInputs, RowInputs, TensorSlice, ensure_capacity, recurrence, recurrence_int8,
    recurrence_of_rows,
};

impl<T: Operand> Lstms<T> {
    /// True if the first layer's recurrence projects bars itself: where another window would need
    /// the same rows, they are projected once a bar.
    pub(super) fn projects_itself(&self) -> bool {
        self.input.is_some() && self.bars.iter().all(Bars::share_nothing)
    }

    /// Places of the bars of each timeframe, one behind the other.
    pub(super) fn place_rows(&mut self) -> Result<()> {
        let Lstms { bars, rows, row_starts, over_bars, .. } = self;
        let mut end = 0;
        row_starts.clear();
        for bars in bars.iter() {
            row_starts.push(end);
            end += bars.narrow_len();
        }
        let places: Vec<_> = row_starts.iter().zip(&*bars).map(|(&start, bars)| (start, bars.width())).collect();
        over_bars.read_rows(&places);
        ensure_capacity(rows, end)
    }

    /// x · W_ihᵀ + b of layer `l`: of bars, or of the states below after each step.
    pub(super) fn project(&mut self, l: usize) -> Result<()> {
        let gates = GATES * self.hidden;
        let (below, above) = self.layers.split_at(l);
        let cells = &above[0].cells;
        for (k, bars) in self.bars.iter().enumerate() {
            match below.last() {
                None => {
                    let x = TensorSlice { buffer: &self.rows, start: self.row_starts[k] };
                    cells.project(
                        k,
                        x,
                        bars.count(),
                        &mut self.projected,
                        self.over_bars.projected_row(k) * gates,
                        &mut self.shared,
                    )?;
                }
                Some(below) => {
                    let read = below.read(k, &self.over_bars);
                    cells.project(
                        k,
                        read.part,
                        read.rows,
                        &mut self.projected,
                        self.over_states.projected_row(k) * gates,
                        &mut self.shared,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// All steps of layer `l`.
    pub(super) fn recur(&mut self, l: usize) -> Result<()> {
        let itself = self.projects_itself() && l == 0;
        let Lstms { over_bars, over_states, layers, input, rows, projected, .. } = self;
        let LstmLayer { recurrent, int8_weights, states, .. } = &mut layers[l];
        let list = if l == 0 { over_bars } else { over_states };
        match (int8_weights, input) {
            (Some(weights), _) => recurrence_int8(list, weights, projected, states),
            (None, Some(input)) if itself => {
                recurrence_of_rows(list, &RowInputs { weights: recurrent, input, rows }, states)
            }
            _ => recurrence(list, &RecurrenceInputs { weights: recurrent, projected }, states),
        }
    }
}
