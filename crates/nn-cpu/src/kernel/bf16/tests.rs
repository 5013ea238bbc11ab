//! Every instruction set of this CPU against its portable twin to the bit, and against loops of a
//! few lines in double precision.

use megabatch_order::random::{Stream, uniform};
use proptest::prelude::*;

use super::*;
use crate::kernel::{PanelStride, Start};

fn numbers(name: &str, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform(Stream { seed: 3, name }, i) as f32 - 0.5).collect()
}

/// Numbers of every kind: zeros, subnormal and huge ones, infinities, NaN, and any bits.
fn specials(seed: u32, len: usize) -> Vec<f32> {
    let special = [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, f32::MIN_POSITIVE, 1e38, -1e38, f32::INFINITY, f32::NAN, 3.0];
    let number = |i: u32| {
        let bits = (i ^ seed).wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(0x9e37_79b9);
        match bits % 7 {
            0 => special[bits as usize / 7 % special.len()],
            1 => f32::from_bits(bits),
            // Magnitudes whose products are subnormal.
            2 => f32::from_bits(bits & 0x8fff_ffff | 0x2000_0000),
            _ => f32::from_bits(bits & 0x83ff_ffff | 0x3c00_0000),
        }
    };
    (0..len as u32).map(number).collect()
}

fn rounded(x: f32) -> f64 {
    f64::from(half::bf16::from_f32(x).to_f32())
}

/// Row `row`, column `column` of a panel-major matrix.
fn at(matrix: View<'_>, row: usize, column: usize) -> f32 {
    let View(values, place) = matrix;
    values[place.start + column / PANEL * place.stride + row * PANEL + column % PANEL]
}

/// The bits of a sum, all NaN alike.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    depth: usize,
    panels: usize,
}

/// A product of `a` [rows, depth] and `b` [depth, panels · 16], as they are packed for `isa`.
struct Case {
    shape: Shape,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    gap: usize,
}

impl Case {
    fn new(shape: Shape, gap: usize, values: impl Fn(usize) -> Vec<f32>) -> Self {
        let Shape { rows, depth, panels } = shape;
        let len = |columns: usize, rows: usize| columns.div_ceil(PANEL) * (rows + gap) * PANEL;
        let (a, b) = (values(len(depth, rows)), values(len(panels * PANEL, depth)));
        Case { shape, a, b, c: values(len(panels * PANEL, rows)), gap }
    }

    fn place(&self, rows: usize) -> PanelStride {
        PanelStride { start: 0, stride: (rows + self.gap) * PANEL }
    }

    fn a(&self) -> View<'_> {
        View(&self.a, self.place(self.shape.rows))
    }

    fn b(&self) -> View<'_> {
        View(&self.b, self.place(self.shape.depth))
    }

    fn product(&self, isa: Bf16Isa, start: Start<'_>) -> Vec<f32> {
        let Shape { rows, depth, panels } = self.shape;
        let a_place = PanelStride { start: 0, stride: (rows + 2) * PANEL };
        let mut a = vec![f32::NAN; depth.div_ceil(PAIRED_PANEL) * a_place.stride];
        let mut b = vec![f32::NAN; panels * padded_words(depth) * PANEL];
        let b_place = PanelStride { start: 0, stride: padded_words(depth) * PANEL };
        super::rows(isa, rows, depth, self.a(), &mut ViewMut(&mut a, a_place));
        pairs(isa, depth, panels, self.b(), &mut ViewMut(&mut b, b_place));
        let mut c = self.c.clone();
        let mut to = ViewMut(&mut c, self.place(rows));
        let product = PanelProduct { rows, depth, panels, start, a: View(&a, a_place), b: &b };
        super::product(isa, product, &mut to, PanelOrder::for_step(rows));
        c
    }
}

#[test]
fn instructions_add_as_their_twins_do_to_the_bit() {
    let twins: Vec<_> = Bf16Isa::all().into_iter().filter_map(|isa| Some((isa, isa.twin()?))).collect();
    for seed in 0..40 {
        for (rows, depth, panels) in [(1, 1, 1), (5, 33, 3), (16, 64, 4), (31, 7, 5), (33, 96, 2), (64, 100, 9)] {
            let case = Case::new(Shape { rows, depth, panels }, 1, |len| specials(seed, len));
            for &(isa, twin) in &twins {
                let (own, expected) = (case.product(isa, Start::Result), case.product(twin, Start::Result));
                assert_eq!(bits(&own), bits(&expected), "{}: {:?}, seed {seed}", isa.name(), case.shape);
            }
        }
    }
}

/// Tests that go through [`Bf16Isa::all`] pass over the others in silence.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn instruction_sets_that_this_cpu_lacks_are_reported() {
    let present: Vec<&str> = Bf16Isa::all().into_iter().filter(|isa| !isa.is_twin()).map(Bf16Isa::name).collect();
    #[cfg(target_arch = "x86_64")]
    let all = ["bf16", "amx-bf16"];
    #[cfg(target_arch = "aarch64")]
    let all = ["bfdot"];
    for missing in all.into_iter().filter(|name| !present.contains(name)) {
        let reason = format!("kernels for pairs by {missing}");
        megabatch_test_support::skip(megabatch_test_support::Requirement::Instructions, &reason);
    }
    assert!(present.len() <= all.len(), "a new instruction set has no row here: {present:?}");
}

#[test]
fn sums_of_bfdot_between_two_numbers_have_an_odd_last_bit() {
    let power = |exponent: i32| 2f32.powi(exponent);
    let word = |low: f32, high: f32| low.to_bits() >> 16 | high.to_bits() & 0xffff_0000;
    let cases = [
        ("above an even number", 1.0, [power(-20), 0.0], [power(-20), 0.0], 1.0f32.next_up()),
        ("below an even number", 1.0, [0.0, power(-20)], [0.0, -power(-20)], 1.0f32.next_down()),
        ("near an odd number", 1.0f32.next_up(), [power(-20), 0.0], [-power(-20), 0.0], 1.0f32.next_up()),
        ("a sum of products", 0.0, [1.0, power(-20)], [1.0, power(-20)], 1.0f32.next_up()),
        ("two products that cancel", power(-60), [1.0, 1.0], [1.0, -1.0], power(-60)),
        ("below 2^128", f32::MAX, [power(52), 0.0], [power(51), 0.0], f32::MAX),
        ("2^128", f32::MAX, [power(52), 0.0], [power(52), 0.0], f32::INFINITY),
        ("a subnormal sum", 1.5 * f32::MIN_POSITIVE, [power(-63), 0.0], [-power(-63), 0.0], 0.0),
        ("a subnormal product", 0.0, [power(-64), 0.0], [power(-64), 0.0], 0.0),
    ];
    for (what, sum, a, b, expected) in cases {
        let found = portable::bfdot(sum, word(a[0], a[1]), word(b[0], b[1]));
        assert_eq!(found.to_bits(), expected.to_bits(), "{what}: {found:e}");
    }
}

/// The sum by `bfdot` in whole numbers: bits that a number does not hold make its last bit 1.
fn sum_in_integers(a: f32, b: f32) -> f32 {
    if !a.is_finite() || !b.is_finite() {
        return a + b;
    }
    // The significand with its sign, and the exponent field; zero for subnormal numbers.
    let parts = |x: f32| {
        let field = (x.to_bits() >> 23 & 0xff) as i32;
        let magnitude = if field == 0 { 0 } else { i128::from(x.to_bits() & 0x7f_ffff | 0x80_0000) };
        (if x.is_sign_negative() { -magnitude } else { magnitude }, field)
    };
    let (a_parts, b_parts) = (parts(a), parts(b));
    let (large, small) = if a_parts.1 < b_parts.1 { (b_parts, a_parts) } else { (a_parts, b_parts) };
    // Sixty-four bits below the other, a number is no more than its sign.
    let apart = (large.1 - small.1).min(64);
    let sum = (large.0 << apart) + if apart == 64 { small.0.signum() } else { small.0 };
    if sum == 0 {
        return if a.is_sign_negative() && b.is_sign_negative() { -0.0 } else { 0.0 };
    }
    let magnitude = sum.unsigned_abs();
    let excess = 128 - magnitude.leading_zeros() as i32 - 24;
    let field = large.1 - apart + excess;
    let significand = match excess > 0 {
        true => magnitude >> excess | u128::from(magnitude % (1 << excess) > 0),
        false => magnitude << -excess,
    };
    let unsigned = match field {
        ..=0 => 0.0,
        255.. => f32::INFINITY,
        _ => f32::from_bits((field as u32) << 23 | significand as u32 & 0x7f_ffff),
    };
    if sum < 0 { -unsigned } else { unsigned }
}

/// The product of numbers in bf16 by `bfdot`, which double precision holds.
fn product_in_doubles(a: u32, b: u32) -> f32 {
    let flushed = |x: f64| if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 * x } else { x };
    let [a, b] = [a, b].map(|number| flushed(f64::from(f32::from_bits(number << 16))));
    flushed(a * b) as f32
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Sums of near exponents lie between two numbers for the most part.
    #[test]
    fn the_twin_of_bfdot_is_its_definition(any_bits in any::<[u32; 3]>(), is_near in any::<bool>()) {
        let [sum, a, b] = any_bits;
        let near = |bits: u32, kept: u32, exponent: u32| if is_near { bits & kept | exponent } else { bits };
        let sum = f32::from_bits(near(sum, 0x87ff_ffff, 0x3800_0000));
        let [a, b] = [a, b].map(|word| near(word, 0x87ff_87ff, 0x3800_3800));
        let products = sum_in_integers(product_in_doubles(a, b), product_in_doubles(a >> 16, b >> 16));
        prop_assert_eq!(bits(&[portable::bfdot(sum, a, b)]), bits(&[sum_in_integers(sum, products)]));
    }
}

#[test]
fn packing_has_the_same_bits_everywhere() {
    for (rows, columns) in [(1usize, 1usize), (2, 16), (3, 17), (31, 33), (32, 32), (40, 167), (0, 5)] {
        let place = PanelStride { start: PANEL, stride: (rows + 1) * PANEL };
        let from = specials(rows as u32, PANEL + columns.div_ceil(PANEL) * place.stride);
        let packed = |isa: Bf16Isa, kind: usize| {
            let to_place = PanelStride { start: PANEL, stride: (rows.max(columns) + 4 * PANEL) * PANEL };
            let mut to =
                vec![7.0; PANEL + 2 * columns.max(rows).next_multiple_of(PAIRED_PANEL) / PANEL * to_place.stride];
            let (from, mut to_view) = (View(&from, place), ViewMut(&mut to, to_place));
            match kind {
                0 => super::rows(isa, rows, columns, from, &mut to_view),
                1 => pairs(isa, rows, columns.div_ceil(PANEL), from, &mut to_view),
                _ => transposed_pairs(isa, rows, columns, from, &mut to_view),
            }
            to.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        for (isa, kind) in Bf16Isa::all().into_iter().flat_map(|isa| (0..3).map(move |kind| (isa, kind))) {
            assert_eq!(packed(isa, kind), packed(Bf16Isa::all()[0], kind), "{}: {rows} {columns} {kind}", isa.name());
        }
    }
}

#[test]
fn transposed_operands_multiply_as_columns() {
    let (rows, columns, panels) = (45, 37, 3);
    let place = |columns: usize| PanelStride { start: 0, stride: columns * PANEL };
    let (a, d) = (numbers("a", 3 * rows * PANEL), numbers("d", panels * rows * PANEL));
    for isa in Bf16Isa::all() {
        let mut transposed = vec![f32::NAN; 2 * 48 * PANEL];
        let mut b = vec![f32::NAN; panels * padded_words(rows) * PANEL];
        transposed_pairs(isa, rows, columns, View(&a, place(rows)), &mut ViewMut(&mut transposed, place(48)));
        pairs(isa, rows, panels, View(&d, place(rows)), &mut ViewMut(&mut b, place(padded_words(rows))));
        let mut sums = vec![1.0; panels * columns * PANEL];
        let (start, transposed) = (Start::Result, View(&transposed, place(48)));
        let product = PanelProduct { rows: columns, depth: rows, panels, start, a: transposed, b: &b };
        super::product(isa, product, &mut ViewMut(&mut sums, place(columns)), PanelOrder::Ascending);
        for (j, gate) in (0..columns).flat_map(|j| (0..panels * PANEL).map(move |gate| (j, gate))) {
            let term = |row| rounded(at(View(&a, place(rows)), row, j)) * rounded(at(View(&d, place(rows)), row, gate));
            let exact = 1.0 + (0..rows).map(term).sum::<f64>();
            let own = f64::from(at(View(&sums, place(columns)), j, gate));
            assert!((own - exact).abs() < 1e-5, "{}: column {j}, gate {gate}", isa.name());
        }
    }
}

/// How the operands of a product of blocks lie: a and b row-major or in panels, transposed or not.
#[derive(Clone, Copy, Debug)]
struct Layout {
    in_panels: bool,
    is_transposed: bool,
}

/// `values` [rows, columns] of a product's operand as it lies.
struct Laid {
    values: Vec<f32>,
    shape: [usize; 2],
    layout: Layout,
}

impl Laid {
    fn new(values: impl Fn(usize) -> Vec<f32>, rows: usize, columns: usize, layout: Layout) -> Self {
        let shape = if layout.is_transposed { [columns, rows] } else { [rows, columns] };
        let len = (shape[0] + 1) * (shape[1] + 1).next_multiple_of(PANEL);
        Laid { values: values(len), shape, layout }
    }

    fn place(&self) -> PanelStride {
        PanelStride { start: PANEL, stride: self.shape[0] * PANEL }
    }

    fn operand(&self) -> Operand<'_> {
        let [rows, columns] = self.shape;
        let operand = match self.layout.in_panels {
            true => Operand::panels(rows, columns, View(&self.values, self.place())),
            false => Operand::rows(rows, columns, columns + 1, &self.values),
        };
        if self.layout.is_transposed { operand.transposed() } else { operand }
    }

    fn at(&self, row: usize, column: usize) -> f32 {
        let (row, column) = if self.layout.is_transposed { (column, row) } else { (row, column) };
        match self.layout.in_panels {
            true => at(View(&self.values, self.place()), row, column),
            false => self.values[row * (self.shape[1] + 1) + column],
        }
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    (any::<bool>(), any::<bool>()).prop_map(|(in_panels, is_transposed)| Layout { in_panels, is_transposed })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The tolerance is that of `products_are_those_of_the_loops`.
    #[test]
    fn products_of_blocks_are_those_of_the_loops_and_of_their_twins_to_the_bit(
        (rows, depth, columns) in (0usize..140, 1usize..300, 1usize..140),
        (layout_a, layout_b) in (layouts(), layouts()),
        begin in 0usize..4,
    ) {
        let a = Laid::new(|len| numbers("a", len), rows, depth, layout_a);
        let b = Laid::new(|len| numbers("b", len), depth, columns, layout_b);
        let panels = columns.div_ceil(PANEL);
        let place = PanelStride { start: 0, stride: (rows + 1) * PANEL };
        let (in_panels, in_rows) = (numbers("c", panels * place.stride), numbers("c", rows * columns));
        let row = numbers("row", panels * PANEL);
        let start = [Start::Zero, Start::Row(&row), Start::Rows(View(&in_panels, place)), Start::Result][begin];
        let products = |isa: Bf16Isa| {
            let (mut panels, mut rows) = (in_panels.clone(), in_rows.clone());
            multiply_panels(isa, a.operand(), b.operand(), start, &mut ViewMut(&mut panels, place));
            multiply_rows(isa, a.operand(), b.operand(), &mut rows);
            (panels, rows)
        };
        let hardware = Bf16Isa::all().into_iter().filter(|isa| !isa.is_twin());
        for isa in hardware.chain(Bf16Isa::all().into_iter().filter(|_| rows * depth * columns < 100_000)) {
            let (panels, row_major) = products(isa);
            if let Some(twin) = isa.twin().filter(|_| rows * depth * columns < 100_000) {
                let (expected_panels, expected_rows) = products(twin);
                prop_assert_eq!(bits(&panels), bits(&expected_panels), "{}", isa.name());
                prop_assert_eq!(bits(&row_major), bits(&expected_rows), "{}", isa.name());
            }
            for (r, column) in (0..rows).flat_map(|r| (0..columns).map(move |column| (r, column))) {
                let term = |k| rounded(a.at(r, k)) * rounded(b.at(k, column));
                let exact = (0..depth).map(term).sum::<f64>();
                let first = match begin {
                    0 => 0.0,
                    1 => row[column],
                    _ => at(View(&in_panels, place), r, column),
                };
                let apart = f64::from(at(View(&panels, place), r, column)) - f64::from(first) - exact;
                prop_assert!(apart.abs() < 1e-6 * (depth as f64 + 1.0), "{}, in panels", isa.name());
                let place = r * columns + column;
                let apart = f64::from(row_major[place]) - f64::from(in_rows[place]) - exact;
                prop_assert!(apart.abs() < 1e-6 * (depth as f64 + 1.0), "{}, in rows", isa.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every sum rounds once a term, by less than a unit in the last place of a partial sum below
    /// depth / 4 + 1; the operands are rounded before.
    #[test]
    fn products_are_those_of_the_loops(
        rows in 0usize..70, depth in 1usize..300, panels in 0usize..12, gap in 0usize..3, begin in 0usize..4,
    ) {
        let case = Case::new(Shape { rows, depth, panels }, gap, |len| numbers("matrix", len));
        let row = numbers("row", panels * PANEL);
        let start = [Start::Zero, Start::Row(&row), Start::Rows(View(&case.c, case.place(rows))), Start::Result][begin];
        for isa in Bf16Isa::all() {
            let c = case.product(isa, start);
            for (r, column) in (0..rows).flat_map(|r| (0..panels * PANEL).map(move |column| (r, column))) {
                let first = match begin {
                    0 => 0.0,
                    1 => row[column],
                    _ => at(View(&case.c, case.place(rows)), r, column),
                };
                let term = |k| rounded(at(case.a(), r, k)) * rounded(at(case.b(), k, column));
                let exact = f64::from(first) + (0..depth).map(term).sum::<f64>();
                let own = f64::from(at(View(&c, case.place(rows)), r, column));
                prop_assert!((own - exact).abs() < 1e-6 * (depth as f64 + 1.0), "{}", isa.name());
            }
        }
    }
}
