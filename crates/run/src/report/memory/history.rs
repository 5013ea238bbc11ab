//! The course of memory over time: who held how much, and what was reserved.

use megabatch_gpu_core::snapshot::{MemoryLevel, Snapshot};

use super::palette::Palette;
use crate::report::chart::{Area, Areas, Axis, Words};
use crate::text::bytes;

/// A picture of the snapshot's timeline.
pub(super) fn history(snapshot: &Snapshot) -> Areas {
    let timeline = &snapshot.timeline;
    let palette = Palette::from_snapshot(snapshot);
    let mut levels: Vec<&MemoryLevel> = Vec::new();
    for span in &timeline.spans {
        levels.extend([&span.entry, &span.peak]);
    }
    if !levels.is_empty() {
        levels.push(&timeline.now);
    }
    let area = |(color, name): (usize, String)| {
        // Owners without a colour of their own are drawn as one.
        let own: Vec<usize> =
            (0..timeline.owners.len()).filter(|&k| palette.color(&timeline.owners[k]) == color).collect();
        let held = |level: &&MemoryLevel| own.iter().filter_map(|&k| level.owners_bytes.get(k)).sum::<usize>();
        let held: Vec<usize> = levels.iter().map(held).collect();
        let text = format!("{name}: {} at most", bytes(held.iter().copied().max().unwrap_or(0)));
        Area { name, color, heights: held.into_iter().map(|size| size as f64 / 1e6).collect(), text }
    };
    let second = |level: &&MemoryLevel| level.time_us.saturating_sub(timeline.start_us) as f64 / 1e6;
    Areas {
        words: Words::new(
            "Allocated over time",
            "Megabytes by owner, stacked, and reserved; of each stretch of time its highest moment.",
        ),
        x: Axis::number("seconds"),
        y: Axis::number("MB").with_zero(),
        xs: levels.iter().map(second).collect(),
        areas: palette.entries().into_iter().map(area).collect(),
        line: ("reserved".to_owned(), levels.iter().map(|level| level.reserved_bytes as f64 / 1e6).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::snapshot::TimelineSpan;

    use super::super::fixtures::snapshot;
    use super::*;

    #[test]
    fn owners_without_a_colour_are_drawn_as_one() {
        let level = |seconds: u64, held: &[usize]| MemoryLevel {
            time_us: 5_000_000 + seconds * 1_000_000,
            allocated_bytes: held.iter().sum(),
            reserved_bytes: 40_000_000,
            owners_bytes: held.to_vec(),
        };
        let held: Vec<usize> = (1..=8).map(|k| k * 1_000_000).collect();
        let mut snapshot = snapshot(&[]);
        snapshot.timeline.owners = ["a", "b", "c", "d", "e", "f", "g", "h"].map(Arc::from).to_vec();
        snapshot.timeline.start_us = 5_000_000;
        snapshot.timeline.spans = vec![TimelineSpan { index: 0, entry: level(0, &[]), peak: level(1, &held) }];
        snapshot.timeline.now = level(3, &held[..2]);
        let chart = history(&snapshot);
        assert_eq!(chart.xs, [0.0, 1.0, 3.0]);
        let areas: Vec<_> = chart.areas.iter().map(|area| (area.name.as_str(), area.heights.as_slice())).collect();
        assert_eq!(areas.len(), 7);
        assert_eq!((areas[0], areas[6]), (("h", [0.0, 8.0, 0.0].as_slice()), ("others", [0.0, 3.0, 3.0].as_slice())));
        assert!(chart.areas[6].text.contains("3.00 MB at most"));
        assert_eq!(chart.line.1, [40.0; 3]);
    }
}
