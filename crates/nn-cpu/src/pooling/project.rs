//! From the weighted sums of windows' states to their pooled vectors, and back: the same in both
//! forms.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use crate::kernel::bf16::Bf16Isa;
use crate::matmul::{Matrix, Output, multiply_by};

/// Intermediate results of W windows from their sums to their pooled vectors; or the gradients of
/// all that.
#[derive(Debug)]
pub(crate) struct Vectors {
    windows: usize,
    heads: usize,
    hidden: usize,
    sums: Buffer<f32>,   // [heads, W, H]
    values: Buffer<f32>, // [H, W]: those of all heads, one below the other
    pooled: Buffer<f32>, // [W, H]
}

impl Vectors {
    /// Memory for up to `capacity` windows, booked on `scope`.
    pub(crate) fn new(scope: &Scope, heads: usize, hidden: usize, capacity: usize) -> Result<Self> {
        let [sums, values, pooled] = Vectors::lens(heads, hidden, capacity);
        Ok(Vectors {
            windows: 0,
            heads,
            hidden,
            sums: Buffer::zeros(scope, sums)?,
            values: Buffer::zeros(scope, values)?,
            pooled: Buffer::zeros(scope, pooled)?,
        })
    }

    /// Length of each buffer in numbers, in the order of the fields.
    pub(crate) fn lens(heads: usize, hidden: usize, capacity: usize) -> [usize; 3] {
        let vector = capacity * hidden;
        [heads * vector, vector, vector]
    }

    /// Sets W.
    pub(crate) fn set_windows(&mut self, windows: usize) {
        self.windows = windows;
    }

    /// W.
    pub(crate) fn windows(&self) -> usize {
        self.windows
    }

    /// The sum of a head in a window, [H].
    pub(crate) fn sum(&self, head: usize, window: usize) -> &[f32] {
        &self.sums.as_slice()[(head * self.windows + window) * self.hidden..][..self.hidden]
    }

    /// The same for writing.
    pub(crate) fn sum_mut(&mut self, head: usize, window: usize) -> &mut [f32] {
        &mut self.sums.as_mut_slice()[(head * self.windows + window) * self.hidden..][..self.hidden]
    }

    /// The pooled vectors, [W, H].
    pub(crate) fn pooled(&self) -> &[f32] {
        &self.pooled.as_slice()[..self.windows * self.hidden]
    }

    /// The same for writing.
    pub(crate) fn pooled_mut(&mut self) -> &mut [f32] {
        &mut self.pooled.as_mut_slice()[..self.windows * self.hidden]
    }

    fn sums_of_head(&self, head: usize) -> Matrix<'_, f32> {
        let len = self.windows * self.hidden;
        Matrix::new(&self.sums.as_slice()[head * len..][..len], self.windows, self.hidden)
    }

    /// The rows of one head in `values`.
    fn head_rows(&self, head: usize) -> std::ops::Range<usize> {
        let len = self.hidden / self.heads * self.windows;
        head * len..(head + 1) * len
    }

    fn all_values(&self) -> Matrix<'_, f32> {
        Matrix::new(&self.values.as_slice()[..self.hidden * self.windows], self.hidden, self.windows)
    }
}

/// Writes the pooled vectors from the sums.
pub(crate) fn project(
    pooling: &AttentionPooling,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    vectors: &mut Vectors,
) {
    let (hidden, width, windows) = (pooling.hidden, pooling.head_width(), vectors.windows);
    let in_weight = &parameters.slot(pooling.in_weight)[2 * hidden * hidden..];
    for (head, weight_v) in in_weight.chunks_exact(width * hidden).enumerate() {
        let own = vectors.head_rows(head);
        let sums = &vectors.sums.as_slice()[head * windows * hidden..][..windows * hidden];
        let sums = Matrix::new(sums, windows, hidden).transposed();
        let values = &mut vectors.values.as_mut_slice()[own];
        multiply_by(bf16_isa, Matrix::new(weight_v, width, hidden), sums, Output::Overwrite, values);
    }
    let bias_v = &parameters.slot(pooling.in_bias)[2 * hidden..];
    for (row, &bias) in vectors.values.as_mut_slice().chunks_exact_mut(windows).zip(bias_v) {
        row.iter_mut().for_each(|value| *value += bias);
    }
    let (values, bias) = (vectors.values.as_slice(), parameters.slot(pooling.out_bias));
    let pooled = &mut vectors.pooled.as_mut_slice()[..windows * hidden];
    pooled.chunks_exact_mut(hidden).for_each(|row| row.copy_from_slice(bias));
    let values = Matrix::new(&values[..hidden * windows], hidden, windows).transposed();
    let weight = Matrix::new(parameters.slot(pooling.out_weight), hidden, hidden).transposed();
    multiply_by(bf16_isa, values, weight, Output::Add, pooled);
}

/// Backward pass from the gradient of the pooled vectors to that of the sums, both in `d`; adds
/// the gradients of W_o, b_o, W_v and b_v.
pub(crate) fn project_backward(
    pooling: &AttentionPooling,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    vectors: &Vectors,
    d: &mut Vectors,
    gradients: &mut TensorSet,
) {
    let (hidden, width, windows) = (pooling.hidden, pooling.head_width(), vectors.windows);
    let d_pooled = Matrix::new(&d.pooled.as_slice()[..windows * hidden], windows, hidden);
    let d_weight = gradients.slot_mut(pooling.out_weight);
    multiply_by(bf16_isa, d_pooled.transposed(), vectors.all_values().transposed(), Output::Add, d_weight);
    for row in d.pooled.as_slice()[..windows * hidden].chunks_exact(hidden) {
        gradients.slot_mut(pooling.out_bias).iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
    }
    let weight = Matrix::new(parameters.slot(pooling.out_weight), hidden, hidden).transposed();
    let d_values = &mut d.values.as_mut_slice()[..hidden * windows];
    multiply_by(bf16_isa, weight, d_pooled.transposed(), Output::Overwrite, d_values);

    let d_bias_v = &mut gradients.slot_mut(pooling.in_bias)[2 * hidden..];
    for (sum, row) in d_bias_v.iter_mut().zip(d_values.chunks_exact(windows)) {
        row.iter().for_each(|&term| *sum += term);
    }
    for head in 0..pooling.heads {
        let rows = (2 * hidden + head * width) * hidden;
        let d_values = Matrix::new(&d.values.as_slice()[d.head_rows(head)], width, windows);
        let d_weight_v = &mut gradients.slot_mut(pooling.in_weight)[rows..][..width * hidden];
        multiply_by(bf16_isa, d_values, vectors.sums_of_head(head), Output::Add, d_weight_v);
        let weight_v = Matrix::new(&parameters.slot(pooling.in_weight)[rows..][..width * hidden], width, hidden);
        let d_sums = &mut d.sums.as_mut_slice()[head * windows * hidden..][..windows * hidden];
        multiply_by(bf16_isa, d_values.transposed(), weight_v, Output::Overwrite, d_sums);
    }
}
