#![forbid(unsafe_code)]

//! The distinct windows of one timeframe among some samples, and the bars that they cover together.

use crate::kernel::{PANEL, Place};

/// The distinct windows of some samples, in the order of their first bars.
#[derive(Debug, Default)]
pub(super) struct Windows {
    steps: usize,
    /// First bar of each distinct window, ascending: a row of the batch.
    starts: Vec<usize>,
    /// What tells each distinct window from those of other batches: see [`BatchView::ends`](crate::view::BatchView::ends).
    ends: Vec<usize>,
    /// The distinct window of each sample.
    of_sample: Vec<usize>,
    /// Where the rows of each window begin, if the bars that the windows cover are laid side by side without repetition.
    offsets: Vec<usize>,
    /// Windows whose offsets follow one another: the first one and their number.
    runs: Vec<(usize, usize)>,
    /// Bars covered.
    bars: usize,
}

impl Windows {
    /// The windows of `steps` bars that begin at the bars `starts` and are known by `ends`, one a sample.
    pub(super) fn set(&mut self, (starts, ends): (&[usize], &[usize]), steps: usize) {
        self.steps = steps;
        self.starts.clear();
        self.starts.extend_from_slice(starts);
        self.starts.sort_unstable();
        self.starts.dedup();
        let index = |start: &usize| self.starts.binary_search(start).expect("every start is among the distinct ones");
        self.of_sample.clear();
        self.of_sample.extend(starts.iter().map(index));
        self.ends.clear();
        self.ends.resize(self.starts.len(), 0);
        self.of_sample.iter().zip(ends).for_each(|(&window, &end)| self.ends[window] = end);
        self.lay_bars();
    }

    fn lay_bars(&mut self) {
        self.offsets.clear();
        self.runs.clear();
        self.bars = 0;
        for (w, &start) in self.starts.iter().enumerate() {
            // A window that begins inside the one before it shares its bars with it.
            let ahead = w.checked_sub(1).map(|before| start - self.starts[before]).filter(|&ahead| ahead < self.steps);
            let offset = ahead.map_or(self.bars, |ahead| self.offsets[w - 1] + ahead);
            match self.runs.last_mut() {
                Some((first, len)) if self.offsets[*first] + *len == offset => *len += 1,
                _ => self.runs.push((w, 1)),
            }
            self.offsets.push(offset);
            self.bars = offset + self.steps;
        }
    }

    /// Number of distinct windows.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Bars in each window.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// What tells the distinct windows from those of other batches.
    pub(super) fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// The distinct window of each sample.
    pub(super) fn of_sample(&self) -> &[usize] {
        &self.of_sample
    }

    /// Bars covered.
    pub(super) fn bars(&self) -> usize {
        self.bars
    }

    /// Whether the windows overlap so much that what is computed bar by bar, once for all windows, is worth its copies.
    pub(super) fn overlap(&self) -> bool {
        2 * self.bars <= self.len() * self.steps
    }

    /// Copies bars [.., width] into panels: the bars covered, for windows that overlap; else those of step after step, window
    /// by window.
    pub(super) fn pack(&self, (bars, width): (&[f32], usize), (to, place): (&mut [f32], Place)) {
        let mut put = |row: usize, bar: usize| {
            for (panel, part) in bars[bar * width..][..width].chunks(PANEL).enumerate() {
                let at = place.row(row).panel(panel).start;
                to[at..at + part.len()].copy_from_slice(part);
            }
        };
        let mut packed = 0;
        for (w, (&start, &offset)) in self.starts.iter().zip(&self.offsets).enumerate() {
            if self.overlap() {
                (packed.max(offset)..offset + self.steps).for_each(|row| put(row, start + row - offset));
                packed = offset + self.steps;
            } else {
                (0..self.steps).for_each(|t| put(t * self.len() + w, start + t));
            }
        }
    }

    /// Rows of all windows at step `t`: from the bars' rows in `by_bar` to consecutive rows, in each panel.
    pub(super) fn read_step(
        &self,
        t: usize,
        panels: usize,
        (by_bar, bars): (&[f32], Place),
        (to, rows): (&mut [f32], Place),
    ) {
        for panel in 0..panels {
            for &(first, len) in &self.runs {
                let from = bars.row(self.offsets[first] + t).panel(panel).start;
                let at = rows.row(first).panel(panel).start;
                to[at..at + len * PANEL].copy_from_slice(&by_bar[from..from + len * PANEL]);
            }
        }
    }

    /// The reverse of [`read_step`](Windows::read_step): adds consecutive rows to the bars' rows, in each panel.
    pub(super) fn add_step(
        &self,
        t: usize,
        panels: usize,
        (rows, from): (&[f32], Place),
        (by_bar, bars): (&mut [f32], Place),
    ) {
        for panel in 0..panels {
            for &(first, len) in &self.runs {
                let at = from.row(first).panel(panel).start;
                let to = bars.row(self.offsets[first] + t).panel(panel).start;
                let terms = &rows[at..at + len * PANEL];
                by_bar[to..to + len * PANEL].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(starts: &[usize], steps: usize) -> Windows {
        let mut windows = Windows::default();
        let ends: Vec<usize> = starts.iter().map(|start| start + 100).collect();
        windows.set((starts, &ends), steps);
        windows
    }

    #[test]
    fn equal_windows_are_one_and_overlapping_ones_share_their_bars() {
        let of = windows(&[7, 5, 7, 20, 6, 5], 4);
        assert_eq!(of.starts, [5, 6, 7, 20]);
        assert_eq!(of.of_sample(), [2, 0, 2, 3, 1, 0]);
        assert_eq!(of.ends(), [105, 106, 107, 120]);
        assert_eq!((of.offsets.as_slice(), of.bars()), (&[0, 1, 2, 6][..], 10));
        assert_eq!(of.runs, [(0, 3), (3, 1)]);
        assert!(!of.overlap());
        assert!(windows(&[0, 1, 2, 3], 4).overlap());
        // Windows that only touch share nothing.
        assert_eq!(windows(&[0, 4], 4).bars(), 8);
    }

    #[test]
    fn bars_are_packed_read_and_added_by_window() {
        let place = Place { start: 0, stride: 20 * PANEL };
        let bars: Vec<f32> = (0..60).map(|x| x as f32).collect();
        for starts in [&[2, 3, 4, 5][..], &[2, 9, 16]] {
            let of = windows(starts, 4);
            let mut x = vec![0.0; 40 * PANEL];
            of.pack((&bars, 3), (&mut x, place));
            for (w, start) in starts.iter().enumerate() {
                for t in 0..4 {
                    let row = if of.overlap() { of.offsets[w] + t } else { t * of.len() + w };
                    assert_eq!(x[row * PANEL..][..3], bars[(start + t) * 3..][..3], "{starts:?}");
                }
            }
            if of.overlap() {
                let mut rows = vec![0.0; 40 * PANEL];
                of.read_step(1, 2, (&x, place), (&mut rows, place));
                assert_eq!(rows[2 * PANEL], bars[5 * 3]);
                let mut sums = vec![0.0; 40 * PANEL];
                of.add_step(1, 2, (&rows, place), (&mut sums, place));
                assert_eq!(sums[3 * PANEL], bars[5 * 3]);
            }
        }
    }
}
