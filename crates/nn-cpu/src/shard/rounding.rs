//! Rounding of the operands of products whose 16-bit arithmetic is emulated
//! ([`CpuArithmetic::Emulated`]). A CPU with products of bf16 numbers rounds bars, states and
//! gradients when they are packed and nowhere else, see [`bf16`](super::bf16).
//!
//! | rounded | not rounded |
//! | --- | --- |
//! | bars, weights ([`Engine`](crate::step::Engine)) | biases |
//! | hidden states after each step, and after dropout | cell states, gates |
//! | gradients of gates and of hidden states | sums over bars and over samples |
//! | encodings, results of products in fusion, their gradients | softmax, norms |

use std::ops::Range;

use crate::arithmetic::CpuArithmetic;
use crate::kernel::{PANEL, PanelStride};

/// Rounds `rows` rows of some panels where products of 16-bit operands are emulated.
pub(super) fn round_panels(
    arithmetic: CpuArithmetic,
    values: &mut [f32],
    at: PanelStride,
    panels: Range<usize>,
    rows: usize,
) {
    if arithmetic.is_emulated() {
        panels.for_each(|panel| arithmetic.round(&mut values[at.panel(panel).start..][..rows * PANEL]));
    }
}
