//! First non-finite numbers.

use megabatch_gpu_core::isa::{Isa, Loops};

/// Numbers that are first checked together: few enough to be in the cache for the search that
/// follows.
const BLOCK: usize = 1024;

/// Index of the first of `values` that is infinite or NaN.
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    Isa::best().run(Scan(values))
}

struct Scan<'a>(&'a [f32]);

impl Loops for Scan<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        self.0.chunks(BLOCK).zip((0..).step_by(BLOCK)).find_map(|(block, start)| {
            // A loop without an early exit is vectorised.
            let all_finite = block.iter().fold(true, |all, value| all & value.is_finite());
            let index = if all_finite { None } else { block.iter().position(|value| !value.is_finite()) };
            index.map(|index| start + index)
        })
    }
}

/// Checks the tensors of a step in the order in which they are computed, and keeps the first
/// element that is not finite: the origin of the fault, not the place where it was noticed.
///
/// It reads every tensor once more, so it is meant for a step that is repeated because a loss or a
/// gradient was not finite.
#[derive(Clone, Debug, Default)]
pub struct NonFiniteTrace {
    first: Option<FirstNonFinite>,
}

/// Place of the first number of a step that was infinite or NaN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstNonFinite {
    /// Layer that computed it.
    pub layer: String,
    /// Tensor in the layer.
    pub tensor: String,
    /// Index of the element in the tensor.
    pub index: usize,
}

impl NonFiniteTrace {
    /// Checks the next tensor, unless something was found already.
    pub fn look(&mut self, layer: &str, tensor: &str, values: &[f32]) {
        if self.first.is_some() {
            return;
        }
        self.first = first_non_finite(values).map(|index| FirstNonFinite {
            layer: layer.to_owned(),
            tensor: tensor.to_owned(),
            index,
        });
    }

    /// First non-finite value found.
    pub fn first(&self) -> Option<&FirstNonFinite> {
        self.first.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_stands() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let mut values = vec![f32::MAX; len];
            assert_eq!(first_non_finite(&values), None);
            // Backwards, so that each is the first when it is looked for.
            for index in (0..len).rev().step_by(97) {
                values[index] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][index % 3];
                for isa in Isa::all() {
                    assert_eq!(isa.run(Scan(&values)), Some(index), "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn a_trace_keeps_where_the_trouble_began() {
        let mut trace = NonFiniteTrace::default();
        trace.look("lstm.M1", "gates", &[0.5, 1.0]);
        assert_eq!(trace.first(), None);
        trace.look("lstm.M1", "cell state", &[0.0, 1.0, f32::INFINITY, f32::NAN]);
        trace.look("head", "outputs", &[f32::NAN]);
        let first = FirstNonFinite { layer: "lstm.M1".to_owned(), tensor: "cell state".to_owned(), index: 2 };
        assert_eq!(trace.first(), Some(&first));
    }

    proptest! {
        #[test]
        fn any_bits(bits in prop::collection::vec(any::<u32>(), 0..3000)) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            prop_assert_eq!(first_non_finite(&values), values.iter().position(|value| !value.is_finite()));
        }
    }
}
