//! Every instruction set of this CPU against the formulas, a number after another.

use megabatch_order::random::{Stream, uniform};
use proptest::prelude::*;

use super::*;

/// A matrix with what multiplies it.
struct Operands {
    /// rows, depth, panels
    sizes: [usize; 3],
    x: Vec<f32>,
    x_at: PanelStride,
    /// [outputs, depth]
    weights: Vec<i8>,
    scales: Vec<f32>,
    offsets: Vec<i32>,
    start: Vec<f32>,
}

/// Tests that go through [`Int8Isa::all`] pass over the others in silence.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn instruction_sets_that_this_cpu_lacks_are_reported() {
    let present: Vec<InstructionSet> = Int8Isa::all().into_iter().map(Int8Isa::instruction_set).collect();
    #[cfg(target_arch = "x86_64")]
    let all = [InstructionSet::Avx2, InstructionSet::AvxVnni, InstructionSet::Avx512Vnni];
    #[cfg(target_arch = "aarch64")]
    let all = [InstructionSet::NeonDotprod, InstructionSet::NeonI8mm];
    for missing in all.into_iter().filter(|set| !present.contains(set)) {
        let reason = format!("products of bytes for {missing:?}");
        megabatch_test_support::skip(megabatch_test_support::Requirement::Instructions, &reason);
    }
    assert!(present.contains(&InstructionSet::Portable));
}

/// Weights as the formulas name them.
fn weight(name: &str, n: usize, k: usize) -> i8 {
    (uniform(Stream { seed: 5, name }, (n * 100_000 + k) as u64) * 255.0 - 127.5) as i8
}

impl Operands {
    fn new(rows: usize, depth: usize, panels: usize, magnitude: f32) -> Self {
        let numbers = |name: &str, len: usize| -> Vec<f32> {
            (0..len as u64).map(|i| uniform(Stream { seed: 3, name }, i) as f32 - 0.5).collect()
        };
        let x_at = PanelStride { start: PANEL, stride: (rows + 2) * PANEL };
        let x = numbers("x", (depth.div_ceil(PANEL) * (rows + 2) + 1) * PANEL);
        let x = x.into_iter().map(|x| x * magnitude).collect();
        let mut weights = vec![0; panels * PANEL * depth];
        let mut offsets = vec![0; panels * PANEL];
        for (n, k) in (0..panels * PANEL).flat_map(|n| (0..depth).map(move |k| (n, k))) {
            // Magnitudes of 127 at most.
            let q = weight("weights", n, k).max(-127);
            weights[n * depth + k] = q;
            offsets[n] -= BIAS * i32::from(q);
        }
        let (scales, start) = (numbers("scales", panels * PANEL), numbers("start", panels * PANEL));
        Operands { sizes: [rows, depth, panels], x, x_at, weights, scales, offsets, start }
    }

    fn x(&self, row: usize, k: usize) -> f32 {
        self.x[self.x_at.row(row).panel(k / PANEL).start + k % PANEL]
    }

    /// Result of the kernels; the rows' scales too.
    fn product(&self, isa: Int8Isa, start: Start<'_>, to: &mut ViewMut<'_>) -> Vec<f32> {
        let [rows, depth, panels] = self.sizes;
        let (mut bytes, mut scales) = (vec![0xff; rows * 2 * padded(depth)], vec![f32::NAN; rows]);
        quantize(isa, depth, View(&self.x, self.x_at), &mut bytes, &mut scales);
        let x = Int8Rows { bytes: &bytes, scales: &scales };
        let mut weights = vec![0; panels * PANEL * padded(depth)];
        for (at, &q) in self.weights.iter().enumerate() {
            weights[place_of(isa, padded(depth), at / depth, at % depth)] = q;
        }
        let weights = Int8Weights { weights: &weights, scales: &self.scales, offsets: &self.offsets };
        product(isa, Int8Product { depth, panels, start, x, weights }, to, PanelOrder::for_step(rows));
        scales
    }

    /// The formulas of the module.
    fn plain(&self, row: usize, n: usize, start: f32) -> f32 {
        let [_, depth, _] = self.sizes;
        let greatest = (0..depth).map(|k| self.x(row, k).abs()).fold(0.0, f32::max);
        let inverse = if greatest == 0.0 { 0.0 } else { 8191.0 / greatest };
        let q: Vec<i32> = (0..depth).map(|k| (self.x(row, k) * inverse).round_ties_even() as i32).collect();
        let w = |k: usize| i32::from(weight("weights", n, k).max(-127));
        let high: i32 = q.iter().enumerate().map(|(k, q)| q.div_euclid(128) * w(k)).sum();
        let low: i32 = q.iter().enumerate().map(|(k, q)| q.rem_euclid(128) * w(k)).sum();
        (high as f32 * 128.0 + low as f32) * (greatest / 8191.0 * self.scales[n]) + start
    }
}

/// Initial value of a product.
#[derive(Clone, Copy)]
enum From {
    Row,
    Rows,
    Result,
}

fn check(sizes: [usize; 3], magnitude: f32, from: From) {
    let operands = Operands::new(sizes[0], sizes[1], sizes[2], magnitude);
    let [rows, _, panels] = sizes;
    let place = PanelStride { start: PANEL, stride: (rows + 1) * PANEL };
    let before: Vec<f32> = (0..(panels * (rows + 1) + 1) * PANEL).map(|i| i as f32 * 0.25).collect();
    for isa in Int8Isa::all() {
        let mut c = before.clone();
        if let From::Rows = from {
            (0..panels * rows).for_each(|i| c[place.panel(i / rows).row(i % rows).start..][..PANEL].fill(f32::NAN));
        }
        let start = match from {
            From::Row => Start::Row(&operands.start),
            From::Rows => Start::Rows(View(&before, place)),
            From::Result => Start::Result,
        };
        operands.product(isa, start, &mut ViewMut(&mut c, place));
        for (row, n) in (0..rows).flat_map(|row| (0..panels * PANEL).map(move |n| (row, n))) {
            let at = place.panel(n / PANEL).row(row).start + n % PANEL;
            let start = if let From::Row = from { operands.start[n] } else { before[at] };
            assert_eq!(c[at], operands.plain(row, n, start), "{isa:?}, {sizes:?}, row {row}, output {n}");
        }
        // Nothing between panels is written.
        let gaps = (0..panels).map(|panel| place.panel(panel).row(rows).start);
        gaps.for_each(|gap| assert_eq!(c.get(gap..gap + PANEL), before.get(gap..gap + PANEL), "{isa:?}"));
    }
}

#[test]
fn every_form_gives_the_bits_of_the_formulas() {
    for rows in [0, 1, 2, 3, 5, 6, 7, 12, 13] {
        for depth in [1, 3, 4, 15, 16, 17, 33, 130] {
            check([rows, depth, 4], 1.0, [From::Row, From::Rows, From::Result][rows % 3]);
        }
    }
    for magnitude in [1e-30, 1e30] {
        check([5, 40, 8], magnitude, From::Row);
    }
}

#[test]
fn the_largest_sums_neither_saturate_nor_overflow() {
    let depth = DEPTH_MAX;
    for (x, w) in [(1.0f32, 127i8), (1.0, -127), (-1.0, 127), (-1.0, -127)] {
        let operands = Operands {
            sizes: [1, depth, 4],
            x: vec![x; depth],
            x_at: PanelStride { start: 0, stride: PANEL },
            weights: vec![w; 4 * PANEL * depth],
            scales: vec![1.0; 4 * PANEL],
            offsets: vec![-BIAS * i32::from(w) * depth as i32; 4 * PANEL],
            start: vec![0.0; 4 * PANEL],
        };
        for isa in Int8Isa::all() {
            let mut c = vec![f32::NAN; 4 * PANEL];
            let place = PanelStride { start: 0, stride: PANEL };
            operands.product(isa, Start::Zero, &mut ViewMut(&mut c, place));
            let exact = f64::from(x) * f64::from(w) * depth as f64;
            assert!(c.iter().all(|&c| (f64::from(c) - exact).abs() <= exact.abs() * 1e-6), "{isa:?}: {} {exact}", c[0]);
        }
    }
}

#[test]
fn what_is_not_finite_is_not_hidden_and_stays_in_its_row() {
    let place = PanelStride { start: 0, stride: 3 * PANEL };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut operands = Operands::new(3, 20, 4, 1.0);
        let at = operands.x_at.row(1).panel(1).start;
        operands.x[at] = bad;
        // What lies behind the last column is not read.
        operands.x[at + 4] = f32::NAN;
        let zeros = operands.x_at.row(2);
        (0..2).for_each(|panel| operands.x[zeros.panel(panel).start..][..PANEL].fill(f32::from_bits(1)));
        for isa in Int8Isa::all() {
            let mut c = vec![0.0; 4 * 3 * PANEL];
            let scales = operands.product(isa, Start::Zero, &mut ViewMut(&mut c, place));
            assert!(scales[0] > 0.0 && scales[1].is_nan() && scales[2] == 0.0, "{isa:?}: {scales:?}");
            for panel in c.chunks_exact(3 * PANEL) {
                assert!(panel[..PANEL].iter().all(|c| c.is_finite()), "{isa:?}");
                assert!(panel[PANEL..2 * PANEL].iter().all(|c| c.is_nan()), "{isa:?}");
                assert!(panel[2 * PANEL..].iter().all(|&c| c == 0.0), "{isa:?}");
            }
        }
    }
}

#[test]
fn a_row_is_as_accurate_as_its_bits() {
    // Half a step of 1/8191 at most, whatever the other numbers are.
    let operands = Operands::new(2, 100, 4, 3.0);
    for isa in Int8Isa::all() {
        let (mut bytes, mut scales) = (vec![0; 2 * 2 * padded(100)], vec![0.0; 2]);
        quantize(isa, 100, View(&operands.x, operands.x_at), &mut bytes, &mut scales);
        for (row, bytes) in bytes.chunks_exact(2 * padded(100)).enumerate() {
            let greatest = (0..100).map(|k| operands.x(row, k).abs()).fold(0.0, f32::max);
            for k in 0..100 {
                let (high, low) = (i32::from(bytes[k]) - BIAS, i32::from(bytes[padded(100) + k]));
                let found = (high * 128 + low) as f32 * scales[row];
                assert!((found - operands.x(row, k)).abs() <= greatest * 0.5001 / 8191.0, "{isa:?}: {found}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_shape(rows in 0usize..20, depth in 1usize..200, units in 1usize..4, exponent in -30i32..30, from in 0usize..3) {
        check([rows, depth, 4 * units], 2f32.powi(exponent), [From::Row, From::Rows, From::Result][from]);
    }
}

#[test]
#[should_panic(expected = "2 inputs, 3 panels")]
fn panels_that_are_no_units_are_refused() {
    let (bytes, scales) = ([0; 64], [0.0; 1]);
    let weights = Int8Weights { weights: &[0; 1024], scales: &[0.0; 64], offsets: &[0; 64] };
    let place = PanelStride { start: 0, stride: PANEL };
    let x = Int8Rows { bytes: &bytes, scales: &scales };
    let bytes = Int8Product { depth: 2, panels: 3, start: Start::Zero, x, weights };
    product(Int8Isa::best(), bytes, &mut ViewMut(&mut [0.0; 64], place), PanelOrder::Ascending);
}
