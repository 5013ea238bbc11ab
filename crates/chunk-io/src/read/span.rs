use super::file::FileExtent;

/// Bytes of one read: large enough for a disk's full rate, small enough to be in the CPU's cache
/// when they are processed.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Holes up to this size are read too: a page is the least that comes from a disk.
const HOLE_BYTES_MAX: u64 = 4096;

/// A task that is read in one piece.
pub(super) trait Extended {
    /// Extent in the file; `None` for a task that is not read, or not in one piece.
    fn extent(&self) -> Option<FileExtent>;
    /// True if it is worth a call of its own.
    fn is_large(&self) -> bool;
}

/// Pieces that are read by one call.
#[derive(Debug)]
pub(super) struct ReadSpan<T> {
    /// From the first byte of the pieces to the last.
    pub(super) extent: Option<FileExtent>,
    pub(super) pieces: Vec<T>,
}

/// Puts pieces in the order of the file, and those together that are small and lie close to each
/// other.
pub(super) fn spans<T: Extended>(mut pieces: Vec<T>) -> Vec<ReadSpan<T>> {
    pieces.sort_by_key(|piece| piece.extent().map(|extent| extent.offset));
    let mut spans: Vec<ReadSpan<T>> = Vec::new();
    let mut open = false;
    for piece in pieces {
        let extent = piece.extent();
        let small = extent.is_some() && !piece.is_large();
        let joined = spans.last().and_then(|span| span.extent).zip(extent).map(|(span, extent)| {
            let end = span.end().max(extent.end());
            (
                extent.offset <= span.end() + HOLE_BYTES_MAX,
                FileExtent { offset: span.offset, bytes: (end - span.offset) as usize },
            )
        });
        match (joined, spans.last_mut()) {
            (Some((true, together)), Some(span)) if open && small && together.bytes <= BLOCK_BYTES => {
                span.extent = Some(together);
                span.pieces.push(piece);
            }
            _ => spans.push(ReadSpan { extent, pieces: vec![piece] }),
        }
        open = small;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Piece(Option<FileExtent>, bool);

    impl Extended for Piece {
        fn extent(&self) -> Option<FileExtent> {
            self.0
        }
        fn is_large(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn small_neighbours_are_read_together() {
        let small = |offset, bytes| Piece(Some(FileExtent { offset, bytes }), false);
        let large = |offset, bytes| Piece(Some(FileExtent { offset, bytes }), true);
        let far = HOLE_BYTES_MAX + 11;
        /// Pieces, and offset, bytes and pieces of each span.
        type Case<'a> = (Vec<Piece>, &'a [(u64, usize, usize)]);
        let cases: [Case<'_>; 6] = [
            (vec![], &[]),
            (vec![small(10, 5), small(0, 10)], &[(0, 15, 2)]),
            (vec![small(0, 10), small(0, 10), small(2, 3)], &[(0, 10, 3)]),
            (vec![small(0, 10), small(far, 1)], &[(0, 10, 1), (far, 1, 1)]),
            (vec![small(0, 9), large(9, 9), small(18, 9), small(27, 1)], &[(0, 9, 1), (9, 9, 1), (18, 10, 2)]),
            (vec![small(0, 9), small(9, BLOCK_BYTES)], &[(0, 9, 1), (9, BLOCK_BYTES, 1)]),
        ];
        for (pieces, expected) in cases {
            let name = format!("{pieces:?}");
            let found: Vec<_> =
                spans(pieces).into_iter().map(|span| (span.extent.unwrap(), span.pieces.len())).collect();
            let found: Vec<_> = found.into_iter().map(|(extent, count)| (extent.offset, extent.bytes, count)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_in_one_piece_stays_alone() {
        let pieces =
            vec![Piece(None, false), Piece(Some(FileExtent { offset: 0, bytes: 1 }), false), Piece(None, false)];
        assert_eq!(spans(pieces).iter().map(|span| span.pieces.len()).collect::<Vec<_>>(), [1, 1, 1]);
    }
}
