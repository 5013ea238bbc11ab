//! Overlap of windows: the rows that they share, compared bit for bit.

/// Form of a timeframe's windows in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowForm {
    /// Length of a window in bars, T.
    pub(super) steps: usize,
    /// Bytes of a bar.
    pub(super) row_bytes: usize,
}

impl WindowForm {
    pub(super) fn bytes(&self) -> usize {
        self.steps * self.row_bytes
    }

    pub(super) fn row<'a>(&self, window: &'a [u8], step: usize) -> &'a [u8] {
        &window[step * self.row_bytes..(step + 1) * self.row_bytes]
    }

    /// True if `later` is `earlier` shifted by `shift` bars: all common rows are equal.
    fn continues(&self, earlier: &[u8], later: &[u8], shift: usize) -> bool {
        let moved = shift * self.row_bytes;
        earlier[moved..] == later[..later.len() - moved]
    }

    /// Number of bars, fewer than T, by which `later` is shifted from `earlier`: the first of
    /// `likely` that fits, or else the least that does.
    pub(super) fn shift(&self, earlier: &[u8], later: &[u8], likely: &[usize]) -> Option<usize> {
        let holds = |&&shift: &&usize| shift < self.steps && self.continues(earlier, later, shift);
        likely.iter().find(holds).copied().or_else(|| self.least_shift(earlier, later))
    }

    /// T less the longest beginning of `later` that `earlier` ends with, found as by Knuth, Morris
    /// and Pratt (1977) in a time that grows with T, however alike the rows are.
    fn least_shift(&self, earlier: &[u8], later: &[u8]) -> Option<usize> {
        let pattern = |step| self.row(later, step);
        let mut border = vec![0; self.steps];
        let mut length = 0;
        for step in 1..self.steps {
            while length > 0 && pattern(step) != pattern(length) {
                length = border[length - 1];
            }
            length += usize::from(pattern(step) == pattern(length));
            border[step] = length;
        }
        let mut matched = 0;
        for step in 0..self.steps {
            let row = self.row(earlier, step);
            while matched > 0 && (matched == self.steps || row != pattern(matched)) {
                matched = border[matched - 1];
            }
            matched += usize::from(row == pattern(matched));
        }
        (matched > 0).then(|| self.steps - matched)
    }

    /// First step of `later` that differs, if `later`, shifted by `shift` bars, shares most but not
    /// all of the rows that it should share with `earlier`. Rows that repeat the one before them,
    /// such as padding, do not count.
    pub(super) fn near_miss(&self, earlier: &[u8], later: &[u8], shift: usize) -> Option<usize> {
        let (mut equal, mut told, mut first) = (0, 0, None);
        for step in 0..self.steps.saturating_sub(shift) {
            let same = self.row(later, step) == self.row(earlier, step + shift);
            let repeats = |window, step: usize| step > 0 && self.row(window, step) == self.row(window, step - 1);
            if repeats(later, step) && repeats(earlier, step + shift) {
                continue;
            }
            told += 1;
            equal += usize::from(same);
            first = first.or((!same).then_some(step));
        }
        first.filter(|_| told >= 3 && equal * 2 > told)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROWS: WindowForm = WindowForm { steps: 4, row_bytes: 1 };

    #[test]
    fn the_likely_shift_comes_first_and_the_least_otherwise() {
        type Case<'a> = (&'a [u8; 4], &'a [u8; 4], &'a [usize], Option<usize>);
        let cases: [Case<'_>; 9] = [
            (b"abcd", b"bcde", &[], Some(1)),
            (b"abcd", b"abcd", &[1], Some(0)),
            (b"abcd", b"defg", &[1, 9], Some(3)),
            (b"abcd", b"efgh", &[], None),
            (b"xxxx", b"xxxx", &[], Some(0)),
            (b"xxxx", b"xxxx", &[2, 1], Some(2)),
            (b"xxxx", b"xxxx", &[7, 1], Some(1)),
            (b"axax", b"axab", &[], Some(2)),
            (b"aaab", b"aabc", &[], Some(1)),
        ];
        for (earlier, later, likely, expected) in cases {
            assert_eq!(ROWS.shift(earlier, later, likely), expected, "{earlier:?} {later:?} {likely:?}");
        }
    }

    #[test]
    fn windows_that_nearly_overlap_are_told_from_those_that_do_not() {
        let form = WindowForm { steps: 6, row_bytes: 1 };
        type Case<'a> = (&'a [u8; 6], &'a [u8; 6], usize, Option<usize>);
        let cases: [Case<'_>; 6] = [
            (b"abcdef", b"bcXefg", 1, Some(2)),
            (b"abcdef", b"abcdeX", 0, Some(5)),
            (b"abcdef", b"uvwxyz", 1, None),
            (b"abcdef", b"bcdefg", 1, None),
            // Padding at the start of another instrument: one zero row is all that they share.
            (b"00000a", b"00000b", 0, None),
            (b"abcdef", b"uvwxyz", 9, None),
        ];
        for (earlier, later, shift, expected) in cases {
            assert_eq!(form.near_miss(earlier, later, shift), expected, "{earlier:?} {later:?}");
        }
    }

    proptest! {
        #[test]
        fn the_least_shift_is_the_one_that_trying_all_finds(
            steps in 1_usize..7, row_bytes in 1_usize..3, seed in prop::collection::vec(0_u8..2, 24)
        ) {
            let form = WindowForm { steps, row_bytes };
            let (earlier, later) = (&seed[..form.bytes()], &seed[12..12 + form.bytes()]);
            let tried = (0..steps).find(|&shift| form.continues(earlier, later, shift));
            prop_assert_eq!(form.shift(earlier, later, &[]), tried);
        }
    }
}
