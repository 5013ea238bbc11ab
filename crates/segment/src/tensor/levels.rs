//! Long segments in pieces.

/// Rows that are reduced one after the other. A longer segment is cut into pieces of as many, and
/// the results of the pieces are the rows of another reduction: that is what several threads share,
/// and what rounding errors grow with.
pub(crate) const PIECE: u32 = 512;

/// The offsets of each reduction, the last of which leaves one row a segment; none where no segment
/// is longer than a piece.
pub(crate) fn levels(offsets: &[u32]) -> Vec<Vec<u32>> {
    let has_long = |offsets: &[u32]| offsets.windows(2).any(|segment| segment[1] - segment[0] > PIECE);
    if !has_long(offsets) {
        return Vec::new();
    }
    let (mut levels, mut whole) = (Vec::new(), offsets.to_vec());
    while has_long(&whole) {
        let (pieces, segment_pieces) = pieces(&whole);
        levels.push(pieces);
        whole = segment_pieces;
    }
    levels.push(whole);
    levels
}

/// The offsets of the pieces, and of the segments in pieces. An empty segment has one, which is
/// empty.
fn pieces(offsets: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut pieces, mut segment_pieces) = (vec![offsets[0]], vec![0]);
    for segment in offsets.windows(2) {
        let ends = (segment[0]..segment[1]).step_by(PIECE as usize).skip(1);
        pieces.extend(ends.chain([segment[1]]));
        segment_pieces.push(pieces.len() as u32 - 1);
    }
    (pieces, segment_pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_segments_are_cut_until_no_piece_is_long() {
        assert_eq!(levels(&[0]), Vec::<Vec<u32>>::new());
        assert_eq!(levels(&[0, 0, PIECE, 2 * PIECE]), Vec::<Vec<u32>>::new());
        assert_eq!(levels(&[0, PIECE + 1, PIECE + 1]), [vec![0, PIECE, PIECE + 1, PIECE + 1], vec![0, 2, 3]]);
        let deep = levels(&[0, PIECE * PIECE + 1]);
        assert_eq!(deep.iter().map(|level| level.len() - 1).collect::<Vec<_>>(), [PIECE as usize + 1, 2, 1]);
    }
}
