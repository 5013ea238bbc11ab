//! Copies a box of elements from one strided layout to another: transposes, slices, gathers every
//! n-th, broadcasts.

#![allow(unsafe_code, reason = "kernels are launched")]

use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::device::{Cuda, Device};
use crate::error::Result;
use crate::kernel::{Arguments, Kernel, Launch};

/// Most dimensions of a box, after those that can be walked as one are merged.
const DIMENSIONS_MAX: usize = 6;

/// One dimension of a box: how many elements, and how far apart they lie on either side, counted in
/// elements. A `from_stride` of 0 repeats an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Number of elements along it.
    pub len: usize,
    /// From one element to the next in the source.
    pub from_stride: usize,
    /// From one element to the next in the target.
    pub to_stride: usize,
}

/// A strided copy: the box's dimensions, outermost first, and its start on either side, in
/// elements.
#[derive(Clone, Copy, Debug)]
pub struct StridedCopy<'d> {
    /// Index of the first element in the source.
    pub from_start: usize,
    /// Index of the first element in the target.
    pub to_start: usize,
    /// The dimensions. None is a box of one element.
    pub dimensions: &'d [Dimension],
}

/// `to[to_start + Σ i·to_stride] = from[from_start + Σ i·from_stride]` for every index of the box.
///
/// # Errors
/// Errors of the launch; none on the CPU.
///
/// # Panics
/// If the box reaches outside a buffer, if two of its elements may go to the same place in `dst`,
/// or if more than six dimensions are left after merging. At compile time, if an element has
/// another size than 1, 2, 4 or 8 bytes.
pub fn copy_strided<T: Pod>(src: &Buffer<T>, dst: &mut Buffer<T>, copy: &StridedCopy<'_>) -> Result<()> {
    const { assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= 8) };
    let dimensions = merged(copy.dimensions);
    if dimensions.iter().any(|dimension| dimension.len == 0) {
        return Ok(());
    }
    let copy = StridedCopy { dimensions: &dimensions, ..*copy };
    copy.check(src.len(), dst.len());
    src.scope().device().assert_beside(dst.scope().device());
    match dst.scope().device().clone() {
        Device::Cpu(_) => cpu(src.as_slice(), dst.as_mut_slice(), &copy),
        Device::Cuda(device) => cuda(&device, src, dst, &copy)?,
    }
    Ok(())
}

fn cuda<T: Pod>(device: &Cuda, src: &Buffer<T>, dst: &mut Buffer<T>, copy: &StridedCopy<'_>) -> Result<()> {
    let name = format!("copy_strided_{}", size_of::<T>());
    let kernel = Kernel { module: "copy_strided", ptx: crate::ptx!("copy_strided"), name: &name };
    let address = |buffer: &Buffer<T>, start: usize| buffer.address() + (start * size_of::<T>()) as u64;
    let packed = PackedBox::from_dimensions(copy.dimensions);
    let arguments = Arguments::new()
        .with_value("from", address(src, copy.from_start))
        .with_value("to", address(dst, copy.to_start))
        .with_value("box", packed);
    // SAFETY: the box lies within both buffers, as `check` has seen; what is submitted to the
    // default stream later, the memory's next use included, runs after it.
    unsafe { kernel.submit(device, Launch::for_threads(packed.count as usize), &arguments) }
}

/// Row by row along the innermost dimension.
fn cpu<T: Pod>(src: &[T], dst: &mut [T], copy: &StridedCopy<'_>) {
    match copy.dimensions.split_first() {
        None => dst[copy.to_start] = src[copy.from_start],
        Some((&Dimension { len, from_stride: 1, to_stride: 1 }, [])) => {
            dst[copy.to_start..][..len].copy_from_slice(&src[copy.from_start..][..len]);
        }
        Some((&Dimension { len, from_stride, to_stride }, dimensions)) => {
            for k in 0..len {
                let (from_start, to_start) = (copy.from_start + k * from_stride, copy.to_start + k * to_stride);
                cpu(src, dst, &StridedCopy { from_start, to_start, dimensions });
            }
        }
    }
}

impl StridedCopy<'_> {
    /// Panics unless the box, of which no dimension is empty, lies within buffers of these lengths.
    fn check(&self, from_len: usize, to_len: usize) {
        assert!(
            self.dimensions.len() <= DIMENSIONS_MAX,
            "a strided copy has at most {DIMENSIONS_MAX} dimensions that cannot be merged: {:?}",
            self.dimensions
        );
        let last = |start, stride: fn(&Dimension) -> usize| {
            self.dimensions.iter().try_fold(start, |last: usize, dimension| {
                last.checked_add((dimension.len - 1).checked_mul(stride(dimension))?)
            })
        };
        let from_last = last(self.from_start, |dimension| dimension.from_stride);
        let to_last = last(self.to_start, |dimension| dimension.to_stride);
        assert!(
            from_last.is_some_and(|last| last < from_len) && to_last.is_some_and(|last| last < to_len),
            "{self:?} reaches outside buffers of {from_len} and {to_len} elements"
        );
        assert!(self.targets_are_distinct(), "{self:?} writes an element of the target twice");
    }

    /// True if each stride of the target passes over all that the smaller ones reach: then no two
    /// indices meet.
    fn targets_are_distinct(&self) -> bool {
        let mut by_stride: Vec<&Dimension> = self.dimensions.iter().collect();
        by_stride.sort_by_key(|dimension| dimension.to_stride);
        let mut reach = 0;
        by_stride.iter().all(|dimension| {
            let passes = dimension.to_stride > reach;
            reach += (dimension.len - 1) * dimension.to_stride;
            passes
        })
    }
}

/// The box in as few dimensions as possible: dimensions of one element are dropped, and neighbours
/// that are contiguous on both sides are merged.
fn merged(dimensions: &[Dimension]) -> Vec<Dimension> {
    let mut merged: Vec<Dimension> = Vec::with_capacity(dimensions.len());
    for &inner in dimensions.iter().filter(|dimension| dimension.len != 1) {
        match merged.last_mut() {
            Some(outer)
                if outer.from_stride == inner.len * inner.from_stride
                    && outer.to_stride == inner.len * inner.to_stride =>
            {
                *outer = Dimension { len: outer.len * inner.len, ..inner };
            }
            _ => merged.push(inner),
        }
    }
    merged
}

/// The box as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct PackedBox {
    len: [u64; DIMENSIONS_MAX],
    from_stride: [u64; DIMENSIONS_MAX],
    to_stride: [u64; DIMENSIONS_MAX],
    count: u64,
}

impl PackedBox {
    fn from_dimensions(dimensions: &[Dimension]) -> Self {
        let unused = [1; DIMENSIONS_MAX];
        let mut packed = PackedBox { len: unused, from_stride: unused, to_stride: unused, count: 1 };
        for (k, dimension) in dimensions.iter().enumerate() {
            packed.len[k] = dimension.len as u64;
            packed.from_stride[k] = dimension.from_stride as u64;
            packed.to_stride[k] = dimension.to_stride as u64;
            packed.count *= dimension.len as u64;
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::HARNESS;
    use super::*;

    fn dimension(len: usize, from_stride: usize, to_stride: usize) -> Dimension {
        Dimension { len, from_stride, to_stride }
    }

    /// The definition, index by index.
    fn naive(src: &[u32], dst: &mut [u32], copy: &StridedCopy<'_>) {
        let count: usize = copy.dimensions.iter().map(|dimension| dimension.len).product();
        for number in 0..count {
            let (mut rest, mut from_index, mut to_index) = (number, copy.from_start, copy.to_start);
            for dimension in copy.dimensions.iter().rev() {
                let index = rest % dimension.len;
                rest /= dimension.len;
                from_index += index * dimension.from_stride;
                to_index += index * dimension.to_stride;
            }
            dst[to_index] = src[from_index];
        }
    }

    /// The buffers end where the box does, so that one step too far is seen.
    fn check(dimensions: &[Dimension], from_start: usize, to_start: usize) {
        let copy = StridedCopy { from_start, to_start, dimensions };
        let is_empty = dimensions.iter().any(|dimension| dimension.len == 0);
        let reach = |stride: fn(&Dimension) -> usize| {
            if is_empty { 0 } else { dimensions.iter().map(|d| (d.len - 1) * stride(d)).sum::<usize>() + 1 }
        };
        let src: Vec<u32> = (1..=(from_start + reach(|d| d.from_stride)) as u32).collect();
        let mut expected = vec![0u32; to_start + reach(|d| d.to_stride)];
        let to_len = expected.len();
        naive(&src, &mut expected, &copy);

        let scope = Device::cpu().scope("test");
        let mut dst = Buffer::<u32>::zeros(&scope, to_len).unwrap();
        copy_strided(&Buffer::from_slice(&scope, &src).unwrap(), &mut dst, &copy).unwrap();
        assert_eq!(dst.as_slice(), expected, "{copy:?}");

        let packed = PackedBox::from_dimensions(&merged(dimensions));
        let mut found = vec![0u32; to_len];
        let mut arguments =
            [Arg::from(&src[from_start..]), Arg::from(&mut found[to_start..]), Arg::from_struct(&packed)];
        HARNESS.run("copy_strided_4", Launch::for_threads(packed.count as usize), &mut arguments);
        assert_eq!(found, expected, "{copy:?} by the kernel");
    }

    #[test]
    fn boxes_of_every_kind_are_copied() {
        let cases: &[&[(usize, usize, usize)]] = &[
            &[],
            &[(0, 1, 1)],
            &[(1, 7, 7)],
            &[(300, 1, 1)],
            &[(257, 3, 1)],
            &[(256, 1, 2)],
            &[(5, 1, 40), (40, 5, 1)],
            &[(16, 0, 33), (33, 1, 1)],
            &[(4, 0, 3), (3, 1, 1), (0, 1, 1)],
            &[(2, 60, 1), (3, 20, 2), (4, 5, 6), (5, 1, 24)],
            &[(2, 1, 32), (2, 2, 16), (2, 4, 8), (2, 8, 4), (2, 16, 2), (2, 32, 1)],
        ];
        for case in cases {
            let dimensions: Vec<Dimension> = case.iter().map(|&(len, src, dst)| dimension(len, src, dst)).collect();
            for (from_start, to_start) in [(0, 0), (3, 0), (1, 5)] {
                check(&dimensions, from_start, to_start);
            }
        }
    }

    #[test]
    fn elements_of_every_size_have_a_kernel() {
        fn check<T: Pod + PartialEq + std::fmt::Debug>(src: &[T]) {
            let mut dst = vec![T::zeroed(); 3];
            let packed = PackedBox::from_dimensions(&[dimension(3, 2, 1)]);
            let kernel = format!("copy_strided_{}", size_of::<T>());
            let mut arguments = [Arg::from(src), Arg::from(&mut dst[..]), Arg::from_struct(&packed)];
            HARNESS.run(&kernel, Launch::for_threads(3), &mut arguments);
            assert_eq!(dst, [src[0], src[2], src[4]]);
        }
        check(&[1u8, 2, 3, 4, 5]);
        check(&[1u16, 2, 3, 4, 5]);
        check(&[1.0f32, 2.0, 3.0, 4.0, 5.0]);
        check(&[1u64 << 40, 2, 3, 4, 5 << 50]);
    }

    #[test]
    fn dimensions_that_are_walked_as_one_are_merged() {
        type Dimensions = &'static [(usize, usize, usize)];
        let cases: &[(Dimensions, Dimensions)] = &[
            (&[(2, 12, 12), (3, 4, 4), (4, 1, 1)], &[(24, 1, 1)]),
            (&[(2, 12, 12), (1, 99, 99), (12, 1, 1)], &[(24, 1, 1)]),
            (&[(2, 12, 20), (3, 4, 4), (4, 1, 1)], &[(2, 12, 20), (12, 1, 1)]),
            (&[(3, 1, 4), (4, 3, 1)], &[(3, 1, 4), (4, 3, 1)]),
            (&[(1, 5, 5)], &[]),
        ];
        for (dimensions, expected) in cases {
            let dimensions: Vec<Dimension> =
                dimensions.iter().map(|&(len, src, dst)| dimension(len, src, dst)).collect();
            let expected: Vec<Dimension> = expected.iter().map(|&(len, src, dst)| dimension(len, src, dst)).collect();
            assert_eq!(merged(&dimensions), expected);
        }
    }

    #[test]
    fn boxes_outside_and_targets_that_meet_are_refused() {
        let refuse = |from_len: usize, to_len: usize, dimensions: &[(usize, usize, usize)]| {
            let scope = Device::cpu().scope("test");
            let src = Buffer::<u8>::zeros(&scope, from_len).unwrap();
            let mut dst = Buffer::<u8>::zeros(&scope, to_len).unwrap();
            let dimensions: Vec<Dimension> =
                dimensions.iter().map(|&(len, src, dst)| dimension(len, src, dst)).collect();
            let copy = StridedCopy { from_start: 0, to_start: 0, dimensions: &dimensions };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copy_strided(&src, &mut dst, &copy))).is_err()
        };
        assert!(!refuse(10, 10, &[(10, 1, 1)]));
        assert!(refuse(9, 10, &[(10, 1, 1)]));
        assert!(refuse(10, 9, &[(10, 1, 1)]));
        assert!(refuse(10, 10, &[(usize::MAX, usize::MAX, 1)]));
        assert!(refuse(10, 10, &[(2, 1, 0)]));
        assert!(refuse(10, 10, &[(2, 3, 2), (3, 1, 1)]));
        assert!(!refuse(10, 10, &[(2, 3, 3), (3, 1, 1)]));
    }

    proptest! {
        /// A dense target in any order of its dimensions, a source with any strides.
        #[test]
        fn any_box_is_copied(
            dimensions in prop::collection::vec((0usize..6, 0usize..20), 0..=DIMENSIONS_MAX),
            order in any::<u64>(),
            from_start in 0usize..3,
            to_start in 0usize..3,
        ) {
            let mut target: Vec<usize> = (0..dimensions.len()).collect();
            target.sort_by_key(|&k| order.rotate_left(11 * k as u32) % 97);
            let mut strides = vec![0; dimensions.len()];
            let mut stride = 1;
            for k in target {
                strides[k] = stride;
                stride *= dimensions[k].0.max(1);
            }
            let dimensions: Vec<Dimension> =
                dimensions.iter().zip(strides).map(|(&(len, src), dst)| dimension(len, src, dst)).collect();
            check(&dimensions, from_start, to_start);
        }
    }
}
