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
//! a clip coefficient of 1 leave no trace, unless an unscaled gradient is subnormal. Working copies
//! are rounded block by block, while the weights are in the cache.

#![forbid(unsafe_code)]

use crate::gradients::GradientFactors;
use crate::number::{Number, WorkingCopy};
use crate::optimizer::{OptimizerSettings, Rates, Rule};
use crate::threads::{BLOCK, Threads};
use megabatch_gpu_core::isa::{Isa, Loops};

/// A tensor in training, or all tensors of a model where they lie in one piece. All slices have one
/// length.
#[derive(Debug)]
pub struct ParameterTensor<'a, S> {
    /// The weights.
    pub values: &'a mut [S],
    /// The gradient of the scaled loss by the weights.
    pub gradient: &'a [S],
    /// Moments of Adam and AdamW; `None` for SGD.
    pub moments: Option<Moments<'a, S>>,
    /// Copy of the weights that forward and backward read in 16 bits. The weights are then the
    /// master weights, which keep what a 16-bit number cannot tell (Micikevicius et al., "Mixed
    /// precision training", 2018, section 3.1).
    pub working_copy: Option<WorkingCopy<'a>>,
}

/// Running means of the gradients and of their squares.
#[derive(Debug)]
pub struct Moments<'a, S> {
    /// First moment, PyTorch's `exp_avg`.
    pub exp_avg: &'a mut [S],
    /// Second moment, PyTorch's `exp_avg_sq`.
    pub exp_avg_sq: &'a mut [S],
}

/// One step of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerStep<S> {
    /// The settings, with the rate of this step.
    pub settings: OptimizerSettings,
    /// Number of this step, counted from 1. A skipped step does not count.
    pub number: u64,
    /// Factors of the gradients, from
    /// [`CheckedGradients::factors`](crate::CheckedGradients::factors).
    pub factors: GradientFactors<S>,
}

/// The second pass: updates weights and moments by one optimizer step. The gradients are not
/// changed.
///
/// # Panics
/// If the slices of a tensor have different lengths, if the rule keeps moments and a tensor has
/// none, or if the step is number 0.
pub fn update<'a, S: Number>(
    tensors: impl IntoIterator<Item = ParameterTensor<'a, S>>,
    step: &OptimizerStep<S>,
    threads: Threads,
) {
    assert!(step.number > 0, "steps are counted from 1");
    let (isa, rule) = (Isa::best(), step.settings.rule);
    let rates = &Rates::new(&step.settings, step.number);
    let factors = step.factors;
    let blocks = tensors.into_iter().flat_map(|tensor| {
        tensor.check(rule);
        TensorBlocks(Some(tensor))
    });
    threads.each(blocks, |ParameterTensor { values, gradient, moments, working_copy }| {
        match moments {
            Some(moments) if rule.has_moments() => {
                isa.run(Adam { values: &mut *values, gradient, moments, rates, factors });
            }
            _ => isa.run(Sgd { values: &mut *values, gradient, rates, factors }),
        }
        if let Some(copy) = working_copy {
            S::round_into(values, copy);
        }
    });
}

impl<'a, S> ParameterTensor<'a, S> {
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
        if let Some(copy) = &self.working_copy {
            assert_eq!(len, copy.len(), "weights and the working copy of one tensor");
        }
    }

    fn split_at(self, len: usize) -> (Self, Self) {
        let (values, values_rest) = self.values.split_at_mut(len);
        let (gradient, gradient_rest) = self.gradient.split_at(len);
        let (moments, moments_rest) = self.moments.map(|moments| moments.split_at(len)).unzip();
        let (working_copy, copy_rest) = self.working_copy.map(|copy| copy.split_at(len)).unzip();
        let rest = ParameterTensor {
            values: values_rest,
            gradient: gradient_rest,
            moments: moments_rest,
            working_copy: copy_rest,
        };
        (ParameterTensor { values, gradient, moments, working_copy }, rest)
    }
}

impl<S> Moments<'_, S> {
    fn split_at(self, len: usize) -> (Self, Self) {
        let (exp_avg, exp_avg_rest) = self.exp_avg.split_at_mut(len);
        let (exp_avg_sq, exp_avg_sq_rest) = self.exp_avg_sq.split_at_mut(len);
        (Moments { exp_avg, exp_avg_sq }, Moments { exp_avg: exp_avg_rest, exp_avg_sq: exp_avg_sq_rest })
    }
}

/// A tensor cut into the blocks that one task takes.
struct TensorBlocks<'a, S>(Option<ParameterTensor<'a, S>>);

impl<'a, S> Iterator for TensorBlocks<'a, S> {
    type Item = ParameterTensor<'a, S>;

    fn next(&mut self) -> Option<ParameterTensor<'a, S>> {
        let tensor = self.0.take()?;
        if tensor.values.len() <= BLOCK {
            return Some(tensor);
        }
        let (block, rest) = tensor.split_at(BLOCK);
        self.0 = Some(rest);
        Some(block)
    }
}

struct Sgd<'a, S> {
    values: &'a mut [S],
    gradient: &'a [S],
    rates: &'a Rates<S>,
    factors: GradientFactors<S>,
}

impl<S: Number> Loops for Sgd<'_, S> {
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

struct Adam<'a, S> {
    values: &'a mut [S],
    gradient: &'a [S],
    moments: Moments<'a, S>,
    rates: &'a Rates<S>,
    factors: GradientFactors<S>,
}

impl<S: Number> Loops for Adam<'_, S> {
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
mod tests;
