//! Runs whose device has less memory than was planned: they learn the same, or stop with all that
//! they did saved.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{ModelConfig, Pooling};
use megabatch_trainer::{
    Best, Checkpoints, Config, Error, Event, Footprint, Run, SampleRanges, Samples, ShortageEvent, Trainer,
};

use crate::dense::instruments;
use crate::loading::lending_of;
use crate::made_up::{config, samples, series};

/// A run.
struct Case {
    /// Its samples on a device.
    samples: fn(&Device) -> Box<dyn Samples>,
    config: Config,
}

/// Runs that take memory in different ways, all of batches of several shards.
fn cases() -> Vec<Case> {
    let from_windows: fn(&Device) -> Box<dyn Samples> = |_| Box::new(samples(100));
    let from_series: fn(&Device) -> Box<dyn Samples> = |_| Box::new(series());
    let config = Config { batch_size: 80, epochs: 3, validate_every_steps: Some(2), ..config() };
    let carrying = Config { carry_state: true, gradient_accumulation_steps: 2, batch_size: 64, ..config.clone() };
    let model = ModelConfig { pooling: Pooling::attention(config.model.hidden), ..config.model };
    let dense = Config { model, loss_on: LossOn::EveryStep, run_length: Some(8), batch_size: 64, ..config.clone() };
    // Runs that break at instruments, and steps that begin within them.
    let from_instruments: fn(&Device) -> Box<dyn Samples> = |_| Box::new(instruments(&[33, 7, 50, 21, 64, 25]));
    let broken = Config { loss_on: LossOn::EveryStep, run_length: Some(10), batch_size: 96, ..config.clone() };
    let rounded = Config { precision: Precision::Fp16, dropout: 0.25, ..config.clone() };
    let lent: fn(&Device) -> Box<dyn Samples> = |device| Box::new(lending_of(device, 100, 90));
    vec![
        Case { samples: from_windows, config: config.clone() },
        Case { samples: from_series, config: carrying },
        Case { samples: from_series, config: dense },
        Case { samples: from_instruments, config: broken },
        Case { samples: from_windows, config: rounded },
        Case { samples: lent, config },
    ]
}

/// Result of a run: the bits of its weights, those of each step's loss and norm, validations, and
/// the reductions.
#[derive(Debug, Default)]
struct Told {
    bits: Vec<u32>,
    steps: Vec<(u64, u64, u64)>,
    validations: Vec<(u64, f64)>,
    cuts: Vec<ShortageEvent>,
    best: Option<Best>,
}

impl Told {
    /// Trains on four fifths of the samples, from the last checkpoint on, or ends with an error;
    /// `None` where not even the trainer could be made.
    fn train(device: &Device, case: &Case, checkpoints: Option<&Checkpoints>) -> (Option<Told>, Result<(), Error>) {
        let samples = (case.samples)(device);
        let (train, validation): (SampleRanges, SampleRanges) = (0..samples.len()).partition(|&n| n % 5 > 0);
        let run = Run { samples: &*samples, train: &train, validation: &validation, checkpoints };
        let mut trainer = match Trainer::new(device, case.config.clone(), samples.shape().clone()) {
            Ok(trainer) => trainer,
            Err(error) => return (None, Err(error)),
        };
        let mut told = Told::default();
        let mut observe = |event: Event<'_>| {
            match event {
                Event::Step(step) => told.steps.push((step.step, step.loss.to_bits(), step.grad_norm.to_bits())),
                Event::Validation(validation) => told.validations.push((validation.step, validation.loss)),
                Event::Shortage(cut) => told.cuts.push(cut),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let outcome = trainer.resume(&run).and_then(|_| trainer.train(&run, &mut observe));
        told.bits = trainer.parameters().values().iter().map(|x| x.to_bits()).collect();
        told.best = outcome.as_ref().ok().and_then(|outcome| outcome.best);
        (Some(told), outcome.map(drop))
    }

    /// Sees to it that this run learnt what `calm` did.
    fn assert_learnt_as(&self, calm: &Told, what: &str) {
        assert_eq!(self.bits, calm.bits, "{what}");
        assert_eq!(self.steps, calm.steps, "{what}");
        assert_eq!(self.best, calm.best, "{what}");
        assert_eq!(self.validations, calm.validations, "{what}");
    }
}

fn calm(case: &Case) -> Told {
    let (told, outcome) = Told::train(&Device::cpu(), case, None);
    outcome.unwrap();
    told.unwrap()
}

#[test]
fn one_refused_request_changes_nothing_that_is_learnt() {
    for (number, case) in cases().iter().enumerate() {
        let calm = calm(case);
        let mut refused = 0;
        for request in 0.. {
            let device = Device::cpu();
            device.refuse_requests(request..request + 1);
            let what = format!("case {number}, request {request}");
            match Told::train(&device, case, None) {
                (Some(told), Ok(())) => {
                    told.assert_learnt_as(&calm, &what);
                    if told.cuts.is_empty() {
                        break;
                    }
                    assert_eq!(told.cuts.len(), 1, "{what}");
                    refused += 1;
                }
                // Weights, gradients and moments, of which there is nothing to cut.
                (None, Err(error)) => {
                    assert!(error.is_shortage() && request < 4, "{what}: {error}");
                    assert_eq!(device.usage().allocated_bytes, 0, "{what}");
                }
                (_, outcome) => panic!("{what}: {outcome:?}"),
            }
        }
        assert!(refused > 20, "{refused} requests of case {number} were refused");
    }
}

#[test]
fn a_run_that_gets_nothing_more_stops_and_can_be_resumed() {
    for (number, case) in cases().iter().enumerate() {
        let calm = calm(case);
        for request in (5..).step_by(7) {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints::new(folder.path());
            let device = Device::cpu();
            device.refuse_requests(request..u64::MAX);
            let what = format!("case {number}, from request {request} on");
            let (told, outcome) = Told::train(&device, case, Some(&checkpoints));
            let Some(told) = told else { continue };
            assert_eq!(device.usage().allocated_bytes, 0, "{what}");
            let Err(error) = outcome else {
                assert!(told.cuts.is_empty(), "{what}: {:?}", told.cuts);
                break;
            };
            // Carried states are there before the first step, or not at all.
            let has_begun = matches!(&error, Error::CannotReduceFurther { .. });
            assert!(has_begun || told.steps.is_empty() && error.is_shortage(), "{what}: {error}");
            let (resumed, outcome) = Told::train(&Device::cpu(), case, Some(&checkpoints));
            outcome.unwrap();
            let resumed = resumed.unwrap();
            let whole = Told {
                steps: [told.steps, resumed.steps].concat(),
                validations: [told.validations, resumed.validations].concat(),
                ..resumed
            };
            whole.assert_learnt_as(&calm, &what);
        }
    }
}

#[test]
fn a_run_goes_on_in_what_another_process_left() {
    let case = &cases()[0];
    let calm = calm(case);
    let device = Device::cpu();
    let shape = (case.samples)(&device).shape().clone();
    let planned = Footprint::new(&case.config, &shape, 20).unwrap();
    let mut batch_sizes = Vec::new();
    for percent in [100, 90, 80, 70, 60, 50] {
        let device = Device::cpu();
        device.set_budget_bytes(Some(planned.total_bytes() * percent / 100));
        let (told, outcome) = Told::train(&device, case, None);
        let told = told.filter(|_| outcome.is_ok()).unwrap_or_else(|| panic!("{percent} %: {outcome:?}"));
        // Below 32 samples, sums are formed in another order.
        let last = told.cuts.last().map_or(case.config.batch_size, |cut| cut.batch_size);
        if last >= 32 {
            told.assert_learnt_as(&calm, &format!("{percent} %"));
        }
        batch_sizes.push(last);
    }
    assert_eq!(batch_sizes, [80, 32, 32, 32, 32, 20]);
}
