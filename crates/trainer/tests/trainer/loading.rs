//! Samples that load themselves ahead: the same run as with samples that are gathered, in another
//! memory.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::time::Duration;

use megabatch_gpu_core::{Device, Scope};
use megabatch_trainer::{
    Batch, BatchLists, BorrowedBatch, Chunking, Config, Error, Evaluation, Event, Footprint, InMemory, LoadedBatches,
    PrefetchingSource, Run, SampleRanges, Samples, Selection, StepEvent, Trainer, Waits,
};

use crate::baselines::fit_numbers;
use crate::made_up::{config, listen, samples, shape_and_len_from, steps_of};

/// Samples that lend batches out of two pieces of memory in turn.
pub(crate) struct Lending {
    inner: InMemory,
    scope: Scope,
    /// As planned.
    chunk_samples: usize,
    /// The batch at which loading fails, counted from 0.
    fails_at: Option<usize>,
}

struct Lent<'a> {
    samples: &'a Lending,
    lists: BatchLists<'a>,
    chunks: [Batch; 2],
    list: Vec<usize>,
    batches: usize,
}

impl Samples for Lending {
    shape_and_len_from!(inner);

    fn gather(&self, _: &[usize], _: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        panic!("what loads itself ahead is not gathered");
    }

    fn load_ahead(&self) -> Option<&dyn PrefetchingSource> {
        Some(self)
    }
}

impl PrefetchingSource for Lending {
    fn load<'a>(
        &'a self,
        lists: BatchLists<'a>,
        chunking: Chunking,
    ) -> Result<Box<dyn LoadedBatches + 'a>, Box<dyn StdError + Send + Sync>> {
        let chunk = || Batch::new(&self.scope, self.shape(), chunking.samples(self.chunk_samples));
        Ok(Box::new(Lent { samples: self, lists, chunks: [chunk()?, chunk()?], list: Vec::new(), batches: 0 }))
    }
}

impl LoadedBatches for Lent<'_> {
    fn next(&mut self, _: &dyn Fn() -> bool) -> Result<Option<BorrowedBatch<'_>>, Box<dyn StdError + Send + Sync>> {
        let Some(list) = self.lists.next() else { return Ok(None) };
        if self.samples.fails_at == Some(self.batches) {
            return Err("the disk is on fire".into());
        }
        let chunk = &mut self.chunks[self.batches % 2];
        chunk.resize(list.len());
        self.samples.inner.gather(&list, chunk)?;
        (self.list, self.batches) = (list, self.batches + 1);
        let view = chunk.view();
        let features = (0..view.shape().timeframes.len()).map(|k| view.features(k)).collect();
        Ok(Some(BorrowedBatch { samples: &self.list, features, targets: view.targets() }))
    }

    fn waits(&self) -> Waits {
        let ms = |each: u64| Duration::from_millis(each * self.batches as u64);
        Waits { disk: ms(1), decode: ms(20), copy: ms(300), bytes_read: 7 * self.batches as u64 }
    }
}

/// Lending source on a device of its own.
fn lending(count: usize, chunk_samples: usize) -> Lending {
    lending_of(&Device::cpu(), count, chunk_samples)
}

pub(crate) fn lending_of(device: &Device, count: usize, chunk_samples: usize) -> Lending {
    Lending { inner: samples(count), scope: device.scope("lent"), chunk_samples, fails_at: None }
}

/// Trains on the first 70 samples and validates on the others: the weights' bits, the steps and the
/// evaluation.
fn train(config: &Config, samples: &dyn Samples) -> (Vec<u32>, Vec<StepEvent>, Evaluation) {
    let (train, validation): (SampleRanges, SampleRanges) = (0..samples.len()).partition(|&n| n < 70);
    let run = Run { samples, train: &train, validation: &validation, checkpoints: None };
    let device = Device::cpu();
    let mut trainer = Trainer::new(&device, config.clone(), samples.shape().clone()).unwrap();
    let steps = steps_of(&mut trainer, &run);
    let baselines = fit_numbers(&device, Selection { samples, indices: &train }).unwrap();
    let evaluation = trainer.evaluate(Selection { samples, indices: &validation }, Some(&baselines)).unwrap();
    (trainer.parameters().values().iter().map(|x| x.to_bits()).collect(), steps, evaluation)
}

#[test]
fn lent_batches_give_the_bits_of_gathered_ones() {
    for run_length in [Some(1), None, Some(3)] {
        let config =
            Config { run_length, dropout: 0.25, batch_size: 48, gradient_accumulation_steps: 2, epochs: 2, ..config() };
        let (bits, steps, evaluation) = train(&config, &samples(100));
        let (lent_bits, lent_steps, lent_evaluation) = train(&config, &lending(100, 64));
        assert_eq!(lent_bits, bits, "{run_length:?}");
        let losses = |steps: &[StepEvent]| steps.iter().map(|step| (step.loss, step.grad_norm)).collect::<Vec<_>>();
        assert_eq!(losses(&lent_steps), losses(&steps));
        assert_eq!(lent_evaluation, evaluation);
    }
}

#[test]
fn a_step_tells_what_it_waited_for() {
    let config = Config { batch_size: 10, gradient_accumulation_steps: 3, max_steps: Some(4), ..config() };
    let (_, steps, _) = train(&config, &lending(80, 64));
    // Seventy samples make two steps of three batches and one of one.
    let batches = [3_u32, 3, 1, 3];
    for (step, batches) in steps.iter().zip(batches) {
        let each = Waits {
            disk: Duration::from_millis(1),
            decode: Duration::from_millis(20),
            copy: Duration::from_millis(300),
            bytes_read: 7,
        };
        let waits = step.data_waits.unwrap();
        assert_eq!(
            [waits.disk, waits.decode, waits.copy],
            [each.disk, each.decode, each.copy].map(|one| batches * one)
        );
        assert_eq!(waits.bytes_read, 7 * u64::from(batches));
        assert_eq!(step.data_wait_s, (batches * each.total()).as_secs_f64());
        let json = serde_json::to_value(Event::Step(step.clone())).unwrap();
        assert_eq!(json["data_decode_s"], 0.02 * f64::from(batches));
        assert_eq!(json["data_bytes_read"], 7 * batches);
    }
    let (_, gathered, _) = train(&config, &samples(80));
    let json = serde_json::to_value(Event::Step(gathered[0].clone())).unwrap();
    assert!(json["data_wait_s"].is_f64() && json.get("data_disk_s").is_none(), "{json}");
}

#[test]
fn a_failure_to_load_ends_the_run_after_the_step_before_it() {
    let samples = Lending { fails_at: Some(5), ..lending(70, 64) };
    let indices = SampleRanges::from(0..70);
    let run = Run { samples: &samples, train: &indices, validation: SampleRanges::NONE, checkpoints: None };
    let config = Config { gradient_accumulation_steps: 2, ..config() };
    let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap();
    let mut steps = 0;
    let error = trainer
        .train(&run, &mut |event| {
            steps += u64::from(matches!(event, Event::Step(_)));
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::PrefetchingSource { .. }));
    assert_eq!(error.to_string(), "loading samples ahead failed: the disk is on fire");
    assert_eq!(steps, 2);
}

#[test]
fn what_loads_itself_takes_no_memory_for_batches() {
    for validation in [0..0, 60..70] {
        let samples = lending(70, 20);
        let (indices, validation) = (SampleRanges::from(0..60), SampleRanges::from(validation));
        let device = Device::cpu();
        let mut trainer = Trainer::new(&device, config(), samples.shape().clone()).unwrap();
        let run = Run { samples: &samples, train: &indices, validation: &validation, checkpoints: None };
        trainer.train(&run, &mut listen).unwrap();
        let footprint = Footprint::new(&config(), samples.shape(), validation.len()).unwrap();
        assert_eq!(device.usage().allocated_bytes_peak, footprint.total_bytes() - footprint.batches_bytes);
    }
}
