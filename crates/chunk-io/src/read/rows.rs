use std::ops::Range;

/// Selected rows of the first axis, in the order of the caller's memory.
#[derive(Clone, Debug)]
pub(crate) enum RowSelection<'a> {
    Range(Range<usize>),
    Ranges(&'a [Range<usize>]),
    List(&'a [usize]),
}

impl RowSelection<'_> {
    /// The rows as runs of consecutive ones.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let (ranges, mut list): (_, &[usize]) = match self {
            RowSelection::Range(rows) => (std::slice::from_ref(rows), &[]),
            RowSelection::Ranges(ranges) => (*ranges, &[]),
            RowSelection::List(rows) => (&[][..], rows),
        };
        let runs = std::iter::from_fn(move || {
            let first = *list.first()?;
            let len = list.iter().enumerate().take_while(|&(k, &row)| row == first + k).count();
            list = &list[len..];
            Some(first..first + len)
        });
        ranges.iter().filter(|rows| !rows.is_empty()).cloned().chain(runs)
    }
}

/// Cuts rows at the multiples of `unit`.
pub(crate) fn cut(rows: Range<usize>, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let mut first = rows.start;
    std::iter::from_fn(move || {
        let end = rows.end.min((first / unit + 1).saturating_mul(unit));
        let piece = first..end;
        first = end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Splits the next `len` values off the caller's memory.
pub(crate) fn take<'a>(left: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    left.split_off_mut(..len).expect("the caller's memory holds exactly the rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_consecutive_rows() {
        let cases: [(RowSelection<'_>, &[(usize, usize)]); 6] = [
            (RowSelection::Range(3..9), &[(3, 9)]),
            (RowSelection::Ranges(&[7..9, 4..4, 2..8]), &[(7, 9), (2, 8)]),
            (RowSelection::Range(3..3), &[]),
            (RowSelection::List(&[]), &[]),
            (RowSelection::List(&[4, 5, 6, 6, 7, 2, 0]), &[(4, 7), (6, 8), (2, 3), (0, 1)]),
            (RowSelection::List(&[9, 8]), &[(9, 10), (8, 9)]),
        ];
        for (rows, expected) in cases {
            let found: Vec<_> = rows.runs().map(|run| (run.start, run.end)).collect();
            assert_eq!(found, expected, "{rows:?}");
        }
    }

    #[test]
    fn cuts_are_at_multiples() {
        let cuts = |rows, unit| cut(rows, unit).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>();
        assert_eq!(cuts(5..17, 6), [(5, 6), (6, 12), (12, 17)]);
        assert_eq!(cuts(6..12, 6), [(6, 12)]);
        assert_eq!(cuts(6..6, 6), []);
        assert_eq!(cuts(6..8, usize::MAX), [(6, 8)]);
    }
}
