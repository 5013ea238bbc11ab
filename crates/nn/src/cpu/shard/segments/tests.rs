//! Gradients with checkpointing are those without, to the bit.

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use proptest::prelude::*;

use crate::batch::SeriesInMemory;
use crate::cpu::kernel::Isa;
use crate::cpu::shard::{PackedWeights, Pass, Shard};
use crate::cpu::step::{Capacity, Kept, Purpose};
use crate::data::samples::{Batch, Samples};
use crate::model::dropout::Dropout;
use crate::model::pooling::Pooling;
use crate::model::tensor::TensorSet;
use crate::model::{Model, ModelConfig, SampleShape, Timeframe};

/// Numbers in (-1, 1) without pattern.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() as f32).collect()
}

/// Windows of T bars of F features, of which each ends so many bars behind the one before it.
fn samples(count: usize, timeframes: &[(usize, usize, usize)]) -> SeriesInMemory {
    let timeframe = |(k, &(steps, features, _)): (usize, &(usize, usize, usize))| Timeframe {
        name: format!("T{k}"),
        steps,
        features,
    };
    let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 3 };
    let series = timeframes.iter().enumerate().map(|(k, &(steps, features, stride))| {
        let ends: Vec<i64> = (0..count).map(|n| (steps - 1 + n * stride) as i64).collect();
        (numbers(k, (steps + count * stride) * features), ends)
    });
    SeriesInMemory::new(shape, series.collect(), numbers(50, count * 3)).unwrap()
}

/// Computation, beside the saved part of it.
struct Case {
    model: Model,
    precision: Precision,
    dropout: Option<Dropout>,
    /// True if all samples are one run of dense training.
    dense: bool,
}

impl Case {
    /// The gradients of a shard of all samples, from outputs whose gradients are themselves.
    fn gradients(&self, isa: Isa, samples: &SeriesInMemory, kept: Kept) -> Vec<u32> {
        let scope = Device::cpu().scope("test");
        let count = samples.len();
        let mut batch = Batch::new(&scope, samples.shape(), count).unwrap();
        let (series, all) = (samples.series().unwrap(), (0..count).collect::<Vec<_>>());
        batch.take_series(&series, &all).unwrap();
        batch.note_ends(Some(&series), &all).unwrap();
        let parameters = self.model.initial_parameters(&scope, 3).unwrap();
        let purpose = Purpose::Training { dropout: self.dropout.is_some(), runs: None, kept };
        let mut packed = PackedWeights::new(&scope, &self.model, purpose).unwrap();
        packed.set_precision(self.precision);
        packed.pack(&self.model, &parameters);
        let room = Capacity { samples: count, edges: 0, run: if self.dense { count } else { 1 } };
        let mut pass = Pass::new(&scope, &self.model, room, purpose).unwrap();
        pass.isa = isa;
        let view = batch.view();
        let run = 0..count;
        let runs = if self.dense { std::slice::from_ref(&run) } else { &[] };
        let shard = Shard { batch: &view, samples: 0..count, runs, graph: None, carried: None, dropout: self.dropout };
        let mut gradients = TensorSet::zeros(&scope, self.model.layout()).unwrap();
        // Twice, so that nothing of an earlier pass is left where it is read.
        for _ in 0..2 {
            gradients.clear();
            pass.forward(&self.model, &parameters, &packed, &shard);
            let (y, d_y) = pass.outputs_and_gradient_mut();
            d_y.copy_from_slice(y);
            pass.backward(&self.model, &parameters, &packed, &shard, &mut gradients);
        }
        gradients.values().iter().map(|x| x.to_bits()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gradients_are_those_of_the_full_backward_pass_to_the_bit(
        timeframes in prop::collection::vec((1usize..70, 1usize..20, prop_oneof![0usize..4, Just(25)]), 1..3),
        (hidden, layers, count) in (4usize..36, 1usize..4, 1usize..34),
        [drops, norm, pools, dense, bf16, cells] in any::<[bool; 6]>(),
    ) {
        let samples = samples(count, &timeframes);
        // A run is no longer in bars than in samples.
        let dense = dense && timeframes.iter().all(|(_, _, stride)| *stride <= 1);
        let config = ModelConfig {
            hidden,
            layers,
            layer_norm: norm,
            pooling: if pools { Pooling::attention(hidden) } else { Pooling::Last },
            ..ModelConfig::default()
        };
        let case = Case {
            model: Model::new(samples.shape().clone(), config).unwrap(),
            precision: if bf16 { Precision::Bf16 } else { Precision::Fp32 },
            dropout: (drops && layers > 1).then(|| Dropout::of_step(0.3, 1, 2).unwrap()),
            dense,
        };
        let kept = if cells { Kept::HalfAndCells } else { Kept::Half };
        for isa in Isa::all() {
            let expected = case.gradients(isa, &samples, Kept::Everything);
            prop_assert!(case.gradients(isa, &samples, kept) == expected, "{}", isa.name());
        }
    }
}
