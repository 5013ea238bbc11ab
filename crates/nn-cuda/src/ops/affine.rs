//! A linear map of rows, whose weights are read where they lie among all parameters.

use megabatch_gpu_core::Buffer;
use megabatch_nn::Result;
use megabatch_nn::model::{Model, Slot};

use super::column_sums::{add_column_sums, column_sum_partials_len};
use super::matmul::{Product, multiply, product_partials_len, rows_partials_len};
use super::operand::TensorSlice;
use super::product_kind::{Arithmetic, Output, Transpose};
use super::scratch::Scratch;

/// y `[R, K]` = x `[R, D]` · Wᵀ + b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    /// Starts of W `[K, D]` and b `[K]`.
    weight: usize,
    bias: Option<usize>,
    /// K and D.
    shape: [usize; 2],
    arithmetic: Arithmetic,
}

impl Affine {
    /// The map of a weight and a bias of `model`.
    pub(crate) fn new(model: &Model, weight: Slot, bias: Option<Slot>, inputs: usize, arithmetic: Arithmetic) -> Self {
        let range = model.layout().range(weight);
        let bias = bias.map(|bias| model.layout().range(bias).start);
        Affine { weight: range.start, bias, shape: [range.len() / inputs, inputs], arithmetic }
    }

    /// The map of `shape`, K and D, whose weight and bias start at these elements.
    pub(crate) fn from_offsets(weight: usize, bias: usize, shape: [usize; 2], arithmetic: Arithmetic) -> Self {
        Affine { weight, bias: Some(bias), shape, arithmetic }
    }

    /// Scratch length for up to `rows` rows.
    pub(crate) fn partial_sums_len(&self, rows: usize) -> usize {
        let [outputs, inputs] = self.shape;
        let bias_parts = if self.bias.is_some() { column_sum_partials_len(rows, outputs) } else { 0 };
        let product_parts = rows_partials_len(rows, outputs, inputs).max(rows_partials_len(rows, inputs, outputs));
        product_parts.max(bias_parts).max(product_partials_len([outputs, inputs, rows]))
    }

    /// Writes y, or adds it there.
    pub(crate) fn forward(
        &self,
        parameters: &Buffer<f32>,
        x: &Buffer<f32>,
        rows: usize,
        y: &mut Buffer<f32>,
        output: Output,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ([outputs, inputs], part) = (self.shape, |start| TensorSlice { buffer: parameters, start });
        let product = self.arithmetic.product(x.into(), part(self.weight), [rows, outputs, inputs], Transpose::Nt);
        let product = Product { bias: self.bias.map(part), ..product };
        multiply(&product, output, y, 0, scratch)
    }

    /// Adds the gradients of W and b, from that of y.
    pub(crate) fn add_gradients(
        &self,
        d_y: &Buffer<f32>,
        x: &Buffer<f32>,
        rows: usize,
        gradients: &mut Buffer<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let [outputs, inputs] = self.shape;
        let product = self.arithmetic.product(d_y.into(), x.into(), [outputs, inputs, rows], Transpose::Tn);
        multiply(&product, Output::Add, &mut *gradients, self.weight, scratch)?;
        let Some(bias) = self.bias else { return Ok(()) };
        add_column_sums(d_y.into(), rows, outputs, gradients, bias, scratch)
    }

    /// Writes the gradient of x, from that of y, or adds it there.
    pub(crate) fn backward(
        &self,
        parameters: &Buffer<f32>,
        d_y: &Buffer<f32>,
        rows: usize,
        d_x: &mut Buffer<f32>,
        output: Output,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ([outputs, inputs], weight) = (self.shape, TensorSlice { buffer: parameters, start: self.weight });
        let product = self.arithmetic.product(d_y.into(), weight, [rows, inputs, outputs], Transpose::Nn);
        multiply(&product, output, d_x, 0, scratch)
    }
}
