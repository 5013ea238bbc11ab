//! Predictions and errors of a trained model on a GPU beside those of the CPU.

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Encoder, Model, ModelConfig, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{Config, Error, Evaluation, Predictor, SampleRanges, Samples, Selection};

use crate::{PRECISIONS, assert_close, config, losses, series, shape, tolerance, whole, windows, with_kernels};

/// A predictor of the first weights of a run with `config`, in its precision.
pub(crate) fn predictor(config: &Config) -> Predictor {
    predictor_on(&Device::cpu(), config)
}

fn predictor_on(host: &Device, config: &Config) -> Predictor {
    let compute = Compute { threads: 1, batch_size: config.batch_size };
    let model = Model::new(shape(), config.model.for_loss(config.loss)).unwrap();
    let weights = model.initial_parameters(&Device::cpu().scope("weights"), config.seed).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_weights(&path, &weights).unwrap();
    Predictor::open(host, model, &path, compute).unwrap().with_precision(config.precision).unwrap()
}

/// Samples in an order of their own, of which one comes twice; the last batch is not full.
fn indices() -> SampleRanges {
    (0..37).map(|n| n * 23 % 60).chain([0]).collect()
}

fn predictions(predictor: &mut Predictor, samples: &dyn Samples) -> (Vec<usize>, Vec<f64>) {
    let (mut visited, mut numbers) = (Vec::new(), Vec::new());
    let indices = indices();
    predictor
        .predict(Selection { samples, indices: &indices }, |indices, outputs| {
            visited.extend_from_slice(indices);
            numbers.extend(outputs.iter().map(|&y| f64::from(y)));
            Ok::<(), Error>(())
        })
        .unwrap();
    (visited, numbers)
}

fn evaluation(predictor: &mut Predictor, samples: &dyn Samples, loss: Loss) -> Evaluation {
    predictor.evaluate(Selection { samples, indices: &indices() }, loss, None).unwrap()
}

/// The same predictions and errors by the CPU and by `gpu`.
fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    check_as(gpu, config, samples, tolerance(config), |predictor| predictor);
}

/// The same of predictors that became what `settled` makes of them before one went to `gpu`.
fn check_as(
    gpu: &Device,
    config: &Config,
    samples: &dyn Samples,
    tolerance: f64,
    settled: impl Fn(Predictor) -> Predictor,
) {
    let (mut expected, found) = (settled(predictor(config)), settled(predictor(config)));
    let mut found = found.on_gpu(gpu).unwrap();
    assert_eq!(found.device().to_string(), gpu.to_string());
    let what = format!("{:?}", (config.precision, &config.model));
    let (expected_indices, expected_numbers) = predictions(&mut expected, samples);
    let (visited, numbers) = predictions(&mut found, samples);
    let indices: Vec<usize> = indices().iter().collect();
    assert_eq!((&visited, &expected_indices), (&indices, &indices), "{what}");
    assert_close(&what, &numbers, &expected_numbers, tolerance);
    let [expected, found] = [&mut expected, &mut found].map(|predictor| evaluation(predictor, samples, config.loss));
    assert_close(&what, &[found.loss], &[expected.loss], tolerance);
    assert_close(&what, &found.metrics.rmse, &expected.metrics.rmse, tolerance);
    assert_eq!(found.samples, expected.samples);
}

#[test]
fn a_gpu_predicts_as_the_processor_does() {
    let (_driver, gpu) = with_kernels();
    for gpu in [&gpu, &Device::cpu()] {
        for precision in PRECISIONS {
            check(gpu, &config(precision, 2), &series());
            check(gpu, &whole(precision, 1), &windows());
        }
        for loss in losses() {
            check(gpu, &Config { loss, ..whole(Precision::Fp32, 2) }, &series());
        }
    }
}

#[test]
fn a_gpu_predicts_in_eight_bits_as_the_processor_does() {
    let (_driver, gpu) = with_kernels();
    let int8 = |predictor: Predictor| predictor.with_int8().unwrap();
    let base = whole(Precision::Fp32, 2);
    let wide = Config { model: ModelConfig { hidden: 130, ..config(Precision::Fp32, 1).model }, ..base.clone() };
    for gpu in [&gpu, &Device::cpu()] {
        for (config, samples) in [(&base, &series() as &dyn Samples), (&base, &windows()), (&wide, &series())] {
            // A state that lies near the middle of two of the 8191 numbers is quantised to either.
            check_as(gpu, config, samples, 3e-4, int8);
        }
    }
}

#[test]
fn batches_of_a_shape_that_comes_again_are_replayed() {
    let (driver, gpu) = with_kernels();
    let (config, samples) = (whole(Precision::Bf16, 1), windows());
    let graphs = |predictor: &mut Predictor| {
        let before = driver.calls("cuGraphLaunch");
        let (_, numbers) = predictions(predictor, &samples);
        (driver.calls("cuGraphLaunch") - before, numbers)
    };
    let mut replaying = predictor(&config).on_gpu(&gpu).unwrap();
    let [first, second, third] = [(); 3].map(|()| graphs(&mut replaying));
    // Of three batches of eleven and one of five: what the first one submits besides, for the
    // memory that it takes, never comes again, and windows come to two places in turn.
    assert_eq!([first.0, second.0, third.0], [0, 4, 4]);
    // CUDA_ERROR_NOT_SUPPORTED: the driver is not asked again.
    driver.fail("cuStreamBeginCapture_v2", 1, 801);
    let (none, expected) = graphs(&mut predictor(&config).on_gpu(&gpu).unwrap());
    assert_eq!(none, 0);
    assert!(
        [first, second, third].iter().all(|(_, numbers)| *numbers == expected),
        "the bits of what is submitted as it is"
    );
}

#[test]
fn series_of_other_samples_take_the_place_of_those_before() {
    let gpu = Device::cpu();
    let config = config(Precision::Fp32, 1);
    let mut found = predictor(&config).on_gpu(&gpu).unwrap();
    for samples in [&series() as &dyn Samples, &windows(), &series()] {
        let (_, expected) = predictions(&mut predictor(&config), samples);
        assert_close("predictions", &predictions(&mut found, samples).1, &expected, tolerance(&config));
    }
}

#[test]
fn predictions_take_no_memory_for_what_is_learnt() {
    let gpu = Device::cpu();
    // So wide that weights outweigh everything else.
    let narrow = config(Precision::Fp32, 2);
    let config = Config { model: ModelConfig { hidden: 64, ..narrow.model }, batch_size: 1, ..narrow };
    let host = Device::cpu();
    let mut predictor = predictor_on(&host, &config).on_gpu(&gpu).unwrap();
    let on_host = host.usage().allocated_bytes;
    predictions(&mut predictor, &windows());
    let weights = Buffer::<f32>::zeros(&gpu.scope("weights"), predictor.model().layout().len()).unwrap();
    let taken = |label: &str| {
        let by_scope = gpu.usage_by_scope();
        let usages = by_scope.iter().filter(|(scope, _)| scope.starts_with(&format!("gpu/{label}")));
        usages.map(|(_, usage)| usage.allocated_bytes_peak).sum::<usize>()
    };
    let size = weights.len() * size_of::<f32>();
    assert_eq!(on_host, size, "of all that the processor predicts with, the host has the weights");
    assert_eq!(taken("model/gradients") + taken("optimizer"), 0);
    // Those of the file, and the LSTMs' in the order of the operations.
    assert!((size..9 * size / 4).contains(&taken("model/parameters")), "{} of {size}", taken("model/parameters"));
}

#[test]
fn what_a_gpu_does_not_predict_is_refused_by_name() {
    let base = config(Precision::Fp32, 1);
    let last_bar = ModelConfig { encoder: Encoder::LastBar, ..base.model };
    let on_gpu = |predictor: Predictor| predictor.on_gpu(&Device::cpu()).unwrap_err().to_string();
    let attention = whole(Precision::Fp32, 1);
    for (error, says) in [
        (on_gpu(predictor(&Config { model: last_bar, ..base.clone() })), "`encoder` is none"),
        (on_gpu(predictor(&base).with_carried_state()), "`carry_state` is true, or `loss_on` every_step,"),
    ] {
        assert!(error.starts_with(says) && error.contains("not supported on a GPU yet"), "{error}");
    }
    let mut attending = predictor(&attention).on_gpu(&Device::cpu()).unwrap();
    let (samples, indices) = (series(), indices());
    let selection = Selection { samples: &samples, indices: &indices };
    let pooling = attending.pooling_weights(selection, |_, _| Ok::<(), Error>(())).unwrap_err();
    let fusion = attending.fusion_weights(selection, |_, _| Ok::<(), Error>(())).unwrap_err();
    for error in [pooling, fusion] {
        assert!(error.to_string().contains("expected cpu for weights of attention"), "{error}");
    }
}
