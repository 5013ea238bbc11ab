#![forbid(unsafe_code)]

//! States in and out of a sequence: `[layers, 2, H]` a window, the hidden and then the cell state of each layer.

use super::sequence::Sequence;
use crate::carried::Initial;
use crate::kernel::PANEL;

impl Sequence {
    /// Sets the state that layer `l` starts each window from.
    pub(super) fn set_initial_state(&mut self, l: usize, initial: Initial<'_>) {
        let (at, len, hidden) = (self.states_at(0), self.windows.len() * PANEL, self.of.sizes.hidden);
        let layer = &mut self.layers[l];
        for states in [layer.hidden.as_mut_slice(), layer.cell.as_mut_slice()] {
            (0..self.of.units()).for_each(|panel| states[at.panel(panel).start..][..len].fill(0.0));
        }
        for (w, &end) in self.windows.ends().iter().enumerate() {
            let Some(state) = initial.of_window(end) else { continue };
            let own = state[2 * l * hidden..][..2 * hidden].chunks_exact(hidden);
            for (from, to) in own.zip([layer.hidden.as_mut_slice(), layer.cell.as_mut_slice()]) {
                for (panel, part) in from.chunks(PANEL).enumerate() {
                    to[at.row(w).panel(panel).start..][..part.len()].copy_from_slice(part);
                }
            }
        }
    }

    /// The state of window `w` after step `t`, which is in `to` afterwards.
    pub(super) fn read_state(&self, (w, t): (usize, usize), to: &mut [f32]) {
        let (at, hidden) = (self.states_at(t + 1).row(w), self.of.sizes.hidden);
        for (layer, to) in self.layers.iter().zip(to.chunks_exact_mut(2 * hidden)) {
            for (states, to) in [&layer.hidden, &layer.cell].into_iter().zip(to.chunks_exact_mut(hidden)) {
                for (panel, part) in to.chunks_mut(PANEL).enumerate() {
                    part.copy_from_slice(&states.as_slice()[at.panel(panel).start..][..part.len()]);
                }
            }
        }
    }
}
