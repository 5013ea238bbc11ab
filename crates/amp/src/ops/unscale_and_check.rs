//! The first pass over gradients on a device, and its consequences for the step.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Result, arguments};

use super::device_scaler::{BACKOFF, COLLAPSE, DeviceScaler, GROWTH, NO_CHANGE, StepSettings};
use super::tensors::{ChunkedTensors, NONE};
use crate::gradients::GradientFactors;
use crate::scaler::{Overflow, ScaleChange};
use crate::threads::Threads;

const PTX: &str = megabatch_gpu_core::ptx!("unscale_and_check");

/// Threads of a block of the kernel `squares`: a warp.
const LANES: u32 = 32;

/// Gradients of a scaled loss, and the losses that they belong to.
#[derive(Clone, Copy, Debug)]
pub struct ScaledGradients<'a> {
    /// The gradients of the scaled loss by the weights.
    pub gradients: &'a Buffer<f32>,
    /// `[2]`: the sum of the losses, and the number of its terms.
    pub losses: &'a Buffer<f64>,
}

/// Reads the gradients of all tensors once, for their norm, the first non-finite one and the clip
/// coefficient, and updates the loss scale, unless the sum of the losses is not finite or their
/// mean is above the step's maximum. The results go to `control`; they are the numbers of
/// [`crate::unscale_and_check`], [`CheckedGradients::factors`](crate::CheckedGradients::factors)
/// and [`LossScaler::update`](crate::LossScaler::update) with their bits. Sums are in double
/// precision and in a fixed order. Two launches.
///
/// # Errors
/// Errors of the launches.
///
/// # Panics
/// If no step was begun, if the tensors end after the gradients, if the losses are not two numbers,
/// and if arrays are on several devices.
pub fn unscale_and_check(
    tensors: &mut ChunkedTensors,
    examinee: ScaledGradients<'_>,
    control: &mut DeviceScaler,
) -> Result<()> {
    let ScaledGradients { gradients, losses } = examinee;
    tensors.assert_within(gradients.len());
    assert_eq!(losses.len(), 2, "a sum and a number of terms");
    let settings = control.step();
    let device = control.state.scope().device().clone();
    device.assert_beside(gradients.scope().device());
    device.assert_beside(losses.scope().device());
    device.assert_beside(tensors.on_device.chunks.scope().device());
    match &device {
        Device::Cuda(device) => cuda(device, tensors, examinee, control),
        _ => {
            cpu(tensors, examinee, settings, control);
            Ok(())
        }
    }
}

fn cuda(
    device: &Cuda,
    tensors: &mut ChunkedTensors,
    scaled: ScaledGradients<'_>,
    control: &mut DeviceScaler,
) -> Result<()> {
    let (count, on_device) = (tensors.chunks(), &tensors.on_device);
    let (chunks, sums, firsts) = (on_device.chunks.address(), on_device.sums.address(), on_device.firsts.address());
    let (scale, state) = (control.scale.address(), control.state.address());
    let (step, losses) = (control.step_on_device.address(), scaled.losses.address());
    let squares = Kernel { module: "amp/unscale_and_check", ptx: PTX, name: "squares" };
    let squares_arguments = arguments![chunks, scaled.gradients.address(), losses, scale, step, sums, firsts];
    let judge = Kernel { module: "amp/unscale_and_check", ptx: PTX, name: "judge" };
    let judge_arguments = arguments![sums, firsts, count as u32, losses, step, control.rules(), scale, state];
    // SAFETY: the chunks are of elements that `gradients` was seen to have, and a block writes its
    // own of as many sums; the second launch, which reads these, comes after the first in the order
    // of the default stream, as does all that reads the control.
    unsafe {
        squares.submit(device, launch_of_squares(count), &squares_arguments)?;
        judge.submit(device, Launch::for_blocks(1), &judge_arguments)
    }
}

fn launch_of_squares(chunks: usize) -> Option<Launch> {
    Launch::for_blocks(chunks).map(|launch| launch.with_threads(LANES))
}

fn cpu(tensors: &ChunkedTensors, examinee: ScaledGradients<'_>, settings: StepSettings, control: &mut DeviceScaler) {
    let (losses, scale) = (examinee.losses.as_slice(), control.scale.as_slice()[0]);
    // In a step without any known target there is no term to divide by.
    let terms = losses[1].max(1.0);
    let inverse = (settings.count / terms / f64::from(scale)) as f32;
    let gradients = examinee.gradients.as_slice();
    let slices: Vec<&[f32]> = tensors.ranges().iter().map(|range| &gradients[range.clone()]).collect();
    let examined = crate::unscale_and_check(&slices, inverse, Threads::Caller);
    let stands = losses[0].is_finite() && losses[0] / terms <= settings.loss_max;
    let change = control.scaler().filter(|_| stands).map(|mut scaler| {
        let overflow = examined.non_finite.map(|place| Overflow { tensor: "", index: place.index });
        (scaler.update(overflow), scaler.state())
    });
    let state = &mut control.state.as_mut_slice()[0];
    (state.loss, state.terms) = (losses[0], losses[1]);
    (state.norm, state.scale_before, state.inverse_scale) = (examined.norm, scale, inverse);
    // Where there are none, nothing is updated.
    state.clip = examined.factors(settings.clip_norm).map_or(1.0, |GradientFactors { clip, .. }| clip);
    [state.bad_chunk, state.bad_index] = examined.non_finite.map_or([NONE; 2], |place| tensors.chunk_of(place));
    (state.change, state.scale_after) = (NO_CHANGE, scale);
    state.applied = u32::from(stands && examined.non_finite.is_none() && losses[1] > 0.0);
    if let Some((change, scaler)) = change {
        (state.clean_steps, state.overflows) = (scaler.clean_steps, scaler.overflows);
        state.change = match change {
            Ok(ScaleChange::None) => NO_CHANGE,
            Ok(ScaleChange::Growth) => GROWTH,
            Ok(ScaleChange::Backoff) => BACKOFF,
            Err(_) => COLLAPSE,
        };
        state.scale_after = scaler.scale;
        control.scale.as_mut_slice()[0] = scaler.scale;
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::device_scaler::DeviceState;
    use super::super::harness::{HARNESS, noise};
    use super::*;
    use crate::scaler::{LossScaler, ScalerConfig};
    use crate::threads::BLOCK;

    /// As `cuda` does it.
    fn run(tensors: &ChunkedTensors, scaled: ScaledGradients<'_>, control: &mut DeviceScaler) {
        let chunks = tensors.on_device.chunks.as_slice();
        let (mut sums, mut firsts) = (vec![f64::NAN; chunks.len()], vec![7u32; chunks.len()]);
        let rules = control.rules();
        let mut arguments = [
            Arg::from(chunks),
            Arg::from(scaled.gradients.as_slice()),
            Arg::from(scaled.losses.as_slice()),
            Arg::from(control.scale.as_slice()),
            Arg::from(control.step_on_device.as_slice()),
            Arg::from(&mut sums[..]),
            Arg::from(&mut firsts[..]),
        ];
        HARNESS.run("squares", launch_of_squares(chunks.len()), &mut arguments);
        let mut arguments = [
            Arg::from(&sums[..]),
            Arg::from(&firsts[..]),
            Arg::from(chunks.len() as u32),
            Arg::from(scaled.losses.as_slice()),
            Arg::from(control.step_on_device.as_slice()),
            Arg::from_struct(&rules),
            Arg::from(control.scale.as_mut_slice()),
            Arg::from(control.state.as_mut_slice()),
        ];
        HARNESS.run("judge", Launch::for_blocks(1), &mut arguments);
    }

    fn bits(control: &DeviceScaler) -> (Vec<u8>, u32) {
        // A NaN has other bits on other devices.
        let mut state: DeviceState = control.state.as_slice()[0];
        state.norm = if state.norm.is_nan() { f64::NAN } else { state.norm };
        (bytemuck::bytes_of(&state).to_vec(), control.scale.as_slice()[0].to_bits())
    }

    fn scaler() -> LossScaler {
        let config = ScalerConfig {
            initial: 8.0,
            growth_interval: 2,
            hysteresis: 2,
            backoff_factor: 0.3,
            ..ScalerConfig::default()
        };
        LossScaler::new(config).unwrap()
    }

    fn check(lens: &[usize], gradients: &[f32], losses: [f64; 2], settings: StepSettings) {
        let scope = Device::cpu().scope("test");
        let mut start = 3;
        let ranges = lens.iter().map(|&len| {
            start += len + 1;
            start - len - 1..start - 1
        });
        let ranges: Vec<_> = ranges.collect();
        let mut tensors = ChunkedTensors::new(&scope, &ranges).unwrap();
        let gradients = &Buffer::from_slice(&scope, gradients).unwrap();
        let losses = &Buffer::from_slice(&scope, &losses).unwrap();
        for scaler in [None, Some(&scaler())] {
            let mut expected = DeviceScaler::new(&scope, scaler, 5).unwrap();
            let mut found = DeviceScaler::new(&scope, scaler, 5).unwrap();
            for step in 0..3 {
                [&mut expected, &mut found].into_iter().for_each(|control| control.begin(&settings).unwrap());
                unscale_and_check(&mut tensors, ScaledGradients { gradients, losses }, &mut expected).unwrap();
                run(&tensors, ScaledGradients { gradients, losses }, &mut found);
                assert_eq!(bits(&found), bits(&expected), "{lens:?}, step {step}: {found:?} for {expected:?}");
            }
        }
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for lens in [&[][..], &[0], &[1], &[31, 33], &[BLOCK, 0, BLOCK + 1], &[BLOCK - 1, 2 * BLOCK + 40, 5]] {
            let len = lens.iter().sum::<usize>() + lens.len() + 3;
            let gradients = noise(len, 30.0);
            for clip_norm in [None, Some(1.0), Some(1e9)] {
                check(lens, &gradients, [5.0, 3.0], StepSettings { count: 4.0, clip_norm, ..StepSettings::default() });
            }
        }
    }

    #[test]
    fn the_first_gradient_that_is_not_finite_is_found_and_others_do_not_hide_it() {
        let lens = [40, 2 * BLOCK];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for at in [3, 42, 50, 44 + BLOCK + 700] {
                let mut gradients = noise(2 * BLOCK + 50, 3.0);
                gradients[at] = bad;
                gradients[2 * BLOCK + 40] = f32::NAN;
                // Times 16, the largest number overflows where it is unscaled.
                let settings = StepSettings { count: 16.0, clip_norm: Some(1.0), ..StepSettings::default() };
                check(&lens, &gradients, [0.5, 1.0], settings);
            }
        }
    }

    #[test]
    fn more_chunks_than_a_block_has_threads() {
        let lens = [7; 300];
        let mut gradients = noise(8 * 300 + 3, 3.0);
        check(&lens, &gradients, [0.5, 1.0], StepSettings::default());
        gradients[8 * 280] = f32::NAN;
        gradients[8 * 290] = f32::NAN;
        check(&lens, &gradients, [0.5, 1.0], StepSettings::default());
    }

    /// True if weights follow, by losses, terms and the largest mean; where the loss is refused,
    /// the scale does not follow either.
    #[test]
    fn a_loss_that_is_refused_changes_nothing() {
        let settings = |loss_max| StepSettings { count: 4.0, loss_max, ..StepSettings::default() };
        let cases = [
            ([6.0, 3.0], f64::INFINITY, true, true),
            ([6.0, 3.0], 2.0, true, true),
            ([6.0, 3.0], 1.9, false, false),
            ([f64::NAN, 3.0], f64::INFINITY, false, false),
            ([f64::INFINITY, 3.0], f64::INFINITY, false, false),
            ([-f64::INFINITY, 3.0], 1.0, false, false),
            // Without any term there is nothing to follow, and no overflow either.
            ([0.0, 0.0], 1.0, false, true),
        ];
        for (losses, loss_max, applied, stands) in cases {
            check(&[40, 50], &noise(95, 3.0), losses, settings(loss_max));
            let scope = Device::cpu().scope("test");
            let mut tensors = ChunkedTensors::new(&scope, std::slice::from_ref(&(0..2))).unwrap();
            let mut control = DeviceScaler::new(&scope, Some(&scaler()), 0).unwrap();
            let gradients = &Buffer::from_slice(&scope, &[1.0, 2.0]).unwrap();
            let losses = &Buffer::from_slice(&scope, &losses).unwrap();
            control.begin(&settings(loss_max)).unwrap();
            unscale_and_check(&mut tensors, ScaledGradients { gradients, losses }, &mut control).unwrap();
            let state = control.state.as_slice()[0];
            assert_eq!((state.applied == 1, state.clean_steps == 1), (applied, stands), "{losses:?}, {loss_max}");
            assert_eq!(control.is_accepted(), stands, "{losses:?}, {loss_max}");
        }
    }

    /// The scale over many steps, down to its floor and up to its ceiling.
    #[test]
    fn the_scale_follows_as_the_scalers() {
        let scope = Device::cpu().scope("test");
        let mut tensors = ChunkedTensors::new(&scope, &[0..1, 1..2]).unwrap();
        let losses = &Buffer::from_slice(&scope, &[0.5, 1.0]).unwrap();
        let config = ScalerConfig { initial: 4.0, growth_interval: 2, growth_factor: 1.7, ..ScalerConfig::default() };
        for hysteresis in [1, 2] {
            let scaler = LossScaler::new(ScalerConfig { hysteresis, ceiling: 9.0, ..config }).unwrap();
            let mut found = DeviceScaler::new(&scope, Some(&scaler), 0).unwrap();
            let mut expected = DeviceScaler::new(&scope, Some(&scaler), 0).unwrap();
            for step in "..x.xx.....xxxxxxxx.......".chars() {
                let gradient = if step == 'x' { f32::NAN } else { 1.0 };
                let gradients = &Buffer::from_slice(&scope, &[0.5, gradient]).unwrap();
                let settings = StepSettings::default();
                [&mut expected, &mut found].into_iter().for_each(|control| control.begin(&settings).unwrap());
                unscale_and_check(&mut tensors, ScaledGradients { gradients, losses }, &mut expected).unwrap();
                run(&tensors, ScaledGradients { gradients, losses }, &mut found);
                assert_eq!(bits(&found), bits(&expected), "{step}");
            }
        }
    }
}
