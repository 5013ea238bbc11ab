//! Parts of the engine by themselves, which tests of another engine compare with.

use megabatch_amp::Precision;
use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::fusion::AttentionFusion;

use crate::arithmetic::CpuArithmetic;
use crate::compute::{CheckpointPolicy, Purpose};
use crate::fusion::FusionMemory;
use crate::kernel::quantized::{self, Int8Isa};
use crate::kernel::{PANEL, PanelStride, View};

/// Results of a fusion, forward and backward.
#[derive(Debug)]
pub struct Fused {
    /// The fused vectors, [B, H].
    pub fused: Vec<f32>,
    /// Gradient of the tokens, [B, n, H].
    pub d_tokens: Vec<f32>,
    /// Gradients of the parameters.
    pub gradients: TensorSet,
}

/// Fuses `tokens` [B, n, H] in `precision`, given the gradient `d_fused` [B, H]. Memory is booked
/// on `scope`.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory) when the device has no room.
pub fn fuse(
    scope: &Scope,
    fusion: &AttentionFusion,
    parameters: &TensorSet,
    tokens: &[f32],
    d_fused: &[f32],
    precision: Precision,
) -> Result<Fused> {
    let samples = tokens.len() / (fusion.sizes.tokens * fusion.sizes.hidden);
    let purpose = Purpose::Training { dropout: false, runs: None, kept: CheckpointPolicy::Everything };
    let mut memory = FusionMemory::new(scope, fusion.sizes, samples, purpose)?;
    memory.set_arithmetic(CpuArithmetic::new(precision, None));
    let fused = memory.forward(fusion, parameters, tokens).to_vec();
    let mut d_tokens = vec![0.0; tokens.len()];
    let mut gradients = TensorSet::zeros(scope, parameters.layout())?;
    memory.backward(fusion, parameters, tokens, d_fused, &mut d_tokens, &mut gradients);
    Ok(Fused { fused, d_tokens, gradients })
}

/// Rows in two bytes a number, whose value is scale · (128 · high + low).
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedRows {
    /// [rows, depth], -64 to 63.
    pub high: Vec<i32>,
    /// [rows, depth], 0 to 127.
    pub low: Vec<i32>,
    /// A scale a row.
    pub scales: Vec<f32>,
}

/// Quantises rows `x` [rows, depth] by the fastest instruction set of this CPU.
pub fn quantize_rows(x: &[f32], depth: usize) -> QuantizedRows {
    let (rows, width) = (x.len() / depth, quantized::padded(depth));
    let mut in_panels = vec![0.0; depth.div_ceil(PANEL) * rows * PANEL];
    for (k, &x) in x.iter().enumerate() {
        let (row, column) = (k / depth, k % depth);
        in_panels[(column / PANEL * rows + row) * PANEL + column % PANEL] = x;
    }
    let stride = PanelStride { start: 0, stride: rows * PANEL };
    let (mut bytes, mut scales) = (vec![0u8; rows * 2 * width], vec![0.0; rows]);
    quantized::quantize(Int8Isa::best(), depth, View(&in_panels, stride), &mut bytes, &mut scales);
    let mut quantized_rows = QuantizedRows { high: Vec::new(), low: Vec::new(), scales };
    for row in bytes.chunks_exact(2 * width) {
        quantized_rows.high.extend(row[..depth].iter().map(|&byte| i32::from(byte) - quantized::BIAS));
        quantized_rows.low.extend(row[width..][..depth].iter().map(|&byte| i32::from(byte)));
    }
    quantized_rows
}
