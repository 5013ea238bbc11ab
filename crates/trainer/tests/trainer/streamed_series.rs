//! Series in a file: the same run as with series in memory, bit for bit, and errors of reading.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::ModelConfig;
use megabatch_trainer::{
    Batch, Checkpoints, Config, Error, Evaluation, GpuFootprint, Run, SampleRanges, Samples, Selection, StreamedSeries,
    Trainer, Waits,
};
use proptest::prelude::*;

use crate::baselines::fit_numbers;
use crate::in_file::InFile;
use crate::made_up::{config, listen, pooling_of, series, shape_and_len_from, steps_of};

type SourceError = Box<dyn StdError + Send + Sync>;

/// Series in a file that fails to be read once.
struct FromFile {
    inner: InFile,
    reads: AtomicUsize,
    fails_at: Option<usize>,
    /// Row of the first timeframe that cannot be read.
    lost_row: Option<usize>,
    /// Rate of the disk; as fast as memory if `None`.
    bytes_a_second: Option<f64>,
    /// Time of all reads, and their bytes.
    read: Mutex<Waits>,
}

impl FromFile {
    fn new(fails_at: Option<usize>) -> Self {
        FromFile {
            inner: InFile(series()),
            reads: AtomicUsize::new(0),
            fails_at,
            lost_row: None,
            bytes_a_second: None,
            read: Mutex::default(),
        }
    }

    fn note_read(&self, bytes: usize) -> Result<(), SourceError> {
        if let Some(rate) = self.bytes_a_second {
            let disk = Duration::from_secs_f64(bytes as f64 / rate);
            std::thread::sleep(disk);
            *self.read.lock().unwrap() += Waits { disk, bytes_read: bytes as u64, ..Waits::default() };
        }
        match self.fails_at == Some(self.reads.fetch_add(1, Relaxed)) {
            true => Err("/targets: rows 3 to 9: series.h5: cannot read the file".into()),
            false => Ok(()),
        }
    }
}

impl Samples for FromFile {
    shape_and_len_from!(inner);

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), SourceError> {
        self.inner.gather(samples, batch)
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        Some(self)
    }

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), SourceError> {
        self.note_read(size_of_val(targets))?;
        self.inner.read_targets(samples, targets)
    }
}

impl StreamedSeries for FromFile {
    fn bars(&self, k: usize) -> usize {
        self.inner.bars(k)
    }

    fn segment_starts(&self, k: usize) -> &[i64] {
        self.inner.segment_starts(k)
    }

    fn read_window_ends(&self, k: usize, samples: &[usize], ends: &mut [i64]) -> Result<(), SourceError> {
        self.note_read(size_of_val(ends))?;
        self.inner.read_window_ends(k, samples, ends)
    }

    fn read_bars(&self, k: usize, rows: &[Range<usize>], bars: &mut [f32]) -> Result<(), SourceError> {
        self.note_read(size_of_val(bars))?;
        if k == 0 && self.lost_row.is_some_and(|row| rows.iter().any(|rows| rows.contains(&row))) {
            return Err("/series/M1/values: rows 3 to 9: series.h5: cannot read the file".into());
        }
        self.inner.read_bars(k, rows, bars)
    }

    fn read_times(&self) -> Waits {
        if self.bytes_a_second.is_some() {
            return *self.read.lock().unwrap();
        }
        let reads = self.reads.load(Relaxed) as u64;
        Waits { disk: Duration::from_micros(reads), bytes_read: reads, ..Waits::default() }
    }
}

/// Trains on some samples and validates on the others: losses, weights, and the errors of both
/// beside baselines.
fn outcome(config: &Config, samples: &dyn Samples) -> (Vec<u64>, Vec<u32>, Evaluation) {
    let (validation, train): (SampleRanges, SampleRanges) = (0..samples.len()).partition(|sample| sample % 7 > 4);
    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let run = Run { samples, train: &train, validation: &validation, checkpoints: None };
    let losses = steps_of(&mut trainer, &run).iter().map(|step| step.loss.to_bits()).collect();
    let weights = trainer.parameters().values().iter().map(|x| x.to_bits()).collect();
    let baselines = fit_numbers(&Device::cpu(), Selection { samples, indices: &train }).unwrap();
    let evaluation = trainer.evaluate(Selection { samples, indices: &validation }, Some(&baselines)).unwrap();
    (losses, weights, evaluation)
}

/// Training by windows, with carried state, at every step, and with both.
fn kind_of(kind: usize) -> Config {
    let loss_on = if kind >= 2 { LossOn::EveryStep } else { LossOn::LastStep };
    Config { carry_state: kind % 2 == 1, loss_on, ..config() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn series_in_a_file_train_the_model_that_series_in_memory_train(
        batch_size in 1_usize..40, run_length in 1_usize..70,
        gradient_accumulation_steps in 1_usize..3, threads in 1_usize..3,
        (kind, pools, validates_some) in (0_usize..4, 0_usize..2, any::<bool>()),
    ) {
        let model = ModelConfig { pooling: pooling_of(pools, 5), ..config().model };
        let config = Config {
            model,
            batch_size,
            run_length: Some(run_length),
            gradient_accumulation_steps,
            threads,
            epochs: 2,
            validation_samples: validates_some.then_some(13),
            ..kind_of(kind)
        };
        let streamed = FromFile::new(None);
        prop_assert_eq!(outcome(&config, &streamed), outcome(&config, &series()));
        prop_assert!(streamed.reads.load(Relaxed) > 0);
    }
}

#[test]
fn waits_for_a_file_have_a_cause_and_bytes() {
    let train = SampleRanges::from(0..100);
    let samples = FromFile::new(None);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
    let steps = steps_of(&mut trainer, &run);
    let waits: Vec<Waits> = steps.iter().map(|step| step.data_waits.expect("waits of a file")).collect();
    assert!(waits.iter().all(|waits| waits.decode + waits.copy == Duration::ZERO));
    // Window ends and bars of two timeframes and the targets of each batch.
    assert_eq!(waits.iter().map(|waits| waits.bytes_read).sum::<u64>(), 5 * steps.len() as u64);
}

/// A disk that gives less than the computation takes: the same run, and its waits have their cause.
#[test]
fn a_slow_disk_is_waited_for_and_named() {
    let config = Config { batch_size: 16, max_steps: Some(6), ..config() };
    let train = SampleRanges::from(0..100);
    let trained = |samples: &FromFile| {
        let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let steps = steps_of(&mut trainer, &run);
        let losses: Vec<u64> = steps.iter().map(|step| step.loss.to_bits()).collect();
        let waited_s: f64 = steps.iter().map(|step| step.data_wait_s).sum();
        let mut waits = Waits::default();
        steps.iter().for_each(|step| waits += step.data_waits.unwrap());
        (losses, waited_s, waits)
    };
    // Each batch, of some hundred bytes, takes a hundredth of a second or more.
    let slow = FromFile { bytes_a_second: Some(20e3), ..FromFile::new(None) };
    let (losses, waited_s, waits) = trained(&slow);
    assert_eq!(losses, trained(&FromFile::new(None)).0);
    let reading_s = slow.read.lock().unwrap().disk.as_secs_f64();
    assert!(reading_s > 0.05, "{reading_s}");
    // A step of so small a model takes no time beside its reads.
    assert!(waited_s > 0.5 * reading_s, "{waited_s} s of {reading_s} s");
    assert!(waits.disk.as_secs_f64() > 0.9 * (waits.disk + waits.decode + waits.copy).as_secs_f64(), "{waits:?}");
    assert!(waits.bytes_read > 0);
}

/// Shares of ranks, of which several differ, are planned by window ends that are read once.
#[test]
fn ends_of_windows_are_read_once_for_all_ranks() {
    let config = Config { batch_size: 80, threads: 1, ..config() };
    let (train, validation) = (SampleRanges::from(0..90), SampleRanges::from(90..100));
    let reads = |ranks| {
        let samples = FromFile::new(None);
        GpuFootprint::new(&config, &samples, &train, &validation, ranks).unwrap();
        samples.reads.load(Relaxed)
    };
    // Two timeframes, in training and in validation.
    assert_eq!([1, 3].map(reads), [4, 4]);
}

#[test]
fn ends_of_windows_are_read_once_for_carried_states() {
    let (samples, train, folder) = (FromFile::new(None), SampleRanges::from(0..100), tempfile::tempdir().unwrap());
    let checkpoints = Checkpoints::new(folder.path());
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
    let config = Config { carry_state: true, ..config() };
    let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap();
    assert!(trainer.resume(&run).unwrap().is_none());
    // One read for each of the two timeframes.
    assert_eq!(samples.reads.load(Relaxed), 2);
}

/// Whichever read fails, the error names the file, and the run goes on from its last checkpoint to
/// the weights of one that no read failed.
#[test]
fn a_read_that_fails_is_named_and_the_run_resumes() {
    for kind in [0, 1, 2] {
        let config = Config { batch_size: 16, max_steps: Some(9), threads: 1, ..kind_of(kind) };
        let (train, validation) = (SampleRanges::from(0..100), SampleRanges::from(80..100));
        let trainer = || Trainer::new(&Device::cpu(), config.clone(), series().shape().clone()).unwrap();
        let weights = |trainer: &Trainer| trainer.parameters().values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let whole = FromFile::new(None);
        let mut uninterrupted = trainer();
        let run = Run { samples: &whole, train: &train, validation: &validation, checkpoints: None };
        uninterrupted.train(&run, &mut listen).unwrap();
        let reads = whole.reads.load(Relaxed);
        assert!(reads > 45, "{reads} reads");
        for fails_at in (0..reads).step_by(13) {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints { every_steps: Some(2), ..Checkpoints::new(folder.path()) };
            let samples = FromFile::new(Some(fails_at));
            let run = Run { samples: &samples, checkpoints: Some(&checkpoints), ..run };
            let error = trainer().train(&run, &mut listen).unwrap_err();
            assert!(matches!(error, Error::Gather { .. } | Error::Bars { .. }), "{error}");
            assert!(error.to_string().contains("/targets: rows 3 to 9: series.h5"), "{error}");
            let mut resumed = trainer();
            resumed.resume(&run).unwrap();
            resumed.train(&run, &mut listen).unwrap();
            assert_eq!(weights(&resumed), weights(&uninterrupted), "read {fails_at} failed");
        }
    }
}

/// Bars before the windows that are evaluated, over which their states are computed.
#[test]
fn bars_that_states_are_computed_over_are_named_where_they_cannot_be_read() {
    let config = Config { carry_state: true, ..config() };
    let second_segment = series().series().unwrap().timeframes[0].segment_starts[1] as usize;
    for (lost_row, fails) in [(second_segment, true), (second_segment - 1, false)] {
        let samples = FromFile { lost_row: Some(lost_row), ..FromFile::new(None) };
        let mut trainer = Trainer::new(&Device::cpu(), config.clone(), series().shape().clone()).unwrap();
        let evaluated =
            trainer.evaluate(Selection { samples: &samples, indices: &SampleRanges::from_iter([95, 99]) }, None);
        assert_eq!(evaluated.is_err(), fails);
        if let Err(error) = evaluated {
            assert!(matches!(&error, Error::Bars { .. }), "{error}");
            let expected = format!("reading bars {second_segment}..");
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert!(error.to_string().contains(" of M1 failed: /series/M1/values: rows 3 to 9: series.h5"), "{error}");
        }
    }
}
