//! The second pass: unscale, clip and optimizer step in one sweep over weights, gradients and
//! moments.
//!
//! ```text
//! g = (gradient · 1/scale) · clip
//! SGD:          p -= lr · (g + decay · p)
//! Adam, AdamW:  m += (1 - β1)(g - m);  v = β2·v + (1 - β2)g²
//!               p -= lr/(1 - β1ᵗ) · m / (√v/√(1 - β2ᵗ) + ε)
//!               where Adam adds decay · p to g, and AdamW first multiplies p by 1 - lr · decay
//! ```
//!
//! Each operation rounds once, in this order, on every CPU; a loss scale that is a power of two and
//! a clip coefficient of 1 leave no trace, unless an unscaled gradient is subnormal.

use crate::gradients::GradientFactors;
use crate::optimizer::{OptimizerSettings, Rates, Rule};
use crate::threads::{BLOCK, Threads};
use megabatch_gpu_core::isa::{Isa, Loops};

/// A tensor in training, or all tensors of a model where they lie in one piece. All slices have one
/// length.
#[derive(Debug)]
pub struct ParameterTensor<'a> {
    /// The weights.
    pub values: &'a mut [f32],
    /// The gradient of the scaled loss by the weights.
    pub gradient: &'a [f32],
    /// Moments of Adam and AdamW; `None` for SGD.
    pub moments: Option<Moments<'a>>,
}

/// Running means of the gradients and of their squares.
#[derive(Debug)]
pub struct Moments<'a> {
    /// First moment, PyTorch's `exp_avg`.
    pub exp_avg: &'a mut [f32],
    /// Second moment, PyTorch's `exp_avg_sq`.
    pub exp_avg_sq: &'a mut [f32],
}

/// One step of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerStep {
    /// The settings, with the rate of this step.
    pub settings: OptimizerSettings,
    /// Number of this step, counted from 1. A skipped step does not count.
    pub number: u64,
    /// Factors of the gradients, from
    /// [`CheckedGradients::factors`](crate::CheckedGradients::factors).
    pub factors: GradientFactors,
}

/// The second pass: updates weights and moments by one optimizer step. The gradients are not
/// changed.
///
/// # Panics
/// If the slices of a tensor have different lengths, if the rule keeps moments and a tensor has
/// none, or if the step is number 0.
pub fn update<'a>(tensors: impl IntoIterator<Item = ParameterTensor<'a>>, step: &OptimizerStep, threads: Threads) {
    assert!(step.number > 0, "steps are counted from 1");
    let (isa, rule) = (Isa::best(), step.settings.rule);
    let rates = &Rates::new(&step.settings, step.number);
    let factors = step.factors;
    let blocks = tensors.into_iter().flat_map(|tensor| {
        tensor.check(rule);
        TensorBlocks(Some(tensor))
    });
    threads.each(blocks, |ParameterTensor { values, gradient, moments }| match moments {
        Some(moments) if rule.has_moments() => isa.run(Adam { values, gradient, moments, rates, factors }),
        _ => isa.run(Sgd { values, gradient, rates, factors }),
    });
}

impl ParameterTensor<'_> {
    fn check(&self, rule: Rule) {
        let len = self.values.len();
        assert_eq!(len, self.gradient.len(), "weights and gradients of one tensor");
        match &self.moments {
            Some(moments) => {
                assert_eq!(
                    (len, len),
                    (moments.exp_avg.len(), moments.exp_avg_sq.len()),
                    "weights and moments of one tensor"
                );
            }
            None => assert!(!rule.has_moments(), "{rule:?} keeps moments"),
        }
    }

    fn split_at(self, len: usize) -> (Self, Self) {
        let (values, values_rest) = self.values.split_at_mut(len);
        let (gradient, gradient_rest) = self.gradient.split_at(len);
        let (moments, moments_rest) = self.moments.map(|moments| moments.split_at(len)).unzip();
        let rest = ParameterTensor { values: values_rest, gradient: gradient_rest, moments: moments_rest };
        (ParameterTensor { values, gradient, moments }, rest)
    }
}

impl Moments<'_> {
    fn split_at(self, len: usize) -> (Self, Self) {
        let (exp_avg, exp_avg_rest) = self.exp_avg.split_at_mut(len);
        let (exp_avg_sq, exp_avg_sq_rest) = self.exp_avg_sq.split_at_mut(len);
        (Moments { exp_avg, exp_avg_sq }, Moments { exp_avg: exp_avg_rest, exp_avg_sq: exp_avg_sq_rest })
    }
}

/// A tensor cut into the blocks that one task takes.
struct TensorBlocks<'a>(Option<ParameterTensor<'a>>);

impl<'a> Iterator for TensorBlocks<'a> {
    type Item = ParameterTensor<'a>;

    fn next(&mut self) -> Option<ParameterTensor<'a>> {
        let tensor = self.0.take()?;
        if tensor.values.len() <= BLOCK {
            return Some(tensor);
        }
        let (block, rest) = tensor.split_at(BLOCK);
        self.0 = Some(rest);
        Some(block)
    }
}

struct Sgd<'a> {
    values: &'a mut [f32],
    gradient: &'a [f32],
    rates: &'a Rates,
    factors: GradientFactors,
}

impl Loops for Sgd<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GradientFactors { inverse_scale, clip } = self.factors;
        let &Rates { lr, coupled_decay, .. } = self.rates;
        for (p, &g) in self.values.iter_mut().zip(self.gradient) {
            let g = g * inverse_scale * clip;
            *p -= lr * (g + coupled_decay * *p);
        }
    }
}

struct Adam<'a> {
    values: &'a mut [f32],
    gradient: &'a [f32],
    moments: Moments<'a>,
    rates: &'a Rates,
    factors: GradientFactors,
}

impl Loops for Adam<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GradientFactors { inverse_scale, clip } = self.factors;
        let rates = *self.rates;
        let moments = self.moments.exp_avg.iter_mut().zip(self.moments.exp_avg_sq);
        for ((p, &g), (m, v)) in self.values.iter_mut().zip(self.gradient).zip(moments) {
            let g = g * inverse_scale * clip;
            let g = g + rates.coupled_decay * *p;
            *p *= rates.shrink;
            *m += rates.one_minus_beta1 * (g - *m);
            *v = rates.beta2 * *v + rates.one_minus_beta2 * g * g;
            *p -= rates.step_size * *m / (v.sqrt() / rates.root_correction2 + rates.epsilon);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gradients::unscale_and_check;

    /// Weights, gradients and moments of one tensor.
    #[derive(Clone, Debug, PartialEq)]
    struct Owned {
        values: Vec<f32>,
        gradient: Vec<f32>,
        exp_avg: Vec<f32>,
        exp_avg_sq: Vec<f32>,
    }

    impl Owned {
        fn noise(len: usize) -> Self {
            let draw = |salt: u32, low: f64, high: f64| -> Vec<f32> {
                let unit = |k: u32| f64::from((k ^ salt).wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
                (0..len as u32).map(|k| (low + (high - low) * unit(k)) as f32).collect()
            };
            Owned {
                values: draw(1, -1.0, 1.0),
                gradient: draw(2, -30.0, 30.0),
                exp_avg: draw(3, -0.1, 0.1),
                exp_avg_sq: draw(4, 0.0, 0.02),
            }
        }

        fn tensor(&mut self) -> ParameterTensor<'_> {
            let moments = Moments { exp_avg: &mut self.exp_avg, exp_avg_sq: &mut self.exp_avg_sq };
            ParameterTensor { values: &mut self.values, gradient: &self.gradient, moments: Some(moments) }
        }

        /// The papers' formulas, an element after another.
        fn plain(&mut self, step: &OptimizerStep) {
            let rates = Rates::new(&step.settings, step.number);
            for k in 0..self.values.len() {
                let (p, m, v) = (&mut self.values[k], &mut self.exp_avg[k], &mut self.exp_avg_sq[k]);
                let unscaled = self.gradient[k] * step.factors.inverse_scale;
                let g = unscaled * step.factors.clip + rates.coupled_decay * *p;
                if step.settings.rule == Rule::Sgd {
                    *p -= rates.lr * g;
                    continue;
                }
                *p *= rates.shrink;
                *m += rates.one_minus_beta1 * (g - *m);
                *v = rates.beta2 * *v + rates.one_minus_beta2 * g * g;
                *p -= rates.step_size * *m / (v.sqrt() / rates.root_correction2 + rates.epsilon);
            }
        }
    }

    const RULES: [Rule; 3] = [Rule::Sgd, Rule::Adam, Rule::AdamW];

    fn step(rule: Rule, clip: f32) -> OptimizerStep {
        let settings = OptimizerSettings { rule, lr: 0.01, weight_decay: 0.1, ..OptimizerSettings::default() };
        let factors = GradientFactors { inverse_scale: 1.0 / 1024.0, clip };
        OptimizerStep { settings, number: 3, factors }
    }

    fn check(start: &Owned, cut: usize) {
        for rule in RULES {
            for clip in [1.0, 0.3] {
                let step = step(rule, clip);
                let mut expected = start.clone();
                expected.plain(&step);
                for threads in [Threads::Caller, Threads::Pool] {
                    let mut whole = start.clone();
                    update([whole.tensor()], &step, threads);
                    assert_eq!(whole, expected, "{rule:?}, {threads:?}");
                    let mut parts = start.clone();
                    let (left, right) = parts.tensor().split_at(cut);
                    update([left, right], &step, threads);
                    assert_eq!(parts, expected, "{rule:?}, {threads:?}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn tensors_of_every_length_near_a_vector_and_a_block() {
        for len in [0, 1, 7, 8, 15, 16, 17, 33, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5] {
            check(&Owned::noise(len), len / 3);
        }
    }

    #[test]
    fn instruction_sets_step_alike() {
        let step = step(Rule::AdamW, 0.3);
        let rates = Rates::new(&step.settings, step.number);
        let stepped = Isa::all().into_iter().map(|isa| {
            let mut owned = Owned::noise(1000);
            let ParameterTensor { values, gradient, moments, .. } = owned.tensor();
            let moments = moments.expect("noise has moments");
            isa.run(Adam { values, gradient, moments, rates: &rates, factors: step.factors });
            owned
        });
        let stepped: Vec<Owned> = stepped.collect();
        assert!(stepped.iter().all(|owned| *owned == stepped[0]));
    }

    /// A loss scaled by a power of two leaves no trace in the weights.
    #[test]
    fn the_loss_scale_changes_no_bit() {
        for exponent in [0, 5, 16] {
            let scale = 2f32.powi(exponent);
            let mut plain = Owned::noise(100);
            let mut scaled = plain.clone();
            scaled.gradient.iter_mut().for_each(|g| *g *= scale);
            for owned in [(&mut plain, 1.0), (&mut scaled, 1.0 / scale)] {
                let (owned, inverse) = owned;
                let factors =
                    unscale_and_check(&[&owned.gradient], inverse, Threads::Caller).factors(Some(0.1)).unwrap();
                update([owned.tensor()], &OptimizerStep { factors, ..step(Rule::AdamW, 1.0) }, Threads::Caller);
            }
            assert_eq!(scaled.values, plain.values);
        }
    }

    #[test]
    #[should_panic(expected = "AdamW keeps moments")]
    fn a_tensor_without_moments_is_a_mistake() {
        let tensor = ParameterTensor { values: &mut [1.0], gradient: &[1.0], moments: None };
        update([tensor], &step(Rule::AdamW, 1.0), Threads::Caller);
    }

    proptest! {
        #[test]
        fn any_finite_numbers(bits in prop::collection::vec(any::<[u32; 4]>(), 0..200), cut in 0usize..200) {
            let number = |bits: u32| Some(f32::from_bits(bits)).filter(|x| x.abs() < 1e15).unwrap_or(0.5);
            let column = |k: usize| bits.iter().map(|row| number(row[k])).collect::<Vec<f32>>();
            let exp_avg_sq = column(3).into_iter().map(f32::abs).collect();
            let start = Owned { values: column(0), gradient: column(1), exp_avg: column(2), exp_avg_sq };
            check(&start, cut.min(bits.len()));
        }
    }
}
