//! States that windows start from, carried from step to step: read before the recurrence, noted
//! after it, and put in place once the step was accepted.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/carried_states.rs"]
mod cpu;

use bytemuck::{Pod, Zeroable};
use megabatch_amp::ops::{DeviceScaler, VerdictAddresses};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::batch_upload::{PlannedUpload, UploadBatch};
use super::operand::{Operand, TensorSlice};
use super::recurrence_states::States;
use super::work_list::WorkList;

const MODULE: &str = "nn/carried_states";
const PTX: &str = megabatch_gpu_core::ptx!("carried_states");

/// A state that a batch computes, to be carried: `Note` of carried_states.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct StateNote {
    /// Number of the bar among those whose states are carried, counted from 1; 0 for no state.
    pub slot: u32,
    /// Place of the state among those that the step has computed.
    pub place: u32,
    /// Row of the state among those of its timeframe, `[T + 1, B]`.
    pub row: u32,
}

/// Sizes of the carried states of a timeframe.
#[derive(Clone, Copy, Debug)]
pub struct CarriedSizes {
    /// H.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Bars whose states are carried.
    pub slots: usize,
    /// Number of these bars that a step computes at most.
    pub places: usize,
}

/// The carried states of one timeframe, and what a batch reads and notes of them.
#[derive(Debug)]
pub struct CarriedStates {
    sizes: CarriedSizes,
    /// `[slots, layers, 2, H]`: of each layer h, then c, as windows start from them.
    states: Buffer<f32>,
    /// `[places, layers, 2, H]`: those that the step has computed so far.
    pending: Buffer<f32>,
    /// `[places]`: the slot of each, counted from 1; 0 where none was computed.
    pending_slots: Buffer<u32>,
    /// Slot that each window of the batch starts from, counted from 1; 0 for zero.
    starts: Buffer<u32>,
    notes: Buffer<StateNote>,
    note_count: usize,
}

impl CarriedSizes {
    /// Numbers of a state.
    fn state_len(&self) -> usize {
        2 * self.layers * self.hidden
    }
}

impl CarriedStates {
    /// States of zero on `scope`; what batches bring is booked on `batches`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn zeros(scope: &Scope, batches: &Scope, sizes: CarriedSizes) -> Result<Self> {
        Ok(CarriedStates {
            states: Buffer::zeros(scope, sizes.slots * sizes.state_len())?,
            pending: Buffer::zeros(scope, sizes.places * sizes.state_len())?,
            pending_slots: Buffer::zeros(scope, sizes.places)?,
            starts: Buffer::zeros(batches, 0)?,
            notes: Buffer::zeros(batches, 0)?,
            note_count: 0,
            sizes,
        })
    }

    /// Plans the upload of a batch of so many windows and notes.
    pub(crate) fn plan_upload(&mut self, windows: usize, notes: usize, upload: &mut PlannedUpload) -> Result<()> {
        upload.put(&mut self.starts, windows)?;
        upload.put(&mut self.notes, notes)
    }

    /// Takes the states `[slots, layers, 2, H]` of the host.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says.
    pub fn load(&mut self, states: &[f32]) -> Result<()> {
        if states.is_empty() { Ok(()) } else { Ok(self.states.copy_from(states)?) }
    }

    /// Gives the states to the host. Waits for the device.
    ///
    /// # Errors
    /// As [`CarriedStates::load`].
    pub fn store(&self, states: &mut [f32]) -> Result<()> {
        if states.is_empty() { Ok(()) } else { Ok(self.states.copy_to(states)?) }
    }

    /// Forgets what a step has computed that was not accepted.
    ///
    /// # Errors
    /// As [`CarriedStates::load`].
    pub fn discard(&mut self) -> Result<()> {
        Ok(self.pending_slots.set_zero()?)
    }

    /// Gives `upload` what the device has to know of a batch: the slot that each window starts
    /// from, counted from 1 or 0 for zero, and the states that it computes, each slot once.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If there is no such slot or place.
    pub fn enqueue<'a>(&'a mut self, starts: &[u32], notes: &[StateNote], upload: &mut UploadBatch<'a>) -> Result<()> {
        let CarriedSizes { slots, places, .. } = self.sizes;
        assert!(starts.iter().all(|&start| start as usize <= slots), "windows start from {slots} slots");
        let fits = |note: &StateNote| note.slot == 0 || note.slot as usize <= slots && (note.place as usize) < places;
        assert!(notes.iter().all(fits), "notes for {places} places of {slots} slots");
        self.note_count = notes.len();
        upload.put(&mut self.starts, starts)?;
        upload.put(&mut self.notes, notes)
    }

    /// Sets the states of a layer before the first step of a sequence's windows.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
    ///
    /// # Panics
    /// If there is no room for the list, or a window without a start.
    pub fn start<T: Operand>(
        &self,
        list: &WorkList,
        sequence: usize,
        layer: usize,
        states: &mut States<T>,
    ) -> Result<()> {
        let CarriedSizes { hidden: width, .. } = self.sizes;
        let [_, windows] = list.steps_and_windows(sequence);
        let (start, len) = (list.states_row(sequence) * width, windows * width);
        assert!(windows <= self.starts.len(), "a start for each of {windows} windows");
        let (hidden, cell) = hidden_and_cell(states, start, len, list.device());
        match list.device() {
            Device::Cuda(device) => {
                let name = format!("start_states_{}", T::SUFFIX);
                let kernel = Kernel { module: MODULE, ptx: PTX, name: &name };
                let (table, starts) = (self.states.address(), self.starts.address());
                let (state_len, layer_start) = (self.sizes.state_len() as u64, self.layer_start(layer) as u64);
                let (hidden, cell) = (hidden.address(), cell.address());
                let arguments =
                    arguments![table, starts, state_len, layer_start, width as u32, windows as u64, hidden, cell];
                // SAFETY: slots were seen to be in the table where they were given to the upload; a
                // thread writes a number of either state of a window, for which there was seen to
                // be room. What is submitted to the default stream later runs after it.
                Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
            }
            _ => cpu_arm!(cpu::start(
                self,
                layer,
                &mut states.hidden.as_mut_slice()[start..][..len],
                &mut states.cell.as_mut_slice()[start..][..len],
            )),
        }
    }

    /// Notes the states of a layer that a batch has computed in a sequence. On a GPU the rows of
    /// the notes are the caller's to keep in range.
    ///
    /// # Errors
    /// As [`CarriedStates::start`].
    ///
    /// # Panics
    /// If there is no room for the list. On the CPU, if there is no such row.
    pub fn note<T: Operand>(
        &mut self,
        list: &WorkList,
        sequence: usize,
        layer: usize,
        states: &States<T>,
    ) -> Result<()> {
        let CarriedSizes { hidden: width, .. } = self.sizes;
        let [steps, windows] = list.steps_and_windows(sequence);
        let (start, len) = (list.states_row(sequence) * width, (steps + 1) * windows * width);
        let (hidden, cell) = hidden_and_cell(states, start, len, list.device());
        match list.device() {
            Device::Cuda(device) => {
                let name = format!("note_states_{}", T::SUFFIX);
                let kernel = Kernel { module: MODULE, ptx: PTX, name: &name };
                let (notes, count) = (self.notes.address(), self.note_count as u64);
                let (state_len, layer_start) = (self.sizes.state_len() as u64, self.layer_start(layer) as u64);
                let (hidden, cell) = (hidden.address(), cell.address());
                let (pending, slots) = (self.pending.address(), self.pending_slots.address());
                let arguments =
                    arguments![notes, count, state_len, layer_start, width as u32, hidden, cell, pending, slots];
                // SAFETY: places were seen to be there where they were given to the upload, and
                // rows are, as the caller promised; a thread writes a number of either state of a
                // place that no other note has. What is submitted to the default stream later runs
                // after it.
                Ok(unsafe { kernel.submit(device, Launch::for_threads(self.note_count * width), &arguments) }?)
            }
            _ => cpu_arm!(cpu::note(self, layer, hidden.elements(), cell.elements())),
        }
    }

    /// Puts in place what the step has computed, if the step that `control` judged was accepted.
    /// Does not wait.
    ///
    /// # Errors
    /// As [`CarriedStates::start`].
    pub fn commit(&mut self, control: &DeviceScaler) -> Result<()> {
        let device = self.states.scope().device().clone();
        match &device {
            Device::Cuda(device) => {
                let kernel = Kernel { module: MODULE, ptx: PTX, name: "commit_states" };
                let (pending, slots) = (self.pending.address(), self.pending_slots.address());
                let (places, state_len) = (self.sizes.places as u64, self.sizes.state_len() as u64);
                let VerdictAddresses { applied, bad_chunk, terms } = control.verdict_addresses();
                let table = self.states.address();
                let arguments = arguments![pending, slots, places, state_len, applied, bad_chunk, terms, table];
                // SAFETY: a place has a slot of the table, or none; no two places have one slot. A
                // thread writes one number. What is submitted to the default stream later runs
                // after it.
                Ok(unsafe { kernel.submit(device, Launch::for_threads(self.pending.len()), &arguments) }?)
            }
            _ => cpu_arm!(cpu::commit(self, control)),
        }
    }

    /// Number of a layer's first unit in a state.
    fn layer_start(&self, layer: usize) -> usize {
        2 * layer * self.sizes.hidden
    }
}

/// The hidden and the cell states from element `start` on, of which there are `len` on `device`.
fn hidden_and_cell<'a, T: Operand>(
    states: &'a States<T>,
    start: usize,
    len: usize,
    device: &Device,
) -> (TensorSlice<'a, T>, TensorSlice<'a, f32>) {
    let (hidden, cell) = (TensorSlice { buffer: &states.hidden, start }, TensorSlice { buffer: &states.cell, start });
    hidden.assert_has(len, device);
    cell.assert_has(len, device);
    (hidden, cell)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::batch_upload::BatchUploader;
    use super::super::harness::{HARNESS, noise};
    use super::super::uploaded::work_list;
    use super::super::work_list::{Sequence, TileWindows};
    use super::*;

    const LAYERS: usize = 2;
    const SLOTS: usize = 4;
    const PLACES: usize = 3;
    const WINDOWS: usize = 5;

    /// Two sequences of five windows, of two steps and of three.
    fn list(scope: &Scope, hidden: usize) -> WorkList {
        let first: Vec<u32> = (0..WINDOWS as u32).collect();
        let sequence = |steps| Sequence { steps, first: &first, row_step: 1, projected_rows: 8 };
        work_list(scope, hidden, TileWindows::Eight, &[sequence(2), sequence(3)]).unwrap()
    }

    fn states<T: Operand>(scope: &Scope, list: &WorkList) -> States<T> {
        let mut states = States::zeros(scope, list).unwrap();
        let numbers = noise("states", states.cell.len(), 0.9);
        states.cell.copy_from(&numbers).unwrap();
        states.hidden.copy_from(&numbers.into_iter().map(|x| T::narrow(-x)).collect::<Vec<_>>()).unwrap();
        states
    }

    fn carried(scope: &Scope, hidden: usize) -> CarriedStates {
        let sizes = CarriedSizes { hidden, layers: LAYERS, slots: SLOTS, places: PLACES };
        let mut carried = CarriedStates::zeros(scope, scope, sizes).unwrap();
        carried.load(&noise("table", SLOTS * sizes.state_len(), 1.0)).unwrap();
        let notes = [
            StateNote { slot: 2, place: 0, row: 7 },
            StateNote::default(),
            StateNote { slot: 4, place: 2, row: 19 },
            StateNote::default(),
        ];
        let mut uploader = BatchUploader::new(scope).unwrap();
        let mut upload = uploader.upload();
        carried.enqueue(&[0, 4, 1, 1, 0], &notes, &mut upload).unwrap();
        upload.send().unwrap();
        carried
    }

    fn check<T: Operand>(hidden: usize, layer: usize) {
        let scope = Device::cpu().scope("test");
        let (list, mut carried) = (list(&scope, hidden), carried(&scope, hidden));
        let (state_len, layer_start) = (carried.sizes.state_len(), carried.layer_start(layer));
        let mut states = states::<T>(&scope, &list);
        let (mut hidden_found, mut cell_found) = (states.hidden.to_vec().unwrap(), states.cell.to_vec().unwrap());
        carried.start(&list, 1, layer, &mut states).unwrap();
        let row = list.states_row(1);
        assert!(states.cell.as_slice()[row * hidden..][..hidden].iter().all(|&c| c == 0.0));
        let expected = &carried.states.as_slice()[3 * state_len + layer_start..][..2 * hidden];
        assert_eq!(states.hidden.as_slice()[(row + 1) * hidden].widen(), T::narrow(expected[0]).widen());
        assert_eq!(states.cell.as_slice()[(row + 1) * hidden..][..hidden], expected[hidden..]);
        let mut arguments = [
            Arg::from(carried.states.as_slice()),
            Arg::from(carried.starts.as_slice()),
            Arg::from(state_len as u64),
            Arg::from(layer_start as u64),
            Arg::from(hidden as u32),
            Arg::from(WINDOWS as u64),
            Arg::from(&mut hidden_found[row * hidden..]),
            Arg::from(&mut cell_found[row * hidden..]),
        ];
        let launch = Launch::for_threads(WINDOWS * hidden);
        HARNESS.run(&format!("start_states_{}", T::SUFFIX), launch, &mut arguments);
        assert_eq!(
            bytemuck::cast_slice::<T, u8>(&hidden_found),
            bytemuck::cast_slice::<T, u8>(states.hidden.as_slice())
        );
        assert_eq!(cell_found, states.cell.as_slice());

        let (mut pending, mut slots) = (carried.pending.to_vec().unwrap(), vec![0u32; PLACES]);
        carried.note(&list, 1, layer, &states).unwrap();
        let noted = &carried.pending.as_slice()[2 * state_len + layer_start..][..2 * hidden];
        let last = (row + 19) * hidden;
        assert_eq!(noted[0], states.hidden.as_slice()[last].widen());
        assert_eq!(noted[hidden..], states.cell.as_slice()[last..][..hidden]);
        let mut arguments = [
            Arg::from(carried.notes.as_slice()),
            Arg::from(carried.note_count as u64),
            Arg::from(state_len as u64),
            Arg::from(layer_start as u64),
            Arg::from(hidden as u32),
            Arg::from(&states.hidden.as_slice()[row * hidden..]),
            Arg::from(&states.cell.as_slice()[row * hidden..]),
            Arg::from(&mut pending[..]),
            Arg::from(&mut slots[..]),
        ];
        let launch = Launch::for_threads(carried.note_count * hidden);
        HARNESS.run(&format!("note_states_{}", T::SUFFIX), launch, &mut arguments);
        assert_eq!(pending, carried.pending.as_slice());
        // The first layer tells of the slots on a GPU, and each on the CPU.
        assert_eq!(carried.pending_slots.as_slice(), [2, 0, 4]);
        assert_eq!(slots, if layer == 0 { [2, 0, 4] } else { [0; 3] });
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for (hidden, layer) in [(1, 0), (3, 1), (70, 0), (70, 1)] {
            check::<f32>(hidden, layer);
            check::<f16>(hidden, layer);
            check::<bf16>(hidden, layer);
        }
    }

    #[test]
    fn states_take_their_place_once_a_step_is_accepted() {
        let (scope, hidden) = (Device::cpu().scope("test"), 7);
        let list = list(&scope, hidden);
        let states = states::<f32>(&scope, &list);
        let mut carried = carried(&scope, hidden);
        (0..LAYERS).for_each(|layer| carried.note(&list, 1, layer, &states).unwrap());
        let before = carried.states.to_vec().unwrap();
        // Nothing is wrong with a step of no terms.
        carried.commit(&DeviceScaler::new(&scope, None, 0).unwrap()).unwrap();
        let accepted = carried.states.to_vec().unwrap();
        let state_len = carried.sizes.state_len();
        let changed: Vec<usize> =
            (0..SLOTS).filter(|slot| accepted[slot * state_len] != before[slot * state_len]).collect();
        assert_eq!(changed, [1, 3]);
        let all = u32::MAX;
        for (applied, bad_chunk, terms, is_accepted) in [
            (1u32, all, 5.0f64, true),
            (0, all, 0.0, true),
            (0, all, 5.0, false),
            (0, 0, 5.0, false),
            (0, 0, 0.0, false),
        ] {
            let (mut found, verdict) = (before.clone(), ([applied], [bad_chunk], [terms]));
            let mut arguments = [
                Arg::from(carried.pending.as_slice()),
                Arg::from(carried.pending_slots.as_slice()),
                Arg::from(PLACES as u64),
                Arg::from(state_len as u64),
                Arg::from(&verdict.0[..]),
                Arg::from(&verdict.1[..]),
                Arg::from(&verdict.2[..]),
                Arg::from(&mut found[..]),
            ];
            HARNESS.run("commit_states", Launch::for_threads(PLACES * state_len), &mut arguments);
            assert_eq!(found, if is_accepted { &accepted[..] } else { &before[..] }, "{applied} {bad_chunk} {terms}");
        }
        // Those of a step that was forgotten do not.
        carried.load(&before).unwrap();
        carried.discard().unwrap();
        carried.commit(&DeviceScaler::new(&scope, None, 0).unwrap()).unwrap();
        assert_eq!(carried.states.as_slice(), before);
    }
}
