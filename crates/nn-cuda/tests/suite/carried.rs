//! States that windows start from, carried from step to step.

use megabatch_amp::ops::DeviceScaler;
use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::Result;

use super::inter_layer::{narrow, same, wide};
use super::noise;
use super::uploaded::work_list;
use megabatch_nn_cuda::ops::{
    BatchUploader, CarriedSizes, CarriedStates, Operand, Sequence, StateNote, States, TileWindows,
};

/// H, layers, bars whose states are carried, and how many of them a step computes.
const SIZES: CarriedSizes = CarriedSizes { hidden: 37, layers: 2, slots: 6, places: 4 };

/// States that windows of the second timeframe start from, compute, and carry on.
pub(super) fn states<T: Operand>(device: &Device) -> Result<()> {
    same(device, 0.0, |scope| {
        let first: Vec<u32> = (0..9).collect();
        let sequence = |steps| Sequence { steps, first: &first, row_step: 1, projected_rows: 11 };
        let list = work_list(scope, SIZES.hidden, TileWindows::Eight, &[sequence(1), sequence(3)])?;
        let mut states = States::<T>::zeros(scope, &list)?;
        let len = states.cell.len();
        states.hidden = narrow::<T>(scope, "hidden", len)?;
        states.cell = Buffer::from_slice(scope, &noise(1, "cell", len, 1.0))?;
        let table = noise(1, "table", SIZES.slots * SIZES.layers * 2 * SIZES.hidden, 1.0);
        let mut carried = CarriedStates::zeros(scope, scope, SIZES)?;
        carried.load(&table)?;
        let note = |slot, place, row| StateNote { slot, place, row };
        let notes = [note(1, 0, 9), note(6, 3, 35), StateNote::default(), note(3, 1, 20), StateNote::default()];
        let mut uploader = BatchUploader::new(scope)?;
        let mut upload = uploader.upload();
        carried.enqueue(&[0, 6, 1, 1, 2, 0, 3, 4, 5], &notes, &mut upload)?;
        upload.send()?;
        let (accepted, mut all) = (DeviceScaler::new(scope, None, 0)?, Vec::new());
        for layer in 0..SIZES.layers {
            carried.start(&list, 1, layer, &mut states)?;
            all.extend([wide(&states.hidden)?, states.cell.to_vec()?].concat());
            carried.note(&list, 1, layer, &states)?;
        }
        carried.commit(&accepted)?;
        let mut found = vec![0.0; table.len()];
        carried.store(&mut found)?;
        all.extend_from_slice(&found);
        // What was forgotten is not carried.
        carried.load(&table)?;
        carried.discard()?;
        carried.commit(&accepted)?;
        carried.store(&mut found)?;
        assert_eq!(found, table);
        Ok([all, found].concat())
    })
}
