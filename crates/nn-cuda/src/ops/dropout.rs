//! Outputs of a layer of which some are dropped, by the masks of [`Dropout`](crate::Dropout).

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/dropout.rs"]
mod cpu;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;
use megabatch_nn::model::Mask;

use super::operand::{Operand, TensorSlice};

const PTX: &str = megabatch_gpu_core::ptx!("dropout");

/// Steps whose numbers one thread draws: that of dropout.cu.
const WORDS: usize = 4;

/// The outputs of one layer in one timeframe, `[T, B, H]`, and what is dropped of them.
#[derive(Clone, Copy, Debug)]
pub struct Dropped<'a> {
    /// The mask of the layer and the timeframe, by its number: it is another in each step, and read
    /// on the device.
    pub mask: (&'a Buffer<MaskNumbers>, usize),
    /// Identities of the B windows, see [`Mask::factor`], from an element on.
    pub ends: (&'a Buffer<u64>, usize),
    /// T, B, H.
    pub shape: [usize; 3],
}

/// The numbers that a [`Mask`] is drawn from: `Mask` of mask.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct MaskNumbers {
    key: [u32; 2],
    dropped_below: u32,
    scale: f32,
}

impl From<Mask> for MaskNumbers {
    fn from(Mask { key, dropped_below, scale }: Mask) -> Self {
        MaskNumbers { key, dropped_below, scale: scale as f32 }
    }
}

/// Address of a mask among several.
///
/// # Panics
/// If there is none of this number.
pub(super) fn mask_address(masks: &Buffer<MaskNumbers>, mask: usize) -> u64 {
    assert!(mask < masks.len(), "mask {mask} of {}", masks.len());
    masks.address() + (mask * size_of::<MaskNumbers>()) as u64
}

impl Dropped<'_> {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn assert_beside(&self, device: &Device) {
        let ((ends, start), [steps, windows, hidden]) = (self.ends, self.shape);
        assert!(start + windows <= ends.len(), "ends of {windows} windows from {start} on of {}", ends.len());
        assert!(u32::try_from(windows * hidden).is_ok() && u32::try_from(steps).is_ok(), "numbers of 32 bits");
        device.assert_beside(ends.scope().device());
        let (masks, mask) = self.mask;
        assert!(mask < masks.len(), "mask {mask} of {}", masks.len());
        device.assert_beside(masks.scope().device());
    }

    /// Address of the first window's end.
    fn ends_address(&self) -> u64 {
        self.ends.0.address() + (self.ends.1 * size_of::<u64>()) as u64
    }

    /// A thread for four steps of each unit of each window.
    fn launch(&self) -> Option<Launch> {
        let [steps, windows, hidden] = self.shape;
        Launch::for_threads(steps.div_ceil(WORDS) * windows * hidden)
    }
}

/// Writes `from` `[T, B, H]` with the dropped numbers zero and the others scaled up to `to` from
/// its start on, rounded to its type: that of `from`, or any where `from` is of f32. The masks have
/// the CPU's bits.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If a buffer ends too early for the shape, and if they are on several devices.
pub fn drop_outputs<From: Operand, To: Operand>(
    dropped: Dropped<'_>,
    from: TensorSlice<'_, From>,
    to: &mut Buffer<To>,
    start: usize,
) -> Result<()> {
    let (device, len) = (to.scope().device().clone(), dropped.len());
    dropped.assert_beside(&device);
    from.assert_has(len, &device);
    TensorSlice { buffer: to, start }.assert_has(len, &device);
    match &device {
        Device::Cuda(device) => {
            let (name, [steps, windows, hidden]) = (kernel::<From, To>(), dropped.shape);
            let kernel = Kernel { module: "nn/dropout", ptx: PTX, name: &name };
            let to = TensorSlice { buffer: to, start }.address();
            let (mask, ends) = (mask_address(dropped.mask.0, dropped.mask.1), dropped.ends_address());
            let arguments = arguments![mask, ends, from.address(), to, steps as u32, windows as u32, hidden as u32];
            // SAFETY: a thread reads and writes elements within the shape, which the buffers were
            // seen to have, each thread others. What is submitted to the default stream later runs
            // after it.
            Ok(unsafe { kernel.submit(device, dropped.launch(), &arguments) }?)
        }
        _ => cpu_arm!(cpu::drop_outputs(dropped, from.elements(), &mut to.as_mut_slice()[start..])),
    }
}

/// Multiplies the gradients `d` `[T, B, H]`, from an element on, of what [`drop_outputs`] gave by
/// the same factors: they become those of the outputs.
///
/// # Errors
/// As [`drop_outputs`].
///
/// # Panics
/// As [`drop_outputs`].
pub fn drop_gradients(dropped: Dropped<'_>, d: &mut Buffer<f32>, start: usize) -> Result<()> {
    let device = d.scope().device().clone();
    dropped.assert_beside(&device);
    TensorSlice { buffer: d, start }.assert_has(dropped.len(), &device);
    match &device {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/dropout", ptx: PTX, name: "drop_gradients" };
            let (d, [steps, windows, hidden]) = (TensorSlice { buffer: d, start }.address(), dropped.shape);
            let arguments = arguments![
                mask_address(dropped.mask.0, dropped.mask.1),
                dropped.ends_address(),
                d,
                steps as u32,
                windows as u32,
                hidden as u32
            ];
            // SAFETY: as in `drop_outputs`.
            Ok(unsafe { kernel.submit(device, dropped.launch(), &arguments) }?)
        }
        _ => cpu_arm!(cpu::drop_gradients(dropped, &mut d.as_mut_slice()[start..])),
    }
}

fn kernel<From: Operand, To: Operand>() -> String {
    assert!(From::SUFFIX == To::SUFFIX || !From::IS_NARROW, "outputs are of f32, or of what they become");
    format!("drop_{}_{}", From::SUFFIX, To::SUFFIX)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_nn::model::Dropout;
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    fn check<From: Operand, To: Operand>(shape: [usize; 3]) {
        let scope = Device::cpu().scope("test");
        let ends: Vec<u64> = (0..=shape[1] as u64).map(|window| window << 31).collect();
        let ends = Buffer::from_slice(&scope, &ends).unwrap();
        let mask = Dropout::for_step(0.3, 5, 8).unwrap().mask("M5", 1);
        let masks = Buffer::from_slice(&scope, &[MaskNumbers::zeroed(), mask.into()]).unwrap();
        let dropping = Dropped { mask: (&masks, 1), ends: (&ends, 1), shape };
        let from: Vec<From> = noise("from", dropping.len(), 2.0).into_iter().map(From::narrow).collect();
        let from = Buffer::from_slice(&scope, &from).unwrap();
        let mut expected = Buffer::<To>::zeros(&scope, dropping.len()).unwrap();
        drop_outputs(dropping, (&from).into(), &mut expected, 0).unwrap();

        let (mut found, numbers) = (vec![To::narrow(9.0); dropping.len()], &masks.as_slice()[1..]);
        let sizes = || shape.map(|size| Arg::from(size as u32));
        let arguments = [Arg::from(numbers), Arg::from(&ends.as_slice()[1..])].into_iter();
        let arguments = arguments.chain([Arg::from(from.as_slice()), Arg::from(&mut found[..])]).chain(sizes());
        HARNESS.run(&kernel::<From, To>(), dropping.launch(), &mut arguments.collect::<Vec<_>>());
        let wide = |values: &[To]| values.iter().map(|x| x.widen()).collect::<Vec<f32>>();
        assert_eq!(wide(&found), wide(expected.as_slice()), "{shape:?} {}", kernel::<From, To>());

        let d = noise("d", dropping.len(), 2.0);
        let mut expected = Buffer::from_slice(&scope, &d).unwrap();
        drop_gradients(dropping, &mut expected, 0).unwrap();
        let mut found = d.clone();
        let arguments = [Arg::from(numbers), Arg::from(&ends.as_slice()[1..]), Arg::from(&mut found[..])];
        HARNESS.run("drop_gradients", dropping.launch(), &mut arguments.into_iter().chain(sizes()).collect::<Vec<_>>());
        assert_eq!(found, expected.as_slice(), "{shape:?}");
        let dropped = found.iter().filter(|&&d| d == 0.0).count();
        // Five standard errors.
        let expected = 0.3 * dropping.len() as f64;
        assert!((dropped as f64 - expected).abs() <= 5.0 * (0.7 * expected).sqrt(), "{dropped} of {}", dropping.len());
    }

    #[test]
    fn the_kernels_have_the_cpus_masks() {
        for shape in [[0, 3, 2], [1, 1, 1], [4, 2, 3], [7, 5, 33]] {
            check::<f32, f32>(shape);
            check::<f32, f16>(shape);
            check::<f32, bf16>(shape);
            check::<f16, f16>(shape);
            check::<bf16, bf16>(shape);
        }
    }
}
