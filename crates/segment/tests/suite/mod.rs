//! Conformance suite of every operation on a GPU; the CPU's results are right.

#![allow(unsafe_code, reason = "tensors come as addresses")]

use half::{bf16, f16};
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope};
use megabatch_segment::Result;
use megabatch_segment::cuda::{
    GpuSegments, TensorGpu, TensorStream, plan_from_index, plan_from_offsets, plan_workspace_bytes,
};
use megabatch_segment::tensor::{
    self, ElementType, Extremum, ExtremumOutput, FloatElement, Fold, RowSegments, Schedule, Segments, Shape, Share,
    Softmax, TensorElement, plan_len,
};

/// A case by the name of what it asserts. It fails with the device's error, and panics where the
/// device's answer is wrong.
pub(crate) type Case = (&'static str, fn(&Device) -> Result<()>);

/// The cases.
pub(crate) const CASES: &[Case] = &[
    ("plans are the CPU's", plans),
    ("segments are folded with the CPU's bits", |device| each_number(device, &Folds)),
    ("extrema, their rows and their gradients are the CPU's", |device| each_number(device, &Extrema)),
    ("rows gather from their segments as on the CPU", |device| each_number(device, &Gathers)),
    ("softmax and its gradient have the CPU's numbers", |device| {
        softmax::<f16>(device)?;
        softmax::<bf16>(device)?;
        softmax::<f32>(device)?;
        softmax::<f64>(device)
    }),
    ("an index without a segment is told, and its row left out", faults),
];

/// Segments of which some are empty, one is a piece, one a piece and a row, and one many pieces.
const LENGTHS: [usize; 9] = [3, 0, 1, 512, 513, 0, 5000, 40, 0];

const SCHEDULE: Schedule = Schedule::CallingThread;

/// Rows in segments, and a GPU for them.
struct Example {
    gpu: TensorGpu,
    scope: Scope,
    index: Vec<i64>,
    shape: Shape,
    plan: Vec<u32>,
    gpu_index: Buffer<i64>,
    gpu_plan: Buffer<u32>,
}

impl Example {
    fn new(device: &Device, shuffle: usize, columns: usize) -> Result<Self> {
        let (cuda, scope) = (cuda(device), device.scope("segment"));
        let sorted: Vec<i64> =
            LENGTHS.iter().zip(0..).flat_map(|(&len, segment)| (0..len).map(move |_| segment)).collect();
        let rows = sorted.len();
        let index: Vec<i64> = (0..rows).map(|row| sorted[row * shuffle % rows]).collect();
        let gpu = TensorGpu::new(&cuda)?;
        let gpu_index = Buffer::from_slice(&scope, &index)?;
        let gpu_plan = planned(&gpu, &scope, &gpu_index, LENGTHS.len())?;
        let mut plan = vec![0; plan_len(rows, LENGTHS.len())];
        tensor::plan_from_index(&index, LENGTHS.len(), &mut plan, SCHEDULE)?;
        let shape = Shape { batches: 2, rows, columns };
        Ok(Example { gpu, scope, index, shape, plan, gpu_index, gpu_plan })
    }

    fn segments(&self) -> Segments<'_> {
        Segments::new(&self.plan, LENGTHS.len())
    }

    fn on_gpu(&self, element: ElementType) -> GpuSegments<'_> {
        let stream = TensorStream { gpu: &self.gpu, handle: 0 };
        GpuSegments { stream, plan: self.gpu_plan.address(), segments: LENGTHS.len(), shape: self.shape, element }
    }

    fn rows_len(&self) -> usize {
        self.shape.batches * self.shape.rows * self.shape.columns
    }

    fn segments_len(&self) -> usize {
        self.shape.batches * LENGTHS.len() * self.shape.columns
    }

    fn sent<E: TensorElement>(&self, numbers: &[E]) -> Result<Buffer<E>> {
        Ok(Buffer::from_slice(&self.scope, numbers)?)
    }

    fn zeros<E: TensorElement>(&self, len: usize) -> Result<Buffer<E>> {
        Ok(Buffer::zeros(&self.scope, len)?)
    }

    fn workspace(&self, bytes: usize) -> Result<Buffer<u8>> {
        Ok(Buffer::zeros(&self.scope, bytes)?)
    }
}

fn cuda(device: &Device) -> Cuda {
    match device {
        Device::Cuda(cuda) => cuda.clone(),
        _ => panic!("these operations are a GPU's"),
    }
}

/// The plan of an index, made on the GPU.
fn planned(gpu: &TensorGpu, scope: &Scope, index: &Buffer<i64>, segments: usize) -> Result<Buffer<u32>> {
    let plan = Buffer::zeros(scope, plan_len(index.len(), segments))?;
    let workspace = Buffer::<u8>::zeros(scope, plan_workspace_bytes(index.len()))?;
    let stream = TensorStream { gpu, handle: 0 };
    let [index_address, plan_address, workspace_address] = [index.address(), plan.address(), workspace.address()];
    // SAFETY: the buffers have the sizes that are asked for, and stay: their memory's next use
    // comes later on the default stream.
    unsafe { plan_from_index(stream, index_address, index.len(), segments, false, plan_address, workspace_address) }?;
    Ok(plan)
}

/// Plans of indices in many orders, up to several passes and tiles, and of offsets.
fn plans(device: &Device) -> Result<()> {
    let (gpu, scope) = (TensorGpu::new(&cuda(device))?, device.scope("segment"));
    let sizes = [(0, 0), (0, 5), (1, 1), (7, 3), (4096, 1), (4097, 200), (9001, 255), (9001, 256), (20_000, 70_000)];
    for (rows, segments) in sizes {
        let unsorted: Vec<i64> = (0..rows as i64).map(|row| row * 48_271 % 65_537 % segments.max(1) as i64).collect();
        let mut sorted = unsorted.clone();
        sorted.sort_unstable();
        for index in [unsorted, sorted] {
            let mut expected = vec![0; plan_len(rows, segments)];
            tensor::plan_from_index(&index, segments, &mut expected, SCHEDULE)?;
            let found = planned(&gpu, &scope, &Buffer::from_slice(&scope, &index)?, segments)?.to_vec()?;
            // What follows is left as it was where the rows are sorted.
            let written = if expected[segments + 1] == 0 { segments + 2 } else { expected.len() };
            assert!(found[..written] == expected[..written], "{rows} rows in {segments} segments on {device}");
        }
    }
    let (indptr, mut expected) = ([1, 2, 2, 5], vec![0; plan_len(6, 3)]);
    tensor::plan_from_offsets(&indptr, 6, &mut expected)?;
    let (indptr, plan) = (Buffer::from_slice(&scope, &indptr)?, Buffer::<u32>::zeros(&scope, expected.len())?);
    let stream = TensorStream { gpu: &gpu, handle: 0 };
    // SAFETY: as in `planned`.
    unsafe { plan_from_offsets(stream, indptr.address(), 3, 6, plan.address()) }?;
    assert_eq!(plan.to_vec()?, expected);
    gpu.fault()
}

/// Operations on numbers of any type.
trait Operations {
    fn check<E: TestElement>(&self, on: &Example) -> Result<()>;
}

fn each_number(device: &Device, operations: &impl Operations) -> Result<()> {
    for (shuffle, columns) in EXAMPLES {
        let example = Example::new(device, shuffle, columns)?;
        operations.check::<f16>(&example)?;
        operations.check::<bf16>(&example)?;
        operations.check::<f32>(&example)?;
        operations.check::<f64>(&example)?;
        operations.check::<i32>(&example)?;
        operations.check::<i64>(&example)?;
    }
    Ok(())
}

/// Order of the rows and number of columns: 5,087 is coprime to the number of rows.
const EXAMPLES: [(usize, usize); 4] = [(1, 1), (5087, 1), (5087, 7), (1, 33)];

struct Folds;

impl Operations for Folds {
    fn check<E: TestElement>(&self, on: &Example) -> Result<()> {
        let (x, base) = (numbers::<E>(on.rows_len()), numbers::<E>(on.segments_len()));
        let (gpu_x, gpu_base) = (on.sent(&x)?, on.sent(&base)?);
        for which in [Fold::Sum, Fold::Mean, Fold::Product] {
            for has_base in [false, true] {
                let mut expected = vec![E::zeroed(); on.segments_len()];
                let base = has_base.then_some(&base[..]);
                tensor::fold(which, &on.segments(), on.shape, &x, base, &mut expected, SCHEDULE);
                let (gpu, out) = (on.on_gpu(E::TYPE), on.zeros::<E>(expected.len())?);
                let (workspace, base) =
                    (on.workspace(gpu.fold_bytes())?, if has_base { gpu_base.address() } else { 0 });
                // SAFETY: as in `planned`.
                unsafe { gpu.fold(which, gpu_x.address(), base, out.address(), workspace.address()) }?;
                same(&out, &expected, &format!("{which:?} of {:?}, base {has_base}", E::TYPE))?;
            }
        }
        Ok(())
    }
}

struct Extrema;

impl Operations for Extrema {
    fn check<E: TestElement>(&self, on: &Example) -> Result<()> {
        let (x, base) = (numbers::<E>(on.rows_len()), numbers::<E>(on.segments_len()));
        let (gpu_x, gpu_base) = (on.sent(&x)?, on.sent(&base)?);
        for which in [Extremum::Max, Extremum::Min] {
            for has_base in [false, true] {
                let (mut expected, mut rows) = (vec![E::zeroed(); base.len()], vec![0; base.len()]);
                let results = ExtremumOutput { values: &mut expected, arguments: &mut rows };
                let cpu_base = has_base.then_some(&base[..]);
                tensor::extremum(which, &on.segments(), on.shape, &x, cpu_base, results, SCHEDULE);
                let (gpu, values, arguments) =
                    (on.on_gpu(E::TYPE), on.zeros::<E>(base.len())?, on.zeros::<i64>(base.len())?);
                let workspace = on.workspace(gpu.extremum_bytes())?;
                let gpu_base_address = if has_base { gpu_base.address() } else { 0 };
                let [to, rows_to, workspace] = [values.address(), arguments.address(), workspace.address()];
                // SAFETY: as in `planned`.
                unsafe { gpu.extremum(which, gpu_x.address(), gpu_base_address, to, rows_to, workspace) }?;
                let what = format!("{which:?} of {:?}, base {has_base}", E::TYPE);
                same(&values, &expected, &what)?;
                same(&arguments, &rows, &what)?;
                let (mut expected, d_x) = (vec![E::zeroed(); x.len()], on.zeros::<E>(x.len())?);
                tensor::extremum_backward(&on.segments(), on.shape, &rows, &base, &mut expected, SCHEDULE);
                // SAFETY: as in `planned`.
                unsafe { gpu.extremum_backward(rows_to, gpu_base.address(), d_x.address()) }?;
                same(&d_x, &expected, &what)?;
            }
        }
        Ok(())
    }
}

struct Gathers;

impl Operations for Gathers {
    fn check<E: TestElement>(&self, on: &Example) -> Result<()> {
        let values = numbers::<E>(on.segments_len());
        let gpu_values = on.sent(&values)?;
        for share in [Share::Whole, Share::Equal] {
            let mut forms = vec![(RowSegments::Index(&on.index), on.gpu_index.address())];
            forms.extend(on.index.is_sorted().then_some((RowSegments::Offsets, 0)));
            for (form, index) in forms {
                let mut expected = vec![E::zeroed(); on.rows_len()];
                tensor::gather(share, &on.segments(), form, on.shape, &values, &mut expected, SCHEDULE);
                let out = on.sent(&numbers::<E>(expected.len()))?;
                // SAFETY: as in `planned`.
                unsafe { on.on_gpu(E::TYPE).gather(share, index, gpu_values.address(), out.address()) }?;
                same(&out, &expected, &format!("{share:?} of {:?}", E::TYPE))?;
            }
        }
        Ok(())
    }
}

/// Softmax of a type of floats. That in f64, and logarithms, are CUDA's and the host's library's,
/// which differ in the last places.
fn softmax<E: TestElement + FloatElement>(device: &Device) -> Result<()> {
    for (shuffle, columns) in EXAMPLES {
        let on = Example::new(device, shuffle, columns)?;
        let (x, d_y) = (numbers::<E>(on.rows_len()), numbers::<E>(on.rows_len()));
        let (gpu_x, gpu_d_y) = (on.sent(&x)?, on.sent(&d_y)?);
        for which in [Softmax::Plain, Softmax::Logarithm { eps: 1e-12 }] {
            let what = format!("{which:?} of {:?}", E::TYPE);
            let is_exact = which == Softmax::Plain && E::TYPE != ElementType::F64;
            let (mut y, mut d_x) = (x.clone(), x.clone());
            tensor::softmax(which, &on.segments(), on.shape, &x, &mut y, SCHEDULE);
            tensor::softmax_backward(which, &on.segments(), on.shape, &y, &d_y, &mut d_x, SCHEDULE);
            let (gpu, found) = (on.on_gpu(E::TYPE), on.zeros::<E>(x.len())?);
            let workspace = on.workspace(gpu.softmax_bytes())?;
            // SAFETY: as in `planned`.
            unsafe { gpu.softmax(which, gpu_x.address(), found.address(), workspace.address()) }?;
            near(&found, &y, is_exact, &what)?;
            let (gpu_y, found) = (on.sent(&y)?, on.zeros::<E>(x.len())?);
            let [y, d_y, to, workspace] = [gpu_y.address(), gpu_d_y.address(), found.address(), workspace.address()];
            // SAFETY: as in `planned`.
            unsafe { gpu.softmax_backward(which, y, d_y, to, workspace) }?;
            near(&found, &d_x, is_exact, &what)?;
        }
    }
    Ok(())
}

fn faults(device: &Device) -> Result<()> {
    let (gpu, scope) = (TensorGpu::new(&cuda(device))?, device.scope("segment"));
    let index = Buffer::from_slice(&scope, &[1i64, -1, 0, 2, 0])?;
    let plan = planned(&gpu, &scope, &index, 2)?.to_vec()?;
    assert_eq!(plan[..4], [0, 2, 3, 1], "offsets of the rows with a segment, which are not sorted");
    assert_eq!(plan[4..7], [2, 4, 0], "the rows with a segment");
    let told = gpu.fault().expect_err("two rows have none").to_string();
    let is_either = told.contains("index[1] is -1") || told.contains("index[3] is 2");
    assert!(is_either, "{told}");
    gpu.fault()
}

/// Numbers of which some are equal; a few floats are infinite or NaN.
fn numbers<E: TestElement>(len: usize) -> Vec<E> {
    let number = |k: u32| match k.wrapping_mul(2_654_435_761) >> 8 {
        _ if k % 6007 == 5 => f64::NAN,
        _ if k % 5003 == 7 => f64::NEG_INFINITY,
        bits => f64::from(bits % 61) / 4.0 - 7.0,
    };
    (0..len as u32).map(|k| E::new(number(k))).collect()
}

/// Type of numbers that operations are tried on.
trait TestElement: TensorElement {
    const TYPE: ElementType;

    /// The number of this type.
    fn new(number: f64) -> Self;

    /// The number, with one form of NaN.
    fn number(self) -> f64;
}

macro_rules! test_elements {
    ($($element:ident is $kind:ident: $new:expr, $number:expr;)*) => {
        $(impl TestElement for $element {
            const TYPE: ElementType = ElementType::$kind;

            fn new(number: f64) -> Self {
                $new(number)
            }

            fn number(self) -> f64 {
                $number(self)
            }
        })*
    };
}

test_elements! {
    f16 is F16: f16::from_f64, f16::to_f64;
    bf16 is Bf16: bf16::from_f64, bf16::to_f64;
    f32 is F32: |number| number as f32, f64::from;
    f64 is F64: |number| number, |number| number;
    i32 is I32: |number| number as i32, f64::from;
    i64 is I64: |number| number as i64, |number| number as f64;
}

/// Asserts that a tensor of the GPU has these numbers.
fn same<E: TestElement>(found: &Buffer<E>, expected: &[E], what: &str) -> Result<()> {
    let is_same =
        |found: f64, expected: f64| found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
    compare(found, expected, is_same, what)
}

/// As [`same`], but for the last places of numbers that are not exact.
fn near<E: TestElement>(found: &Buffer<E>, expected: &[E], is_exact: bool, what: &str) -> Result<()> {
    if is_exact {
        return same(found, expected, what);
    }
    let unit = match E::TYPE {
        ElementType::F16 => 2f64.powi(-10),
        ElementType::Bf16 => 2f64.powi(-7),
        ElementType::F32 => 2f64.powi(-20),
        _ => 2f64.powi(-48),
    };
    let is_near = |found: f64, expected: f64| {
        found == expected
            || found.is_nan() && expected.is_nan()
            || (found - expected).abs() <= unit * expected.abs().max(1.0)
    };
    compare(found, expected, is_near, what)
}

fn compare<E: TestElement>(
    found: &Buffer<E>,
    expected: &[E],
    is_equal: impl Fn(f64, f64) -> bool,
    what: &str,
) -> Result<()> {
    let found = found.to_vec()?;
    assert_eq!(found.len(), expected.len(), "{what}");
    let differs = found.iter().zip(expected).position(|(found, expected)| !is_equal(found.number(), expected.number()));
    let shown = differs.map(|k| (k, found[k].number(), expected[k].number()));
    assert_eq!(shown, None, "{what}, {} numbers", expected.len());
    Ok(())
}
