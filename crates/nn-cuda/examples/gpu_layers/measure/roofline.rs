//! Lower bound of a step's time by docs/measurements/gpu.md, and its prediction by a count of
//! clocks.

use megabatch_gpu_core::cuda::Properties;
use serde::Serialize;

use super::Case;

/// Microseconds of a step, forward and with the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) forward_us: f64,
    pub(crate) both_us: f64,
}

/// A card whose rates are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    /// Its name has this in it.
    name: &'static str,
    bytes_per_s: f64,
    /// Peak of products in 16 bits with sums in f32.
    operations_per_s: f64,
    /// True if its multiprocessors have the rates that the predictions were counted with.
    is_predicted: bool,
    multiprocessors: u32,
}

/// The rates of H200 and H100 were measured; the RTX 4080's are those of its data sheet.
const CARDS: [Card; 3] = [
    Card { name: "H200", bytes_per_s: 4.3e12, operations_per_s: 790e12, is_predicted: true, multiprocessors: 132 },
    Card {
        name: "H100 80GB HBM3",
        bytes_per_s: 3.0e12,
        operations_per_s: 775e12,
        is_predicted: true,
        multiprocessors: 132,
    },
    Card { name: "RTX 4080", bytes_per_s: 717e9, operations_per_s: 97.5e12, is_predicted: false, multiprocessors: 76 },
];

/// Clock of the multiprocessors that the predictions are for.
const CLOCKS_PER_US: f64 = 1755.0;

/// Clocks of a step, forward and backward, by a count of instructions and accesses: those of a tile
/// of 8 windows, and those that a group of blocks waits besides.
struct Clocks {
    tile: [f64; 2],
    waiting: f64,
    /// Blocks that work on the same windows, and how many of them a multiprocessor holds.
    blocks: u32,
    resident: u32,
}

impl Card {
    /// The card of these properties, if its rates are known.
    pub(crate) fn for_device(properties: &Properties) -> Option<Self> {
        let card = CARDS.into_iter().find(|card| properties.name.contains(card.name))?;
        Some(Card { multiprocessors: properties.multiprocessors, ..card })
    }

    /// The larger of operations and bytes over the card's rates.
    pub(crate) fn floor(&self, case: &Case) -> Times {
        Times { forward_us: self.least_us(case, 8.0, 14.0), both_us: self.least_us(case, 24.0, 52.0) }
    }

    /// Least time of so many H² B operations and H B bytes a layer.
    fn least_us(&self, case: &Case, operations: f64, bytes: f64) -> f64 {
        let (hidden, numbers) = (case.hidden as f64, (case.hidden * case.batch) as f64);
        let seconds = (operations * hidden * numbers / self.operations_per_s).max(bytes * numbers / self.bytes_per_s);
        case.layers as f64 * seconds * 1e6
    }

    /// Times by [`Clocks`], for the widths and cards that were counted; dW_hh and sums by bar at
    /// the floor's rate.
    pub(crate) fn predicted(&self, case: &Case) -> Option<Times> {
        let clocks = match case.hidden {
            128 => Clocks { tile: [1550.0, 1100.0], waiting: 0.0, blocks: 1, resident: 1 },
            256 => Clocks { tile: [820.0, 690.0], waiting: 980.0, blocks: 8, resident: 2 },
            512 => Clocks { tile: [1070.0, 940.0], waiting: 980.0, blocks: 16, resident: 1 },
            _ => return None,
        };
        let groups = (self.multiprocessors * clocks.resident / clocks.blocks).max(1) as usize;
        let tiles = case.batch.div_ceil(8).div_ceil(groups) as f64;
        let [forward_us, backward_us] =
            clocks.tile.map(|tile| case.layers as f64 * (clocks.waiting + tiles * tile) / CLOCKS_PER_US);
        let both_us = forward_us + backward_us + self.least_us(case, 8.0, 18.0);
        self.is_predicted.then_some(Times { forward_us, both_us })
    }
}

#[cfg(test)]
mod tests {
    use megabatch_amp::Precision;

    use super::*;

    fn case(hidden: usize, batch: usize) -> Case {
        Case { hidden, layers: 1, features: 16, batch, steps: 9, precision: Precision::Bf16, budget_s: 0.0 }
    }

    /// Checks the floor of a case, forward and both, to the hundredths.
    fn check_floor(card: Card, case: &Case, floor_us: (f64, f64)) {
        let (forward_us, both_us) = floor_us;
        let found = card.floor(case);
        assert!((found.forward_us - forward_us).abs() < 0.006, "{card:?}, {case:?}: {found:?}");
        assert!((found.both_us - both_us).abs() < 0.006, "{card:?}, {case:?}: {found:?}");
    }

    /// Floors of docs/measurements/gpu.md, "Roofline".
    #[test]
    fn an_h100_has_the_floors_of_the_document() {
        let [_, h100, _] = CARDS;
        check_floor(h100, &case(128, 64), (0.04, 0.14));
        check_floor(h100, &case(128, 2048), (1.22, 4.54));
    }

    /// H, B, floors of an H200 and an RTX 4080, forward and both, as counted by hand; and the
    /// H200's forward time by the clocks.
    #[test]
    fn floors_and_predictions_are_those_counted_by_hand() {
        let [h200, _, rtx_4080] = CARDS;
        for (hidden, batch, h200_floor, rtx_4080_floor, predicted_us) in [
            (128, 64, (0.03, 0.10), (0.16, 0.59), 0.9),
            (128, 4096, (1.71, 6.34), (10.24, 38.02), 3.5),
            (256, 512, (0.43, 1.59), (2.75, 9.51), 1.5),
            (512, 64, (0.17, 0.51), (1.38, 4.13), 1.2),
            (512, 4096, (10.87, 32.62), (88.10, 264.31), 40.0),
        ] {
            let case = case(hidden, batch);
            check_floor(h200, &case, h200_floor);
            check_floor(rtx_4080, &case, rtx_4080_floor);
            let found = h200.predicted(&case).unwrap().forward_us;
            assert!((found / predicted_us - 1.0).abs() < 0.06, "{case:?}: {found} for {predicted_us}");
            assert_eq!(rtx_4080.predicted(&case), None);
        }
    }
}
