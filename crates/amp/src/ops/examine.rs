//! The first pass over gradients on a device, and what follows from it for the step.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Result, arguments};

use super::control::{BACKOFF, COLLAPSE, Control, GROWTH, NO_CHANGE, StepSettings};
use super::tensors::{NONE, Tensors};
use crate::gradients::Factors;
use crate::scaler::{Overflow, ScaleChange};
use crate::threads::Threads;

const PTX: &str = include_str!("examine.ptx");

/// Threads of a block of the kernel that goes through gradients: a warp.
const LANES: u32 = 32;

/// Reads the gradients of all tensors once, for their norm, the first that is not finite and the clip coefficient, and has the loss scale follow: all of it goes to `control`,
/// the numbers of [`crate::examine`], [`Examined::factors`](crate::Examined::factors) and [`LossScaler::update`](crate::LossScaler::update) with their bits. Sums are in double
/// precision and in a fixed order. Two launches.
///
/// # Errors
/// What the device says of a launch.
///
/// # Panics
/// If no step was begun, if the tensors end after the gradients, and if arrays are on several devices.
pub fn examine(tensors: &mut Tensors, gradients: &Buffer<f32>, control: &mut Control) -> Result<()> {
    tensors.assert_within(gradients.len());
    let of = control.step();
    let device = control.state.scope().device().clone();
    device.assert_beside(gradients.scope().device());
    device.assert_beside(tensors.on_device.chunks.scope().device());
    match &device {
        Device::Cuda(device) => cuda(device, tensors, gradients, control),
        _ => {
            cpu(tensors, gradients.as_slice(), (of, control));
            Ok(())
        }
    }
}

fn cuda(device: &Cuda, tensors: &mut Tensors, gradients: &Buffer<f32>, control: &mut Control) -> Result<()> {
    let (count, on_device) = (tensors.chunks(), &tensors.on_device);
    let (chunks, sums, firsts) = (on_device.chunks.address(), on_device.sums.address(), on_device.firsts.address());
    let (scale, state) = (control.scale.address(), control.state.address());
    let step = control.step_on_device.address();
    let squares = Kernel { module: "amp/examine", ptx: PTX, name: "squares" };
    let of_squares = arguments![chunks, gradients.address(), scale, step, sums, firsts];
    let judge = Kernel { module: "amp/examine", ptx: PTX, name: "judge" };
    let of_judge = arguments![sums, firsts, count as u32, step, control.rules(), scale, state];
    // SAFETY: the chunks are of elements that `gradients` was seen to have, and a block writes its own of as many sums; the second launch, which reads these, comes after the
    // first in the order of the default stream, as does all that reads the control.
    unsafe {
        squares.submit(device, launch_of_squares(count), &of_squares)?;
        judge.submit(device, Launch::of_blocks(1), &of_judge)
    }
}

fn launch_of_squares(chunks: usize) -> Option<Launch> {
    Launch::of_blocks(chunks).map(|launch| launch.with_threads(LANES))
}

fn cpu(tensors: &Tensors, gradients: &[f32], (of, control): (StepSettings, &mut Control)) {
    let scale = control.scale.as_slice()[0];
    let inverse = (of.share / f64::from(scale)) as f32;
    let slices: Vec<&[f32]> = tensors.ranges().iter().map(|range| &gradients[range.clone()]).collect();
    let examined = crate::examine(&slices, inverse, Threads::Caller);
    let change = control.scaler().map(|mut scaler| {
        let overflow = examined.non_finite.map(|place| Overflow { tensor: "", index: place.index });
        (scaler.update(overflow), scaler.state())
    });
    let state = &mut control.state.as_mut_slice()[0];
    (state.norm, state.scale_before, state.inverse_scale) = (examined.norm, scale, inverse);
    // Where there are none, nothing is updated.
    state.clip = examined.factors(of.clip_norm).map_or(1.0, |Factors { clip, .. }| clip);
    [state.bad_chunk, state.bad_index] = examined.non_finite.map_or([NONE; 2], |place| tensors.chunk_of(place));
    state.change = NO_CHANGE;
    if let Some((change, scaler)) = change {
        (state.clean_steps, state.overflows) = (scaler.clean_steps, scaler.overflows);
        state.change = match change {
            Ok(ScaleChange::None) => NO_CHANGE,
            Ok(ScaleChange::Growth) => GROWTH,
            Ok(ScaleChange::Backoff) => BACKOFF,
            Err(_) => COLLAPSE,
        };
        control.scale.as_mut_slice()[0] = scaler.scale;
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::control::State;
    use super::super::harness::{HARNESS, noise};
    use super::*;
    use crate::scaler::{LossScaler, ScalerConfig};
    use crate::threads::BLOCK;

    /// As `cuda` does it.
    fn run(tensors: &Tensors, gradients: &[f32], control: &mut Control) {
        let chunks = tensors.on_device.chunks.as_slice();
        let (mut sums, mut firsts) = (vec![f64::NAN; chunks.len()], vec![7u32; chunks.len()]);
        let rules = control.rules();
        let mut arguments = [
            Arg::from(chunks),
            Arg::from(gradients),
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
            Arg::from(control.step_on_device.as_slice()),
            Arg::of_struct(&rules),
            Arg::from(control.scale.as_mut_slice()),
            Arg::from(control.state.as_mut_slice()),
        ];
        HARNESS.run("judge", Launch::of_blocks(1), &mut arguments);
    }

    fn bits(control: &Control) -> (Vec<u8>, u32) {
        // A NaN has other bits on other devices.
        let mut state: State = control.state.as_slice()[0];
        state.norm = if state.norm.is_nan() { f64::NAN } else { state.norm };
        (bytemuck::bytes_of(&state).to_vec(), control.scale.as_slice()[0].to_bits())
    }

    fn scaler() -> LossScaler {
        let config = ScalerConfig {
            initial_scale: 8.0,
            growth_interval: 2,
            hysteresis: 2,
            backoff_factor: 0.3,
            ..ScalerConfig::default()
        };
        LossScaler::new(config).unwrap()
    }

    fn check(lens: &[usize], gradients: &[f32], of: StepSettings) {
        let scope = Device::cpu().scope("test");
        let mut start = 3;
        let ranges = lens.iter().map(|&len| {
            start += len + 1;
            start - len - 1..start - 1
        });
        let ranges: Vec<_> = ranges.collect();
        let mut tensors = Tensors::new(&scope, &ranges).unwrap();
        let gradients = Buffer::from_slice(&scope, gradients).unwrap();
        for scaler in [None, Some(&scaler())] {
            let mut expected = Control::new(&scope, scaler, 5).unwrap();
            let mut found = Control::new(&scope, scaler, 5).unwrap();
            for step in 0..3 {
                [&mut expected, &mut found].into_iter().for_each(|control| control.begin(&of).unwrap());
                examine(&mut tensors, &gradients, &mut expected).unwrap();
                run(&tensors, gradients.as_slice(), &mut found);
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
                check(lens, &gradients, StepSettings { share: 4.0 / 3.0, clip_norm, ..StepSettings::default() });
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
                let of = StepSettings { share: 16.0, clip_norm: Some(1.0), ..StepSettings::default() };
                check(&lens, &gradients, of);
            }
        }
    }

    #[test]
    fn more_chunks_than_a_block_has_threads() {
        let lens = [7; 300];
        let mut gradients = noise(8 * 300 + 3, 3.0);
        check(&lens, &gradients, StepSettings::default());
        gradients[8 * 280] = f32::NAN;
        gradients[8 * 290] = f32::NAN;
        check(&lens, &gradients, StepSettings::default());
    }

    /// The scale over many steps, down to its floor and up to its ceiling.
    #[test]
    fn the_scale_follows_as_the_scalers() {
        let scope = Device::cpu().scope("test");
        let mut tensors = Tensors::new(&scope, &[0..1, 1..2]).unwrap();
        let config =
            ScalerConfig { initial_scale: 4.0, growth_interval: 2, growth_factor: 1.7, ..ScalerConfig::default() };
        for hysteresis in [1, 2] {
            let scaler = LossScaler::new(ScalerConfig { hysteresis, max_scale: 9.0, ..config }).unwrap();
            let mut found = Control::new(&scope, Some(&scaler), 0).unwrap();
            let mut expected = Control::new(&scope, Some(&scaler), 0).unwrap();
            for step in "..x.xx.....xxxxxxxx.......".chars() {
                let gradient = if step == 'x' { f32::NAN } else { 1.0 };
                let gradients = Buffer::from_slice(&scope, &[0.5, gradient]).unwrap();
                let of = StepSettings::default();
                [&mut expected, &mut found].into_iter().for_each(|control| control.begin(&of).unwrap());
                examine(&mut tensors, &gradients, &mut expected).unwrap();
                run(&tensors, gradients.as_slice(), &mut found);
                assert_eq!(bits(&found), bits(&expected), "{step}");
            }
        }
    }
}
