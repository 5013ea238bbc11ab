//! The model's error at each horizon beside those of the baselines.

use megabatch_trainer::Metrics;

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, Table, escape, paragraph, side_by_side};
use super::number::{grouped, plural, significant};
use crate::evaluation::{BASELINES_ARE_OF_ALL, Evaluation, OverHorizons, Part};

type Metric = fn(&Metrics, usize) -> f64;

/// Title and description, the y axis and what is on it, of a model of classes.
const CLASS_CHARTS: [((&str, &str), &str, Metric); 2] = [
    (
        ("Accuracy by horizon", "Share of targets whose class was predicted. Higher is better. One line a contender."),
        "accuracy",
        |metrics, k| metrics.classes.as_ref().map_or(f64::NAN, |classes| classes.accuracy[k]),
    ),
    (("Cross entropy by horizon", "Lower is better. One line a contender."), "cross entropy", |metrics, k| {
        metrics.classes.as_ref().map_or(f64::NAN, |classes| classes.cross_entropy[k])
    }),
];

/// A line a contender; `unit` is that of the targets.
pub(crate) fn section(evaluation: &Evaluation, (bar, unit): (&str, &str)) -> Section {
    let seen = match evaluation.split {
        Part::Validation | Part::Test => ", none of which the model was trained on",
        Part::Train | Part::All => ", which the model was trained on",
    };
    let mut body = paragraph(&format!(
        "The weights of step {} on {} ({}){seen}. Baselines are fitted on the training split.",
        evaluation.step,
        plural(evaluation.samples, "sample"),
        evaluation.split.name(),
    ));
    body.push_str(&errors(evaluation, (bar, unit)));
    for (name, task) in evaluation.by_task() {
        body.push_str(&format!("<h3>{}</h3>", escape(&name)));
        body.push_str(&errors(&task, (bar, unit)));
    }
    Section { id: "horizons", title: "Error by horizon", body }
}

/// Charts and tables; of several tasks only the table by instrument, for each has its own.
fn errors(evaluation: &Evaluation, (bar, unit): (&str, &str)) -> String {
    let mut body = String::new();
    if !evaluation.tasks.is_empty() {
        return body;
    }
    let chart = |(title, description): (&str, &str), y_label: &str, metric: Metric| {
        let lines = evaluation.contenders().enumerate();
        Chart {
            words: Words { title: title.to_owned(), description: description.to_owned() },
            size: Size::Half,
            x: Axis::number(format!("horizon in {bar}")),
            y: Axis::number(y_label),
            series: lines.map(|(color, contender)| line(contender, color, metric)).collect(),
        }
        .to_html()
    };
    let charts = match evaluation.model.classes {
        Some(_) => CLASS_CHARTS.map(|(words, y_label, metric)| chart(words, y_label, metric)),
        None => [
            chart(
                ("Root mean square error by horizon", "Lower is better. One line a contender."),
                &format!("RMSE, {unit}"),
                |metrics, k| metrics.rmse[k],
            ),
            chart(
                (
                    "Direction by horizon",
                    "Share of moves whose sign was predicted. Higher is better; one half is chance.",
                ),
                "share of signs predicted",
                |metrics, k| metrics.direction_accuracy[k].filter(|&share| share > 0.0).unwrap_or(f64::NAN),
            ),
        ],
    };
    body.push_str(&side_by_side(&charts));
    // RMSE of a model of classes is that of probabilities, which have no unit.
    let unit = if evaluation.model.classes.is_some() { "probabilities" } else { unit };
    body.push_str(&table(evaluation, unit).to_html());
    if !evaluation.instruments.is_empty() {
        body.push_str(&instruments_table(evaluation, unit).to_html());
    }
    body
}

/// A contender without directions, as `no_change` is, has no line of them: one at zero would only squeeze the others.
fn line((name, metrics): (&str, &Metrics), color: usize, metric: Metric) -> Series {
    let all = (0..metrics.rmse.len()).map(|k| ((k + 1) as f64, metric(metrics, k)));
    let points: Vec<(f64, f64)> = all.filter(|point| point.1.is_finite()).collect();
    Series { name: name.replace('_', " "), mark: Mark::Dots, color, points }
}

fn table(evaluation: &Evaluation, unit: &str) -> Table {
    let names = evaluation.contenders().map(|(name, _)| format!("RMSE {}", name.replace('_', " ")));
    let head = std::iter::once("horizon".to_owned()).chain(names);
    let rows = (0..evaluation.model.rmse.len()).map(|k| {
        let direction = evaluation.model.direction_accuracy[k];
        std::iter::once((k + 1).to_string())
            .chain(evaluation.contenders().map(|(_, metrics)| significant(metrics.rmse[k], 4)))
            .chain([
                significant(evaluation.model.mae[k], 4),
                direction.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
            ])
            .collect()
    });
    Table {
        caption: format!("Errors by horizon, in {unit}"),
        head: head.chain(["MAE model".to_owned(), "direction model".to_owned()]).collect(),
        rows: rows.collect(),
    }
}

/// A row an instrument.
fn instruments_table(evaluation: &Evaluation, unit: &str) -> Table {
    let names = evaluation.contenders().map(|(name, _)| format!("RMSE {}", name.replace('_', " ")));
    let head = ["instrument".to_owned(), "samples".to_owned()].into_iter().chain(names);
    let row = |(name, errors): (&str, OverHorizons)| {
        let direction = errors.direction.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        [name.to_owned(), grouped(errors.samples as u64)]
            .into_iter()
            .chain(errors.rmse.iter().map(|&rmse| significant(rmse, 4)))
            .chain([significant(errors.mae, 4), direction])
            .collect()
    };
    Table {
        caption: format!("Errors by instrument, averaged over the horizons, in {unit}; {BASELINES_ARE_OF_ALL}"),
        head: head.chain(["MAE model".to_owned(), "direction model".to_owned()]).collect(),
        rows: evaluation.by_instrument().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_instruments_have_a_table_of_their_own() {
        let one = Evaluation::of_one_horizon([("model", 1.0), ("mean", 2.0)]);
        let body = |evaluation: &Evaluation| section(evaluation, ("bars of M1", "pips")).body;
        assert!(!body(&one).contains("Errors by instrument"));
        let html = body(&one.of_two_instruments());
        let row = html.split("<th scope=\"row\">USDJPY</th>").nth(1).unwrap_or_else(|| panic!("{html}"));
        let cells = "<td class=\"n\">4</td><td class=\"n\">2.000</td><td class=\"n\">4.000</td>";
        assert!(row.starts_with(cells), "{row}");
    }
}
