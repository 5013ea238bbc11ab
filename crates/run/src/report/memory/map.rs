//! The map: every mapped address, whose it is, what is free and what is lent.

use megabatch_gpu_core::snapshot::{Block, BlockState, Segment, SegmentKind, Snapshot};

use super::palette::{FREE, LENT, Palette};
use crate::report::chart::{Axis, Row, Span, Timeline, Words};
use crate::text::bytes;
use crate::text::number::plural;

/// Rows of the largest segment; the others are drawn to its scale.
const ROWS_OF_ONE: u64 = 16;
/// Rows of all of them; of more segments the smallest are left out.
const ROWS_MAX: usize = 40;
/// Blocks that would be narrower than one part in this of a row are drawn together.
const NARROWEST: u64 = 900;

/// A picture of all segments, and a sentence on those that it leaves out, if any.
pub(super) fn map(snapshot: &Snapshot) -> (Timeline, Option<String>) {
    let palette = Palette::from_snapshot(snapshot);
    let largest = snapshot.segments.iter().map(|segment| segment.bytes as u64).max().unwrap_or(1);
    let granule = snapshot.granule_bytes as u64;
    let row_bytes = largest.div_ceil(ROWS_OF_ONE).next_multiple_of(granule);
    let (drawn, left_out) = choose(snapshot, row_bytes);
    let rows = drawn.iter().flat_map(|segment| rows(segment, row_bytes, &palette)).collect();
    let left_out = (left_out.0 > 0).then(|| {
        format!("Not drawn: {}, the smallest, with {} together.", plural(left_out.0, "segment"), bytes(left_out.1))
    });
    let chart = Timeline {
        words: Words::new(
            "Memory map, MB along each row",
            "Mapped memory by address, each block in the colour of its owner.",
        ),
        x: Axis::number("MB"),
        rows,
        legend: legend(snapshot, &palette),
    };
    (chart, left_out)
}

/// The largest segments in order of address, and the number and the bytes of the others.
fn choose(snapshot: &Snapshot, row_bytes: u64) -> (Vec<&Segment>, (usize, usize)) {
    let mut by_size: Vec<&Segment> = snapshot.segments.iter().collect();
    by_size.sort_by_key(|segment| std::cmp::Reverse(segment.bytes));
    let mut rows = 0;
    let fitting = by_size.iter().take_while(|segment| {
        rows += (segment.bytes as u64).div_ceil(row_bytes) as usize;
        rows <= ROWS_MAX
    });
    let count = fitting.count();
    let rest = by_size.split_off(count);
    by_size.sort_by_key(|segment| segment.address);
    (by_size, (rest.len(), rest.iter().map(|segment| segment.bytes).sum()))
}

fn legend(snapshot: &Snapshot, palette: &Palette) -> Vec<(String, String)> {
    let states = [(BlockState::Free, FREE, "free"), (BlockState::Lent, LENT, "in use at another address")];
    let there = states.into_iter().filter(|(state, ..)| snapshot.blocks().any(|block| block.state == *state));
    let entry = |(color, name): (usize, String)| (format!("c{color} block"), name);
    palette.entries().into_iter().chain(there.map(|(_, color, name)| (color, name.to_owned()))).map(entry).collect()
}

/// The rows of one segment, each `row_bytes` long.
fn rows(segment: &Segment, row_bytes: u64, palette: &Palette) -> Vec<Row> {
    let kind = if segment.kind == SegmentKind::Main { "home" } else { "view" };
    let count = (segment.bytes as u64).div_ceil(row_bytes);
    let start = |k: u64| segment.address + k * row_bytes;
    let mut rows: Vec<Row> =
        (0..count).map(|k| Row { name: format!("{kind} {:x}", start(k)), spans: Vec::new() }).collect();
    for part in parts(segment, row_bytes / NARROWEST) {
        let (mut from, to) = (part.from - segment.address, part.to - segment.address);
        while from < to {
            let row = from / row_bytes;
            let end = to.min((row + 1) * row_bytes);
            let at = |offset: u64| (offset - row * row_bytes) as f64 / 1e6;
            let (color, text) = part.seen(palette);
            rows[row as usize].spans.push(Span { from: at(from), to: at(end), color, text });
            from = end;
        }
    }
    rows
}

/// Blocks that are drawn as one.
struct Part<'a> {
    from: u64,
    to: u64,
    /// The largest of them.
    largest: &'a Block,
    blocks: usize,
}

/// The blocks of a segment; neighbours are put together until they have `bytes_min`.
fn parts(segment: &Segment, bytes_min: u64) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for block in &segment.blocks {
        let (bytes, end) = (block.bytes as u64, block.address + block.bytes as u64);
        match parts.last_mut() {
            Some(last) if bytes < bytes_min && last.to - last.from < bytes_min => {
                last.to = end;
                last.blocks += 1;
                if block.bytes > last.largest.bytes {
                    last.largest = block;
                }
            }
            _ => parts.push(Part { from: block.address, to: end, largest: block, blocks: 1 }),
        }
    }
    parts
}

impl Part<'_> {
    /// The number of its colour, and what it says of itself.
    fn seen(&self, palette: &Palette) -> (usize, String) {
        let Part { largest, blocks, .. } = self;
        let owner = largest.owner.as_deref().unwrap_or_default();
        let (color, name) = match largest.state {
            BlockState::Live => (palette.color(owner), owner),
            BlockState::Free => (FREE, "free"),
            BlockState::Lent => (LENT, "in use at another address"),
        };
        let size = bytes((self.to - self.from) as usize);
        let text = match blocks {
            1 => format!("{name}: {size} at {:x}", self.from),
            _ => format!("{blocks} blocks, {size} at {:x}; the largest: {name}", self.from),
        };
        (color, text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{GRANULE, Sketch, snapshot};
    use super::*;

    fn widths(row: &Row) -> f64 {
        row.spans.iter().map(|span| span.to - span.from).sum()
    }

    #[test]
    fn every_byte_is_in_the_picture_once() {
        let blocks = [(3 * GRANULE, "a"), (1000, "b"), (29 * GRANULE - 1000, "-"), (2 * GRANULE, ">")];
        let view = [(GRANULE + 5, "v"), (GRANULE - 5, "-")];
        let (chart, left_out) =
            map(&snapshot(&[(0x1000, SegmentKind::View, &view), (0x10_0000, SegmentKind::Main, &blocks)]));
        assert_eq!(left_out, None);
        let names: Vec<_> = chart.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), 1 + 12, "34 granules at home in rows of 3, the view to the same scale");
        assert_eq!(names[..3], ["view 1000", "home 100000", "home 103000"]);
        assert!(widths(&chart.rows[0]) < widths(&chart.rows[1]));
        let drawn: f64 = chart.rows.iter().map(widths).sum();
        assert!((drawn - 36.0 * GRANULE as f64 / 1e6).abs() < 1e-9, "{drawn}");
        let legend: Vec<_> = chart.legend.iter().map(|(class, name)| (class.as_str(), name.as_str())).collect();
        let expected = [
            ("c0 block", "a"),
            ("c1 block", "v"),
            ("c2 block", "b"),
            ("c7 block", "free"),
            ("c8 block", "in use at another address"),
        ];
        assert_eq!(legend, expected);
    }

    #[test]
    fn blocks_too_small_to_be_seen_are_drawn_together() {
        let mut blocks = vec![(512, "s"); 100_000];
        blocks.push((100_000 * 1536, "large"));
        let (chart, _) = map(&snapshot(&[(0, SegmentKind::Main, &blocks)]));
        let spans: usize = chart.rows.iter().map(|row| row.spans.len()).sum();
        assert!(spans < 8_000, "{spans}");
        assert!(chart.rows[0].spans[0].text.contains("blocks, "), "{}", chart.rows[0].spans[0].text);
        assert!(chart.rows.last().unwrap().spans[0].text.starts_with("large: 154 MB at "));
    }

    #[test]
    fn the_largest_of_many_segments_are_drawn() {
        let small = [(GRANULE, "a")];
        let large = [(2 * GRANULE, "b")];
        let mut segments: Vec<Sketch<'_>> =
            (0..100).map(|k| (k * 0x10_0000, SegmentKind::Main, small.as_slice())).collect();
        segments[50].2 = &large;
        let (chart, left_out) = map(&snapshot(&segments));
        assert_eq!(chart.rows.len(), ROWS_MAX);
        assert!(chart.rows.iter().any(|row| row.spans[0].text.starts_with("b: ")));
        assert_eq!(left_out.unwrap(), "Not drawn: 61 segments, the smallest, with 250 kB together.");
    }

    #[test]
    fn a_pool_that_holds_nothing_has_no_picture() {
        assert!(map(&snapshot(&[])).0.to_file().is_none());
    }
}
