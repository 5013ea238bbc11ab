//! Stored windows and edges of graphs that lie on a GPU, beside those that come batch by batch.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{AttentionKind, GraphConfig, ModelConfig, Readout, SampleShape, Timeframe};
use megabatch_trainer::{Config, Event, InMemory, Run, SampleRanges, Samples, ShortageEvent, Trainer};

use crate::in_file::InFile;
use crate::made_up::market;
use crate::{
    PRECISIONS, bits, config, graphs, losses_and_cuts, on_gpu, series, train, wave, whole, windows, with_kernels,
};

/// Windows whose bars are as wide as products read them, beside others.
pub(crate) fn wide() -> InMemory {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 5, 8), timeframe("M5", 3, 3)], outputs: 2 };
    InMemory::new(shape, vec![wave(60 * 40, 0.7), wave(60 * 9, 0.9)], wave(120, 0.3)).unwrap()
}

/// Weights after training, losses of steps and of validations.
pub(crate) type Trained = (Vec<u32>, Vec<f64>, Vec<f64>);

pub(crate) fn trained(gpu: &Device, config: &Config, samples: &dyn Samples) -> Trained {
    let mut trainer = Trainer::on_gpu(gpu, &Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let (steps, validations) = train(&mut trainer, samples, None);
    (bits(&trainer), steps.iter().map(|step| step.loss).collect(), validations)
}

/// Weights and losses of a model over graphs, as [`trained`] gives those of others.
pub(crate) fn trained_on_graphs(gpu: &Device, config: &Config, samples: &dyn Samples) -> Trained {
    let mut trainer = graphs::trainer(Some(gpu), config, samples);
    let (steps, validations) = graphs::train(&mut trainer, samples, None, u64::MAX);
    (bits(&trainer), steps.iter().map(|step| step.loss).collect(), validations)
}

fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let [kept, batch_by_batch] =
        [true, false].map(|keep_windows| trained(gpu, &Config { keep_windows, ..config.clone() }, samples));
    assert_eq!(kept, batch_by_batch, "{:?}", (config.precision, &config.model));
}

#[test]
fn windows_that_stay_have_the_bits_of_those_that_come_with_each_batch() {
    let (_driver, gpu) = with_kernels();
    for gpu in [gpu, Device::cpu()] {
        for precision in PRECISIONS {
            for layers in [1, 2] {
                check(&gpu, &config(precision, layers), &windows());
            }
            check(&gpu, &whole(precision, 2), &windows());
            check(&gpu, &config(precision, 2), &wide());
            // More steps than an epoch has, and batches that accumulate.
            let base = config(precision, 1);
            let accumulated = Config { gradient_accumulation_steps: 2, batch_size: 7, run_length: Some(1), ..base };
            check(&gpu, &accumulated, &windows());
        }
    }
}

/// The same training on series that stay on a GPU, on series in memory whose bars come with each
/// batch, and on series in a file.
#[test]
fn bars_that_come_with_each_batch_have_the_bits_of_series_that_stay() {
    let (_driver, gpu) = with_kernels();
    for gpu in [gpu, Device::cpu()] {
        for precision in PRECISIONS {
            let base = config(precision, 1);
            // More steps than an epoch has, and batches that accumulate.
            let accumulated =
                Config { gradient_accumulation_steps: 2, batch_size: 7, run_length: Some(1), ..base.clone() };
            let in_order = Config { run_length: Some(1000), ..base.clone() };
            for config in [base, config(precision, 2), whole(precision, 2), accumulated, in_order] {
                let expected = trained(&gpu, &config, &series());
                let by_batch = Config { keep_series: false, ..config.clone() };
                assert_eq!(trained(&gpu, &by_batch, &series()), expected, "{:?}", (precision, &config.model));
                assert_eq!(trained(&gpu, &config, &InFile(series())), expected, "{:?}", (precision, &config.model));
            }
        }
    }
}

#[test]
fn a_series_that_is_too_large_for_a_gpu_comes_batch_by_batch() {
    // Two batches have fewer bars than the series.
    let (samples, config) = (series(), Config { batch_size: 2, ..config(Precision::Fp32, 1) });
    let gpu = Device::cpu();
    let expected = trained(&gpu, &config, &samples);
    let needed = gpu.usage().allocated_bytes_peak;
    for (budget, expected_cuts) in [(needed, vec![]), (needed - 1, vec![(true, false, 2)])] {
        let gpu = Device::cpu();
        gpu.set_budget_bytes(Some(budget));
        let (train_on, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
        let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
        let told = |cut: &ShortageEvent| (cut.releases_series, cut.releases_windows, cut.batch_size);
        let (losses, cuts) = losses_and_cuts(&mut on_gpu(&gpu, &config), &run, told);
        assert_eq!((cuts, losses), (expected_cuts, expected.1.clone()));
    }
}

#[test]
fn nodes_of_graphs_have_the_same_bits_too() {
    let (_driver, gpu) = with_kernels();
    let samples = market(21);
    let trained = |keep_windows| {
        trained_on_graphs(&gpu, &Config { keep_windows, ..graphs::over_graphs(Default::default()) }, &samples)
    };
    assert_eq!(trained(true), trained(false));
}

/// Every kind of graph model has the same bits whether the edges of all graphs stay on a device or
/// come with each batch.
#[test]
fn graphs_that_stay_have_the_bits_of_those_that_come_with_each_batch() {
    let (_driver, gpu) = with_kernels();
    let (nodes, mut labelled) = (market(21), market(21));
    labelled.label_graphs();
    let with_layers = |kind, change: fn(&mut GraphConfig)| {
        let mut config = graphs::over_graphs(kind);
        change(config.model.graph.as_mut().unwrap());
        config
    };
    let mut by_graph = graphs::over_graphs(AttentionKind::GatV2);
    (by_graph.model.readout, by_graph.gradient_accumulation_steps) = (Some(Readout::Max), 2);
    let unseen = graphs::over_graphs(AttentionKind::Gat);
    let unseen = Config { model: ModelConfig { graph_edge_attributes: 0, ..unseen.model }, ..unseen };
    for gpu in [gpu, Device::cpu()] {
        for (config, samples) in [
            (graphs::over_graphs(AttentionKind::Gat), &nodes),
            (with_layers(AttentionKind::GatV2, |graph| (graph.self_loops, graph.layers) = (false, 3)), &nodes),
            (unseen.clone(), &nodes),
            (by_graph.clone(), &labelled),
        ] {
            let trained = |keep_graphs, keep_windows| {
                trained_on_graphs(&gpu, &Config { keep_graphs, keep_windows, ..config.clone() }, samples)
            };
            let expected = trained(false, false);
            assert_eq!(trained(true, false), expected, "{:?}", config.model);
            assert_eq!(trained(true, true), expected, "{:?}", config.model);
        }
    }
}

#[test]
fn edges_come_batch_by_batch_again_once_a_run_has_ended() {
    let gpu = Device::cpu();
    let samples = market(21);
    let config = Config { keep_graphs: true, ..graphs::over_graphs(AttentionKind::Gat) };
    let mut trainer = graphs::trainer(Some(&gpu), &config, &samples);
    graphs::train(&mut trainer, &samples, None, 3);
    let kept = gpu.usage_by_scope().into_iter().filter(|(scope, _)| scope == "gpu/graphs");
    let kept: Vec<_> = kept.map(|(_, usage)| (usage.allocated_bytes, usage.allocated_bytes_peak > 0)).collect();
    assert_eq!(kept, [(0, true)]);
}

#[test]
fn a_gpu_that_is_too_small_for_graphs_takes_their_edges_batch_by_batch() {
    let samples = market(21);
    let trained = |gpu: &Device| {
        let config = Config { keep_graphs: true, ..graphs::over_graphs(AttentionKind::Gat) };
        let train = SampleRanges::from(0..18);
        let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let told = |cut: &ShortageEvent| (cut.releases_graphs, cut.releases_windows, cut.batch_size);
        losses_and_cuts(&mut graphs::trainer(Some(gpu), &config, &samples), &run, told)
    };
    let gpu = Device::cpu();
    let (expected, _) = trained(&gpu);
    let needed = gpu.usage().allocated_bytes_peak;
    let gpu = Device::cpu();
    gpu.set_budget_bytes(Some(needed - 1));
    assert_eq!(trained(&gpu), (expected, vec![(true, false, 4)]));
}

#[test]
fn windows_that_stay_take_the_bytes_of_the_precision() {
    for precision in PRECISIONS {
        let (gpu, samples) = (Device::cpu(), windows());
        trained(&gpu, &Config { keep_windows: true, ..config(precision, 1) }, &samples);
        let bars = gpu.usage_by_scope().into_iter().find(|(scope, _)| scope == "gpu/bars").unwrap().1;
        let numbers: usize = (0..3).map(|k| samples.len() * samples.shape().window_len(k)).sum();
        assert_eq!(bars.allocated_bytes_peak, numbers * precision.bytes(), "{precision:?}");
    }
}

#[test]
fn batches_bring_no_windows() {
    let (driver, gpu) = with_kernels();
    let copies_of_a_step = |keep_windows| {
        let config = Config { keep_windows, max_steps: Some(4), ..config(Precision::Bf16, 1) };
        let train_on = SampleRanges::from(0..49);
        let run = Run { samples: &windows(), train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
        let mut copies = Vec::new();
        let mut trainer = on_gpu(&gpu, &config);
        trainer
            .train(&run, &mut |event| {
                if let Event::Step(_) = event {
                    copies.push(driver.calls("cuMemcpyHtoDAsync_v2"));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        copies[2] - copies[1]
    };
    // One copy of lists and targets, and otherwise one more for each timeframe.
    let timeframes = windows().shape().timeframes.len() as u64;
    assert_eq!(copies_of_a_step(false) - copies_of_a_step(true), timeframes);
}

#[test]
fn a_gpu_that_is_too_small_for_them_goes_on_batch_by_batch() {
    let samples = windows();
    let windows_bytes: usize = (0..3).map(|k| samples.len() * samples.shape().window_len(k) * size_of::<f32>()).sum();
    for batch_size in [11, 1] {
        let config = Config { keep_windows: true, batch_size, ..config(Precision::Fp32, 1) };
        let gpu = Device::cpu();
        let expected = trained(&gpu, &config, &samples);
        let needed = gpu.usage().allocated_bytes_peak;
        let gpu = Device::cpu();
        gpu.set_budget_bytes(Some(needed - windows_bytes / 2));
        let (train_on, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
        let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
        let told = |cut: &ShortageEvent| (cut.releases_windows, cut.batch_size);
        let (losses, cuts) = losses_and_cuts(&mut on_gpu(&gpu, &config), &run, told);
        assert_eq!((cuts, losses), (vec![(true, batch_size)], expected.1));
    }
}
