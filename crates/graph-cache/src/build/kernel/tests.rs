//! Every instruction set of this CPU against loops of a few lines in double precision.

use proptest::prelude::*;

use super::*;

/// Numbers in [-1, 1) that look random: the golden ratio's multiplicative hash of their index.
fn numbers(len: usize, seed: u32) -> Vec<f64> {
    let hash = |k: u32| (k.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8) as f64;
    (0..len as u32).map(|k| hash(k) / f64::from(1 << 23) - 1.0).collect()
}

proptest! {
    #[test]
    fn scores_are_those_of_the_loops(pairs in 0usize..4, depth in 0usize..70, seed in any::<u32>()) {
        let columns = pairs * COLUMNS_TOGETHER;
        let panels: Vec<f32> = numbers(columns * depth, seed).into_iter().map(|x| x as f32).collect();
        let start: Vec<f32> = numbers(columns, seed ^ 1).into_iter().map(|x| x as f32).collect();
        let at = |row: usize, t: usize| f64::from(panels[(row / PANEL * depth + t) * PANEL + row % PANEL]);
        for (isa, panel) in Isa::all().into_iter().flat_map(|isa| (0..columns / PANEL).map(move |panel| (isa, panel))) {
            let mut to = vec![f32::NAN; PANEL * columns];
            scores(isa, &panels, depth, panel, &start, &mut to);
            for (place, found) in to.iter().enumerate() {
                let (row, column) = (panel * PANEL + place / columns, place % columns);
                let product = (0..depth).map(|t| at(row, t) * at(column, t)).sum::<f64>() + f64::from(start[column]);
                // Each of depth sums rounds by half a unit in the last place of a number up to
                // depth + 1.
                let off = (f64::from(*found) - product).abs();
                prop_assert!(off <= 6e-8 * (depth as f64 + 1.0).powi(2), "{isa:?}: {row}, {column}");
            }
        }
    }

    #[test]
    fn large_numbers_are_found(panels in 0usize..6, limit in -1.2f32..1.2, seed in any::<u32>()) {
        let mut row: Vec<f32> = numbers(panels * PANEL, seed).into_iter().map(|x| x as f32).collect();
        for (place, special) in [f32::NAN, f32::NEG_INFINITY, limit, f32::INFINITY].into_iter().enumerate() {
            if let Some(x) = row.get_mut(7 * place) {
                *x = special;
            }
        }
        let expected: Vec<u32> = (0..row.len() as u32).filter(|&place| row[place as usize] >= limit).collect();
        for isa in Isa::all() {
            let mut to = vec![u32::MAX; row.len()];
            let found = at_least(isa, &row, limit, &mut to);
            prop_assert_eq!(&to[..found], &expected, "{:?}", isa);
        }
    }

    #[test]
    fn the_kth_of_groups_is_that_of_a_sort(
        groups in 1usize..4, more in 0usize..5, share in 0.0f64..1.0, seed in any::<u32>(),
    ) {
        let (groups, columns) = (groups * PANEL, (groups + more) * PANEL);
        let k = 1 + (share * groups as f64) as usize;
        // Few values, so that many are equal.
        let row: Vec<f32> = numbers(columns, seed).into_iter().map(|x| (9.0 * x).round() as f32).collect();
        let largest = |group: usize| row.iter().skip(group).step_by(groups).copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sorted: Vec<f32> = (0..groups).map(largest).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for isa in Isa::all() {
            prop_assert_eq!(kth_group(isa, &row, k, &mut vec![f32::NAN; groups]), sorted[k - 1], "{:?}", isa);
        }
    }

    #[test]
    fn exact_measures_are_the_same_bits_for_every_instruction_set(
        count in 1usize..14, blocks in 0usize..6, seed in any::<u32>(),
    ) {
        let stride = blocks * LANES;
        let rows = numbers(count * stride, seed);
        let columns: Vec<u32> = (0..count as u32).rev().collect();
        for measure in [RowMeasure::Product, RowMeasure::SquaredDistance] {
            let bits_on = |isa| {
                let mut to = vec![f64::NAN; count];
                between(isa, measure, &rows, stride, 0, &columns, &mut to);
                to.into_iter().map(f64::to_bits).collect::<Vec<_>>()
            };
            let bits = bits_on(Isa::best());
            for isa in Isa::all() {
                prop_assert_eq!(bits_on(isa), &bits[..], "{:?}", isa);
            }
            for (&column, bits) in columns.iter().zip(bits) {
                let term = |t: usize| match (rows[t], rows[column as usize * stride + t], measure) {
                    (x, y, RowMeasure::Product) => x * y,
                    (x, y, RowMeasure::SquaredDistance) => (x - y) * (x - y),
                };
                let loops = (0..stride).map(term).sum::<f64>();
                prop_assert!((f64::from_bits(bits) - loops).abs() <= 1e-15 * (stride as f64 + 1.0).powi(2));
            }
        }
    }
}

#[test]
#[should_panic(expected = "33 columns are no pairs of panels")]
fn columns_are_pairs_of_panels() {
    scores(Isa::best(), &[0.0; 33], 1, 0, &[0.0; 33], &mut [0.0; 33 * PANEL]);
}

#[test]
#[should_panic(expected = "16 columns")]
fn places_have_room() {
    at_least(Isa::best(), &[0.0; 16], 0.0, &mut [0; 15]);
}
