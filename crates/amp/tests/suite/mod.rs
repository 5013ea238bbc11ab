//! The suite of the operations on every device, for tests and for the program that checks a GPU.
//! The plain form on the CPU is right.

use megabatch_amp::ops::{
    ChunkedTensors, DeviceScaler, MomentBuffers, OptimizerBuffers, ScaledGradients, StepReport, StepSettings,
    unscale_and_check, update,
};
use megabatch_amp::{LossScaler, OptimizerSettings, Rule, ScalerConfig};
use megabatch_gpu_core::{Buffer, Device, Result};

/// A case by the name of what it asserts. It fails with the device's error, and panics where the
/// device's answer is wrong.
pub(crate) type Case = (&'static str, fn(&Device) -> Result<()>);

/// The cases.
pub(crate) const CASES: &[Case] = &[
    ("steps of SGD are the CPU's, overflows skipped", |device| same(device, Rule::Sgd)),
    ("steps of Adam are the CPU's, overflows skipped", |device| same(device, Rule::Adam)),
    ("steps of AdamW are the CPU's, overflows skipped", |device| same(device, Rule::AdamW)),
];

/// Elements of two tensors and of a gap between them.
const LEN: usize = 40_000;

/// Gradients of a step, the bad one of which is NaN.
struct Gradients {
    scale: f32,
    bad: Option<usize>,
}

/// Scale of each step by which the gradients are divided, as in the scaler of [`run`].
const STEPS: [Gradients; 6] = [
    Gradients { scale: 8.0, bad: None },
    Gradients { scale: 8.0, bad: None },
    Gradients { scale: 16.0, bad: Some(39_000) },
    Gradients { scale: 8.0, bad: Some(5) },
    Gradients { scale: 4.0, bad: None },
    Gradients { scale: 4.0, bad: None },
];

/// State of a device after some steps.
struct Outcome {
    reports: Vec<StepReport>,
    values: Vec<f32>,
}

fn noise(salt: u32, most: f32) -> Vec<f32> {
    let unit = |k: u32| ((k ^ salt).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
    (0..LEN as u32).map(|k| (2.0 * unit(k) - 1.0) * most).collect()
}

fn run(device: &Device, rule: Rule) -> Result<Outcome> {
    let scope = device.scope("amp");
    let config = ScalerConfig { initial: 8.0, growth_interval: 2, ..ScalerConfig::default() };
    let scaler = LossScaler::new(config).expect("settings in range");
    let mut control = DeviceScaler::new(&scope, Some(&scaler), 0)?;
    let mut tensors = ChunkedTensors::new(&scope, &[0..300, 301..LEN])?;
    let optimizer = OptimizerSettings { rule, lr: 0.01, weight_decay: 0.1, ..OptimizerSettings::default() };
    let mut values = Buffer::from_slice(&scope, &noise(1, 1.0))?;
    let (mut exp_avg, mut exp_avg_sq) = (Buffer::zeros(&scope, LEN)?, Buffer::zeros(&scope, LEN)?);
    // Of which the gradients were divided by 5.
    let losses = Buffer::from_slice(&scope, &[3.0, 4.0])?;
    let mut reports = Vec::new();
    for (step, Gradients { scale, bad }) in STEPS.iter().enumerate() {
        let mut gradients = noise(2 + step as u32, 0.3 * scale);
        bad.iter().for_each(|&bad| gradients[bad] = f32::NAN);
        let gradients = Buffer::from_slice(&scope, &gradients)?;
        control.begin(&StepSettings { count: 5.0, clip_norm: Some(20.0), optimizer, ..StepSettings::default() })?;
        unscale_and_check(&mut tensors, ScaledGradients { gradients: &gradients, losses: &losses }, &mut control)?;
        let mut weights = OptimizerBuffers {
            values: &mut values,
            gradients: &gradients,
            moments: Some(MomentBuffers { exp_avg: &mut exp_avg, exp_avg_sq: &mut exp_avg_sq }),
        };
        update(&tensors, &mut weights, &mut control)?;
        reports.push(control.report(&tensors)?);
    }
    Ok(Outcome { reports, values: values.to_vec()? })
}

fn same(device: &Device, rule: Rule) -> Result<()> {
    let (found, expected) = (run(device, rule)?, run(&Device::cpu(), rule)?);
    for (step, (found, expected)) in found.reports.iter().zip(&expected.reports).enumerate() {
        let norms = [found.norm, expected.norm].map(|norm| if norm.is_nan() { 0 } else { norm.to_bits() });
        assert_eq!(norms[0], norms[1], "the norm of step {step}");
        let [without_norm, expected_rest] = [found, expected].map(|&report| {
            let mut report = report;
            report.norm = 0.0;
            report
        });
        assert_eq!(without_norm, expected_rest, "step {step}");
        assert_eq!(found.scale, STEPS[step].scale, "the scale of step {step}");
        assert_eq!(found.non_finite.is_some(), STEPS[step].bad.is_some(), "step {step}");
    }
    assert_eq!(found.reports[5].steps, 4, "updates that were not skipped");
    for (k, (found, expected)) in found.values.iter().zip(&expected.values).enumerate() {
        // The power of a decay rate may be rounded otherwise, to a step that differs by a unit in
        // the last place.
        let close = (found - expected).abs() <= 1e-8 + 3e-7 * expected.abs();
        assert!(close, "weight {k} is {found} where {expected} is right");
    }
    Ok(())
}
