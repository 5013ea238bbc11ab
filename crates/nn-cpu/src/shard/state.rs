#![forbid(unsafe_code)]

//! States in and out of a sequence: `[layers, S, H]` a window, the hidden and then, if the cell has
//! one, the cell state of each layer.

use megabatch_gpu_core::Buffer;

use super::segments::SavedCells;
use super::sequence::Sequence;
use crate::carried::Initial;
use crate::kernel::{PANEL, PanelStride};

impl Sequence {
    /// Sets the state that layer `l` starts each window from.
    pub(super) fn set_initial_state(&mut self, l: usize, initial: Initial<'_>) {
        let (len, hidden) = (self.windows.len() * PANEL, self.dims.sizes.hidden);
        let (hidden_at, cell_at) = (self.states_at(0), self.saved_cell_at(0));
        let layer = &mut self.layers[l];
        let mut kinds = [(layer.hidden.as_mut_slice(), hidden_at), (layer.cell.as_mut_slice(), cell_at)];
        let kinds = &mut kinds[..self.dims.sizes.cell.states()];
        for (states, at) in &mut *kinds {
            (0..self.dims.unit_panels()).for_each(|panel| states[at.panel(panel).start..][..len].fill(0.0));
        }
        for (w, &end) in self.windows.ends().iter().enumerate() {
            let Some(state) = initial.window_state(end) else { continue };
            let own = state[l * kinds.len() * hidden..].chunks_exact(hidden);
            for (from, (to, at)) in own.zip(&mut *kinds) {
                for (panel, part) in from.chunks(PANEL).enumerate() {
                    to[at.row(w).panel(panel).start..][..part.len()].copy_from_slice(part);
                }
            }
        }
    }

    /// The state of window `w` after step `t`, which is in `to` afterwards.
    ///
    /// # Panics
    /// If cell states are not kept after every step, unless it is the last.
    pub(super) fn read_state(&self, w: usize, t: usize, to: &mut [f32]) {
        let kept = self.checkpointing.cells == SavedCells::EveryStep || t + 1 == self.windows.steps();
        assert!(kept, "the cell state after step {t} of {}", self.windows.steps());
        let (hidden_at, cell_at) = (self.states_at(t + 1).row(w), self.saved_cell_at(t + 1).row(w));
        let hidden = self.dims.sizes.hidden;
        let states = self.dims.sizes.cell.states();
        for (layer, to) in self.layers.iter().zip(to.chunks_exact_mut(states * hidden)) {
            let kinds = [(&layer.hidden, hidden_at), (&layer.cell, cell_at)];
            for ((states, at), to) in kinds.into_iter().zip(to.chunks_exact_mut(hidden)) {
                self.read_kind(states, at, to);
            }
        }
    }

    /// True if there are cell states after every step.
    pub(super) fn keeps_cells(&self) -> bool {
        self.dims.sizes.cell.has_cell_state() && self.checkpointing.cells == SavedCells::EveryStep
    }

    /// The hidden state [H] of layer `l` in window `w` after step `t`, which is in `to` afterwards.
    pub(super) fn read_hidden(&self, l: usize, w: usize, t: usize, to: &mut [f32]) {
        self.read_kind(&self.layers[l].hidden, self.states_at(t + 1).row(w), to);
    }

    /// The cell state likewise, where [`Sequence::keeps_cells`].
    pub(super) fn read_cell(&self, l: usize, w: usize, t: usize, to: &mut [f32]) {
        self.read_kind(&self.layers[l].cell, self.saved_cell_at(t + 1).row(w), to);
    }

    fn read_kind(&self, states: &Buffer<f32>, at: PanelStride, to: &mut [f32]) {
        for (panel, part) in to.chunks_mut(PANEL).enumerate() {
            part.copy_from_slice(&states.as_slice()[at.panel(panel).start..][..part.len()]);
        }
    }

    /// The top layer's hidden state [H] of window `w` after step `t`, which is in `to` afterwards.
    pub(super) fn read_top(&self, w: usize, t: usize, to: &mut [f32]) {
        self.read_hidden(self.layers.len() - 1, w, t, to);
    }
}
