//! Weights of samples in the loss of training. Both layouts keep them in the same dataset.

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::{Error, LayoutFault, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{ElementKind, Expect, NumericDataset};

pub(crate) const WEIGHT: &str = "/samples/weight";

const WEIGHTS: Expect = Expect { what: "floats [N]", kinds: &[ElementKind::Float], ranks: 1..=1 };

/// The weights of a file, if it has any: as many as `samples_object` has rows.
///
/// # Errors
/// [`Error::Invalid`] for a dataset of another kind or length.
pub(crate) fn weights_table(file: &InputFile, samples: usize, samples_object: &str) -> Result<Option<NumericDataset>> {
    if !file.has_dataset(WEIGHT) {
        return Ok(None);
    }
    let table = file.table(WEIGHT, &WEIGHTS)?;
    table.require_rows(samples, samples_object)?;
    Ok(Some(table))
}

/// Reads weights into memory booked on `scope`, and checks them.
///
/// # Errors
/// [`Error::Invalid`] for a weight that is negative or not finite; those of reading.
pub(crate) fn read_weights(table: &NumericDataset, file: &InputFile, scope: &Scope) -> Result<Buffer<f32>> {
    let weights = table.read_f32_buffer(scope)?;
    check_weights(weights.as_slice(), 0).map_err(|fault| Error::invalid(&file.path, fault))?;
    Ok(weights)
}

/// Checks weights of samples. The first sample has the number `first`.
pub(crate) fn check_weights(weights: &[f32], first: usize) -> Result<(), LayoutFault> {
    let is_weight = |weight: &f32| *weight >= 0.0 && weight.is_finite();
    let Some(n) = weights.iter().position(|weight| !is_weight(weight)) else { return Ok(()) };
    Err(LayoutFault {
        object: WEIGHT.to_owned(),
        index: Some(first + n),
        expected: "a finite number from 0 on".to_owned(),
        found: weights[n].to_string(),
        fix: "give a sample that is not to be learnt from the weight 0".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_finite_and_not_negative() {
        assert!(check_weights(&[], 0).is_ok() && check_weights(&[0.0, 2.5], 3).is_ok());
        for (weight, shown) in [(f32::NAN, "NaN"), (-0.5, "-0.5"), (f32::INFINITY, "inf")] {
            let fault = check_weights(&[1.0, weight], 3).unwrap_err().to_string();
            let expected = format!("/samples/weight[4]: expected a finite number from 0 on, found {shown}");
            assert!(fault.contains(&expected), "{fault}");
        }
    }
}
