//! Series in a file: the same run as with series in memory, bit for bit, and errors of reading.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use megabatch_gpu_core::Device;
use megabatch_nn::model::SampleShape;
use megabatch_trainer::{
    Baselines, Batch, Checkpoints, Config, Error, Evaluation, Run, Samples, Selection, SeriesInMemory, StreamedSeries,
    Trainer, Waits,
};
use proptest::prelude::*;

use crate::made_up::{config, listen, series, steps_of};

type SourceError = Box<dyn StdError + Send + Sync>;

/// Series that are given out as if they were read from a file, and fail to be once.
struct FromFile {
    inner: SeriesInMemory,
    reads: AtomicUsize,
    fails_at: Option<usize>,
}

impl FromFile {
    fn new(fails_at: Option<usize>) -> Self {
        FromFile { inner: series(), reads: AtomicUsize::new(0), fails_at }
    }

    fn note_read(&self) -> Result<(), SourceError> {
        match self.fails_at == Some(self.reads.fetch_add(1, Relaxed)) {
            true => Err("/targets: rows 3 to 9: series.h5: cannot read the file".into()),
            false => Ok(()),
        }
    }
}

impl Samples for FromFile {
    fn shape(&self) -> &SampleShape {
        self.inner.shape()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn gather(&self, _: &[usize], _: &mut Batch) -> Result<(), SourceError> {
        panic!("series are not gathered");
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        Some(self)
    }
}

impl StreamedSeries for FromFile {
    fn bars(&self, k: usize) -> usize {
        self.inner.series().unwrap().timeframes[k].values.len() / self.shape().timeframes[k].features
    }

    fn segment_starts(&self, k: usize) -> &[i64] {
        self.inner.series().unwrap().timeframes[k].segment_starts
    }

    fn read_window_ends(&self, k: usize, samples: &[usize], ends: &mut [i64]) -> Result<(), SourceError> {
        self.note_read()?;
        let all = self.inner.series().unwrap().timeframes[k].ends;
        ends.iter_mut().zip(samples).for_each(|(end, &sample)| *end = all[sample]);
        Ok(())
    }

    fn read_bars(&self, k: usize, rows: &[Range<usize>], bars: &mut [f32]) -> Result<(), SourceError> {
        self.note_read()?;
        let (all, width) = (self.inner.series().unwrap().timeframes[k].values, self.shape().timeframes[k].features);
        let read: Vec<f32> = rows.iter().flat_map(|rows| &all[rows.start * width..rows.end * width]).copied().collect();
        bars.copy_from_slice(&read);
        Ok(())
    }

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), SourceError> {
        self.note_read()?;
        let (all, width) = (self.inner.series().unwrap().targets, self.shape().outputs);
        for (row, &sample) in targets.chunks_exact_mut(width).zip(samples) {
            row.copy_from_slice(&all[sample * width..][..width]);
        }
        Ok(())
    }

    fn read_times(&self) -> Waits {
        let reads = self.reads.load(Relaxed) as u64;
        Waits { disk: Duration::from_micros(reads), bytes_read: reads, ..Waits::default() }
    }
}

/// Trains on some samples and validates on the others: losses, weights, and the errors of both
/// beside baselines.
fn outcome(config: &Config, samples: &dyn Samples) -> (Vec<u64>, Vec<u32>, Evaluation) {
    let (validation, train): (Vec<usize>, Vec<usize>) = (0..samples.len()).partition(|sample| sample % 7 > 4);
    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let run = Run { samples, train: &train, validation: &validation, checkpoints: None };
    let losses = steps_of(&mut trainer, &run).iter().map(|step| step.loss.to_bits()).collect();
    let weights = trainer.parameters().values().iter().map(|x| x.to_bits()).collect();
    let baselines = Baselines::fit(&Device::cpu(), Selection { samples, indices: &train }).unwrap();
    let evaluation = trainer.evaluate(Selection { samples, indices: &validation }, Some(&baselines)).unwrap();
    (losses, weights, evaluation)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn series_in_a_file_train_the_model_that_series_in_memory_train(
        batch_size in 1_usize..40, run_length in 1_usize..70, accumulation_steps in 1_usize..3, threads in 1_usize..3,
    ) {
        let run_length = Some(run_length);
        let config = Config { batch_size, run_length, accumulation_steps, threads, epochs: 2, ..config() };
        let streamed = FromFile::new(None);
        prop_assert_eq!(outcome(&config, &streamed), outcome(&config, &series()));
        prop_assert!(streamed.reads.load(Relaxed) > 0);
    }
}

#[test]
fn waits_for_a_file_have_a_cause_and_bytes() {
    let train: Vec<usize> = (0..100).collect();
    let samples = FromFile::new(None);
    let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
    let steps = steps_of(&mut trainer, &run);
    let waits: Vec<Waits> = steps.iter().map(|step| step.data_waits.expect("waits of a file")).collect();
    assert!(waits.iter().all(|waits| waits.decode + waits.copy == Duration::ZERO));
    // Window ends and bars of two timeframes and the targets of each batch.
    assert_eq!(waits.iter().map(|waits| waits.bytes_read).sum::<u64>(), 5 * steps.len() as u64);
}

/// Whichever read fails, the error names the file, and the run goes on from its last checkpoint to
/// the weights of one that no read failed.
#[test]
fn a_read_that_fails_is_named_and_the_run_resumes() {
    let config = Config { batch_size: 16, max_steps: Some(9), ..config() };
    let train: Vec<usize> = (0..100).collect();
    let trainer = || Trainer::new(&Device::cpu(), config.clone(), series().shape().clone()).unwrap();
    let weights = |trainer: &Trainer| trainer.parameters().values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let whole = series();
    let mut uninterrupted = trainer();
    let run = Run { samples: &whole, train: &train, validation: &[], checkpoints: None };
    uninterrupted.train(&run, &mut listen).unwrap();
    for fails_at in (0..45).step_by(4) {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { every_steps: Some(2), ..Checkpoints::new(folder.path()) };
        let samples = FromFile::new(Some(fails_at));
        let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: Some(&checkpoints) };
        let error = trainer().train(&run, &mut listen).unwrap_err();
        assert!(matches!(error, Error::Gather { .. }), "{error}");
        assert!(error.to_string().contains("/targets: rows 3 to 9: series.h5"), "{error}");
        let mut resumed = trainer();
        resumed.resume(&run).unwrap();
        resumed.train(&run, &mut listen).unwrap();
        assert_eq!(weights(&resumed), weights(&uninterrupted), "read {fails_at} failed");
    }
}
