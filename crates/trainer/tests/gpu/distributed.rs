//! Several ranks, each on a GPU: the same bits for the same number of ranks, and the losses of a
//! run that is alone.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::{AttentionKind, SampleShape, Timeframe};
use megabatch_simt::driver::FakeDriver;
use megabatch_trainer::{
    Checkpoints, Config, Divergence, Error, Event, GpuFootprint, IdleRanks, InMemory, Peers, Run, SampleRanges,
    Samples, SeriesInMemory, Trainer,
};

use crate::dense::in_runs;
use crate::in_file::InFile;
use crate::made_up::market;
use crate::planning::{one_after_another, with_one_gap};
use crate::thread_peers::{Faults, ThreadPeers};
use crate::{assert_close, bits, config, graphs, series, shape, tolerance, wave, windows, with_kernels};

/// Weights, and losses of steps and of validations.
#[derive(Debug, Default, PartialEq)]
struct Told {
    bits: Vec<u32>,
    losses: Vec<f64>,
    norms: Vec<f64>,
    validations: Vec<f64>,
    worlds: Vec<usize>,
    /// After each shortage of memory.
    batch_sizes: Vec<usize>,
}

/// Trains one rank, or alone.
fn train_one(
    gpu: &Device,
    config: &Config,
    samples: &dyn Samples,
    peers: Option<ThreadPeers>,
    folder: Option<&Path>,
) -> Result<Told, Error> {
    let mut trainer = Trainer::on_gpu(gpu, &Device::cpu(), config.clone(), samples.shape().clone())?;
    if let Some(peers) = peers {
        trainer.join(Box::new(peers), IdleRanks::Allow)?;
    }
    let units = samples.graphs().map_or(samples.len(), Graphs::len);
    let (validation, train): (SampleRanges, SampleRanges) = (0..units).partition(|n| n % 7 == 6);
    let checkpoints = folder.map(|folder| Checkpoints { every_steps: Some(3), ..Checkpoints::new(folder) });
    let run = Run { samples, train: &train, validation: &validation, checkpoints: checkpoints.as_ref() };
    trainer.resume(&run)?;
    let mut told = Told::default();
    trainer.train(&run, &mut |event| {
        match event {
            Event::Step(step) => {
                told.losses.push(step.loss);
                told.norms.push(step.grad_norm);
            }
            Event::Validation(validation) => told.validations.push(validation.loss),
            Event::Reformed { world, .. } => told.worlds.push(world),
            Event::Shortage(cut) => told.batch_sizes.push(cut.batch_size),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    told.bits = bits(&trainer);
    Ok(told)
}

/// Trains `world` ranks. Each has a GPU of its own, or all have one.
fn train(
    gpu: &(dyn Fn() -> Device + Sync),
    config: &Config,
    samples: &dyn Samples,
    world: usize,
    folder: Option<&Path>,
    faults: &Faults,
) -> Vec<Result<Told, Error>> {
    ThreadPeers::run(world, faults, |peers| Ok::<_, ()>(train_one(&gpu(), config, samples, Some(peers), folder)))
}

/// Several ranks on `gpu` have the same bits each time, and the losses of one alone.
fn check(gpu: &(dyn Fn() -> Device + Sync), config: &Config, samples: &dyn Samples, worlds: &[usize]) {
    let alone = train_one(&gpu(), config, samples, None, None).unwrap();
    assert!(!alone.validations.is_empty() && alone.losses.len() == 8);
    for &world in worlds {
        let told = train(gpu, config, samples, world, None, &Faults::default());
        let told: Vec<Told> = told.into_iter().map(Result::unwrap).collect();
        let again = train(gpu, config, samples, world, None, &Faults::default());
        for (rank, again) in again.into_iter().enumerate() {
            assert_eq!(told[rank], told[0], "rank {rank} of {world}");
            assert_eq!(again.unwrap(), told[0], "rank {rank} of {world}, once more");
        }
        if world == 1 {
            assert_eq!(told[0], alone, "one rank");
        }
        let what = format!("{world} ranks, {:?}", (config.precision, &config.model));
        let tolerance = tolerance(config);
        assert_close(&format!("{what}: losses"), &told[0].losses, &alone.losses, tolerance);
        assert_close(&format!("{what}: norms"), &told[0].norms, &alone.norms, 2.0 * tolerance);
        assert_close(&format!("{what}: validations"), &told[0].validations, &alone.validations, tolerance);
    }
}

/// Batches of several blocks, which ranks share.
fn shared(config: &Config) -> Config {
    Config { batch_size: 40, run_length: Some(1), ..config.clone() }
}

#[test]
fn ranks_train_what_one_gpu_trains() {
    let gpu = || Device::cpu();
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
        check(&gpu, &shared(&config(precision, 2)), &windows(), &[1, 2, 3]);
    }
    let base = shared(&config(Precision::Fp32, 1));
    check(&gpu, &Config { gradient_accumulation_steps: 2, batch_size: 20, ..base.clone() }, &series(), &[2, 5]);
    let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(8), ..base };
    check(&gpu, &dense, &series(), &[2]);
    let over_graphs = Config { max_steps: Some(8), ..graphs::over_graphs(AttentionKind::Gat) };
    check(&gpu, &over_graphs, &market(21), &[2, 3]);
}

#[test]
fn ranks_share_one_gpu() {
    let (_driver, gpu) = with_kernels();
    let gpu = || gpu.clone();
    check(&gpu, &shared(&config(Precision::Bf16, 1)), &windows(), &[2]);
}

#[test]
fn a_run_goes_on_from_a_checkpoint_with_the_same_bits() {
    let (gpu, samples) = (|| Device::cpu(), windows());
    let whole = shared(&config(Precision::Fp16, 1));
    let expected = train(&gpu, &whole, &samples, 2, None, &Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let cut = Config { max_steps: Some(3), ..whole.clone() };
    for result in train(&gpu, &cut, &samples, 2, Some(folder.path()), &Faults::default()) {
        result.unwrap();
    }
    let found = train(&gpu, &whole, &samples, 2, Some(folder.path()), &Faults::default());
    for (found, expected) in found.into_iter().zip(expected) {
        let (found, expected) = (found.unwrap(), expected.unwrap());
        assert_eq!((found.bits, &found.losses[..]), (expected.bits, &expected.losses[3..]));
    }
}

/// A rank that runs short keeps no series on its GPU, and the other does.
#[test]
fn ranks_of_which_one_keeps_its_series_cut_batches_together() {
    let (samples, base) = (series(), shared(&config(Precision::Fp32, 1)));
    let train_on = |gpus: &[Device; 2]| -> Vec<Told> {
        let told = ThreadPeers::run(2, &Faults::default(), |peers| {
            let rank = peers.rank();
            let config = Config { keep_series: rank == 1, ..base.clone() };
            Ok::<_, ()>(train_one(&gpus[rank], &config, &samples, Some(peers), None))
        });
        told.into_iter().map(Result::unwrap).collect()
    };
    let gpus = [Device::cpu(), Device::cpu()];
    let expected = train_on(&gpus);
    let needed = gpus[0].usage().allocated_bytes_peak;
    let gpus = [Device::cpu(), Device::cpu()];
    gpus[0].set_budget_bytes(Some(needed - needed / 8));
    let told = train_on(&gpus);
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].batch_sizes[..2], [40, 30]);
    assert_close("losses in smaller batches", &told[0].losses, &expected[0].losses, tolerance(&base));
}

/// Each GPU has memory for chunks of its own size, or for none.
#[test]
fn ranks_with_chunks_of_several_sizes_have_the_bits_of_ranks_without() {
    let (samples, base) = (windows(), shared(&config(Precision::Bf16, 1)));
    let train_with = |gpu: &Device, chunks: [Option<usize>; 2]| -> Vec<Told> {
        let told = ThreadPeers::run(2, &Faults::default(), |peers| {
            let config = Config { chunk_windows: chunks[peers.rank()], ..base.clone() };
            Ok::<_, ()>(train_one(gpu, &config, &samples, Some(peers), None))
        });
        told.into_iter().map(Result::unwrap).collect()
    };
    let (_driver, gpu) = with_kernels();
    for gpu in [gpu, Device::cpu()] {
        let expected = train_with(&gpu, [None, None]);
        for chunks in [[Some(40), Some(100)], [None, Some(40)]] {
            assert_eq!(train_with(&gpu, chunks), expected, "{chunks:?}");
        }
    }
}

#[test]
fn ranks_that_are_left_go_on() {
    let (gpu, samples) = (|| Device::cpu(), windows());
    let config = shared(&config(Precision::Fp32, 1));
    let alone = train_one(&gpu(), &config, &samples, None, None).unwrap();
    for dying in [0, 1] {
        let faults = Faults { deaths: vec![(dying, 60)], ..Faults::default() };
        let mut told = train(&gpu, &config, &samples, 2, None, &faults);
        assert!(matches!(told.remove(dying), Err(Error::Peer(_))));
        let left = told.remove(0).unwrap();
        assert_eq!(left.worlds, [1]);
        assert_close("losses of the one that is left", &left.losses, &alone.losses, tolerance(&config));
    }
}

/// The peak that each of two ranks takes of its GPU. Both know the larger one.
fn peaks_of_two(config: &Config, samples: &dyn Samples, train: &SampleRanges, validation: &SampleRanges) -> Vec<usize> {
    let peaks = ThreadPeers::run(2, &Faults::default(), |peers| {
        // A ledger of its own.
        let gpu = Device::select("cuda:0").unwrap();
        let mut trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        trainer.join(Box::new(peers), IdleRanks::Allow).unwrap();
        let run = Run { samples, train, validation, checkpoints: None };
        trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
        Ok::<_, ()>((gpu.usage().allocated_bytes_peak, trainer.gpu_peak_bytes()))
    });
    let (taken, told): (Vec<usize>, Vec<usize>) = peaks.into_iter().unzip();
    assert_eq!(told, [taken.iter().copied().max().unwrap(); 2], "{taken:?}");
    taken
}

/// The rank with the larger share takes what was planned, to the byte.
#[test]
fn ranks_take_what_was_planned_of_their_shares() {
    let (_driver, _gpu) = with_kernels();
    let (samples, config) = (windows(), Config { max_steps: Some(4), ..shared(&config(Precision::Fp32, 2)) });
    let (train, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    let planned = |ranks| GpuFootprint::new(&config, &samples, &train, &validation, ranks).unwrap().total_bytes();
    let taken = peaks_of_two(&config, &samples, &train, &validation);
    // Blocks of 32 and 8 samples.
    assert_eq!(taken[0], planned(2));
    assert!(taken[1] < taken[0] && planned(2) < planned(1), "{taken:?}, and {} alone", planned(1));
}

/// The backward pass of a validation's batches was planned, which are larger than a share.
#[test]
fn ranks_take_what_was_planned_of_a_validation_in_larger_batches() {
    let (_driver, _gpu) = with_kernels();
    let shape = shape();
    let features = (0..3).map(|k| wave(192 * shape.window_len(k), 0.7)).collect();
    let samples = InMemory::new(shape, features, wave(384, 0.3)).unwrap();
    let (train, validation) = (SampleRanges::from(0..64), SampleRanges::from(64..192));
    for layers in [1, 2] {
        let base = shared(&config(Precision::Fp32, layers));
        let config = Config { max_steps: Some(2), batch_size: 64, ..base };
        let planned = GpuFootprint::new(&config, &samples, &train, &validation, 2).unwrap().total_bytes();
        // Each trains on 32 samples, and validates 64.
        assert_eq!(peaks_of_two(&config, &samples, &train, &validation), [planned; 2], "{layers} layers");
    }
}

/// The pieces of whole batches were planned, of which each rank has half.
#[test]
fn ranks_take_what_was_planned_of_the_pieces_of_their_shares() {
    let (_driver, _gpu) = with_kernels();
    let base = shared(&config(Precision::Fp32, 1));
    let config = Config { max_steps: Some(6), batch_size: 64, run_length: Some(16), ..base };
    let samples = one_after_another(192, 30, 2);
    let (train, validation) = (SampleRanges::from(0..128), SampleRanges::from_iter([130, 140, 150]));
    let planned = GpuFootprint::new(&config, &samples, &train, &validation, 2).unwrap().total_bytes();
    let taken = peaks_of_two(&config, &samples, &train, &validation).into_iter().max().unwrap();
    assert!(taken <= planned && taken as f64 > 0.97 * planned as f64, "{taken} of {planned}");
}

/// Whole batches of runs were planned, of which each rank has one.
#[test]
fn ranks_take_what_was_planned_of_their_runs() {
    let (_driver, _gpu) = with_kernels();
    let config = Config { batch_size: 12, max_steps: Some(12), ..in_runs(&config(Precision::Fp32, 1), 6) };
    let samples = one_after_another(60, 5, 3);
    let (train, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    let planned = GpuFootprint::new(&config, &samples, &train, &validation, 2).unwrap().total_bytes();
    let taken = peaks_of_two(&config, &samples, &train, &validation);
    assert_eq!(taken[0], planned);
    assert!(taken[1] <= planned, "{taken:?} of {planned}");
}

/// As many runs as if each piece had the gap were planned.
#[test]
fn ranks_take_what_was_planned_of_runs_that_a_gap_ends() {
    let (_driver, _gpu) = with_kernels();
    let config = Config { batch_size: 24, max_steps: Some(6), ..in_runs(&config(Precision::Fp32, 1), 12) };
    let (samples, train) = (with_one_gap(), SampleRanges::from(0..49));
    let validation = SampleRanges::from_iter([50, 55, 59]);
    let planned = GpuFootprint::new(&config, &samples, &train, &validation, 2).unwrap().total_bytes();
    let taken = peaks_of_two(&config, &samples, &train, &validation).into_iter().max().unwrap();
    assert_eq!(taken, planned);
}

/// Ranks took memory as batches came, and had less than their bound when the run ended.
#[test]
fn ranks_take_the_memory_of_windows_in_common_in_the_first_step() {
    let (_driver, _gpu) = with_kernels();
    let base = shared(&config(Precision::Fp32, 1));
    let config = Config { max_steps: Some(6), batch_size: 64, ..base };
    // Three samples have a window in common, and a batch seldom has one of each three.
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 20, features: 2 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    let end = |n: usize| (19 + n / 3) as i64;
    let series = vec![(wave((end(191) as usize + 1) * 2, 0.7), (0..192).map(end).collect())];
    let samples = SeriesInMemory::new(shape, series, wave(384, 0.3)).unwrap();
    let (train, validation) = (SampleRanges::from(0..128), SampleRanges::from_iter([130, 140, 150]));
    for keep_series in [true, false] {
        let config = Config { keep_series, ..config.clone() };
        for samples in [&samples as &dyn Samples, &InFile(samples.clone())] {
            let planned = GpuFootprint::new(&config, samples, &train, &validation, 2).unwrap().total_bytes();
            let taken = peaks_of_two(&config, samples, &train, &validation).into_iter().max().unwrap();
            assert!(taken <= planned && taken as f64 > 0.97 * planned as f64, "{taken} of {planned}, {keep_series}");
        }
    }
}

/// Whole batches of graphs were planned, of which each rank has half.
#[test]
fn ranks_take_what_was_planned_of_their_graphs() {
    let (_driver, _gpu) = with_kernels();
    let (train, validation) = (SampleRanges::from(0..18), SampleRanges::from(18..21));
    let config = Config { max_steps: Some(15), ..graphs::over_graphs(AttentionKind::Gat) };
    for keep_graphs in [false, true] {
        let config = Config { keep_graphs, ..config.clone() };
        let planned =
            |samples: &dyn Samples| GpuFootprint::new(&config, samples, &train, &validation, 2).unwrap().total_bytes();
        let taken =
            |samples: &dyn Samples| peaks_of_two(&config, samples, &train, &validation).into_iter().max().unwrap();
        let (even, market) = (graphs::even(), market(21));
        // As many nodes and edges in each graph, and graphs of several sizes.
        assert_eq!(taken(&even), planned(&even), "{keep_graphs}");
        let (taken, planned) = (taken(&market), planned(&market));
        assert!(taken <= planned && taken as f64 > 0.9 * planned as f64, "{taken} of {planned}, {keep_graphs}");
    }
}

/// The bars of a whole batch of a validation, of which each rank has a part, were planned.
#[test]
fn ranks_take_what_was_planned_of_the_bars_of_their_validation() {
    let (_driver, _gpu) = with_kernels();
    let base = shared(&config(Precision::Fp32, 1));
    let (samples, config) = (series(), Config { max_steps: Some(2), run_length: Some(1000), ..base });
    let (train, validation) = (SampleRanges::from(0..40), SampleRanges::from(20..60));
    let planned = GpuFootprint::new(&config, &samples, &train, &validation, 2).unwrap().total_bytes();
    let taken = peaks_of_two(&config, &samples, &train, &validation)[0];
    assert!(taken <= planned && taken as f64 > 0.97 * planned as f64, "{taken} of {planned}");
}

/// A wait for a GPU that fails: the `nth` one after a step.
#[derive(Clone, Copy)]
struct FailedWait {
    step: u64,
    nth: u64,
}

/// The errors of two ranks, of which the second one has a wait that fails. The first one's observer
/// gives `answer` to validations.
fn errors_of_two(
    driver: &FakeDriver,
    gpu: &Device,
    config: &Config,
    validation: &SampleRanges,
    failed: Option<FailedWait>,
    answer: ControlFlow<()>,
) -> Vec<Error> {
    let (samples, train) = (windows(), SampleRanges::from(0..49));
    ThreadPeers::run(2, &Faults::default(), |peers| {
        let rank = peers.rank();
        let device = if rank == 1 { gpu.clone() } else { Device::cpu() };
        let mut trainer = Trainer::on_gpu(&device, &Device::cpu(), config.clone(), shape()).unwrap();
        trainer.join(Box::new(peers), IdleRanks::Allow).unwrap();
        let run = Run { samples: &samples, train: &train, validation, checkpoints: None };
        let outcome = trainer.train(&run, &mut |event| {
            match (rank, event, failed) {
                // CUDA_ERROR_LAUNCH_FAILED, once.
                (1, Event::Step(event), Some(FailedWait { step, nth })) if event.step == step => {
                    driver.fail("cuEventSynchronize", nth, 719);
                }
                (0, Event::Validating(_), _) => return answer,
                _ => {}
            }
            ControlFlow::Continue(())
        });
        Ok::<_, ()>(outcome.unwrap_err())
    })
}

/// Checks that both of these ranks end with the error of the second one.
fn check_failed_wait(
    driver: &FakeDriver,
    gpu: &Device,
    config: &Config,
    validation: &SampleRanges,
    failed: FailedWait,
    answer: ControlFlow<()>,
) {
    let ended = errors_of_two(driver, gpu, config, validation, Some(failed), answer);
    let ([first, second], nth) = (&ended[..], failed.nth) else { panic!("two ranks") };
    assert!(matches!(first, Error::OnRank { rank: 1, .. }), "wait {nth}: {first}");
    assert!(second.to_string().contains("cuEventSynchronize"), "wait {nth}: {second}");
}

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

/// Waits that fail after the first step: for the report of a step, and in a validation.
#[test]
fn a_driver_that_fails_on_one_rank_ends_the_run_on_all() {
    let (driver, gpu) = with_kernels();
    let config = shared(&config(Precision::Fp32, 1));
    let validation = SampleRanges::from_iter([50, 55, 59]);
    for nth in 1..=4 {
        check_failed_wait(&driver, &gpu, &config, &validation, FailedWait { step: 1, nth }, CONTINUE);
    }
}

/// The wait for the report of the last step fails, after which nothing is validated or saved.
#[test]
fn a_driver_that_fails_in_the_last_step_of_one_rank_ends_the_run_on_all() {
    let (driver, gpu) = with_kernels();
    let config = Config { max_steps: Some(2), ..shared(&config(Precision::Fp32, 1)) };
    check_failed_wait(&driver, &gpu, &config, SampleRanges::NONE, FailedWait { step: 1, nth: 1 }, CONTINUE);
}

/// The wait for the report of a step fails, and the other rank is interrupted in the validation
/// after it.
#[test]
fn a_driver_that_fails_before_an_interrupt_ends_the_run_on_all() {
    let (driver, gpu) = with_kernels();
    let (config, validation) = (shared(&config(Precision::Fp32, 1)), SampleRanges::from_iter([50, 55, 59]));
    let failed = FailedWait { step: 1, nth: 1 };
    check_failed_wait(&driver, &gpu, &config, &validation, failed, ControlFlow::Break(()));
}

/// The wait for the report of a step fails whose loss is a spike to the other rank.
#[test]
fn a_driver_that_fails_in_the_step_of_a_spike_ends_the_run_on_all() {
    let (driver, gpu) = with_kernels();
    let divergence = Divergence { max_rollbacks: 0, loss_spike_factor: Some(1.001) };
    let config = |steps| Config { max_steps: Some(steps), divergence, ..shared(&config(Precision::Fp32, 1)) };
    // Batches differ by more than that.
    let spiking = errors_of_two(&driver, &gpu, &config(100), SampleRanges::NONE, None, CONTINUE);
    let Error::LossSpike { step, .. } = spiking[0] else { panic!("{}", spiking[0]) };
    let failed = FailedWait { step: step - 1, nth: 1 };
    check_failed_wait(&driver, &gpu, &config(step), SampleRanges::NONE, failed, CONTINUE);
}

#[test]
fn a_number_that_is_not_finite_on_one_rank_is_named_on_all() {
    let gpu = || Device::cpu();
    let shape = shape();
    let mut features: Vec<Vec<f32>> = (0..3).map(|k| wave(60 * shape.window_len(k), 0.7)).collect();
    features[0][21 * shape.window_len(0) + 4] = f32::INFINITY;
    let samples = InMemory::new(shape, features, wave(120, 0.3)).unwrap();
    let results = train(&gpu, &shared(&config(Precision::Fp32, 1)), &samples, 2, None, &Faults::default());
    let texts: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].contains("M1"), "{texts:?}");
}
