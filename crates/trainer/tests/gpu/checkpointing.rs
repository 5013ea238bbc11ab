//! Gradient checkpointing on a GPU: training with it is training without, to the bit.

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::AttentionKind;
use megabatch_trainer::{Config, Error, GpuFootprint, Run, SampleRanges, Samples, ShortageEvent, Trainer};

use crate::carrying::carrying;
use crate::dense::{in_runs, normed, with_gaps};
use crate::keeping::{trained, trained_on_graphs};
use crate::made_up::market;
use crate::{
    PRECISIONS, config, goes_on, graphs, losses_and_cuts, on_gpu, series, shape, whole, windows, with_kernels,
};

pub(crate) fn checkpointed(config: &Config) -> Config {
    Config { gradient_checkpointing: true, ..config.clone() }
}

fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let [found, expected] = [checkpointed(config), config.clone()].map(|config| trained(gpu, &config, samples));
    assert!(found == expected, "{:?}", (config.precision, &config.model, config.carry_state, config.loss_on));
}

/// Training has the same bits on every device that operations run on.
fn changes_no_bit(gpu: &Device) {
    for precision in PRECISIONS {
        check(gpu, &config(precision, 2), &series());
        check(gpu, &config(precision, 3), &windows());
        check(gpu, &whole(precision, 2), &series());
        let accumulated = Config { gradient_accumulation_steps: 2, batch_size: 7, ..config(precision, 3) };
        check(gpu, &carrying(&accumulated), &series());
        check(gpu, &in_runs(&normed(precision, 2), 5), &with_gaps());
    }
    let (samples, config) = (market(21), graphs::over_graphs(AttentionKind::GatV2));
    let [found, expected] = [checkpointed(&config), config].map(|config| trained_on_graphs(gpu, &config, &samples));
    assert!(found == expected, "a model over graphs");
}

#[test]
fn by_the_plain_forms_of_the_operations() {
    changes_no_bit(&Device::cpu());
}

#[test]
fn by_the_kernels() {
    let (_driver, gpu) = with_kernels();
    changes_no_bit(&gpu);
}

#[test]
fn each_goes_on_where_the_other_stopped() {
    let (_driver, gpu) = with_kernels();
    // Into the second epoch.
    let base = Config { max_steps: Some(6), ..config(Precision::Fp16, 2) };
    goes_on(&gpu, &checkpointed(&base), &series());
}

#[test]
fn layers_share_the_memory_of_cell_states_and_gates() {
    let (samples, train_on) = (windows(), SampleRanges::from(0..49));
    for (precision, gate_bytes) in [(Precision::Fp32, 4), (Precision::Bf16, 2), (Precision::Fp16, 2)] {
        let activations = |config: &Config| {
            let plan = GpuFootprint::new(config, &samples, &train_on, SampleRanges::NONE, 1).unwrap();
            plan.part_bytes("activations")
        };
        let base = config(precision, 3);
        // Steps and windows of eleven samples.
        let rows: usize = shape().timeframes.iter().map(|timeframe| 11 * timeframe.steps).sum();
        let windows = 11 * shape().timeframes.len();
        let layer_bytes = base.model.hidden * ((rows + windows) * size_of::<f32>() + rows * 4 * gate_bytes);
        assert_eq!(activations(&base) - activations(&checkpointed(&base)), 2 * layer_bytes, "{precision}");
    }
}

#[test]
fn a_gpu_that_is_too_small_computes_activations_again_for_the_same_losses() {
    let (samples, config) = (windows(), Config { batch_size: 1, ..config(Precision::Fp32, 2) });
    let gpu = Device::cpu();
    let expected = trained(&gpu, &config, &samples);
    let needed = gpu.usage().allocated_bytes_peak;
    let gpu = Device::cpu();
    gpu.set_budget_bytes(Some(needed - 1));
    let (train_on, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
    let told = |cut: &ShortageEvent| (cut.gradient_checkpointing, cut.batch_size);
    let (losses, cuts) = losses_and_cuts(&mut on_gpu(&gpu, &config), &run, told);
    assert_eq!((cuts, losses), (vec![(true, 1)], expected.1));
}

#[test]
fn one_layer_is_refused_by_name() {
    let config = checkpointed(&config(Precision::Fp32, 1));
    let error = Trainer::on_gpu(&Device::cpu(), &Device::cpu(), config, shape()).unwrap_err();
    assert!(matches!(error, Error::NotOnGpu { setting: "gradient_checkpointing", .. }), "{error:?}");
    assert!(error.to_string().ends_with("together with fewer than two LSTM layers"), "{error}");
}
