//! The course of memory over time: who held how much, and what was reserved.

use megabatch_gpu_core::recording::Level;
use megabatch_gpu_core::snapshot::Snapshot;

use super::palette::Palette;
use crate::plan::bytes;
use crate::report::chart::{Area, Areas, Axis, Words};

/// A picture of the snapshot's timeline.
pub(super) fn course(snapshot: &Snapshot) -> Areas {
    let timeline = &snapshot.timeline;
    let palette = Palette::of(snapshot);
    let mut levels: Vec<&Level> = Vec::new();
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
        let held = |level: &&Level| own.iter().filter_map(|&k| level.owners_bytes.get(k)).sum::<usize>();
        let held: Vec<usize> = levels.iter().map(held).collect();
        let text = format!("{name}: {} at most", bytes(held.iter().copied().max().unwrap_or(0)));
        Area { name, color, heights: held.into_iter().map(|size| size as f64 / 1e6).collect(), text }
    };
    let second = |level: &&Level| level.time_us.saturating_sub(timeline.start_us) as f64 / 1e6;
    Areas {
        words: Words {
            title: "Allocated over time".to_owned(),
            description: "Megabytes by owner, stacked, and reserved; of each stretch of time its highest moment."
                .to_owned(),
        },
        x: Axis::number("seconds"),
        y: Axis::number("MB").with_zero(),
        xs: levels.iter().map(second).collect(),
        areas: palette.entries().into_iter().map(area).collect(),
        line: ("reserved".to_owned(), levels.iter().map(|level| level.reserved_bytes as f64 / 1e6).collect()),
    }
}
