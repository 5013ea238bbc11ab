//! Every policy on every pattern, as docs/measurements/memory.md shows it.

use std::convert::Infallible;

use megabatch_alloc_lab::corpus::{PATTERNS, Pattern, TraceSize, robson_bound_bytes};
use megabatch_alloc_lab::{Policy, ReplayOutcome, TraceLine, replay};
use serde_json::{Value, json};

use super::replay::gib;
use crate::command_report::CommandReport;

/// Peak memory held ÷ peak memory asked for, for every pattern of the corpus and every policy;
/// `seed` is that of the random patterns.
pub fn table(seed: u64) -> CommandReport {
    let rows: Vec<Row> = PATTERNS.iter().map(|pattern| Row::measure(pattern, seed)).collect();
    let policies = Policy::ALL.map(Policy::name).join(" | ");
    let held = format!(
        "| trace | peak live | smallest block | {policies} | goal |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |\n"
    );
    let calls = format!(
        "| trace | events | {policies} | megabatch, last step | stitched |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    let text: String = std::iter::once(held)
        .chain(rows.iter().map(Row::held))
        .chain([format!("\nCalls to the driver:\n\n{calls}")])
        .chain(rows.iter().map(Row::calls))
        .collect();
    CommandReport::new(text, &rows.iter().map(Row::to_json).collect::<Vec<_>>())
}

struct Row {
    pattern: &'static Pattern,
    size: TraceSize,
    outcomes: [ReplayOutcome; Policy::ALL.len()],
}

impl Row {
    fn measure(pattern: &'static Pattern, seed: u64) -> Self {
        let events = pattern.events(seed);
        let size = TraceSize::measure(&events);
        let outcome = |policy| {
            let lines = (1..).zip(&events).map(|(number, &event)| Ok::<_, Infallible>(TraceLine { number, event }));
            let Ok(outcome) = replay(lines, policy, &pattern.limits());
            outcome
        };
        Row { pattern, size, outcomes: Policy::ALL.map(outcome) }
    }

    /// Memory held ÷ memory asked for.
    fn held(&self) -> String {
        let TraceSize { peak_live_bytes, smallest_block_bytes, .. } = self.size;
        let cells = self.outcomes.each_ref().map(cell).join(" | ");
        let (name, goal) = (self.pattern.name, self.goal());
        format!("| `{name}` | {} | {} | {cells} | {goal} |\n", gib(peak_live_bytes), gib(smallest_block_bytes))
    }

    /// Cost, in words.
    fn calls(&self) -> String {
        let cells = self.outcomes.each_ref().map(|outcome| outcome.driver_calls.to_string()).join(" | ");
        let ReplayOutcome { driver_calls_last_step, stitches, .. } = &self.outcomes[0];
        let last_step = if self.size.steps > 0 { driver_calls_last_step.to_string() } else { "–".to_owned() };
        format!("| `{}` | {} | {cells} | {last_step} | {stitches} |\n", self.pattern.name, self.size.events)
    }

    fn goal(&self) -> String {
        let TraceSize { peak_live_bytes, smallest_block_bytes, .. } = self.size;
        match self.pattern.largest_power_of_two_bytes {
            _ if self.size.is_promised() => "≤ 1.02".to_owned(),
            Some(largest_bytes) => {
                let bound = robson_bound_bytes(peak_live_bytes, smallest_block_bytes, largest_bytes);
                format!("Robson: {:.3}", bound as f64 / peak_live_bytes as f64)
            }
            None => "–".to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        let overheads = Policy::ALL.iter().zip(&self.outcomes).map(|(policy, outcome)| {
            let value = json!({
                "oom": outcome.out_of_memory.is_some(),
                "peak_reserved_bytes": outcome.peak_reserved_bytes,
                "overhead": outcome.overhead(),
                "driver_calls": outcome.driver_calls,
                "driver_calls_last_step": outcome.driver_calls_last_step,
                "stitches": outcome.stitches,
            });
            (policy.name().to_owned(), value)
        });
        json!({
            "trace": self.pattern.name,
            "about": self.pattern.about,
            "events": self.size.events,
            "peak_live_bytes": self.size.peak_live_bytes,
            "smallest_block_bytes": self.size.smallest_block_bytes,
            "promised": self.size.is_promised(),
            "policies": overheads.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn cell(outcome: &ReplayOutcome) -> String {
    match outcome.out_of_memory {
        None => format!("{:.3}", outcome.overhead()),
        Some(short) => format!("fails with {} live", gib(short.live_bytes)),
    }
}
