//! Models of all kinds have the same bits for any number of threads: for as many threads as
//! shards, and for more, which share the shards' tasks.

use megabatch_amp::Precision;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{Cell, Fusion, ModelConfig, Pooling};
use megabatch_trainer::{Config, Evaluation, SampleRanges, Samples, Selection};

use crate::made_up::{config, long_windows, losses, samples, series, trained_on_all};

/// Results of an epoch.
#[derive(PartialEq)]
struct Trained {
    losses: Vec<f64>,
    weights: Vec<u32>,
    /// By the engine that trained.
    evaluation: Evaluation,
}

impl Trained {
    fn new(samples: &dyn Samples, config: &Config) -> Self {
        let (mut trainer, steps) = trained_on_all(config, samples);
        let indices = &SampleRanges::from(0..samples.len());
        let evaluation = trainer.evaluate(Selection { samples, indices }, None).unwrap();
        let weights = trainer.parameters().values().iter().map(|x| x.to_bits()).collect();
        Trained { losses: losses(&steps), weights, evaluation }
    }
}

fn configs(hidden: usize) -> Vec<(&'static str, Config)> {
    let plain = Config { batch_size: 40, epochs: 1, ..config() };
    let model = |change: &dyn Fn(&mut ModelConfig)| {
        let mut model = ModelConfig { hidden, ..plain.model };
        change(&mut model);
        Config { model, ..plain.clone() }
    };
    vec![
        ("one layer", model(&|model| model.layers = 1)),
        ("two layers", model(&|_| ())),
        ("a GRU", model(&|model| model.cell = Cell::Gru)),
        ("a GRU with checkpointing", Config { gradient_checkpointing: true, ..model(&|model| model.cell = Cell::Gru) }),
        ("a GRU in bf16", Config { precision: Precision::Bf16, ..model(&|model| model.cell = Cell::Gru) }),
        ("a norm", model(&|model| model.layer_norm = true)),
        ("dropout", Config { dropout: 0.3, ..model(&|_| ()) }),
        ("pooling", model(&|model| model.pooling = Pooling::attention(hidden))),
        ("fusion", model(&|model| model.fusion = Fusion::attention(hidden))),
        ("checkpointing", Config { gradient_checkpointing: true, ..model(&|_| ()) }),
        ("bf16", Config { precision: Precision::Bf16, ..model(&|_| ()) }),
        ("fp16", Config { precision: Precision::Fp16, ..model(&|_| ()) }),
    ]
}

#[test]
fn models_of_all_kinds_have_the_bits_of_one_thread() {
    let (apart, overlapping) = (samples(90), series());
    for (name, config) in configs(18) {
        let carried = Config { carry_state: true, ..config.clone() };
        let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(20), ..config.clone() };
        let cases: [(&dyn Samples, &Config, &str); 4] = [
            (&apart, &config, "windows"),
            (&overlapping, &config, "series"),
            (&overlapping, &carried, "carried states"),
            (&overlapping, &dense, "every step"),
        ];
        for (samples, config, form) in cases {
            let on_threads = |threads| Trained::new(samples, &Config { threads, ..config.clone() });
            let one = on_threads(1);
            for threads in [2, 3, 4, 16] {
                assert!(on_threads(threads) == one, "{name}, {form}, {threads} threads");
            }
        }
    }
}

/// Windows long enough for gradient checkpointing, layers wide enough for threads to share the
/// units of a window.
#[test]
fn wide_layers_over_long_windows_have_the_bits_of_one_thread() {
    let samples = long_windows(40);
    for (name, config) in configs(64) {
        let config = Config { threads: 1, ..config };
        let one = Trained::new(&samples, &config);
        for threads in [3, 4, 16] {
            let found = Trained::new(&samples, &Config { threads, ..config.clone() });
            assert!(found == one, "{name}, {threads} threads");
        }
    }
}
