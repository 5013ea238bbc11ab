//! The distinct windows of one timeframe among some samples, and the bars that they cover together.

use std::ops::Range;

/// The distinct windows of some samples, in the order of their first bars.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Bars in each; for dense training, in the longest.
    steps: usize,
    /// Bars that a sample's window has, the last of those.
    sample_steps: usize,
    /// First bar of each distinct window, ascending: a row of the batch.
    starts: Vec<usize>,
    /// Identity of each distinct window: see
    /// [`BatchView::ends`](crate::batch::BatchView::ends).
    ends: Vec<usize>,
    /// The distinct window of each sample, and the step at which the sample's ends.
    sample_positions: Vec<(usize, usize)>,
    /// The same, ascending and each once, and the place there of what each sample reads.
    read: Vec<(usize, usize)>,
    read_of_sample: Vec<usize>,
    /// Starts of each window's rows, if the bars that the windows cover are laid side by side
    /// without repetition.
    offsets: Vec<usize>,
    /// Windows whose offsets follow one another: the first one and their number.
    runs: Vec<(usize, usize)>,
    /// Bars covered.
    bars: usize,
    /// True if what is computed bar by bar, once for all windows, is worth its copies: where they
    /// cover at most half as many bars as they have together.
    overlap: bool,
}

impl Windows {
    /// The windows of `steps` bars that begin at the bars `starts` and are known by `ends`, one a
    /// sample. With `runs`, the numbers of samples that follow one another, those of each run
    /// become one: from the first bar of its first to the last bar of its last.
    pub fn set(&mut self, starts: &[usize], ends: &[usize], steps: usize, runs: &[usize]) {
        let mut firsts: Vec<usize> = (0..starts.len()).collect();
        let mut rest = firsts.as_mut_slice();
        for &len in runs {
            let (run, others) = rest.split_at_mut(len);
            run.fill(run[0]);
            rest = others;
        }
        self.sample_steps = steps;
        self.steps =
            starts.iter().zip(&firsts).map(|(start, &first)| start - starts[first] + steps).max().unwrap_or(steps);
        self.starts.clear();
        self.starts.extend(firsts.iter().map(|&first| starts[first]));
        self.starts.sort_unstable();
        self.starts.dedup();
        let index = |start: usize| self.starts.binary_search(&start).expect("every start is among the distinct ones");
        self.sample_positions.clear();
        let places = starts.iter().zip(&firsts);
        self.sample_positions
            .extend(places.map(|(start, &first)| (index(starts[first]), start - starts[first] + steps - 1)));
        self.read.clone_from(&self.sample_positions);
        self.read.sort_unstable();
        self.read.dedup();
        let index = |at| self.read.binary_search(at).expect("what every sample reads is among what is read");
        self.read_of_sample.clear();
        self.read_of_sample.extend(self.sample_positions.iter().map(index));
        self.ends.clear();
        self.ends.resize(self.starts.len(), 0);
        // A run is known by the end of its first window.
        self.sample_positions.iter().zip(&firsts).for_each(|(&(window, _), &first)| self.ends[window] = ends[first]);
        // Ascending, so that the last sample of a window is the one that ends last.
        let mut lens = vec![0; self.starts.len()];
        self.read.iter().for_each(|&(window, last)| lens[window] = last + 1);
        self.lay_bars(|window| lens[window]);
    }

    /// Has every window go on to so many steps, of which nobody reads those that are added. They
    /// share those bars too.
    pub fn go_on_to(&mut self, steps: usize) {
        assert!(steps >= self.steps, "windows that are read to their end");
        self.steps = steps;
        self.lay_bars(|_| steps);
    }

    /// Lays the bars of the windows side by side. Samples have the first `len` bars of a window,
    /// which goes on to all its steps.
    fn lay_bars(&mut self, len: impl Fn(usize) -> usize) {
        self.offsets.clear();
        self.runs.clear();
        self.bars = 0;
        // Last bar so far that a sample has, and one.
        let mut covered = 0;
        for (w, &start) in self.starts.iter().enumerate() {
            // A window that begins inside those before it shares its bars with them. The bars that
            // they only go on to are not shared: which ones those are is a matter of what else is
            // in the batch, and a shard's sums are a matter of the shard alone.
            let before = w.checked_sub(1).filter(|_| start < covered);
            let offset = before.map_or(self.bars, |before| self.offsets[before] + start - self.starts[before]);
            covered = covered.max(start + len(w));
            match self.runs.last_mut() {
                Some((first, len)) if self.offsets[*first] + *len == offset => *len += 1,
                _ => self.runs.push((w, 1)),
            }
            self.offsets.push(offset);
            self.bars = offset + self.steps;
        }
        self.overlap = 2 * self.bars <= self.len() * self.steps;
    }

    /// The windows `part` of `whole`, over the bars that all of those cover. Samples are known to
    /// `whole` alone.
    pub fn set_part(&mut self, whole: &Windows, part: &Range<usize>) {
        (self.steps, self.sample_steps, self.bars, self.overlap) =
            (whole.steps, whole.sample_steps, whole.bars, whole.overlap);
        for (own, all) in
            [(&mut self.starts, &whole.starts), (&mut self.ends, &whole.ends), (&mut self.offsets, &whole.offsets)]
        {
            own.clear();
            own.extend_from_slice(&all[part.clone()]);
        }
        self.runs.clear();
        let clipped = whole.runs.iter().map(|&(first, len)| (first.max(part.start), (first + len).min(part.end)));
        self.runs
            .extend(clipped.filter(|(first, end)| first < end).map(|(first, end)| (first - part.start, end - first)));
    }

    /// Windows whose bars follow one another: the first one, their number, and the row of the bar
    /// that the first one has at step `t`.
    #[inline]
    pub fn runs_at(&self, t: usize) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        self.runs.iter().map(move |&(first, len)| (first, len, self.offsets[first] + t))
    }

    /// Number of distinct windows.
    #[inline]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if there is no window.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// First bar of each distinct window, ascending: a row of the batch.
    #[inline]
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Bars in each window.
    #[inline]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Identity of the distinct windows.
    #[inline]
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Bars in the window of a sample, the last of those of the distinct one.
    #[inline]
    pub fn sample_steps(&self) -> usize {
        self.sample_steps
    }

    /// The distinct window of each sample, and the step at which the sample's ends.
    #[inline]
    pub fn sample_positions(&self) -> &[(usize, usize)] {
        &self.sample_positions
    }

    /// Reads of samples, ascending: distinct windows and the steps at which samples' windows end,
    /// which are the last ones where each sample's window is a sequence of its own.
    #[inline]
    pub fn read(&self) -> &[(usize, usize)] {
        &self.read
    }

    /// The place in [`Windows::read`] of what each sample reads.
    #[inline]
    pub fn read_of_sample(&self) -> &[usize] {
        &self.read_of_sample
    }

    /// Bars covered.
    #[inline]
    pub fn bars(&self) -> usize {
        self.bars
    }

    /// The row of each distinct window's first bar, if the bars covered are laid side by side
    /// without repetition.
    #[inline]
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The rows of the batch that are covered, in this order, each once.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let mut laid = 0;
        self.starts.iter().zip(&self.offsets).flat_map(move |(&start, &offset)| {
            let first = laid.max(offset) - offset;
            laid = offset + self.steps;
            (first..self.steps).map(move |bar| start + bar)
        })
    }

    /// Reads of the windows at `steps`: windows whose bars follow one another, and the bars that
    /// they read there together.
    #[inline]
    pub fn bars_of(&self, steps: &Range<usize>) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        self.runs.iter().map(|&(first, len)| {
            let bar = self.offsets[first];
            (first..first + len, bar + steps.start..bar + steps.end + len - 1)
        })
    }

    /// True if the windows overlap so much that what is computed bar by bar is worth its copies.
    #[inline]
    pub fn overlap(&self) -> bool {
        self.overlap
    }

    /// The first of the bars' rows at step `t`, where those of all windows follow one another.
    #[inline]
    pub fn rows_in_step(&self, t: usize) -> Option<usize> {
        match self.runs[..] {
            [(first, _)] => Some(self.offsets[first] + t),
            _ => None,
        }
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
    fn equal_windows_are_one_and_overlapping_ones_share_their_bars() {
        let distinct = windows(&[7, 5, 7, 20, 6, 5], 4);
        assert_eq!(distinct.starts, [5, 6, 7, 20]);
        assert_eq!(distinct.sample_positions(), [2, 0, 2, 3, 1, 0].map(|window| (window, 3)));
        assert_eq!(distinct.ends(), [105, 106, 107, 120]);
        assert_eq!((distinct.offsets.as_slice(), distinct.bars()), (&[0, 1, 2, 6][..], 10));
        assert_eq!(distinct.runs, [(0, 3), (3, 1)]);
        assert!(!distinct.overlap());
        assert!(windows(&[0, 1, 2, 3], 4).overlap());
        // Windows that only touch share nothing.
        assert_eq!(windows(&[0, 4], 4).bars(), 8);
    }

    #[test]
    fn runs_share_the_bars_of_samples_whatever_lies_between_them() {
        // A run of two samples and one of four, in a batch with nothing or two bars between them.
        let laid = |between: usize| {
            let starts = [0, 1, 5 + between, 6 + between, 7 + between, 8 + between];
            let mut distinct = Windows::default();
            distinct.set(&starts, &starts, 4, &[2, 4]);
            (distinct.steps(), distinct.offsets.clone(), distinct.bars(), distinct.overlap())
        };
        assert_eq!(laid(0), (7, vec![0, 7], 14, false));
        assert_eq!(laid(2), laid(0));
        // The third begins within the first, past the second.
        let mut distinct = Windows::default();
        distinct.set(&[0, 1, 2, 3, 4, 1, 6], &[0, 1, 2, 3, 4, 1, 6], 3, &[5, 1, 1]);
        assert_eq!((distinct.offsets.as_slice(), distinct.bars()), (&[0, 1, 6][..], 13));
    }

    #[test]
    fn windows_that_go_on_share_more_bars() {
        let mut distinct = windows(&[2, 6, 14], 4);
        assert_eq!((distinct.offsets.as_slice(), distinct.bars()), (&[0, 4, 8][..], 12));
        distinct.go_on_to(6);
        assert_eq!((distinct.steps(), distinct.offsets.as_slice(), distinct.bars()), (6, &[0, 4, 10][..], 16));
        assert_eq!(distinct.rows().collect::<Vec<_>>(), (2..12).chain(14..20).collect::<Vec<_>>());
        assert_eq!(distinct.sample_positions(), [(0, 3), (1, 3), (2, 3)]);
    }
}
