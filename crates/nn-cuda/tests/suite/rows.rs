//! Layers that project what they read themselves.

use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::Result;

use super::inter_layer::{buffer, narrow, same, wide};
use super::noise;
use super::uploaded::work_list;
use megabatch_nn_cuda::ops::{
    BatchUploader, InputWeights, Operand, RecurrentWeights, RowInputs, Sequence, States, TileWindows,
    recurrence_of_rows,
};

/// Windows that share no row, a window's steps one behind the other: more of them than a tile has,
/// and one.
pub(super) fn projected<T: Operand>(device: &Device, hidden: usize, features: [usize; 2]) -> Result<()> {
    let tolerance = if T::SUFFIX == "f16" { 2e-3 } else { 2e-2 };
    same(device, tolerance, |scope| {
        let first: Vec<u32> = (0..9).map(|window| 4 * window).collect();
        let sequence = |first, projected_rows| Sequence { steps: 4, first, row_step: 1, projected_rows };
        let mut list = work_list(scope, hidden, TileWindows::Eight, &[sequence(&first[..], 36), sequence(&[0], 4)])?;
        let (reach, len) = (1.0 / (hidden as f32).sqrt(), 4 * hidden * hidden);
        let mut recurrent = RecurrentWeights::<T>::zeros(scope, hidden, &[0, len])?;
        recurrent.set(&Buffer::from_slice(scope, &noise(0, "weight_hh", 2 * len, reach))?)?;
        let mut input = InputWeights::<T>::zeros(scope, hidden, &features)?;
        for (k, &features) in features.iter().enumerate() {
            let bias = buffer(scope, "bias", 4 * hidden)?;
            let weight = narrow::<T>(scope, "weight_ih", 4 * hidden * features)?;
            input.set(k, (&weight).into(), (k == 0).then_some((&bias).into()))?;
        }
        list.read_rows(&[(0, features[0]), (36 * features[0], features[1])]);
        let mut uploader = BatchUploader::new(scope)?;
        let mut upload = uploader.upload();
        list.enqueue(&mut upload)?;
        upload.send()?;
        let rows = narrow::<T>(scope, "rows", 36 * features[0] + 4 * features[1])?;
        let mut states = States::zeros(scope, &list)?;
        recurrence_of_rows(&list, &RowInputs { weights: &recurrent, input: &input, rows: &rows }, &mut states)?;
        Ok([wide(&states.hidden)?, states.cell.to_vec()?, wide(&states.gates)?].concat())
    })
}
