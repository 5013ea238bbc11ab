//! Memory: what the plan promised, what was taken, and what was allocated at each step.

#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
mod history;
mod map;
mod palette;

use megabatch_gpu_core::Device;
use megabatch_gpu_core::snapshot::Snapshot;
use serde_json::Value;

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, Table, paragraph};
use super::learning::points;
use crate::plan::MemoryPlan;
use crate::text::bytes;
use crate::text::number::percent;

/// Memory of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFacts {
    pub(crate) peaks: Peaks,
    /// The memory at its peak, where it was recorded.
    pub(crate) snapshot: Option<Snapshot>,
}

/// The most bytes that a device had allocated, by what they were for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks {
    scopes: Vec<(String, usize)>,
    /// Bytes of the whole device, which may be less than the sum.
    total: usize,
}

/// Parts of the plan, each with the scope that owns its memory.
const PARTS: [(&str, &str); 7] = [
    ("data", "data"),
    ("parameters", "model/parameters"),
    ("gradients", "model/gradients"),
    ("optimizer", "optimizer"),
    ("activations", "activations"),
    ("batches", "batches"),
    ("carried states", "carried"),
];

/// Label of the data that are not booked on the device.
const DATA_OUTSIDE: &str = "data/beside";

impl Peaks {
    /// The peaks of `device` up to now.
    pub(crate) fn read(device: &Device) -> Self {
        let scopes = device.usage_by_scope();
        Peaks {
            scopes: scopes.into_iter().map(|(label, usage)| (label, usage.allocated_bytes_peak)).collect(),
            total: device.usage().allocated_bytes_peak,
        }
    }

    /// Bytes of the whole device.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total
    }

    /// The same with what the data take beside what is booked on the device, from the run's
    /// beginning to its end.
    pub(crate) fn with_data(mut self, beside_bytes: usize) -> Self {
        self.scopes.push((DATA_OUTSIDE.to_owned(), beside_bytes));
        self.total += beside_bytes;
        self
    }

    /// The larger of both, number by number.
    pub(crate) fn raise(&mut self, other: &Peaks) {
        self.total = self.total.max(other.total);
        for (label, bytes) in &other.scopes {
            match self.scopes.iter_mut().find(|(known, _)| known == label) {
                Some((_, most)) => *most = *bytes.max(most),
                None => self.scopes.push((label.clone(), *bytes)),
            }
        }
    }

    /// The peak of a scope and those below it; they peak together.
    fn below(&self, scope: &str) -> usize {
        let is_below =
            |label: &str| label.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.scopes.iter().filter(|(label, _)| is_below(label)).map(|(_, bytes)| bytes).sum()
    }
}

pub(crate) fn section(plan: &MemoryPlan, memory: &MemoryFacts, metrics: &[Value]) -> Section {
    let peaks = &memory.peaks;
    let mut body = paragraph(&totals_text(plan.total_bytes, peaks));
    let megabytes =
        |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> { points.into_iter().map(|(x, y)| (x, y / 1e6)).collect() };
    let allocated = megabytes(points(metrics, "step", "allocated_bytes"));
    let ends = allocated.first().zip(allocated.last()).map(|(first, last)| [first.0, last.0]);
    let planned = ends.into_iter().flatten().map(|x| (x, plan.total_bytes as f64 / 1e6)).collect();
    let chart = Chart {
        words: Words::new(
            "Allocated by step",
            "Megabytes allocated on the device after every step, below the plan's peak.",
        ),
        size: Size::Wide,
        x: Axis::count("optimizer step"),
        y: Axis::number("MB").with_zero(),
        series: vec![
            Series { name: "allocated".to_owned(), mark: Mark::Line, color: 0, points: allocated },
            Series { name: "planned peak".to_owned(), mark: Mark::Line, color: 1, points: planned },
        ],
    };
    body.push_str(&chart.to_html());
    body.push_str(&table(plan, peaks).to_html());
    body.push_str(&leaks(metrics));
    if let Some(snapshot) = &memory.snapshot {
        body.push_str(&pictures(snapshot));
    }
    Section { id: "memory", title: "Memory", body }
}

/// The planned peak and that of the bytes asked for, in words. The pool's snapshot has the latter
/// under the same name, without the data outside the pool; allocated bytes are whole blocks there.
fn totals_text(planned_bytes: usize, peaks: &Peaks) -> String {
    let outside = match peaks.below(DATA_OUTSIDE) {
        0 => String::new(),
        outside => format!(", of which {} are data outside the pool", bytes(outside)),
    };
    let (planned, peak) = (bytes(planned_bytes), bytes(peaks.total));
    format!("Planned before the run: {planned}. Most that the session that wrote this page asked for: {peak}{outside}.")
}

/// The map of `snapshot` as a file of SVG; none where nothing is mapped.
pub(crate) fn map_file(snapshot: &Snapshot) -> Option<String> {
    map::map(snapshot).0.to_file()
}

/// Memory over time, and at its peak.
fn pictures(snapshot: &Snapshot) -> String {
    let totals = &snapshot.totals;
    let mut html = history::history(snapshot).to_html();
    html.push_str(&paragraph(&format!(
        "At its peak, to a hundredth, the pool had reserved {}, of which {} were allocated and {} free. The largest free block had {}: a fragmentation of {}. \
         Allocated bytes include the rounding to whole blocks.",
        bytes(totals.reserved_bytes),
        bytes(totals.allocated_bytes),
        bytes(totals.free_bytes),
        bytes(totals.largest_free_block_bytes),
        percent(totals.fragmentation())
    )));
    let (map, left_out) = map::map(snapshot);
    html.push_str(&map.to_html());
    html.push_str(&left_out.map_or_else(String::new, |sentence| paragraph(&sentence)));
    html
}

/// The warnings of leaks, the last of which names all that grew.
fn leaks(metrics: &[Value]) -> String {
    let Some(leak) = metrics.iter().rev().find(|metric| metric["event"] == "leak") else { return String::new() };
    let size = |value: &Value| bytes(value.as_u64().unwrap_or(0) as usize);
    let row = |grown: &Value| {
        let owner = grown["owner"].as_str().unwrap_or_default().to_owned();
        vec![owner, size(&grown["bytes"]), grown["epochs"].to_string(), size(&grown["bytes_per_epoch"])]
    };
    let warning = format!(
        "Warning: live memory grew from epoch to epoch, by {} up to step {}. A leak looks like this.",
        size(&leak["growth_bytes"]),
        leak["step"]
    );
    let rows = leak["owners"].as_array().into_iter().flatten().map(row);
    paragraph(&warning) + &Table::new("What grew", ["", "growth", "epochs", "an epoch"], rows).to_html()
}

fn table(plan: &MemoryPlan, peaks: &Peaks) -> Table {
    let training = &plan.training;
    let planned = [
        plan.data_bytes,
        training.parameters_bytes,
        training.gradients_bytes,
        training.optimizer_bytes,
        training.activations_bytes,
        training.batches_bytes,
        training.carried_bytes,
    ];
    let row = |((name, scope), planned): (&(&str, &str), usize)| {
        vec![(*name).to_owned(), bytes(planned), bytes(peaks.below(scope))]
    };
    let total = vec!["total".to_owned(), bytes(plan.total_bytes), bytes(peaks.total)];
    let available = vec!["available before the run".to_owned(), bytes(plan.available_bytes), String::new()];
    let rows = PARTS.iter().zip(planned).map(row).chain([total, available]);
    Table::new("Peak memory by purpose", ["", "planned", "asked for"], rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scope_has_the_peaks_of_those_below_it() {
        let scopes = [("model/gradients", 5), ("model/gradients/shards", 7), ("model/gradientsandmore", 11)];
        let peaks = Peaks { scopes: scopes.map(|(label, bytes)| (label.to_owned(), bytes)).to_vec(), total: 23 };
        assert_eq!(peaks.below("model/gradients"), 12);
        assert_eq!(peaks.below("data"), 0);
    }

    #[test]
    fn peaks_are_raised_scope_by_scope() {
        let peaks = |scopes: &[(&str, usize)], total| Peaks {
            scopes: scopes.iter().map(|&(label, bytes)| (label.to_owned(), bytes)).collect(),
            total,
        };
        let mut all = peaks(&[("a", 5), ("b", 2)], 7);
        all.raise(&peaks(&[("b", 4), ("c", 1)], 6));
        assert_eq!((all.below("a"), all.below("b"), all.below("c"), all.total), (5, 4, 1, 7));
    }

    /// The peak was above that of the pool, as a figure below says it, without a reason.
    #[test]
    fn data_outside_the_pool_are_told_of() {
        let peaks = || Peaks { scopes: vec![("model".to_owned(), 1_000)], total: 1_000 };
        let text = "Planned before the run: 2.00 kB. Most that the session that wrote this page asked for: ";
        assert_eq!(totals_text(2_000, &peaks()), format!("{text}1.00 kB."));
        let with_data = peaks().with_data(500);
        assert_eq!(totals_text(2_000, &with_data), format!("{text}1.50 kB, of which 500 B are data outside the pool."));
        assert_eq!(totals_text(2_000, &peaks().with_data(0)), format!("{text}1.00 kB."));
    }

    #[test]
    fn a_leak_is_told_with_what_grew() {
        let owner = |bytes: u64| json!({ "owner": "x<y", "bytes": bytes, "epochs": 3, "bytes_per_epoch": bytes / 3 });
        let leak = |bytes: u64| json!({ "event": "leak", "step": 9, "growth_bytes": bytes, "owners": [owner(bytes)] });
        assert!(leaks(&[json!({ "event": "step" })]).is_empty());
        let html = leaks(&[leak(3_000_000), leak(6_000_000)]);
        for part in ["grew from epoch to epoch, by 6.00 MB up to step 9", "x&lt;y", "2.00 MB"] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
