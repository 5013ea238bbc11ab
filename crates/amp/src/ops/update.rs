//! The second pass on a device.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Result, arguments};

use super::device_scaler::DeviceScaler;
use super::tensors::ChunkedTensors;
use crate::gradients::GradientFactors;
use crate::optimizer::{OptimizerSettings, Rates, Rule};
use crate::threads::Threads;
use crate::update::OptimizerStep;

const PTX: &str = megabatch_gpu_core::ptx!("update");

/// Blocks that share a chunk: that of update.cu.
const PIECES: usize = 4;

/// Tensors that an update reads and writes. All buffers have one length.
#[derive(Debug)]
pub struct OptimizerBuffers<'a> {
    /// The weights.
    pub values: &'a mut Buffer<f32>,
    /// The gradients of the scaled loss by the weights.
    pub gradients: &'a Buffer<f32>,
    /// Moments of Adam and AdamW; `None` for SGD.
    pub moments: Option<MomentBuffers<'a>>,
}

/// Running means of the gradients and of their squares.
#[derive(Debug)]
pub struct MomentBuffers<'a> {
    /// First moment, PyTorch's `exp_avg`.
    pub exp_avg: &'a mut Buffer<f32>,
    /// Second moment, PyTorch's `exp_avg_sq`.
    pub exp_avg_sq: &'a mut Buffer<f32>,
}

/// Updates weights and moments of all tensors by one optimizer step, with the gradient factors that
/// [`unscale_and_check`](super::unscale_and_check()) left in `control`, and counts the step there;
/// does nothing where a gradient was not finite, a loss was refused or had no terms. The result is
/// that of [`crate::update`], bit for bit where the device's `pow` of a decay rate equals the
/// host's: in double precision they differ by at most two units in the last place, which the
/// correction, rounded to f32, rarely shows. Two launches.
///
/// # Errors
/// Errors of the launches; the step is not counted where the first fails.
///
/// # Panics
/// If no step was begun, if buffers have different lengths or end before the tensors, if the rule
/// keeps moments and there are none, and if arrays are on several devices.
pub fn update(tensors: &ChunkedTensors, weights: &mut OptimizerBuffers<'_>, control: &mut DeviceScaler) -> Result<()> {
    let settings = control.step().optimizer;
    let device = control.state.scope().device().clone();
    weights.check(tensors, &device);
    assert!(weights.moments.is_some() || !settings.rule.has_moments(), "{:?} keeps moments", settings.rule);
    match &device {
        Device::Cuda(device) => cuda(device, tensors, weights, settings.rule, control),
        _ => {
            cpu(tensors, weights, &settings, control);
            Ok(())
        }
    }
}

impl OptimizerBuffers<'_> {
    fn check(&self, tensors: &ChunkedTensors, device: &Device) {
        let mut buffers =
            vec![(self.values.len(), self.values.scope()), (self.gradients.len(), self.gradients.scope())];
        if let Some(MomentBuffers { exp_avg, exp_avg_sq }) = &self.moments {
            buffers.extend([(exp_avg.len(), exp_avg.scope()), (exp_avg_sq.len(), exp_avg_sq.scope())]);
        }
        tensors.assert_within(self.values.len());
        device.assert_beside(tensors.on_device.chunks.scope().device());
        for (len, scope) in buffers {
            assert_eq!(len, self.values.len(), "weights and what lies beside them");
            device.assert_beside(scope.device());
        }
    }
}

fn cuda(
    device: &Cuda,
    tensors: &ChunkedTensors,
    weights: &mut OptimizerBuffers<'_>,
    rule: Rule,
    control: &mut DeviceScaler,
) -> Result<()> {
    let (chunks, state, step) =
        (tensors.on_device.chunks.address(), control.state.address(), control.step_on_device.address());
    let advance = Kernel { module: "amp/update", ptx: PTX, name: "advance" };
    let advance_arguments = arguments![state, step];
    let (values, gradients) = (weights.values.address(), weights.gradients.address());
    let (name, arguments) = match &weights.moments {
        Some(MomentBuffers { exp_avg, exp_avg_sq }) if rule.has_moments() => {
            let (means, squares) = (exp_avg.address(), exp_avg_sq.address());
            ("adam", arguments![chunks, state, step, values, gradients, means, squares])
        }
        _ => ("sgd", arguments![chunks, state, step, values, gradients]),
    };
    let kernel = Kernel { module: "amp/update", ptx: PTX, name };
    // SAFETY: the first launch is of one thread, which has the control to itself in the order of
    // the default stream. A block of the second changes the elements of its piece of a chunk, which
    // all buffers were seen to have; tensors do not overlap.
    unsafe {
        advance.submit(device, one_thread(), &advance_arguments)?;
        kernel.submit(device, Launch::for_blocks(PIECES * tensors.chunks()), &arguments)
    }
}

fn one_thread() -> Option<Launch> {
    Launch::for_blocks(1).map(|launch| launch.with_threads(1))
}

fn cpu(
    tensors: &ChunkedTensors,
    weights: &mut OptimizerBuffers<'_>,
    settings: &OptimizerSettings,
    control: &mut DeviceScaler,
) {
    let state = &mut control.state.as_mut_slice()[0];
    if state.applied == 0 {
        return;
    }
    state.steps += 1;
    let rates = Rates::new(settings, state.steps);
    (state.step_size, state.root_correction2) = (rates.step_size, rates.root_correction2);
    let factors = GradientFactors { inverse_scale: state.inverse_scale, clip: state.clip };
    let step = OptimizerStep { settings: *settings, number: state.steps, factors };
    for range in tensors.ranges() {
        let moments = weights.moments.as_mut().map(|moments| crate::Moments {
            exp_avg: &mut moments.exp_avg.as_mut_slice()[range.clone()],
            exp_avg_sq: &mut moments.exp_avg_sq.as_mut_slice()[range.clone()],
        });
        let tensor = crate::ParameterTensor {
            values: &mut weights.values.as_mut_slice()[range.clone()],
            gradient: &weights.gradients.as_slice()[range.clone()],
            moments,
        };
        crate::update([tensor], &step, Threads::Caller);
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::device_scaler::StepSettings;
    use super::super::harness::{HARNESS, noise};
    use super::super::unscale_and_check::{ScaledGradients, unscale_and_check};
    use super::*;
    use crate::threads::BLOCK;

    /// Weights, gradients and moments, with a gap between two tensors.
    struct Owned {
        tensors: ChunkedTensors,
        buffers: [Buffer<f32>; 4],
        control: DeviceScaler,
    }

    impl Owned {
        fn new(gradient: f32) -> Self {
            let scope = Device::cpu().scope("test");
            let len = 2 * BLOCK + 60;
            let buffer = |salt, most| Buffer::from_slice(&scope, &noise(len + salt, most)[salt..]).unwrap();
            let mut squares = buffer(40, 0.01);
            squares.as_mut_slice().iter_mut().for_each(|v| *v = v.abs());
            let mut gradients = buffer(20, 30.0);
            gradients.as_mut_slice()[9] = gradient;
            Owned {
                tensors: ChunkedTensors::new(&scope, &[3..40, 41..len - 2]).unwrap(),
                buffers: [buffer(0, 1.0), gradients, buffer(30, 0.1), squares],
                control: DeviceScaler::new(&scope, None, 2).unwrap(),
            }
        }

        fn begin(&mut self, optimizer: OptimizerSettings) {
            self.control
                .begin(&StepSettings { count: 1.0, clip_norm: Some(40.0), optimizer, ..StepSettings::default() })
                .unwrap();
        }

        fn examined(mut self) -> Self {
            self.begin(OptimizerSettings::default());
            let losses = &Buffer::from_slice(self.buffers[1].scope(), &[1.0, 4.0]).unwrap();
            unscale_and_check(
                &mut self.tensors,
                ScaledGradients { gradients: &self.buffers[1], losses },
                &mut self.control,
            )
            .unwrap();
            self
        }

        fn step(&mut self, settings: &OptimizerSettings) {
            self.begin(*settings);
            let [values, gradients, exp_avg, exp_avg_sq] = &mut self.buffers;
            let moments = Some(MomentBuffers { exp_avg, exp_avg_sq });
            let mut weights = OptimizerBuffers { values, gradients, moments };
            update(&self.tensors, &mut weights, &mut self.control).unwrap();
        }

        /// As `cuda` does it.
        fn step_by_kernel(&mut self, settings: &OptimizerSettings) {
            self.begin(*settings);
            let (step, chunks) = (&self.control.step_on_device, self.tensors.on_device.chunks.as_slice());
            let mut arguments = [Arg::from(self.control.state.as_mut_slice()), Arg::from(step.as_slice())];
            HARNESS.run("advance", one_thread(), &mut arguments);
            let [values, gradients, exp_avg, exp_avg_sq] = &mut self.buffers;
            let mut arguments =
                vec![Arg::from(chunks), Arg::from(self.control.state.as_slice()), Arg::from(step.as_slice())];
            arguments.extend([Arg::from(values.as_mut_slice()), Arg::from(gradients.as_slice())]);
            if settings.rule.has_moments() {
                arguments.extend([Arg::from(exp_avg.as_mut_slice()), Arg::from(exp_avg_sq.as_mut_slice())]);
            }
            let name = if settings.rule.has_moments() { "adam" } else { "sgd" };
            HARNESS.run(name, Launch::for_blocks(PIECES * chunks.len()), &mut arguments);
        }

        fn bits(&self) -> Vec<u32> {
            let floats = self.buffers.iter().flat_map(|buffer| buffer.as_slice().iter().map(|x| x.to_bits()));
            let state = self.control.state.as_slice()[0];
            floats.chain([state.steps as u32]).collect()
        }
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for rule in [Rule::Sgd, Rule::Adam, Rule::AdamW] {
            let settings = OptimizerSettings { rule, lr: 0.01, weight_decay: 0.1, ..OptimizerSettings::default() };
            let (mut found, mut expected) = (Owned::new(1.0).examined(), Owned::new(1.0).examined());
            let before = found.bits();
            for _ in 0..2 {
                found.step_by_kernel(&settings);
                expected.step(&settings);
            }
            assert_eq!(found.bits(), expected.bits(), "{rule:?}");
            assert_ne!(found.bits(), before);
            let values = found.buffers[0].as_slice();
            let untouched = Owned::new(1.0);
            let gaps = [0, 1, 2, 40, values.len() - 2, values.len() - 1];
            assert!(gaps.into_iter().all(|k| values[k] == untouched.buffers[0].as_slice()[k]), "what lies between");
        }
    }

    #[test]
    fn a_gradient_that_is_not_finite_skips_the_step() {
        for rule in [Rule::Sgd, Rule::AdamW] {
            let settings = OptimizerSettings { rule, ..OptimizerSettings::default() };
            let (mut found, mut expected) = (Owned::new(f32::NAN).examined(), Owned::new(f32::NAN).examined());
            let before = found.bits();
            found.step_by_kernel(&settings);
            expected.step(&settings);
            assert_eq!(found.bits(), before);
            assert_eq!(expected.bits(), before);
        }
    }

    #[test]
    #[should_panic(expected = "AdamW keeps moments")]
    fn weights_without_moments_are_a_mistake() {
        let Owned { tensors, buffers: [mut values, gradients, ..], mut control, .. } = Owned::new(0.0);
        let mut weights = OptimizerBuffers { values: &mut values, gradients: &gradients, moments: None };
        control.begin(&StepSettings::default()).unwrap();
        let _ = update(&tensors, &mut weights, &mut control);
    }
}
