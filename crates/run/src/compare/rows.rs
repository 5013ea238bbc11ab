//! Tables with a column for each run: differing settings, and results.

use std::path::Path;

use megabatch_nn::model::{AttentionKind, Encoder, GraphConfig, ModelConfig};
use serde::Deserialize as _;
use serde_json::Value;

use super::errors::{Errors, MEASURES, Measure, Measured, Unit};
use super::{Comparison, Side};
use crate::report::html::Table;
use crate::report::time::PHASES;
use crate::text::bytes;
use crate::text::number::{fixed, grouped, percent, plural, seconds, significant};

/// Text of an empty cell.
const NOTHING: &str = "-";

/// A row of a table: its name, and its cell for a run.
type Row = (String, Box<dyn Fn(&Side) -> Option<String>>);

impl Comparison {
    /// The settings that differ; no rows where none does.
    pub(super) fn settings_table(&self) -> Table {
        let row = |difference: super::Difference| {
            let values = difference.values.into_iter().map(|value| value.unwrap_or_else(|| "none".to_owned()));
            std::iter::once(difference.key.to_owned()).chain(values).collect()
        };
        let rows = self.differences().into_iter().map(row).collect();
        Table { caption: "Settings that differ".to_owned(), head: self.head("key"), rows }
    }

    /// Results of the runs; rows without any value are left out.
    pub(super) fn results_table(&self) -> Table {
        let rows = progress().into_iter().chain(self.errors()).chain(speed()).chain(memory());
        let rows = rows.map(|(name, cell)| {
            let cells = self.sides.iter().map(|side| cell(side).unwrap_or_else(|| NOTHING.to_owned()));
            std::iter::once(name).chain(cells).collect::<Vec<String>>()
        });
        let rows = rows.filter(|row| row[1..].iter().any(|cell| cell != NOTHING)).collect();
        Table { caption: "Results".to_owned(), head: self.head(""), rows }
    }

    fn head(&self, first: &str) -> Vec<String> {
        std::iter::once(first.to_owned()).chain(self.sides.iter().map(|side| side.label.clone())).collect()
    }

    /// Every measure that some run has, and below it that of each baseline.
    fn errors(&self) -> Vec<Row> {
        let judged: Vec<Errors<'_>> = self.sides.iter().filter_map(Errors::from_side).collect();
        let mut rows: Vec<Row> = vec![
            row("judged on", |side| Some(Errors::from_side(side)?.judged_on())),
            row("  samples", |side| Some(grouped(Errors::from_side(side)?.samples()))),
        ];
        for measure in MEASURES {
            let model = move |side: &Side| Some(error_text(measure, Errors::from_side(side)?.model(measure)?));
            rows.push((measure.name.to_owned(), Box::new(model)));
            let mut names: Vec<&str> =
                judged.iter().flat_map(|errors| errors.baselines(measure)).map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let (row, name) = (format!("  {}", name.replace('_', " ")), name.to_owned());
                let baseline = move |side: &Side| {
                    let all = Errors::from_side(side)?.baselines(measure);
                    all.into_iter().find(|(found, _)| *found == name).map(|(_, error)| error_text(measure, error))
                };
                rows.push((row, Box::new(baseline)));
            }
        }
        rows
    }
}

/// A mean, and of several folds `±` the deviation.
fn error_text(measure: Measure, error: Measured) -> String {
    let shown = |number: f64| match measure.unit {
        Unit::Share => percent(number),
        Unit::Number => significant(number, 4),
    };
    let deviation = error.deviation.map_or(String::new(), |deviation| format!(" ± {}", shown(deviation)));
    shown(error.mean) + &deviation
}

fn row(name: &str, cell: impl Fn(&Side) -> Option<String> + 'static) -> Row {
    (name.to_owned(), Box::new(cell))
}

fn progress() -> Vec<Row> {
    vec![
        row("samples", |side| Some(side.samples.to_string())),
        row("model", model),
        row("  graph", graph),
        row("steps", |side| {
            if let Some(folds) = side.folds {
                return Some(format!("{} in {} folds", grouped(folds.steps), folds.folds));
            }
            let planned = side.plan["steps"].as_u64().map_or(String::new(), |steps| format!(" of {}", grouped(steps)));
            Some(grouped(side.steps_done()) + &planned)
        }),
        row("weights", |side| side.plan["parameters"].as_u64().map(grouped)),
        row("best validation loss", |side| side.best_validation().map(|(_, loss)| significant(loss, 4))),
        row("  at step", |side| side.best_validation().map(|(step, _)| grouped(step))),
    ]
}

/// Family of the model and its main sizes.
fn model(side: &Side) -> Option<String> {
    let ModelConfig { encoder, cell, hidden, layers, graph, .. } =
        ModelConfig::deserialize(&side.plan["model"]).ok()?;
    let recurrent =
        || format!("{}, {} of {}", cell.name().to_uppercase(), plural(layers, "layer"), grouped(hidden as u64));
    let attention = |GraphConfig { attention, layers, heads, hidden, .. }: GraphConfig| {
        let name = match attention {
            AttentionKind::Gat => "GAT",
            AttentionKind::GatV2 => "GATv2",
        };
        format!("{name}, {} of {} of {hidden}", plural(layers, "layer"), plural(heads, "head"))
    };
    let parts = [(encoder == Encoder::Recurrent).then(recurrent), graph.map(attention)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Some(if parts.is_empty() { "linear".to_owned() } else { parts.join("; ") })
}

/// Name of the file of graphs between samples.
fn graph(side: &Side) -> Option<String> {
    let path = side.settings.get("model.graph").filter(|path| *path != "none")?;
    Some(Path::new(path).file_name()?.display().to_string())
}

fn speed() -> Vec<Row> {
    let phase = |k: usize| {
        row(&format!("  {}", PHASES[k]), move |side| {
            let times = side.times();
            let share = times.phases[k] / times.sum();
            share.is_finite().then(|| format!("{} ({})", seconds(times.phases[k]), percent(share)))
        })
    };
    let all = [
        row("samples/s in steps", |side| side.samples_per_s().map(|rate| fixed(rate, 0))),
        row("time", |side| Some(side.times().sum()).filter(|&time_s| time_s > 0.0).map(seconds)),
    ];
    all.into_iter().chain((0..PHASES.len()).map(phase)).collect()
}

fn memory() -> Vec<Row> {
    let size = |value: &Value| value.as_u64().map(|size| bytes(size as usize));
    vec![
        row("memory planned", move |side| size(&side.plan["memory"]["total_bytes"])),
        row("allocated, peak", |side| side.largest("allocated_bytes_peak").map(bytes)),
        row("reserved, peak", |side| side.largest("reserved_bytes_peak").map(bytes)),
    ]
}

/// A table for a terminal: the first column flush left, the others flush right.
pub(super) fn to_text(table: &Table) -> String {
    let lines = || std::iter::once(&table.head).chain(&table.rows);
    let width = |k: usize| lines().filter_map(|cells| cells.get(k)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cell = |(k, cell): (usize, &String)| match k {
            0 => format!("{cell:<width$}", width = widths[0]),
            _ => format!("  {cell:>width$}", width = widths[k]),
        };
        format!("{}\n", cells.iter().enumerate().map(cell).collect::<String>().trim_end())
    };
    format!("{}\n{}", table.caption.to_lowercase(), lines().map(line).collect::<String>())
}
