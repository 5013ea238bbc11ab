//! Models of all kinds have the same bits for any number of threads: for as many threads as
//! shards, and for more, which share the shards' tasks.

use megabatch_amp::Precision;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{Fusion, ModelConfig, Pooling};
use megabatch_trainer::{Config, Samples};

use crate::made_up::{config, losses, samples, series, trained_on_all};

/// Weights and losses after an epoch.
fn trained(samples: &dyn Samples, config: &Config) -> (Vec<u32>, Vec<f64>) {
    let (trainer, steps) = trained_on_all(config, samples);
    (trainer.parameters().values().iter().map(|x| x.to_bits()).collect(), losses(&steps))
}

fn configs() -> Vec<(&'static str, Config)> {
    let plain = Config { batch_size: 40, epochs: 1, ..config() };
    let model = |change: &dyn Fn(&mut ModelConfig)| {
        let mut model = ModelConfig { hidden: 18, ..plain.model };
        change(&mut model);
        Config { model, ..plain.clone() }
    };
    vec![
        ("one layer", model(&|model| model.layers = 1)),
        ("two layers", model(&|_| ())),
        ("a norm", model(&|model| model.layer_norm = true)),
        ("dropout", Config { dropout: 0.3, ..model(&|_| ()) }),
        ("pooling", model(&|model| model.pooling = Pooling::attention(18))),
        ("fusion", model(&|model| model.fusion = Fusion::attention(18))),
        ("checkpointing", Config { gradient_checkpointing: true, ..model(&|_| ()) }),
        ("bf16", Config { precision: Precision::Bf16, ..model(&|_| ()) }),
        ("fp16", Config { precision: Precision::Fp16, ..model(&|_| ()) }),
    ]
}

#[test]
fn models_of_all_kinds_have_the_bits_of_one_thread() {
    let (apart, overlapping) = (samples(90), series());
    for (name, config) in configs() {
        let carried = Config { carry_state: true, ..config.clone() };
        let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(20), ..config.clone() };
        let cases: [(&dyn Samples, &Config, &str); 4] = [
            (&apart, &config, "windows"),
            (&overlapping, &config, "series"),
            (&overlapping, &carried, "carried states"),
            (&overlapping, &dense, "every step"),
        ];
        for (samples, config, of) in cases {
            let with = |threads| trained(samples, &Config { threads, ..config.clone() });
            let one = with(1);
            for threads in [2, 3, 7, 16] {
                assert!(with(threads) == one, "{name}, {of}, {threads} threads");
            }
        }
    }
}
