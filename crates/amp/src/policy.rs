//! Mixed-precision policy: the precision of each operation.

#![forbid(unsafe_code)]

use crate::precision::Precision;

/// Kinds of operations that the policy distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Products of matrices: projections of inputs, attention's scores and sums, heads; forward and
    /// backward.
    MatrixProduct,
    /// The product of the hidden state with the recurrent weights.
    Recurrence,
    /// The cell state of an LSTM, a sum over as many terms as the sequence has steps.
    CellState,
    /// Exponentials over their sum.
    Softmax,
    /// Mean and variance of a row, and the row normalised by them.
    LayerNorm,
    /// The loss and its gradient by the outputs.
    Loss,
    /// Sums, means and norms over many numbers.
    Reduction,
    /// Gradients, moments and master weights.
    Optimizer,
}

/// The precisions of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationPrecisions {
    /// Precision of the inputs: weights are working copies of this precision, activations are
    /// rounded to it.
    pub operands: Precision,
    /// Precision of the sums.
    pub accumulation: Precision,
    /// Precision of the result for the next operation.
    pub result: Precision,
}

/// Precisions that an operation may run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowance {
    /// Operands and result in the precision of the run, sums in fp32.
    Low,
    /// In fp32 throughout.
    Full,
}

/// The policy. Low precision is for products, which take the time and tolerate rounding, since
/// their sums are in f32. Full precision is for operations that add small numbers, take
/// exponentials, or change weights by less than a 16-bit number can represent (Micikevicius et al.,
/// "Mixed precision training", 2018, sections 3.1 and 3.3; the lists of `torch.autocast` agree).
const POLICY: &[(Operation, Allowance)] = &[
    (Operation::MatrixProduct, Allowance::Low),
    (Operation::Recurrence, Allowance::Low),
    (Operation::CellState, Allowance::Full),
    (Operation::Softmax, Allowance::Full),
    (Operation::LayerNorm, Allowance::Full),
    (Operation::Loss, Allowance::Full),
    (Operation::Reduction, Allowance::Full),
    (Operation::Optimizer, Allowance::Full),
];

impl Precision {
    /// Arithmetic of `operation` in a run of this precision.
    ///
    /// | | operands | accumulation | result |
    /// | --- | --- | --- | --- |
    /// | `MatrixProduct`, `Recurrence` | of the run | fp32 | of the run |
    /// | all others | fp32 | fp32 | fp32 |
    pub fn arithmetic(self, operation: Operation) -> OperationPrecisions {
        let row = POLICY.iter().find(|(known, _)| *known == operation);
        let precision = match row.expect("the policy has a row for each operation").1 {
            Allowance::Low => self,
            Allowance::Full => Precision::Fp32,
        };
        OperationPrecisions { operands: precision, accumulation: Precision::Fp32, result: precision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_products_leave_full_precision() {
        for (row, &(operation, allowance)) in POLICY.iter().enumerate() {
            assert_eq!(POLICY.iter().position(|(other, _)| *other == operation), Some(row), "one row an operation");
            for precision in Precision::ALL {
                let low = matches!(operation, Operation::MatrixProduct | Operation::Recurrence);
                let expected = if low { precision } else { Precision::Fp32 };
                let arithmetic = precision.arithmetic(operation);
                assert_eq!((arithmetic.operands, arithmetic.result), (expected, expected), "{operation:?}");
                assert_eq!(arithmetic.accumulation, Precision::Fp32);
                assert_eq!(allowance == Allowance::Low, low);
            }
        }
    }
}
