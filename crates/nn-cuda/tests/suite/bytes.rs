//! A layer in eight bits, forward: on the device beside the CPU.

use megabatch_amp::QuantizedMatrix;
use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::Result;

use super::inter_layer::same;
use super::{Example, TIMEFRAMES, WIDTH, bars};
use megabatch_nn_cuda::ops::{
    DeviceInt8Matrix, DeviceInt8Rows, RecurrentInt8, States, TensorSlice, TileWindows, multiply_int8, recurrence_int8,
};

/// Sums are the same bits; the functions of gates differ by a few 1e-7, so that a state near the
/// middle of two of the 8191 numbers is quantised to either.
pub(super) fn layer(device: &Device, hidden: usize) -> Result<()> {
    let example = Example::new(hidden);
    let matrix = |weight: &Vec<f32>, width| {
        QuantizedMatrix::quantize(weight, 4 * hidden, width).expect("finite weights of few inputs")
    };
    same(device, 3e-4, |scope| {
        let list = example.work_list(scope, TileWindows::Eight)?;
        let mut projected = Buffer::zeros(scope, list.projected_rows() * 4 * hidden)?;
        let mut rows = DeviceInt8Rows::empty(scope)?;
        for s in 0..TIMEFRAMES.len() {
            let [x, bias] = [&example.bars[s], &example.bias[s]].map(|numbers| Buffer::from_slice(scope, numbers));
            rows.quantize(TensorSlice::from(&x?), [bars(s), WIDTH])?;
            let weights = DeviceInt8Matrix::new(scope, &matrix(&example.weight_ih[s], WIDTH))?;
            multiply_int8(
                &rows,
                &weights,
                Some(TensorSlice::from(&bias?)),
                &mut projected,
                list.projected_row(s) * 4 * hidden,
            )?;
        }
        let weights: Vec<QuantizedMatrix> = example.weight_hh.iter().map(|weight| matrix(weight, hidden)).collect();
        let (mut weights, mut states) = (RecurrentInt8::new(scope, &weights)?, States::<f32>::zeros(scope, &list)?);
        recurrence_int8(&list, &mut weights, &projected, &mut states)?;
        Ok([projected.to_vec()?, states.hidden.to_vec()?, states.cell.to_vec()?].concat())
    })
}
