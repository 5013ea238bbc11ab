//! The suite of the operations on every device, for tests and for the program that checks a GPU.
//! The CPU is right.

mod bytes;
mod carried;
mod inter_layer;
mod products;
mod replay;
mod rows;
#[path = "../../src/ops/tests/uploaded.rs"]
mod uploaded;

use half::{bf16, f16};
use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_order::random::{Stream, uniform};

use megabatch_nn_cuda::ops::{
    Arithmetic, BatchUploader, GateRows, GateTensor, GatherIndex, Gradients, Operand, Output, Product, ReadFrom,
    RecurrenceInputs, RecurrenceSchedule, RecurrentWeights, RowGranularity, Scratch, Sequence, States, TensorSlice,
    TileWindows, Transpose, WorkList, add_separated, interleave, multiply, recurrence, recurrence_backward,
    sum_per_bar,
};
use uploaded::work_list;

/// A case by the name of what it asserts. It fails with the device's error, and panics where the
/// device's answer is wrong.
pub(crate) type Case = (&'static str, fn(&Device) -> Result<()>);

/// The cases.
pub(crate) const CASES: &[Case] = &[
    ("a layer in bf16 is the CPU's, held in registers", |device| same::<bf16>(device, &[2, 20, 64], 2e-2)),
    ("a layer in f16 is the CPU's, held in registers", |device| same::<f16>(device, &[16, 34], 2e-3)),
    ("a layer in 16 bits of an odd number of units is the CPU's, step by step", |device| {
        same::<bf16>(device, &[1, 33], 2e-2)
    }),
    ("a layer of 128 units is the CPU's", |device| same::<bf16>(device, &[128], 2e-2)),
    ("a layer in f32 is the CPU's, held in registers and shared memory", |device| {
        same::<f32>(device, &[1, 20, 61, 128], 2e-5)
    }),
    ("a layer in f32 that is too wide for a block is the CPU's, step by step", |device| {
        same::<f32>(device, &[130], 2e-5)
    }),
    ("a layer that is too wide for a block is the CPU's, shared by a group", |device| {
        same::<bf16>(device, &[130], 2e-2)
    }),
    ("wider layers are the CPU's, shared by larger groups", |device| same::<f16>(device, &[384, 512], 2e-3)),
    ("tiles of any size give the same bits", tiles_give_the_same_bits),
    ("a layer in eight bits is the CPU's, held in registers", |device| bytes::layer(device, 20)),
    ("a layer in eight bits that is too wide for a block is the CPU's", |device| bytes::layer(device, 130)),
    ("a layer that projects what it reads is the CPU's, of 5 and 33 numbers", |device| {
        rows::projected::<bf16>(device, 20, [5, 33])
    }),
    ("a layer of 128 units that projects what it reads is the CPU's", |device| {
        rows::projected::<f16>(device, 128, [16, 1])
    }),
    ("a layer that is replayed has the bits of one that is submitted", |device| replay::layer(device, 20)),
    ("a layer that a group shares has them too", |device| replay::layer(device, 130)),
    ("what a batch brings reaches its arrays", inter_layer::upload),
    ("losses and their gradients are the CPU's", inter_layer::losses),
    ("sums of columns, norms and dropout have the CPU's bits", inter_layer::rows),
    ("vectors are joined for samples and taken apart with the CPU's bits", inter_layer::joins),
    ("attention pooling is the CPU's", inter_layer::pooling),
    ("fusion by attention is the CPU's", inter_layer::fusion),
    ("carried states have the CPU's bits", |device| {
        carried::states::<f32>(device)?;
        carried::states::<f16>(device)?;
        carried::states::<bf16>(device)
    }),
];

/// Cases for a GPU that has cuBLASLt.
pub(crate) const LIBRARY_CASES: &[Case] = &[
    ("products of 16 bits by cuBLASLt are the CPU's", |device| {
        products::by_library_as_on_cpu::<f16>(device, Arithmetic::Exact, 1e-4)?;
        products::by_library_as_on_cpu::<bf16>(device, Arithmetic::Exact, 1e-4)
    }),
    ("products in TF32 by cuBLASLt are the CPU's to 11 bits", |device| {
        products::by_library_as_on_cpu::<f32>(device, Arithmetic::Tf32, 6e-3)
    }),
];

/// Features of a bar.
const WIDTH: usize = 5;

/// A timeframe: steps, and the first bar of each window. There are single steps, single windows,
/// and more windows than a tile has.
const TIMEFRAMES: [(usize, &[u32]); 3] = [(4, &[0, 1, 2, 3, 4, 5, 6, 9, 10]), (1, &[3, 3]), (6, &[2])];

/// A layer, everything in f32 and in PyTorch's order of gates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerResults {
    /// Hidden states of each timeframe `[T + 1, B, H]`.
    pub(crate) hidden: Vec<f32>,
    pub(crate) cell: Vec<f32>,
    /// Gradients of each timeframe, `[4H, F]`, `[4H, H]` and `[4H]`.
    pub(crate) d_weight_ih: Vec<f32>,
    pub(crate) d_weight_hh: Vec<f32>,
    pub(crate) d_bias: Vec<f32>,
    /// Gradients of the states before the first step, `[B, H]` of each timeframe.
    pub(crate) d_first: [Vec<f32>; 2],
}

/// Inputs of each timeframe.
pub(crate) struct Example {
    pub(crate) hidden: usize,
    pub(crate) bars: Vec<Vec<f32>>,
    pub(crate) weight_ih: Vec<Vec<f32>>,
    pub(crate) weight_hh: Vec<Vec<f32>>,
    pub(crate) bias: Vec<Vec<f32>>,
    /// Gradients of the hidden state after each step, `[T, B, H]`.
    pub(crate) d_outputs: Vec<Vec<f32>>,
}

/// On a device.
struct Prepared<T: Operand> {
    weights: RecurrentWeights<T>,
    projected: Buffer<f32>,
    /// Bars of each timeframe, as they were multiplied.
    bars_of: Vec<Buffer<T>>,
}

fn noise(seed: usize, name: &'static str, len: usize, most: f32) -> Vec<f32> {
    let stream = Stream { seed: seed as u64, name };
    (0..len as u64).map(|k| (uniform(stream, k) as f32 - 0.5) * 2.0 * most).collect()
}

impl Example {
    pub(crate) fn new(hidden: usize) -> Self {
        let each = |name, len: fn(usize, usize) -> usize, most| {
            (0..TIMEFRAMES.len()).map(|s| noise(s, name, len(s, hidden), most)).collect()
        };
        let reach = 1.0 / (hidden as f32).sqrt();
        Example {
            hidden,
            bars: each("bars", |s, _| bars(s) * WIDTH, 1.5),
            weight_ih: each("weight_ih", |_, hidden| 4 * hidden * WIDTH, reach),
            weight_hh: each("weight_hh", |_, hidden| 4 * hidden * hidden, reach),
            bias: each("bias", |_, hidden| 4 * hidden, reach),
            d_outputs: each("d_outputs", |s, hidden| TIMEFRAMES[s].0 * TIMEFRAMES[s].1.len() * hidden, 1.0),
        }
    }

    fn work_list(&self, scope: &Scope, tile: TileWindows) -> Result<WorkList> {
        let sequence = |(s, (steps, first)): (usize, (usize, &'static [u32]))| Sequence {
            steps,
            first,
            row_step: 1,
            projected_rows: bars(s),
        };
        let sequences: Vec<_> = TIMEFRAMES.into_iter().enumerate().map(sequence).collect();
        work_list(scope, self.hidden, tile, &sequences)
    }

    /// The layer forward and backward on a device.
    pub(crate) fn run<T: Operand>(&self, device: &Device, tile: TileWindows) -> Result<LayerResults> {
        let scope = device.scope("ops");
        let list = self.work_list(&scope, tile)?;
        let Prepared { weights, projected, bars_of } = self.prepare::<T>(&scope, &list)?;
        let mut states = States::<T>::zeros(&scope, &list)?;
        recurrence(&list, &RecurrenceInputs { weights: &weights, projected: &projected }, &mut states)?;

        let mut gradients = Gradients::<T>::zeros(&scope, &list)?;
        gradients.outputs = Some(Buffer::from_slice(&scope, &self.d_outputs.concat())?);
        recurrence_backward(&list, &weights, &states, &mut gradients)?;

        let mut layer = LayerResults {
            hidden: states.hidden.to_vec()?.into_iter().map(T::widen).collect(),
            cell: states.cell.to_vec()?,
            d_weight_ih: Vec::new(),
            d_weight_hh: Vec::new(),
            d_bias: Vec::new(),
            d_first: [gradients.hidden.to_vec()?, gradients.cell.to_vec()?],
        };
        for (s, bars) in bars_of.iter().enumerate() {
            let [ih, hh, bias] = self.parameter_gradients(&list, s, bars, &states, &gradients)?;
            layer.d_weight_ih.extend(ih);
            layer.d_weight_hh.extend(hh);
            layer.d_bias.extend(bias);
        }
        Ok(layer)
    }

    /// Inputs of the recurrence over a list.
    fn prepare<T: Operand>(&self, scope: &Scope, list: &WorkList) -> Result<Prepared<T>> {
        let width = 4 * self.hidden;
        let starts: Vec<usize> = (0..TIMEFRAMES.len()).map(|s| s * width * self.hidden).collect();
        let mut weights = RecurrentWeights::<T>::zeros(scope, self.hidden, &starts)?;
        weights.set(&Buffer::from_slice(scope, &self.weight_hh.concat())?)?;
        let mut projected = Buffer::zeros(scope, list.projected_rows() * width)?;
        let mut bars_of = Vec::new();
        for s in 0..TIMEFRAMES.len() {
            bars_of.push(self.project::<T>(scope, s, &mut projected, list.projected_row(s) * width)?);
        }
        Ok(Prepared { weights, projected, bars_of })
    }

    /// projected = x · W_ihᵀ + b for every bar of a timeframe; its bars as they were multiplied,
    /// `[bars, F]`.
    fn project<T: Operand>(&self, scope: &Scope, s: usize, to: &mut Buffer<f32>, to_start: usize) -> Result<Buffer<T>> {
        let weight = self.interleaved::<T>(scope, &self.weight_ih[s])?;
        let bias = self.interleaved::<f32>(scope, &self.bias[s])?;
        let bars_of: Vec<T> = self.bars[s].iter().map(|&x| T::narrow(x)).collect();
        let bars_of = Buffer::from_slice(scope, &bars_of)?;
        let product = Product {
            a: (&bars_of).into(),
            b: (&weight).into(),
            bias: Some((&bias).into()),
            shape: [bars(s), 4 * self.hidden, WIDTH],
            layout: Transpose::Nt,
            arithmetic: Arithmetic::Exact,
        };
        multiply(&product, Output::Overwrite, to, to_start, &mut Scratch::empty(scope)?)?;
        Ok(bars_of)
    }

    /// `[4, H, K]` in PyTorch's order, unit by unit.
    fn interleaved<T: Operand>(&self, scope: &Scope, numbers: &[f32]) -> Result<Buffer<T>> {
        let mut to = Buffer::zeros(scope, numbers.len())?;
        interleave(&self.rows_of_gates(scope, numbers.len())?, &Buffer::from_slice(scope, numbers)?, &mut to)?;
        Ok(to)
    }

    /// A single tensor of so many elements.
    fn rows_of_gates(&self, scope: &Scope, len: usize) -> Result<GateRows> {
        let width = len / (4 * self.hidden);
        let tensor = GateTensor { start: 0, other: None, place: 0, width, stride: width };
        GateRows::new(scope, self.hidden, &[tensor])
    }

    /// dW_ih and db by bar, dW_hh by step.
    fn parameter_gradients<T: Operand>(
        &self,
        list: &WorkList,
        s: usize,
        bars_of: &Buffer<T>,
        states: &States<T>,
        gradients: &Gradients<T>,
    ) -> Result<[Vec<f32>; 3]> {
        let (scope, gates, rows) = (states.cell.scope(), 4 * self.hidden, TIMEFRAMES[s].0 * TIMEFRAMES[s].1.len());
        let mut by_bar = Buffer::<f32>::zeros(scope, bars(s) * gates)?;
        sum_per_bar(list, s, &gradients.gates, &mut by_bar)?;
        let wide: Vec<f32> = bars_of.to_vec()?.into_iter().map(T::widen).collect();
        let (wide, ones) = (Buffer::from_slice(scope, &wide)?, Buffer::from_slice(scope, &vec![1.0f32; bars(s)])?);
        let input_product = |b, width| Product {
            a: (&by_bar).into(),
            b,
            bias: None,
            shape: [gates, width, bars(s)],
            layout: Transpose::Tn,
            arithmetic: Arithmetic::Exact,
        };
        let recurrent_product = Product {
            a: TensorSlice { buffer: &gradients.gates, start: list.gates_row(s) * gates },
            b: TensorSlice { buffer: &states.hidden, start: list.states_row(s) * self.hidden },
            bias: None,
            shape: [gates, self.hidden, rows],
            layout: Transpose::Tn,
            arithmetic: Arithmetic::Exact,
        };
        Ok([
            self.separated(scope, &input_product((&wide).into(), WIDTH))?,
            self.separated(scope, &recurrent_product)?,
            self.separated(scope, &input_product((&ones).into(), 1))?,
        ])
    }

    /// A product in PyTorch's order of gates.
    fn separated<T: Operand>(&self, scope: &Scope, product: &Product<'_, T>) -> Result<Vec<f32>> {
        let [gates, width, _] = product.shape;
        let (mut unit_by_unit, mut to) = (Buffer::zeros(scope, gates * width)?, Buffer::zeros(scope, gates * width)?);
        multiply(product, Output::Overwrite, &mut unit_by_unit, 0, &mut Scratch::empty(scope)?)?;
        add_separated(&self.rows_of_gates(scope, gates * width)?, &unit_by_unit, &mut to)?;
        Ok(to.to_vec()?)
    }
}

/// Bars of a timeframe, of which the last is in no window.
fn bars(s: usize) -> usize {
    let (steps, first) = TIMEFRAMES[s];
    first.iter().max().map_or(0, |&first| first as usize) + steps + 1
}

impl LayerResults {
    pub(crate) fn parts(&self) -> [(&'static str, &[f32]); 7] {
        [
            ("hidden states", &self.hidden),
            ("cell states", &self.cell),
            ("dW_ih", &self.d_weight_ih),
            ("dW_hh", &self.d_weight_hh),
            ("db", &self.d_bias),
            ("d of the first hidden states", &self.d_first[0]),
            ("d of the first cell states", &self.d_first[1]),
        ]
    }

    /// Holds every part to `expected`: the difference is within `tolerance` of the part's largest
    /// number, or of 1.
    pub(crate) fn assert_close(&self, expected: &LayerResults, tolerance: f32, what: &str) {
        for ((name, found), (_, expected)) in self.parts().into_iter().zip(expected.parts()) {
            assert_eq!(found.len(), expected.len(), "{what}: {name}");
            let most = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
            for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (found - expected).abs();
                assert!(error <= tolerance * most, "{what}: {name}, number {k} is {found} where {expected} is right");
            }
        }
    }
}

fn same<T: Operand>(device: &Device, widths: &[usize], tolerance: f32) -> Result<()> {
    for &hidden in widths {
        let example = Example::new(hidden);
        let expected = example.run::<T>(&Device::cpu(), TileWindows::Eight)?;
        let found = example.run::<T>(device, TileWindows::Eight)?;
        found.assert_close(&expected, tolerance, &format!("{hidden} units in {}", T::SUFFIX));
    }
    Ok(())
}

fn tiles_give_the_same_bits(device: &Device) -> Result<()> {
    for hidden in [8, 50] {
        let example = Example::new(hidden);
        let sizes = [TileWindows::Four, TileWindows::Eight, TileWindows::Sixteen];
        let [four, eight, sixteen] = sizes.map(|tile| example.run::<bf16>(device, tile));
        let eight = eight?;
        assert_eq!(eight, sixteen?, "{hidden} units by 16 and by 8 windows");
        assert_eq!(eight, four?, "{hidden} units by 4 and by 8 windows");
        let [eight, sixteen] = [TileWindows::Eight, TileWindows::Sixteen].map(|tile| example.run::<f32>(device, tile));
        assert_eq!(eight?, sixteen?, "{hidden} units in f32");
    }
    Ok(())
}

#[cfg(test)]
mod oracle;
