use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;

use super::batch_upload::{PlannedUpload, UploadBatch};
use super::capacity::ensure_capacity;

/// One layer of one timeframe's LSTM over the distinct windows of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// T.
    pub steps: usize,
    /// Row of each window's first step, B of them, among the sequence's own projected inputs.
    pub first: &'a [u32],
    /// Rows from a window's step to its next one: 1 where rows are bars, B where they are the steps
    /// of the layer below.
    pub row_step: usize,
    /// Rows of projected inputs.
    pub projected_rows: usize,
}

/// Windows that one block of threads runs from their first step to their last; a group of blocks
/// takes eight at a time with any. The results are the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TileWindows {
    /// Half of what a product of the tensor cores has room for, in twice as many blocks: for
    /// batches that do not fill the GPU, in 16 bits, of layers that a block holds.
    Four,
    /// As many as a product of the tensor cores has room for.
    #[default]
    Eight,
    /// Half the blocks: each reads the states and waits at a barrier for twice the work. Groups of
    /// blocks are dealt so many windows at a time, and take them by eights.
    Sixteen,
}

/// Schedule of a list's windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecurrenceSchedule {
    /// Windows of a block of threads.
    pub tile: TileWindows,
    /// True if every step is a launch of its own, also where a group of blocks could take all of
    /// them.
    pub step_by_step: bool,
}

/// Work of one launch of the recurrence: sequences whose arrays follow one another, cut into tiles
/// of windows, longest sequences first, so that the launch takes as long as the longest one where
/// there is a multiprocessor for each tile.
#[derive(Debug)]
pub struct WorkList {
    hidden: usize,
    schedule: RecurrenceSchedule,
    places: Vec<SequenceOffsets>,
    firsts: Vec<u32>,
    /// Rows of projected inputs of each sequence.
    projected_rows: Vec<usize>,
    tiles: Vec<Tile>,
    pub(super) on_device: OnDevice,
}

/// Work list as kernels read it; there may be room for more behind it.
#[derive(Debug)]
pub(super) struct OnDevice {
    pub(super) places: Buffer<SequenceOffsets>,
    pub(super) tiles: Buffer<Tile>,
    pub(super) first: Buffer<u32>,
}

/// Start of a sequence's arrays, in rows: `Sequence` of work.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct SequenceOffsets {
    pub(super) projected_row: u64,
    /// First row of gates; of states, of which there are those before the first step besides, it is
    /// `window` rows further.
    pub(super) step_row: u64,
    pub(super) row_step: u64,
    /// Number of its weight.
    pub(super) weight: u32,
    /// Windows of the sequences before it.
    pub(super) window: u32,
    /// B.
    pub(super) windows: u32,
    /// T.
    pub(super) steps: u32,
    /// First element of the rows that it reads where they are not projected, and F of these.
    pub(super) input: u64,
    pub(super) features: u64,
}

/// Windows of a sequence from number `window` on: `Tile` of work.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) sequence: u32,
    pub(super) window: u32,
}

impl WorkList {
    /// A list of no sequences.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn empty(scope: &Scope, hidden: usize) -> Result<Self> {
        let on_device = OnDevice {
            places: Buffer::zeros(scope, 0)?,
            tiles: Buffer::zeros(scope, 0)?,
            first: Buffer::zeros(scope, 0)?,
        };
        Ok(WorkList {
            hidden,
            schedule: RecurrenceSchedule::default(),
            places: Vec::new(),
            firsts: Vec::new(),
            projected_rows: Vec::new(),
            tiles: Vec::new(),
            on_device,
        })
    }

    /// Takes other sequences, of which the device learns by [`WorkList::enqueue`].
    ///
    /// # Panics
    /// If a window reads past its sequence's projected inputs, a sequence has no step, or the
    /// kernels' 32-bit numbers do not reach every element: 2³² hidden states of a step, or units of
    /// all projected rows.
    pub fn set(&mut self, schedule: RecurrenceSchedule, sequences: &[Sequence<'_>]) {
        let hidden = self.hidden;
        let (places, firsts) = (&mut self.places, &mut self.firsts);
        places.clear();
        firsts.clear();
        let (mut projected_row, mut step_row) = (0, 0);
        for (weight, sequence) in sequences.iter().enumerate() {
            let last = sequence
                .first
                .iter()
                .max()
                .map_or(0, |&first| first as usize + 1 + sequence.row_step * (sequence.steps - 1));
            assert!(
                sequence.steps > 0 && last <= sequence.projected_rows,
                "a window of sequence {weight} reads row {last} of {}",
                sequence.projected_rows
            );
            places.push(SequenceOffsets {
                projected_row: projected_row as u64,
                step_row: step_row as u64,
                row_step: sequence.row_step as u64,
                weight: weight as u32,
                window: firsts.len() as u32,
                windows: sequence.first.len() as u32,
                steps: sequence.steps as u32,
                input: 0,
                features: 0,
            });
            firsts.extend_from_slice(sequence.first);
            projected_row += sequence.projected_rows;
            step_row += sequence.steps * sequence.first.len();
        }
        let in_reach = |rows: usize| u32::try_from(4 * rows * hidden).is_ok();
        assert!(in_reach(projected_row) && in_reach(firsts.len() + 32), "too many rows for one launch");
        self.projected_rows = sequences.iter().map(|sequence| sequence.projected_rows).collect();
        (self.schedule, self.tiles) = (schedule, tiles(places, schedule.tile.windows()));
    }

    /// Takes the same sequences in another way, of which the device learns at once. Waits for it.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn change_schedule(&mut self, schedule: RecurrenceSchedule) -> Result<()> {
        (self.schedule, self.tiles) = (schedule, tiles(&self.places, schedule.tile.windows()));
        ensure_capacity(&mut self.on_device.tiles, self.tiles.len())?;
        Ok(self.on_device.tiles.copy_from_at(0, &self.tiles)?)
    }

    /// Says of each sequence where the rows `[projected rows, F]` begin that it reads if they are
    /// not projected, by their first element's number, and F.
    ///
    /// # Panics
    /// If there are not so many sequences.
    pub fn read_rows(&mut self, rows: &[(usize, usize)]) {
        assert_eq!(rows.len(), self.places.len(), "rows of every sequence");
        for (place, &(start, features)) in self.places.iter_mut().zip(rows) {
            (place.input, place.features) = (start as u64, features as u64);
        }
    }

    /// Gives `upload` what the device has to know of the list. Memory is taken only where there is
    /// less than that needs.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn enqueue<'a>(&'a mut self, upload: &mut UploadBatch<'a>) -> Result<()> {
        let OnDevice { places, tiles, first } = &mut self.on_device;
        upload.put(places, &self.places)?;
        upload.put(tiles, &self.tiles)?;
        upload.put(first, &self.firsts)
    }

    /// Tiles of a list whose sequences have so many windows.
    pub(super) fn tiles_max(windows: &[usize], tile: TileWindows) -> usize {
        windows.iter().map(|windows| windows.div_ceil(tile.windows())).sum()
    }

    /// Plans the upload of a list, of which each sequence has so many windows at most, in tiles of
    /// this size at least.
    pub(crate) fn plan_upload(
        &mut self,
        windows: &[usize],
        smallest: TileWindows,
        upload: &mut PlannedUpload,
    ) -> Result<()> {
        let OnDevice { places, tiles, first } = &mut self.on_device;
        upload.put(places, windows.len())?;
        upload.put(tiles, WorkList::tiles_max(windows, smallest))?;
        upload.put(first, windows.iter().sum())
    }

    /// H.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Windows of all sequences.
    pub fn windows(&self) -> usize {
        self.firsts.len()
    }

    /// Sequences of the list.
    pub fn sequences(&self) -> usize {
        self.places.len()
    }

    /// T and B of a sequence.
    pub fn steps_and_windows(&self, sequence: usize) -> [usize; 2] {
        let SequenceOffsets { steps, windows, .. } = self.places[sequence];
        [steps, windows].map(|size| size as usize)
    }

    /// Windows of the sequences before one.
    pub fn first_window(&self, sequence: usize) -> usize {
        self.places[sequence].window as usize
    }

    /// Rows of gates: steps of windows, of all sequences.
    pub fn rows(&self) -> usize {
        self.places.iter().map(|place| place.steps as usize * place.windows as usize).sum()
    }

    /// Rows of projected inputs of all sequences.
    pub fn projected_rows(&self) -> usize {
        self.projected_rows.iter().sum()
    }

    /// Rows of projected inputs of one sequence.
    pub fn projected_rows_of(&self, sequence: usize) -> usize {
        self.projected_rows[sequence]
    }

    /// First row of a sequence's projected inputs.
    pub fn projected_row(&self, sequence: usize) -> usize {
        self.places[sequence].projected_row as usize
    }

    /// First row of a sequence's gates, of which there are T·B: those of the first window at the
    /// first step.
    pub fn gates_row(&self, sequence: usize) -> usize {
        self.places[sequence].gates(0)
    }

    /// First row of a sequence's states, of which there are (T + 1)·B: that of the first window
    /// before the first step.
    pub fn states_row(&self, sequence: usize) -> usize {
        self.places[sequence].states(0)
    }

    /// First row of a sequence's states after step `t`, counted from 0.
    pub fn states_row_after(&self, sequence: usize, t: usize) -> usize {
        self.places[sequence].states(t + 1)
    }

    /// Elements up to the end of the rows that are read.
    pub(super) fn rows_end(&self) -> usize {
        let end = |(place, &count): (&SequenceOffsets, &usize)| place.input as usize + count * place.features as usize;
        self.places.iter().zip(&self.projected_rows).map(end).max().unwrap_or(0)
    }

    pub(super) fn device(&self) -> &Device {
        self.on_device.places.scope().device()
    }

    pub(super) fn places(&self) -> &[SequenceOffsets] {
        &self.places
    }

    /// Row of each window's first step.
    pub(super) fn first(&self, place: &SequenceOffsets) -> &[u32] {
        &self.firsts[place.window as usize..][..place.windows as usize]
    }

    pub(super) fn tiles(&self) -> usize {
        self.tiles.len()
    }

    pub(super) fn tile_windows(&self) -> usize {
        self.schedule.tile.windows()
    }

    pub(super) fn is_step_by_step(&self) -> bool {
        self.schedule.step_by_step
    }
}

impl TileWindows {
    fn windows(self) -> usize {
        match self {
            TileWindows::Four => 4,
            TileWindows::Eight => 8,
            TileWindows::Sixteen => 16,
        }
    }
}

impl SequenceOffsets {
    /// Row of the states of the first window before step `t`, which are those after step `t` - 1.
    pub(super) fn states(&self, t: usize) -> usize {
        self.gates(t) + self.window as usize
    }

    /// Row of the gates of the first window at step `t`.
    pub(super) fn gates(&self, t: usize) -> usize {
        self.step_row as usize + t * self.windows as usize
    }
}

/// Tiles of all sequences, those of the longest ones first.
fn tiles(places: &[SequenceOffsets], windows: usize) -> Vec<Tile> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&sequence| std::cmp::Reverse(places[sequence].steps));
    let sequence_tiles = |sequence: usize| {
        let starts = (0..places[sequence].windows).step_by(windows);
        starts.map(move |window| Tile { sequence: sequence as u32, window })
    };
    order.into_iter().flat_map(sequence_tiles).collect()
}

#[cfg(test)]
mod tests {
    use super::super::batch_upload::BatchUploader;
    use super::super::uploaded::work_list;
    use super::*;

    #[test]
    fn tiles_of_the_longest_sequences_come_first() {
        let scope = Device::cpu().scope("test");
        let sequence = |steps: usize, first| Sequence { steps, first, row_step: 1, projected_rows: steps + 2 };
        let sequences = [sequence(3, &[0, 1, 2]), sequence(9, &[0; 17]), sequence(5, &[])];
        let list = work_list(&scope, 4, TileWindows::Eight, &sequences).unwrap();
        let tiles: Vec<_> = list.on_device.tiles.as_slice().iter().map(|tile| (tile.sequence, tile.window)).collect();
        assert_eq!(tiles, [(1, 0), (1, 8), (1, 16), (0, 0)]);
        assert_eq!((list.windows(), list.rows(), list.projected_rows()), (20, 9 + 153, 5 + 11 + 7));
        assert_eq!([0, 1, 2].map(|sequence| list.first_window(sequence)), [0, 3, 20]);
        assert_eq!([0, 1, 2].map(|sequence| list.steps_and_windows(sequence)), [[3, 3], [9, 17], [5, 0]]);
        let second = list.places()[1];
        assert_eq!((second.projected_row, second.gates(2), second.states(2)), (5, 9 + 34, 9 + 34 + 3));
    }

    #[test]
    fn a_list_that_is_set_again_keeps_its_memory_and_forgets_its_sequences() {
        let device = Device::cpu();
        let scope = device.scope("test");
        let sequence = |steps: usize, first| Sequence { steps, first, row_step: 1, projected_rows: steps + 2 };
        let mut list =
            work_list(&scope, 4, TileWindows::Eight, &[sequence(9, &[0; 17]), sequence(3, &[0; 9])]).unwrap();
        let before = device.usage().allocated_bytes;
        list.set(RecurrenceSchedule { tile: TileWindows::Sixteen, step_by_step: false }, &[sequence(2, &[0, 1, 2])]);
        let mut uploader = BatchUploader::new(&scope).unwrap();
        let mut upload = uploader.upload();
        list.enqueue(&mut upload).unwrap();
        upload.send().unwrap();
        assert_eq!(device.usage().allocated_bytes, before);
        assert_eq!((list.windows(), list.rows(), list.projected_rows(), list.tiles()), (3, 6, 4, 1));
        assert_eq!(list.on_device.first.as_slice()[..3], [0, 1, 2]);
    }

    #[test]
    fn a_planned_upload_takes_the_memory_of_a_list() {
        let (device, plan) = (Device::cpu(), Device::planning());
        let sequence = |steps: usize, first| Sequence { steps, first, row_step: 1, projected_rows: steps + 2 };
        let sequences = [sequence(9, &[0; 17]), sequence(3, &[0; 9])];
        let _list = work_list(&device.scope("test"), 4, TileWindows::Eight, &sequences).unwrap();
        let mut planned = WorkList::empty(&plan.scope("plan"), 4).unwrap();
        planned.plan_upload(&[17, 9], TileWindows::Eight, &mut PlannedUpload::default()).unwrap();
        assert_eq!(plan.usage().allocated_bytes, device.usage().allocated_bytes);
    }

    #[test]
    #[should_panic(expected = "a window of sequence 0 reads row 6 of 5")]
    fn a_window_past_the_projected_inputs_is_refused() {
        let sequence = Sequence { steps: 3, first: &[0, 3], row_step: 1, projected_rows: 5 };
        let _ = work_list(&Device::cpu().scope("test"), 4, TileWindows::Eight, &[sequence]);
    }
}
