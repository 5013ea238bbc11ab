//! Training with gradient checkpointing is training without, to the bit.

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{Encoder, ModelConfig, SampleShape, Timeframe};
use megabatch_order::random::{Stream, uniform};
use megabatch_trainer::{Checkpoints, Config, Footprint, Run, SampleRanges, Samples, SeriesInMemory, Trainer};
use proptest::prelude::*;

use crate::made_up::{cell_of, config, listen, pooling_of, steps_of};
use crate::resuming::state;

/// Samples whose windows end a bar later in the first timeframe than those of the sample before,
/// and every third time in the others.
fn samples(count: usize, timeframes: &[(usize, usize)]) -> SeriesInMemory {
    let numbers = |seed: u64, len: usize| -> Vec<f32> {
        (0..len as u64).map(|i| uniform(Stream { seed, name: "test" }, i) as f32 - 0.5).collect()
    };
    let timeframe =
        |(k, &(steps, features)): (usize, &(usize, usize))| Timeframe { name: format!("T{k}"), steps, features };
    let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 2 };
    let series = timeframes.iter().enumerate().map(|(k, &(steps, features))| {
        let ends = (0..count).map(|n| (steps - 1 + if k == 0 { n } else { n / 3 }) as i64).collect();
        (numbers(k as u64, (steps + count) * features), ends)
    });
    SeriesInMemory::new(shape, series.collect(), numbers(9, 2 * count)).unwrap()
}

/// Weights, moments and losses after training from where `trainer` is.
fn trained(trainer: &mut Trainer, run: &Run<'_>) -> (Vec<u32>, Vec<u64>) {
    let losses = steps_of(trainer, run).iter().map(|step| step.loss.to_bits()).collect();
    (state(trainer).0, losses)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn steps_are_those_of_the_full_backward_pass_to_the_bit(
        timeframes in prop::collection::vec((1usize..60, 1usize..20), 1..4),
        (hidden, layers, gru) in (4usize..36, 1usize..4, any::<bool>()),
        (count, batch_size, threads) in (4usize..50, 6usize..50, 1usize..4),
        run_length in prop_oneof![Just(None), (1usize..30).prop_map(Some)],
        [carry_state, dense, bf16, drops, layer_norm] in any::<[bool; 5]>(),
        pooling in 0usize..3,
    ) {
        let samples = samples(count, &timeframes);
        let config = |gradient_checkpointing| Config {
            model: ModelConfig {
                cell: cell_of(gru), hidden, layers, layer_norm, pooling: pooling_of(pooling, hidden), ..ModelConfig::default()
            },
            dropout: if drops { 0.3 } else { 0.0 },
            carry_state,
            loss_on: if dense { LossOn::EveryStep } else { LossOn::LastStep },
            precision: if bf16 { Precision::Bf16 } else { Precision::Fp32 },
            batch_size,
            run_length,
            threads,
            max_steps: Some(3),
            gradient_checkpointing,
            ..Config::default()
        };
        let train = SampleRanges::from(0..count);
        let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let result = |checkpointing| {
            let mut trainer = Trainer::new(&Device::cpu(), config(checkpointing), samples.shape().clone()).unwrap();
            trained(&mut trainer, &run)
        };
        prop_assert!(result(true) == result(false));
    }
}

#[test]
fn a_resumed_run_may_change_it() {
    let samples = samples(40, &[(40, 3), (20, 2)]);
    let train = SampleRanges::from(0..40);
    let trainer = |gradient_checkpointing, max_steps| {
        let config = Config { gradient_checkpointing, max_steps: Some(max_steps), carry_state: true, ..config() };
        Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap()
    };
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let (expected, _) = trained(&mut trainer(false, 7), &run);
    for first in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let run = Run { checkpoints: Some(&checkpoints), ..run };
        trainer(first, 3).train(&run, &mut listen).unwrap();
        let mut rest = trainer(!first, 7);
        let resumed = rest.resume(&run).unwrap().unwrap();
        assert!(resumed.changed.is_empty(), "{:?}", resumed.changed);
        assert!(trained(&mut rest, &run).0 == expected, "from {first} on");
    }
}

#[test]
fn half_of_the_activations_are_kept() {
    let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 16 };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 480), timeframe("M5", 480)], outputs: 3 };
    let bytes = |gradient_checkpointing, carry_state| {
        let model = ModelConfig { hidden: 64, layers: 2, ..ModelConfig::default() };
        let config = Config { model, batch_size: 32, gradient_checkpointing, carry_state, ..Config::default() };
        Footprint::new(&config, &shape, 0).unwrap().activations_bytes as f64
    };
    // Of the activations a tenth are bars and sums by bar.
    assert!(bytes(true, false) < 0.6 * bytes(false, false), "{}", bytes(true, false) / bytes(false, false));
    assert!(bytes(true, true) < 0.75 * bytes(false, true), "{}", bytes(true, true) / bytes(false, true));
}

#[test]
fn what_cannot_profit_is_refused() {
    let refused = |config: Config| {
        let shape = samples(1, &[(4, 1)]).shape().clone();
        Trainer::new(&Device::cpu(), Config { gradient_checkpointing: true, ..config }, shape).unwrap_err().to_string()
    };
    let model = ModelConfig { encoder: Encoder::LastBar, ..config().model };
    let error = refused(Config { model, dropout: 0.0, ..config() });
    assert!(error.starts_with("`gradient_checkpointing` is true: expected false for a model without LSTMs"), "{error}");
}
