//! Carried states on the CPU.

use megabatch_amp::ops::DeviceScaler;

use super::CarriedStates;
use crate::ops::operand::Operand;

pub(super) fn start<T: Operand>(carried: &CarriedStates, layer: usize, hidden: &mut [T], cell: &mut [f32]) {
    let (width, state_len) = (carried.sizes.hidden, carried.sizes.state_len());
    let windows = hidden.chunks_exact_mut(width).zip(cell.chunks_exact_mut(width));
    for (&start, (hidden, cell)) in carried.starts.as_slice().iter().zip(windows) {
        let Some(slot) = start.checked_sub(1) else {
            hidden.fill(T::narrow(0.0));
            cell.fill(0.0);
            continue;
        };
        let from = &carried.states.as_slice()[slot as usize * state_len + carried.layer_start(layer)..];
        hidden.iter_mut().zip(from).for_each(|(to, &h)| *to = T::narrow(h));
        cell.copy_from_slice(&from[width..][..width]);
    }
}

pub(super) fn note<T: Operand>(carried: &mut CarriedStates, layer: usize, hidden: &[T], cell: &[f32]) {
    let (width, state_len, layer_start) = (carried.sizes.hidden, carried.sizes.state_len(), carried.layer_start(layer));
    let notes = &carried.notes.as_slice()[..carried.note_count];
    for note in notes.iter().filter(|note| note.slot > 0) {
        let (place, from) = (note.place as usize, note.row as usize * width);
        let to = &mut carried.pending.as_mut_slice()[place * state_len + layer_start..][..2 * width];
        to.iter_mut().zip(&hidden[from..][..width]).for_each(|(to, h)| *to = h.widen());
        to[width..].copy_from_slice(&cell[from..][..width]);
        carried.pending_slots.as_mut_slice()[place] = note.slot;
    }
}

pub(super) fn commit(carried: &mut CarriedStates, control: &DeviceScaler) {
    if !control.is_accepted() {
        return;
    }
    let len = carried.sizes.state_len();
    let places = carried.pending_slots.as_slice().iter().zip(carried.pending.as_slice().chunks_exact(len));
    for (&slot, state) in places.filter(|(slot, _)| **slot > 0) {
        carried.states.as_mut_slice()[(slot as usize - 1) * len..][..len].copy_from_slice(state);
    }
}
