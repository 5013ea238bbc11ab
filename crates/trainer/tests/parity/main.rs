//! Agreement with PyTorch on every file of `fixtures/torch`, which hold a case each: inputs,
//! weights, outputs, gradients and three optimizer steps as PyTorch computed them, in double and in
//! single precision. States, outputs and gradients in double precision are compared by the tests of
//! `megabatch-reference`.
//!
//! Names there map to ours: `fc.*` is `head.*`, `lstms.{k}.*` is `lstm.<TF>.*` with the k-th
//! timeframe.

mod engine;
mod fixture;
mod optimizer;
mod tolerances;

use std::collections::BTreeMap;

use safetensors::Dtype;

use fixture::Fixture;
use tolerances::Tolerances;

/// The largest errors over all fixtures, by kind, as shares of their tensors' largest magnitudes.
#[derive(Default)]
struct Worst(BTreeMap<(&'static str, &'static str), f64>);

impl Worst {
    fn add(&mut self, precision: &'static str, errors: BTreeMap<&'static str, f64>) {
        for (kind, error) in errors {
            let entry = self.0.entry((precision, kind)).or_default();
            *entry = entry.max(error);
        }
    }

    fn print(&self) {
        for ((precision, kind), error) in &self.0 {
            println!("{precision} {kind}: off by at most {error:.1e} of the tensor's largest magnitude");
        }
    }
}

/// Double precision tells what the numbers should be; the engine computes them in single precision
/// either way.
#[test]
fn a_trainer_agrees_with_pytorch() {
    let mut worst = Worst::default();
    let mut checked = 0;
    for path in fixture::files() {
        let (fixture, case, dtype) = Fixture::read(&path, Tolerances::ENGINE);
        // The windows of a trainer start from states of zero.
        if case.carry == 0 {
            let precision = if dtype == Dtype::F64 { "against double" } else { "against single" };
            worst.add(precision, engine::check(fixture, &case));
            checked += 1;
        }
    }
    worst.print();
    assert_eq!(checked, 28, "two cases in two precisions start from other states");
}

#[test]
fn clipping_and_optimizer_steps_agree_with_pytorch() {
    let mut worst = Worst::default();
    for path in fixture::files() {
        let (fixture, case, dtype) = Fixture::read(&path, Tolerances::OPTIMIZER);
        if dtype == Dtype::F64 {
            worst.add("optimizer", optimizer::check(fixture, &case));
        }
    }
    worst.print();
}
