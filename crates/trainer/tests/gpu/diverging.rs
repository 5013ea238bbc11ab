//! Runs that diverge: the device refuses the losses that the CPU refuses, and the run goes
//! back as there.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Checkpoints, Config, Divergence, End, Error, Event, OptimizerKind, Run, SampleRanges, Trainer,
};

use crate::{config, on_gpu, on_processor, series, with_kernels};

/// Such a rate that the weights overflow within a few steps.
fn reckless(max_rollbacks: u32, loss_spike_factor: Option<f64>) -> Config {
    let divergence = Divergence { max_rollbacks, loss_spike_factor };
    let mut config = Config { clip_norm: None, divergence, dropout: 0.0, ..config(Precision::Fp32, 1) };
    (config.optimizer.kind, config.optimizer.lr) = (OptimizerKind::Sgd, 1e4);
    config
}

/// Course of a run.
#[derive(Debug, PartialEq)]
struct DivergenceState {
    /// The step that failed before each, and the words of its cause.
    rollbacks: Vec<(u64, String)>,
    /// After so many steps, or that it gave up.
    end: Result<(u64, End), String>,
}

fn course(mut trainer: Trainer) -> DivergenceState {
    let (samples, folder, train) = (series(), tempfile::tempdir().unwrap(), SampleRanges::from(0..49));
    let checkpoints = Checkpoints { every_steps: Some(2), ..Checkpoints::new(folder.path()) };
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
    let mut rollbacks = Vec::new();
    let ended = trainer.train(&run, &mut |event| {
        if let Event::Rollback(rollback) = event {
            // The loss itself is a sum in another order.
            let cause = rollback.cause.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
            rollbacks.push((rollback.failed_step, cause));
        }
        ControlFlow::Continue(())
    });
    let gave_up = |error: Error| match error {
        Error::Diverged { rollbacks, .. } => format!("gave up after {rollbacks}"),
        other => panic!("{other}"),
    };
    DivergenceState { rollbacks, end: ended.map(|outcome| (outcome.steps, outcome.end)).map_err(gave_up) }
}

#[test]
fn a_gpu_refuses_the_losses_that_the_processor_refuses() {
    let (_driver, gpu) = with_kernels();
    // Losses that explode, losses that are not finite, and a run that gives up.
    for config in [reckless(40, Some(100.0)), reckless(40, None), reckless(2, Some(100.0))] {
        let expected = course(on_processor(&config));
        assert!(!expected.rollbacks.is_empty(), "{:?}", config.divergence);
        for gpu in [&gpu, &Device::cpu()] {
            assert_eq!(course(on_gpu(gpu, &config)), expected, "{:?}", config.divergence);
        }
    }
}
