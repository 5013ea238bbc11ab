//! Windows of one sequence beside the oracle, which pools each by itself.

use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_nn::model::Layout;
use megabatch_reference::{parts, wide};
use proptest::prelude::*;

use super::*;

/// Sequences of states and the windows that are read of them.
#[derive(Debug)]
struct Case {
    steps: usize,
    heads: usize,
    hidden: usize,
    /// Factor of the states: scores reach that many times their usual size.
    scale: f64,
    ends: Vec<(usize, usize)>,
}

/// Result of a case: pooled vectors, weights, the gradients of states by sequence and place, and of
/// the parameters.
#[derive(Debug, Default)]
struct Results {
    pooled: Vec<f64>,
    weights: Vec<f64>,
    d_states: Vec<f64>,
    gradients: Vec<f64>,
}

fn number(seed: usize, i: usize) -> f64 {
    (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin()
}

impl Case {
    /// Larger states have larger scores, whose rounding errors are larger, and multiply the
    /// gradients of those.
    fn magnification(&self) -> f64 {
        self.scale.max(1.0).powi(2)
    }

    fn longest(&self) -> usize {
        self.ends.iter().map(|&(_, last)| last + 1).max().unwrap()
    }

    fn sequences(&self) -> usize {
        self.ends[self.ends.len() - 1].0 + 1
    }

    fn state(&self, sequence: usize, t: usize, to: &mut [f32]) {
        let first = (sequence * self.longest() + t) * self.hidden;
        let values = (first..).map(|i| (self.scale * number(1, i)) as f32);
        to.iter_mut().zip(values).for_each(|(to, value)| *to = value);
    }

    fn pooling(&self) -> (AttentionPooling, TensorSet) {
        let mut layout = Layout::default();
        let pooling = AttentionPooling::new(self.hidden, self.heads, "pooling", &mut layout);
        let mut parameters = TensorSet::zeros(&Device::cpu().scope("test"), &Arc::new(layout)).unwrap();
        let values = parameters.values_mut().iter_mut().enumerate();
        values.for_each(|(i, value)| *value = number(2, i) as f32);
        (pooling, parameters)
    }

    /// The gradients of the pooled vectors.
    fn put_d_pooled(&self, window: usize, to: &mut [f32]) {
        to.iter_mut().enumerate().for_each(|(i, to)| *to = number(3, window * self.hidden + i) as f32);
    }

    /// Each window by itself, in double precision.
    fn one_by_one(&self) -> Results {
        let (_, parameters) = self.pooling();
        let mut results = Results::default();
        results.d_states.resize(self.sequences() * self.longest() * self.hidden, 0.0);
        results.gradients.resize(parameters.layout().len(), 0.0);
        let add = |sums: &mut [f64], terms: &[f64]| sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        for (window, &(sequence, last)) in self.ends.iter().enumerate() {
            let (first, mut states) = (last + 1 - self.steps, vec![0.0; self.steps * self.hidden]);
            for (t, row) in states.chunks_exact_mut(self.hidden).enumerate() {
                self.state(sequence, first + t, row);
            }
            let mut d_pooled = vec![0.0; self.hidden];
            self.put_d_pooled(window, &mut d_pooled);
            let parameter_list = parts::parameters(&parameters);
            let alone = parts::pooling(parameter_list, self.heads, &wide(&states), &wide(&d_pooled));
            results.pooled.extend(&alone.result);
            results.weights.extend(&alone.weights);
            add(&mut results.d_states[(sequence * self.longest() + first) * self.hidden..], &alone.d_input);
            add(&mut results.gradients, &parts::in_order(parameters.layout(), &alone.d_parameters));
        }
        results
    }

    /// All of them at once.
    fn sliding(&self) -> Results {
        let (attention, parameters) = self.pooling();
        let scope = Device::cpu().scope("test");
        let mut gradients = TensorSet::zeros(&scope, parameters.layout()).unwrap();
        let (longest, sequences, windows) = (self.longest(), self.sequences(), self.ends.len());
        // There may be room for more.
        let capacity = SlidingCapacity { steps: self.steps, longest: longest + 2, sequences, windows: windows + 1 };
        let mut pooling = SlidingPooling::new(&scope, self.heads, self.hidden, capacity).unwrap();
        let mut results = Results::default();
        let mut d_states = vec![0.0; sequences * longest * self.hidden];
        // Twice, so that nothing of an earlier pass is left where it is read.
        for _ in 0..2 {
            gradients.clear();
            let pooled =
                pooling.forward(&attention, &parameters, &self.ends, |(sequence, t), row| self.state(sequence, t, row));
            results.pooled = wide(pooled);
            let d_pooled = pooling.d_pooled_mut().chunks_exact_mut(self.hidden).enumerate();
            d_pooled.for_each(|(window, row)| self.put_d_pooled(window, row));
            let write = |(sequence, t): (usize, usize), row: &[f32]| {
                let to = &mut d_states[(sequence * longest + t) * self.hidden..];
                to.iter_mut().zip(wide(row)).for_each(|(to, value)| *to = value);
            };
            pooling.backward(
                &attention,
                &parameters,
                &self.ends,
                |(sequence, t): (usize, usize), row: &mut [f32]| self.state(sequence, t, row),
                write,
                &mut gradients,
            );
        }
        results.d_states = d_states;
        results.gradients = wide(gradients.values());
        let mut weights = vec![0.0; self.heads * self.steps];
        for (window, &end) in self.ends.iter().enumerate() {
            pooling.read_weights(window, end.0, end.1, &mut weights);
            results.weights.extend(wide(&weights));
        }
        results
    }
}

impl Results {
    fn check(&self, expected: &Results, tolerance: f64) {
        for (what, got, expected) in [
            ("pooled", &self.pooled, &expected.pooled),
            ("weights", &self.weights, &expected.weights),
            ("d_states", &self.d_states, &expected.d_states),
            ("gradients", &self.gradients, &expected.gradients),
        ] {
            assert_eq!(got.len(), expected.len(), "{what}");
            let largest = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                assert!((got - expected).abs() <= tolerance * largest, "{what} {i}: {got} for {expected}");
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1usize..14, 1usize..4, 1usize..7, prop_oneof![Just(0.1), Just(1.0), Just(30.0)]);
    let read = prop::collection::vec(prop::collection::vec(0usize..40, 1..12), 1..4);
    (sizes, read).prop_map(|((steps, heads, width, scale), read)| {
        let sequence_ends = |(sequence, ends): (usize, Vec<usize>)| {
            ends.into_iter().map(move |end| (sequence, end + steps - 1)).collect::<Vec<_>>()
        };
        let mut ends: Vec<_> = read.into_iter().enumerate().flat_map(sequence_ends).collect();
        ends.sort_unstable();
        ends.dedup();
        Case { steps, heads, hidden: heads * width, scale, ends }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_of_a_sequence_are_pooled_as_each_by_itself(case in cases()) {
        case.sliding().check(&case.one_by_one(), 1e-4 * case.magnification());
    }
}

#[test]
fn a_number_that_is_none_reaches_the_windows_that_it_is_in_and_no_others() {
    let case = Case { steps: 4, heads: 1, hidden: 3, scale: 1.0, ends: (3..16).map(|last| (0, last)).collect() };
    let (attention, parameters) = case.pooling();
    let capacity = SlidingCapacity { steps: 4, longest: 16, sequences: 1, windows: 13 };
    let mut pooling = SlidingPooling::new(&Device::cpu().scope("test"), 1, 3, capacity).unwrap();
    for bad in 0..16 {
        let pooled = pooling.forward(&attention, &parameters, &case.ends, |(sequence, t), row| {
            case.state(sequence, t, row);
            if t == bad {
                row[1] = f32::NAN;
            }
        });
        for (row, &(_, last)) in pooled.chunks_exact(3).zip(&case.ends) {
            assert_eq!(row.iter().any(|x| x.is_nan()), (last - 3..=last).contains(&bad), "state {bad}, window {last}");
        }
    }
}
