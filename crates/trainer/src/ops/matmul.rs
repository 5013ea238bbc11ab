//! Matrix products with sums in f32.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use super::operand::{Operand, Part};
use super::scratch::Scratch;
use crate::error::Result;

/// Rows and columns of the output that a block takes, inner indices at a time, and threads of a block: those of matmul.cu.
const SIDE: usize = 64;
const DEPTH: usize = 32;
const THREADS: u32 = 128;

/// Inner indices that are worth a block of its own, and blocks that there should be before a product is split.
const SPLIT_DEPTH: usize = 512;
const BLOCKS: usize = 256;

const PTX: &str = include_str!("matmul.ptx");

/// How the operands of a product lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// a `[M, K]`, b `[N, K]`: rows by weights that have a row for each output.
    Straight,
    /// a `[M, K]`, b `[K, N]`: gradients by the same weights.
    SecondTurned,
    /// a `[K, M]`, b `[N, K]`: columns by weights that have a row for each output.
    FirstTurned,
    /// a `[K, M]`, b `[K, N]`: gradients by what was multiplied, summed over rows.
    BothTurned,
}

impl Layout {
    /// Whether a lies with its rows contiguous, and b.
    fn turned(self) -> [bool; 2] {
        match self {
            Layout::Straight => [false, false],
            Layout::SecondTurned => [false, true],
            Layout::FirstTurned => [true, false],
            Layout::BothTurned => [true, true],
        }
    }
}

/// What is done with f32 operands; others are multiplied as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// As they are, without tensor cores.
    #[default]
    Exact,
    /// Rounded to TF32, 11 significant bits with the range of f32, on a GPU; as they are on the CPU.
    Tf32,
}

/// What becomes of what the output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is overwritten.
    Overwrite,
    /// The product is added to it.
    Add,
}

/// A product `[M, N]` over an inner dimension of K.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a, T: Operand> {
    /// The first operand.
    pub a: Part<'a, T>,
    /// The second operand.
    pub b: Part<'a, T>,
    /// `[N]`, added to every row, such as a bias.
    pub start: Option<Part<'a, f32>>,
    /// M, N, K.
    pub shape: [usize; 3],
    /// How `a` and `b` lie.
    pub layout: Layout,
    /// How f32 is multiplied.
    pub arithmetic: Arithmetic,
}

/// Writes a product `[M, N]` to `out` from element `start` on, or adds it there. On a GPU a product of few outputs over many rows is split unless it has a
/// start, and its parts are added in order: how, is decided by the shape alone, so that the bits do not depend on the GPU.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of the launch, or that there is no memory for the parts of a split product, in `scratch`.
///
/// # Panics
/// If a buffer ends too early for the shape, and if arrays are on several devices.
pub fn multiply<T: Operand>(
    product: &Product<'_, T>,
    output: Output,
    (out, start): (&mut Buffer<f32>, usize),
    scratch: &mut Scratch,
) -> Result<()> {
    let [rows, columns, inner] = product.shape;
    let device = out.scope().device().clone();
    product.a.assert_has(rows * inner, &device);
    product.b.assert_has(columns * inner, &device);
    Part { buffer: out, start }.assert_has(rows * columns, &device);
    product.start.iter().for_each(|start| start.assert_has(columns, &device));
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda(device, product, output, (Part { buffer: out, start }.address(), scratch)),
        _ => {
            cpu(product, output, &mut out.as_mut_slice()[start..][..rows * columns]);
            Ok(())
        }
    }
}

fn cuda<T: Operand>(
    device: &Cuda,
    of: &Product<'_, T>,
    output: Output,
    (to, scratch): (u64, &mut Scratch),
) -> Result<()> {
    let (splits, inner_each) = if of.start.is_some() { (1, of.shape[2]) } else { splits(of.shape) };
    let len = of.shape[0] * of.shape[1];
    let operands =
        Operands { a: of.a.address(), b: of.b.address(), start: of.start.map_or(0, |start| start.address()), out: to };
    let call = Call { name: kernel::<T>(of.layout, of.arithmetic), shape: of.shape, splits, inner_each, output };
    if splits == 1 {
        // SAFETY: `multiply` has seen that the buffers have the lengths of the shape.
        return unsafe { call.submit(device, operands) };
    }
    let parts = scratch.address_of::<f32>(parts_of_sum(of.shape))?;
    // SAFETY: as above; `parts` has room for the output of every split.
    unsafe {
        Call { output: Output::Overwrite, ..call }.submit(device, Operands { out: parts, ..operands })?;
    }
    // SAFETY: `parts` has the output of every split, and there are `len` elements from `to` on. What is submitted to the default stream later, the next use of the scratch
    // included, runs after it.
    unsafe { add_parts(device, (parts, splits), (to, len), output) }
}

/// The parts `[splits, len]` of a sum at an address, added in order to the `len` elements at another, or in place of them.
///
/// # Safety
/// There are so many parts and elements, and nothing else touches them meanwhile.
pub(super) unsafe fn add_parts(
    device: &Cuda,
    (parts, splits): (u64, usize),
    (to, len): (u64, usize),
    output: Output,
) -> Result<()> {
    let kernel = Kernel { module: "trainer/matmul", ptx: PTX, name: "add_parts" };
    let adds = u32::from(output == Output::Add);
    let arguments = arguments![parts, to, len as u64, splits as u32, adds];
    // SAFETY: a thread reads its number of each part, and writes that of the output, as the caller promised.
    Ok(unsafe { kernel.submit(device, Launch::over(len), &arguments) }?)
}

/// Addresses of the elements of a product; `start` may be 0 for none.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) start: u64,
    pub(super) out: u64,
}

/// A launch of a product, but for where its operands are.
#[derive(Clone, Debug)]
pub(super) struct Call {
    name: String,
    shape: [usize; 3],
    splits: usize,
    inner_each: usize,
    output: Output,
}

impl Call {
    /// A product that is not split.
    pub(super) fn whole<T: Operand>(shape: [usize; 3], layout: Layout, output: Output) -> Self {
        Call { name: kernel::<T>(layout, Arithmetic::Exact), shape, splits: 1, inner_each: shape[2], output }
    }

    fn launch(&self) -> Option<Launch> {
        let [rows, columns, _] = self.shape;
        let blocks = rows.div_ceil(SIDE) * columns.div_ceil(SIDE) * self.splits;
        Launch::of_blocks(blocks).map(|launch| launch.with_threads(THREADS))
    }

    /// # Safety
    /// The memory at the addresses has the operands of the shape, and for each split an output. Nothing else touches the output meanwhile.
    pub(super) unsafe fn submit(&self, device: &Cuda, operands: Operands) -> Result<()> {
        let kernel = Kernel { module: "trainer/matmul", ptx: PTX, name: &self.name };
        let ([rows, columns, inner], Operands { a, b, start, out }) = (self.shape.map(|len| len as u64), operands);
        let (inner_each, adds) = (self.inner_each as u64, u32::from(self.output == Output::Add));
        let arguments = arguments![a, b, start, out, rows, columns, inner, inner_each, adds];
        // SAFETY: as the caller promised; a block reads within the shape, and writes its own tile of its own split.
        Ok(unsafe { kernel.submit(device, self.launch(), &arguments) }?)
    }
}

fn kernel<T: Operand>(layout: Layout, arithmetic: Arithmetic) -> String {
    let layout = match layout {
        Layout::Straight => "",
        Layout::SecondTurned => "b_turned_",
        Layout::FirstTurned => "a_turned_",
        Layout::BothTurned => "both_turned_",
    };
    let suffix = if arithmetic == Arithmetic::Tf32 && !T::IS_NARROW { "tf32" } else { T::SUFFIX };
    format!("product_{layout}{suffix}")
}

/// Into how many parts the inner dimension is cut, and the length of each but the last.
fn splits(shape: [usize; 3]) -> (usize, usize) {
    let inner = shape[2];
    let each = inner.div_ceil(splits_max(shape)).next_multiple_of(DEPTH).max(DEPTH);
    (inner.div_ceil(each).max(1), each)
}

/// The most parts of a product of this shape, and of one that is the same but of fewer inner indices.
fn splits_max([rows, columns, inner]: [usize; 3]) -> usize {
    let tiles = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
    BLOCKS.div_ceil(tiles.max(1)).min(inner / SPLIT_DEPTH).max(1)
}

/// Numbers that a product over so many inner indices, or over fewer, asks a scratch for.
pub(crate) fn parts_of_sum(shape: [usize; 3]) -> usize {
    let splits = splits_max(shape);
    if splits == 1 { 0 } else { splits * shape[0] * shape[1] }
}

/// Numbers that a product of so many rows, or of fewer, asks a scratch for: one of fewer rows has fewer blocks, and may have more parts.
pub(crate) fn parts_of_rows([rows, columns, inner]: [usize; 3]) -> usize {
    let column_tiles = columns.div_ceil(SIDE).max(1);
    let of_row_tiles = |tiles: usize| parts_of_sum([rows.min(tiles * SIDE), columns, inner]);
    // A product of more tiles than blocks is never split.
    (1..=rows.div_ceil(SIDE).min(BLOCKS / column_tiles + 1)).map(of_row_tiles).max().unwrap_or(0)
}

fn cpu<T: Operand>(of: &Product<'_, T>, output: Output, out: &mut [f32]) {
    let ([rows, columns, inner], a, b) = (of.shape, of.a.elements(), of.b.elements());
    for (k, out) in out.iter_mut().enumerate() {
        let (row, column) = (k / columns, k % columns);
        let term = |l: usize| {
            let [is_a_turned, is_b_turned] = of.layout.turned();
            let a = if is_a_turned { a[l * rows + row] } else { a[row * inner + l] };
            let b = if is_b_turned { b[l * columns + column] } else { b[column * inner + l] };
            a.widen() * b.widen()
        };
        let sum: f32 = (0..inner).map(term).sum::<f32>() + of.start.map_or(0.0, |start| start.elements()[column]);
        *out = if output == Output::Add { *out + sum } else { sum };
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    fn check<T: Operand>(shape: [usize; 3], layout: Layout, (arithmetic, tolerance): (Arithmetic, f32)) {
        let [rows, columns, inner] = shape;
        let scope = Device::cpu().scope("test");
        let operand = |name, len| {
            let numbers: Vec<T> = noise(name, len, 1.0).into_iter().map(T::narrow).collect();
            Buffer::from_slice(&scope, &numbers).unwrap()
        };
        let (a, b) = (operand("a", rows * inner), operand("b", columns * inner));
        let (splits, inner_each) = splits(shape);
        let start = (splits == 1).then(|| Buffer::from_slice(&scope, &noise("start", columns, 1.0)).unwrap());
        let product = Product {
            a: (&a).into(),
            b: (&b).into(),
            start: start.as_ref().map(Part::from),
            shape,
            layout,
            arithmetic,
        };
        let before = noise("out", rows * columns, 1.0);
        for output in [Output::Overwrite, Output::Add] {
            let mut expected = Buffer::from_slice(&scope, &before).unwrap();
            multiply(&product, output, (&mut expected, 0), &mut Scratch::empty(&scope).unwrap()).unwrap();
            let mut found = before.clone();
            let call = Call { name: kernel::<T>(layout, arithmetic), shape, splits, inner_each, output };
            run::<T>(&call, (&a, &b, start.as_ref()), &mut found);
            for (found, expected) in found.iter().zip(expected.as_slice()) {
                let error = (found - expected).abs();
                assert!(error <= tolerance, "{} {shape:?} {output:?}: {found} for {expected}", call.name);
            }
        }
    }

    /// As `cuda` does it.
    fn run<T: Operand>(call: &Call, (a, b, start): (&Buffer<T>, &Buffer<T>, Option<&Buffer<f32>>), out: &mut [f32]) {
        let is_split = call.splits > 1;
        let mut parts = vec![f32::NAN; call.splits * out.len()];
        let adds = u32::from(call.output == Output::Add);
        let mut arguments = vec![
            Arg::from(a.as_slice()),
            Arg::from(b.as_slice()),
            start.map_or(Arg::null(), |start| Arg::from(start.as_slice())),
            if is_split { Arg::from(&mut parts[..]) } else { Arg::from(&mut out[..]) },
        ];
        let numbers = [call.shape[0], call.shape[1], call.shape[2], call.inner_each];
        arguments.extend(numbers.map(|number| Arg::from(number as u64)));
        arguments.push(Arg::from(if is_split { 0 } else { adds }));
        HARNESS.run(&call.name, call.launch(), &mut arguments);
        drop(arguments);
        if is_split {
            let (launch, len) = (Launch::over(out.len()), out.len() as u64);
            let numbers = [Arg::from(len), Arg::from(call.splits as u32), Arg::from(adds)];
            let mut arguments: Vec<_> = [Arg::from(&parts[..]), Arg::from(out)].into_iter().chain(numbers).collect();
            HARNESS.run("add_parts", launch, &mut arguments);
        }
    }

    /// A sum of K products of numbers within ±1 in another order differs by a few units in the last place of √K; rounding to TF32 by 2⁻¹¹ of each product,
    /// at random.
    const EXACT: (Arithmetic, f32) = (Arithmetic::Exact, 1e-5);
    const TF32: (Arithmetic, f32) = (Arithmetic::Tf32, 6e-3);

    #[test]
    fn every_kernel_gives_the_cpus_products() {
        for layout in [Layout::Straight, Layout::SecondTurned, Layout::FirstTurned, Layout::BothTurned] {
            // Aligned, ragged on every side, a single element, one more than a tile.
            for shape in [[64, 64, 64], [19, 37, 45], [1, 1, 1], [65, 8, 33], [5, 66, 16]] {
                check::<f16>(shape, layout, EXACT);
                check::<bf16>(shape, layout, EXACT);
                check::<f32>(shape, layout, EXACT);
                check::<f32>(shape, layout, TF32);
            }
        }
    }

    #[test]
    fn products_over_many_rows_are_split() {
        assert_eq!(splits([4, 3, 1023]), (1, 1024));
        assert_eq!(splits([512, 128, 61_440]), (16, 3840));
        assert_eq!(splits([512, 128, 61_441]), (16, 3872));
        for inner in [1023, 1100, 61_441, 131_073] {
            let (splits, _) = splits([512, 128, inner]);
            assert!(splits == 1 || splits * 512 * 128 <= parts_of_sum([512, 128, inner]), "{inner}");
        }
        for rows in 1..=700 {
            assert!(parts_of_sum([rows, 70, 4000]) <= parts_of_rows([700, 70, 4000]), "{rows}");
        }
        check::<bf16>([4, 3, 1100], Layout::BothTurned, (Arithmetic::Exact, 5e-5));
        check::<f32>([4, 3, 1100], Layout::BothTurned, (Arithmetic::Exact, 5e-5));
    }

    #[test]
    fn nothing_times_nothing() {
        for shape in [[0, 3, 2], [3, 0, 2], [3, 2, 0]] {
            check::<bf16>(shape, Layout::Straight, EXACT);
        }
    }
}
