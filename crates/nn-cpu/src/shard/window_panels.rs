//! Bars and sums of distinct windows in panels.

use std::ops::Range;

use megabatch_nn::batch::Windows;

use crate::kernel::{self, Isa, PANEL, PanelStride, View, ViewMut};

/// Copies bars [.., width] into panels: those of the bars covered that are rows `rows` of them.
pub(super) fn pack_bars(
    windows: &Windows,
    rows: &Range<usize>,
    bars: &[f32],
    width: usize,
    to: &mut [f32],
    place: PanelStride,
) {
    let mut packed = rows.start;
    for (&start, &offset) in windows.starts().iter().zip(windows.offsets()) {
        for row in packed.max(offset)..rows.end.min(offset + windows.steps()) {
            put(bar_of(bars, width, start + row - offset), to, place.row(row - rows.start));
            packed = row + 1;
        }
    }
}

/// Copies bars [.., width] into panels: those of step after step of `steps`, window by window.
pub(super) fn pack_steps(
    windows: &Windows,
    steps: &Range<usize>,
    bars: &[f32],
    width: usize,
    to: &mut [f32],
    place: PanelStride,
) {
    for (w, &start) in windows.starts().iter().enumerate() {
        for t in steps.clone() {
            put(bar_of(bars, width, start + t), to, place.row((t - steps.start) * windows.len() + w));
        }
    }
}

/// Rows of all windows at step `t`: from the bars' rows in `per_bar_gates` to consecutive rows, in
/// each panel.
pub(super) fn read_step(
    windows: &Windows,
    t: usize,
    panels: usize,
    per_bar_gates: &[f32],
    bars: PanelStride,
    to: &mut [f32],
    rows: PanelStride,
) {
    for panel in 0..panels {
        for (first, len, bar) in windows.runs_at(t) {
            let from = bars.row(bar).panel(panel).start;
            let at = rows.row(first).panel(panel).start;
            to[at..at + len * PANEL].copy_from_slice(&per_bar_gates[from..from + len * PANEL]);
        }
    }
}

/// The reverse of [`read_step`]: adds consecutive rows to the bars' rows, in each panel.
pub(super) fn add_step(
    windows: &Windows,
    isa: Isa,
    t: usize,
    panels: usize,
    rows: View<'_>,
    per_bar_gates: &mut [f32],
    bars: PanelStride,
) {
    for (first, len, bar) in windows.runs_at(t) {
        let terms = View(rows.0, rows.1.row(first));
        kernel::add_rows(isa, len, panels, terms, &mut ViewMut(per_bar_gates, bars.row(bar)));
    }
}

/// Bar `bar` of [.., width]. Runs that end before the longest one go on over whatever bars come
/// next, and past the last; nothing is read of that.
fn bar_of(bars: &[f32], width: usize, bar: usize) -> &[f32] {
    let last = bars.len() / width - 1;
    &bars[bar.min(last) * width..][..width]
}

/// Copies a bar into the first row at `place`.
fn put(bar: &[f32], to: &mut [f32], place: PanelStride) {
    // A length that is known when this is compiled saves a call for each panel.
    let (whole, rest) = bar.as_chunks::<PANEL>();
    for (panel, part) in whole.iter().enumerate() {
        to[place.panel(panel).start..][..PANEL].copy_from_slice(part);
    }
    if !rest.is_empty() {
        to[place.panel(whole.len()).start..][..rest.len()].copy_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(starts: &[usize], steps: usize) -> Windows {
        let mut windows = Windows::default();
        let ends: Vec<usize> = starts.iter().map(|start| start + 100).collect();
        windows.set(starts, &ends, steps, &[]);
        windows
    }

    #[test]
    fn some_bars_are_packed_as_all_are() {
        let place = PanelStride { start: 0, stride: 40 * PANEL };
        let bars: Vec<f32> = (0..90).map(|x| x as f32).collect();
        // Equal stretches, windows that touch, and some that lie apart.
        let distinct = windows(&[2, 3, 6, 10, 20], 4);
        let packed = |rows: Range<usize>, row: usize| {
            let mut x = vec![f32::NAN; 40 * PANEL];
            pack_bars(&distinct, &rows, &bars, 3, &mut x, place);
            x[row * PANEL..][..3].to_vec()
        };
        for row in 0..distinct.bars() {
            let expected = packed(0..distinct.bars(), row);
            assert_eq!(expected[0] % 3.0, 0.0, "row {row}");
            for (start, end) in
                [(row, row + 1), (row.saturating_sub(3), distinct.bars()), (row / 4 * 4, row / 4 * 4 + 4)]
            {
                assert_eq!(
                    packed(start..end.min(distinct.bars()), row - start),
                    expected,
                    "row {row} of {start}..{end}"
                );
            }
        }
    }

    #[test]
    fn bars_are_packed_read_and_added_by_window() {
        let place = PanelStride { start: 0, stride: 20 * PANEL };
        let bars: Vec<f32> = (0..60).map(|x| x as f32).collect();
        for starts in [&[2, 3, 4, 5][..], &[2, 9, 16]] {
            let distinct = windows(starts, 4);
            let mut x = vec![0.0; 40 * PANEL];
            if distinct.overlap() {
                pack_bars(&distinct, &(0..distinct.bars()), &bars, 3, &mut x, place);
            } else {
                pack_steps(&distinct, &(0..4), &bars, 3, &mut x, place);
            }
            for (w, start) in starts.iter().enumerate() {
                for t in 0..4 {
                    let row = if distinct.overlap() { distinct.offsets()[w] + t } else { t * distinct.len() + w };
                    assert_eq!(x[row * PANEL..][..3], bars[(start + t) * 3..][..3], "{starts:?}");
                }
            }
            if distinct.overlap() {
                let mut rows = vec![0.0; 40 * PANEL];
                read_step(&distinct, 1, 2, &x, place, &mut rows, place);
                assert_eq!(rows[2 * PANEL], bars[5 * 3]);
                assert_eq!(x[place.row(distinct.rows_in_step(1).unwrap() + 2).start], rows[2 * PANEL]);
                assert_eq!(distinct.bars_of(&(1..3)).collect::<Vec<_>>(), [(0..4, 1..6)]);
                let mut sums = vec![0.0; 40 * PANEL];
                add_step(&distinct, Isa::best(), 1, 2, View(&rows, place), &mut sums, place);
                assert_eq!(sums[3 * PANEL], bars[5 * 3]);
            } else {
                assert_eq!(distinct.rows_in_step(1), None);
                assert_eq!(distinct.bars_of(&(1..3)).collect::<Vec<_>>(), [(0..1, 1..3), (1..2, 5..7), (2..3, 9..11)]);
            }
        }
    }
}
