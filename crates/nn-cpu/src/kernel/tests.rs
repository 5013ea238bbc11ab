//! Every instruction set of this CPU against loops of a few lines in double precision.

use megabatch_nn::model::{Cell, Dropout};
use megabatch_order::random::{Stream, uniform};
use proptest::prelude::*;

use super::*;

fn numbers(name: &str, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform(Stream { seed: 3, name }, i) as f32 - 0.5).collect()
}

/// Row `row`, column `column` of a panel-major matrix.
fn at(matrix: View<'_>, row: usize, column: usize) -> f64 {
    let View(values, place) = matrix;
    f64::from(values[place.start + column / PANEL * place.stride + row * PANEL + column % PANEL])
}

/// `start` + Σ of the products, rounded once a term: what an instruction set with fused
/// multiply-adds gives to the bit.
fn fused(start: f64, products: impl Iterator<Item = (f64, f64)>) -> f64 {
    f64::from(products.fold(start as f32, |sum, (a, b)| (a as f32).mul_add(b as f32, sum)))
}

fn is_fused(isa: Isa) -> bool {
    isa.name() != "portable"
}

/// The gates' functions of each of `x`, through a step of one window whose cell state begins as
/// zero: (sigmoid, tanh).
fn functions(isa: Isa, x: [f32; PANEL]) -> ([f32; PANEL], [f32; PANEL]) {
    let mut gates = x.repeat(4);
    let place = PanelStride { start: 0, stride: PANEL };
    let (mut cell, mut hidden) = ([0.0; 2 * PANEL], [0.0; 2 * PANEL]);
    let states = StatesMut { hidden: ViewMut(&mut hidden, place), cell: ViewMut(&mut cell, place) };
    forward(isa, Cell::Lstm, 1, &mut ViewMut(&mut gates, place), states, Prefetch::Nothing);
    let gate = |gate: usize| std::array::from_fn(|i| gates[gate * PANEL + i]);
    (gate(0), gate(2))
}

/// The distance in units in the last place of single precision at `exact`.
fn ulps(got: f32, exact: f64) -> f64 {
    let nearest = (exact as f32).abs().max(f32::MIN_POSITIVE);
    (f64::from(got) - exact).abs() / f64::from(nearest.next_up() - nearest)
}

fn check_functions(isa: Isa, x: [f32; PANEL]) {
    let (sigmoids, tanhs) = functions(isa, x);
    for ((x, sigmoid), tanh) in x.into_iter().zip(sigmoids).zip(tanhs) {
        let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
        if x < -87.3 {
            assert!(f64::from(sigmoid) <= exact * 1.001 + 1e-44, "{isa:?}: sigmoid({x}) is {sigmoid}");
        } else {
            assert!(ulps(sigmoid, exact) <= 4.0, "{isa:?}: sigmoid({x}) is {sigmoid}, not {exact}");
        }
        let exact = f64::from(x).tanh();
        assert!(ulps(tanh, exact) <= 4.0, "{isa:?}: tanh({x}) is {tanh}, not {exact}");
        assert_eq!(tanh.is_sign_negative(), x.is_sign_negative(), "{isa:?}: tanh({x}) is {tanh}");
    }
}

#[test]
fn the_functions_are_exact_to_four_units_over_their_whole_range() {
    for isa in Isa::all() {
        for block in 0..40_000 {
            // Evenly over -100..100, and by magnitude from 1e-38 to 1e38.
            check_functions(isa, std::array::from_fn(|i| (block * 16 + i) as f32 * (200.0 / 640_000.0) - 100.0));
            let power = |i: usize| 10f32.powf((block * 16 + i) as f32 * (75.0 / 640_000.0) - 37.5);
            check_functions(isa, std::array::from_fn(|i| if i % 2 == 0 { power(i) } else { -power(i) }));
        }
    }
}

#[test]
fn infinities_saturate_and_nan_stays() {
    for isa in Isa::all() {
        let x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, f32::MAX, f32::MIN];
        let (sigmoid, tanh) = functions(isa, std::array::from_fn(|i| x[i % x.len()]));
        assert_eq!((sigmoid[0], sigmoid[1], sigmoid[3], sigmoid[5], sigmoid[6]), (0.0, 1.0, 0.5, 1.0, 0.0), "{isa:?}");
        assert_eq!((tanh[0], tanh[1], tanh[3], tanh[5], tanh[6]), (-1.0, 1.0, 0.0, 1.0, -1.0), "{isa:?}");
        assert!(sigmoid[2].is_nan() && tanh[2].is_nan(), "{isa:?}");
    }
}

proptest! {
    /// Every sum rounds once a term, by half a unit in the last place of a partial sum below depth
    /// / 4 + 1.
    #[test]
    fn products_are_those_of_the_loops(
        rows in 0usize..40, depth in 1usize..400, panels in 0usize..12, first in 0usize..3, gap in 0usize..3, begin in 0usize..3,
    ) {
        let place = |rows: usize| PanelStride { start: first * PANEL, stride: (rows + gap) * PANEL };
        let len = |panels: usize, rows: usize| (first + panels * (rows + gap)) * PANEL;
        let a = numbers("a", len(depth.div_ceil(PANEL), rows));
        let b = numbers("b", panels * depth * PANEL);
        let start = numbers("start", panels * PANEL);
        let starts = numbers("starts", len(panels, rows));
        let before = numbers("c", len(panels, rows));
        for isa in Isa::all() {
            let mut c = before.clone();
            let from = [Start::Result, Start::Row(&start), Start::Rows(View(&starts, place(rows)))][begin];
            let a = View(&a, place(rows));
            let product = PanelProduct { rows, depth, panels, start: from, a, b: &b };
            product_with(isa, product, &mut ViewMut(&mut c, place(rows)), PanelOrder::for_step(rows), PrefetchRows::default());
            let (c, before) = (View(&c, place(rows)), View(&before, place(rows)));
            let b = View(&b, PanelStride { start: 0, stride: depth * PANEL });
            for (row, column) in (0..rows).flat_map(|row| (0..panels * PANEL).map(move |column| (row, column))) {
                let start = match from {
                    Start::Zero => 0.0,
                    Start::Result => at(before, row, column),
                    Start::Row(start) => f64::from(start[column]),
                    Start::Rows(starts) => at(starts, row, column),
                };
                let exact = start + (0..depth).map(|k| at(a, row, k) * at(b, k, column)).sum::<f64>();
                prop_assert!((at(c, row, column) - exact).abs() < 1e-6 * (depth as f64 + 1.0), "{:?}", isa);
                let terms = (0..depth).map(|k| (at(a, row, k), at(b, k, column)));
                prop_assert!(!is_fused(isa) || at(c, row, column) == fused(start, terms), "{:?}", isa);
            }
        }
    }

    #[test]
    fn outer_products_are_those_of_the_loops(
        rows in prop_oneof![0usize..60, 120usize..260], columns in 1usize..70, panels in 0usize..5, first in 0usize..3, gap in 0usize..3,
    ) {
        let place = PanelStride { start: first * PANEL, stride: (rows + gap) * PANEL };
        let len = |panels: usize| (first + panels * (rows + gap)) * PANEL;
        let (a, d) = (numbers("a", len(columns.div_ceil(PANEL))), numbers("d", len(panels)));
        let before = numbers("c", panels * columns * PANEL);
        for isa in Isa::all() {
            let mut c = before.clone();
            let (a, d) = (View(&a, place), View(&d, place));
            outer(isa, rows, columns, panels, a, d, &mut c);
            let sums = PanelStride { start: 0, stride: columns * PANEL };
            for (j, column) in (0..columns).flat_map(|j| (0..panels * PANEL).map(move |column| (j, column))) {
                let exact = (0..rows).map(|row| at(a, row, j) * at(d, row, column)).sum::<f64>();
                let (start, sum) = (at(View(&before, sums), j, column), at(View(&c, sums), j, column));
                prop_assert!((sum - (start + exact)).abs() < 1e-6 * (rows as f64 + 1.0), "{:?}", isa);
                let terms = (0..rows).map(|row| (at(a, row, j), at(d, row, column)));
                prop_assert!(!is_fused(isa) || sum == fused(start, terms), "{:?}", isa);
            }
        }
    }

    #[test]
    fn outer_products_of_rows_in_places_are_those_of_rows_in_one_to_the_bit(
        lens in prop::collection::vec(prop_oneof![4 => 0usize..9, 1 => 120usize..300], 0..50), columns in 1usize..40, panels in 0usize..5,
    ) {
        let rows: usize = lens.iter().sum();
        let place = PanelStride { start: 0, stride: rows * PANEL };
        let (a, d) = (numbers("a", columns.div_ceil(PANEL) * rows * PANEL), numbers("d", panels * rows * PANEL));
        let before = numbers("c", panels * columns * PANEL);
        // Some of the rows, with others between their panels.
        let apart = |values: &[f32], panels: usize, first: usize, len: usize| {
            let at = PanelStride { start: PANEL, stride: (len + 3) * PANEL };
            let mut own = vec![f32::NAN; at.start + panels * at.stride];
            for panel in 0..panels {
                let from = &values[place.panel(panel).row(first).start..][..len * PANEL];
                own[at.panel(panel).start..][..len * PANEL].copy_from_slice(from);
            }
            (own, at)
        };
        let mut first = 0;
        let places: Vec<_> = lens.iter().map(|&len| {
            let both = (len, apart(&a, columns.div_ceil(PANEL), first, len), apart(&d, panels, first, len));
            first += len;
            both
        }).collect();
        let factors: Vec<_> = places.iter().map(|(rows, (a, a_at), (d, d_at))| {
            FactorRows { rows: *rows, a: View(a, *a_at), d: View(d, *d_at) }
        }).collect();
        let prefetch: Vec<_> = factors.iter().map(|factor| PanelRows::new(factor.d, panels, factor.rows)).collect();
        for isa in Isa::all() {
            let (mut expected, mut found) = (before.clone(), before.clone());
            outer(isa, rows, columns, panels, View(&a, place), View(&d, place), &mut expected);
            outer_of(isa, columns, panels, &factors, &prefetch, &mut found);
            prop_assert_eq!(&found, &expected, "{:?}", isa);
        }
    }
}

#[test]
fn rows_are_added_to_those_of_a_place() {
    let (from, to) = (PanelStride { start: PANEL, stride: 4 * PANEL }, PanelStride { start: 0, stride: 5 * PANEL });
    let (terms, before) = (numbers("terms", 12 * PANEL), numbers("sums", 15 * PANEL));
    for (isa, rows) in Isa::all().into_iter().flat_map(|isa| [0, 1, 3].map(|rows| (isa, rows))) {
        let mut sums = before.clone();
        add_rows(isa, rows, 2, View(&terms, from), &mut ViewMut(&mut sums, to.row(1)));
        for (at, (sum, before)) in sums.iter().zip(&before).enumerate() {
            let (panel, row) = (at / (5 * PANEL), at / PANEL % 5);
            let is_in = panel < 2 && (1..1 + rows).contains(&row);
            let term = if is_in { terms[from.panel(panel).row(row - 1).start + at % PANEL] } else { 0.0 };
            assert_eq!(*sum, before + term, "{isa:?}: number {at}, {rows} rows");
        }
    }
}

/// Every instruction set with every cell and the number of panels of its gates.
fn cells_of_each_isa() -> impl Iterator<Item = (Isa, Cell, usize)> {
    let cells = CELLS.map(|kind| (kind, GateLayout::new(kind).panels));
    Isa::all().into_iter().flat_map(move |isa| cells.map(|(kind, panels)| (isa, kind, panels)))
}

const CELLS: [Cell; 2] = [Cell::Lstm, Cell::Gru];

#[test]
fn gates_and_cell_states_come_again_to_the_bit() {
    let all = cells_of_each_isa().flat_map(|case| [0, 1, 5, 32].map(|rows| (case, rows)));
    for ((isa, kind, panels), rows) in all {
        let place = |rows: usize| PanelStride { start: PANEL, stride: (rows + 1) * PANEL };
        let projected = numbers("gates", (panels * (rows + 1) + 1) * PANEL);
        let (mut gates, mut cell) = (projected.clone(), numbers("cell", (2 * rows + 1) * PANEL));
        let (mut gates_again, mut cell_again) = (projected, cell.clone());
        let mut hidden = numbers("hidden", (2 * rows + 1) * PANEL);
        let states =
            StatesMut { hidden: ViewMut(&mut hidden, place(2 * rows)), cell: ViewMut(&mut cell, place(2 * rows)) };
        forward(isa, kind, rows, &mut ViewMut(&mut gates, place(rows)), states, Prefetch::NextStep);
        activate(isa, kind, rows, &mut ViewMut(&mut gates_again, place(rows)));
        if kind.has_cell_state() {
            let to = &mut ViewMut(&mut cell_again, place(2 * rows));
            cells(isa, kind, rows, View(&gates_again, place(rows)), to);
        }
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&gates_again), bits(&gates), "{isa:?}: gates of {rows} rows of {kind:?}");
        assert_eq!(bits(&cell_again), bits(&cell), "{isa:?}: cell states of {rows} rows of {kind:?}");
    }
}

#[test]
fn steps_of_all_units_are_those_of_each_to_the_bit() {
    for ((isa, kind, panels), rows) in cells_of_each_isa().flat_map(|case| [0, 1, 3].map(|rows| (case, rows))) {
        let (units, start) = (3, PANEL);
        let place = |rows: usize| PanelStride { start, stride: (rows + 1) * PANEL };
        let numbers = |name, panels: usize, rows: usize| numbers(name, start + panels * (rows + 1) * PANEL);
        let states = |name| numbers(name, units, 2 * rows);
        let before = [numbers("gates", panels * units, rows), states("hidden"), states("cell")];
        let [mut gates, mut hidden, mut cell] = before.clone();
        for unit in 0..units {
            let mut gates = ViewMut(&mut gates, place(rows).panel(panels * unit));
            let [hidden, cell] = [&mut hidden, &mut cell].map(|states| ViewMut(states, place(2 * rows).panel(unit)));
            forward(isa, kind, rows, &mut gates, StatesMut { hidden, cell }, Prefetch::Nothing);
        }
        let each = [gates, hidden, cell];
        let [mut gates, mut hidden, mut cell] = before;
        let [all_hidden, all_cells] = [&mut hidden, &mut cell].map(|states| ViewMut(states, place(2 * rows)));
        let states = StatesMut { hidden: all_hidden, cell: all_cells };
        forward_units(isa, kind, units, rows, &mut ViewMut(&mut gates, place(rows)), states);
        assert_eq!([gates, hidden, cell], each, "{isa:?}, {rows} rows of {kind:?}");
    }
}

#[test]
fn gradients_of_gates_are_added_up_or_take_their_place_to_the_bit() {
    let all = cells_of_each_isa().flat_map(|case| [0, 1, 5, 32].map(|rows| (case, rows)));
    for ((isa, kind, count), rows) in all {
        let place = |rows: usize| PanelStride { start: PANEL, stride: (rows + 1) * PANEL };
        let panels = |name: &str, panels: usize, rows: usize| numbers(name, (panels * (rows + 1) + 1) * PANEL);
        let (gates, d_hidden) = (panels("gates", count, rows), panels("d", 1, rows));
        let [hidden, cell] = ["hidden", "cell"].map(|name| panels(name, 1, 2 * rows));
        let step = |gates, prefetch| Step {
            gates,
            hidden: View(&hidden, place(2 * rows)),
            cell: View(&cell, place(2 * rows)),
            d_hidden: View(&d_hidden, place(rows)),
            prefetch,
        };
        let backward = |sums: Option<&mut [f32]>| {
            let prefetch = if sums.is_some() { Prefetch::NextStep } else { Prefetch::Nothing };
            let (mut d_skip, mut d_gates) = (panels("d_skip", 1, rows), panels("d_gates", count, rows));
            let to = CellGradients {
                d_skip: ViewMut(&mut d_skip, place(rows)),
                d_gates: ViewMut(&mut d_gates, place(rows)),
                sums: sums.map(|sums| ViewMut(sums, place(rows))),
            };
            cell_backward(isa, kind, rows, step(Some(View(&gates, place(rows))), prefetch), to);
            (d_skip, d_gates)
        };
        let (mut d_skip_in_place, mut in_place) = (panels("d_skip", 1, rows), gates.clone());
        let to = CellGradients {
            d_skip: ViewMut(&mut d_skip_in_place, place(rows)),
            d_gates: ViewMut(&mut in_place, place(rows)),
            sums: None,
        };
        cell_backward(isa, kind, rows, step(None, Prefetch::Nothing), to);
        let before = panels("sums", count, rows);
        let mut sums = before.clone();
        let (d_skip, d_gates) = backward(None);
        assert_eq!(d_skip_in_place, d_skip, "{isa:?}: {rows} rows of {kind:?} in place");
        assert_eq!(backward(Some(&mut sums)), (d_skip, d_gates.clone()), "{isa:?}: {rows} rows of {kind:?}");
        for at in 0..sums.len() {
            // One row lies between the panels, and one panel's before the first.
            let is_row = at >= PANEL && (at / PANEL - 1) % (rows + 1) < rows;
            let expected = if is_row { before[at] + d_gates[at] } else { before[at] };
            assert_eq!(sums[at], expected, "{isa:?}: number {at} of the sums of {rows} rows of {kind:?}");
            let expected = if is_row { d_gates[at] } else { gates[at] };
            assert_eq!(in_place[at], expected, "{isa:?}: number {at} of {rows} rows of {kind:?} in place");
        }
    }
}

#[test]
fn masks_are_drawn_as_the_scalar_function_draws_them() {
    let mask = Dropout::for_step(0.3, 7, 9).unwrap().mask("M1", 1);
    let ends = [5, 0, (1 << 33) + 17];
    for (first_unit, steps) in [(0, 0..8), (48, 8..13), (16, 3..4), (0, 0..0), (32, 6..11)] {
        for isa in Isa::all() {
            let mut factors = vec![f32::NAN; (1 + steps.len() * ends.len()) * PANEL];
            let place = PanelStride { start: PANEL, stride: 0 };
            draw(isa, mask, first_unit, steps.clone(), &ends, &mut ViewMut(&mut factors, place));
            let mut rows = factors[PANEL..].chunks_exact(PANEL);
            for t in steps.clone() {
                for (end, row) in ends.into_iter().zip(&mut rows) {
                    let expected: [f32; PANEL] = std::array::from_fn(|i| mask.factor(end, t, first_unit + i) as f32);
                    assert_eq!(row, expected, "{isa:?}: end {end}, step {t}, units from {first_unit} on");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "2 panels of 3 rows")]
fn slices_that_are_too_short_are_refused() {
    let (a, b, place) = ([0.0; 48], [0.0; 32], PanelStride { start: 0, stride: 48 });
    let mut c = [0.0; 95];
    let operands = PanelProduct { rows: 3, depth: 1, panels: 2, start: Start::Result, a: View(&a, place), b: &b };
    product(Isa::best(), operands, &mut ViewMut(&mut c, place));
}
