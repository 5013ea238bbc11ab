//! The model's error at each horizon beside those of the baselines.

use megabatch_trainer::{ClassErrors, InstrumentEvaluation, Metrics};

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, Table, escape, paragraph, side_by_side};
use crate::evaluate::{BASELINES_ARE_OF_ALL, Evaluation, Part};
use crate::text::number::{grouped, percent, plural, significant};
use crate::unit_names::TargetKind;

type Metric = fn(&Metrics, usize) -> f64;
type ClassCell = fn(&ClassErrors, usize) -> String;

/// One chart of an error by horizon.
struct ErrorChart<'a> {
    /// Title before its "by horizon".
    title: &'a str,
    description: &'a str,
    y_label: &'a str,
    metric: Metric,
}

const CLASS_CHARTS: [ErrorChart<'static>; 2] = [
    ErrorChart {
        title: "Accuracy",
        description: "Share of targets whose class was predicted. Higher is better. One line a contender.",
        y_label: "accuracy",
        metric: |metrics, k| metrics.classes.as_ref().map_or(f64::NAN, |classes| classes.accuracy[k]),
    },
    ErrorChart {
        title: "Cross entropy",
        description: "Lower is better. One line a contender.",
        y_label: "cross entropy",
        metric: |metrics, k| metrics.classes.as_ref().map_or(f64::NAN, |classes| classes.cross_entropy[k]),
    },
];

const DIRECTION_CHART: ErrorChart<'static> = ErrorChart {
    title: "Direction",
    description: "Share of moves whose sign was predicted. Higher is better; one half is chance.",
    y_label: "share of signs predicted",
    metric: |metrics, k| metrics.direction_accuracy[k].filter(|&share| share > 0.0).unwrap_or(f64::NAN),
};

/// Charts with a line for each contender. `unit` is that of the targets.
pub(crate) fn section(evaluation: &Evaluation, bar: &str, unit: &str) -> Section {
    let mut body = paragraph(&format!("{} Baselines are fitted on the training split.", judged(evaluation)));
    body.push_str(&errors(evaluation, bar, unit));
    for (name, task) in evaluation.by_task() {
        body.push_str(&format!("<h3>{}</h3>", escape(&name)));
        body.push_str(&errors(&task, bar, unit));
    }
    let title = if evaluation.unit_names.target == "horizon" { "Error by horizon" } else { "Error by target" };
    Section { id: "horizons", title, body }
}

/// Sentence on the weights and the samples.
pub(super) fn judged(evaluation: &Evaluation) -> String {
    let seen = match evaluation.split {
        Part::Validation | Part::Test => ", none of which the model was trained on",
        Part::Train | Part::All => ", which the model was trained on",
    };
    let rows = plural(evaluation.samples, evaluation.unit_names.row);
    format!("The weights of step {} on {rows} ({}){seen}.", evaluation.step, evaluation.part())
}

/// Charts and tables. With several tasks only the table by instrument: each task has a section of
/// its own.
fn errors(evaluation: &Evaluation, bar: &str, unit: &str) -> String {
    let mut body = String::new();
    if !evaluation.tasks.is_empty() {
        return body;
    }
    let noun = evaluation.unit_names.target;
    let x_label = if noun == "horizon" { format!("horizon in {bar}") } else { noun.to_owned() };
    let to_html = |ErrorChart { title, description, y_label, metric }: &ErrorChart<'_>| {
        let lines = evaluation.contenders().enumerate();
        Chart {
            words: Words { title: format!("{title} by {noun}"), description: (*description).to_owned() },
            size: Size::Half,
            x: Axis::count(x_label.clone()),
            y: Axis::number(*y_label),
            series: behind(lines.map(|(color, contender)| line(contender.0, contender.1, color, *metric)).collect()),
        }
        .to_html()
    };
    let y_label = format!("RMSE, {unit}");
    let rmse_chart = ErrorChart {
        title: "Root mean square error",
        description: "Lower is better. One line a contender.",
        y_label: &y_label,
        metric: |metrics, k| metrics.rmse[k],
    };
    let charts: Vec<String> = match (&evaluation.model.classes, evaluation.unit_names.targets) {
        (Some(_), _) => CLASS_CHARTS.iter().map(to_html).collect(),
        (None, TargetKind::Moves) => vec![to_html(&rmse_chart), to_html(&DIRECTION_CHART)],
        (None, TargetKind::Quantities) => vec![to_html(&rmse_chart)],
    };
    body.push_str(&side_by_side(&charts));
    // RMSE of a model of classes is that of probabilities, which have no unit.
    let unit =
        if evaluation.model.classes.is_some() || evaluation.model.accuracy.is_some() { "probabilities" } else { unit };
    let table = if evaluation.model.classes.is_some() { class_table(evaluation) } else { table(evaluation, unit) };
    body.push_str(&table.to_html());
    body.extend(instruments_table(evaluation, unit).map(|table| table.to_html()));
    body
}

/// Puts baselines behind that are many times as high as the lowest contender, and would flatten all
/// others.
pub(super) fn behind(mut series: Vec<Series>) -> Vec<Series> {
    let highest = |series: &Series| series.points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let lowest = series.iter().map(highest).filter(|high| high.is_finite()).fold(f64::INFINITY, f64::min);
    for baseline in series.iter_mut().skip(1).filter(|series| highest(series) > STRAW_FACTOR * lowest) {
        baseline.mark = Mark::Faint;
        baseline.name.push_str(", beyond the picture");
    }
    series
}

/// Height of a baseline, as a multiple of the lowest contender's, above which it does not decide
/// the range of a chart.
const STRAW_FACTOR: f64 = 4.0;

/// The line of a contender; `None` if it has no values, such as directions of `no_change`.
fn line(name: &str, metrics: &Metrics, color: usize, metric: Metric) -> Series {
    let all = (0..metrics.rmse.len()).map(|k| ((k + 1) as f64, metric(metrics, k)));
    let points: Vec<(f64, f64)> = all.filter(|point| point.1.is_finite()).collect();
    Series { name: name.replace('_', " "), mark: Mark::Dots, color, points }
}

fn table(evaluation: &Evaluation, unit: &str) -> Table {
    let noun = evaluation.unit_names.target;
    // The sign of what is no move has no meaning.
    let has_directions = evaluation.unit_names.targets == TargetKind::Moves;
    let names = evaluation.contenders().map(|(name, _)| format!("RMSE {}", name.replace('_', " ")));
    let head = std::iter::once(noun.to_owned()).chain(names).chain(["MAE model".to_owned()]);
    let rows = (0..evaluation.model.rmse.len()).map(|k| {
        let direction = evaluation.model.direction_accuracy[k];
        let direction = direction.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        std::iter::once(evaluation.target_cell(k, k + 1))
            .chain(evaluation.contenders().map(|(_, metrics)| significant(metrics.rmse[k], 4)))
            .chain([significant(evaluation.model.mae[k], 4)])
            .chain(has_directions.then_some(direction))
            .collect()
    });
    let head = head.chain(has_directions.then(|| "direction model".to_owned()));
    Table::new(format!("Errors by {noun}, in {unit}"), head, rows)
}

/// The errors of classes.
fn class_table(evaluation: &Evaluation) -> Table {
    let noun = evaluation.unit_names.target;
    let contenders = || evaluation.contenders().filter_map(|(name, metrics)| Some((name, metrics.classes.as_deref()?)));
    let columns: [(&str, ClassCell); 3] = [
        ("accuracy", |classes, k| percent(classes.accuracy[k])),
        ("balanced accuracy", |classes, k| percent(classes.balanced_accuracy[k])),
        ("cross entropy", |classes, k| significant(classes.cross_entropy[k], 4)),
    ];
    let names = columns
        .iter()
        .flat_map(|(error, _)| contenders().map(move |(name, _)| format!("{error}, {}", name.replace('_', " "))));
    let row = |k: usize| {
        let cells = columns.iter().flat_map(|(_, cell)| contenders().map(move |(_, classes)| cell(classes, k)));
        std::iter::once(evaluation.target_cell(k, k + 1)).chain(cells).collect()
    };
    let head = std::iter::once(noun.to_owned()).chain(names);
    Table::new(format!("Errors by {noun}"), head, (0..evaluation.model.rmse.len()).map(row))
}

/// A row for each instrument; `None` if no measure applies.
fn instruments_table(evaluation: &Evaluation, unit: &str) -> Option<Table> {
    let columns = evaluation.instrument_columns();
    if columns.is_empty() {
        return None;
    }
    let head = ["instrument", "samples"].into_iter().chain(columns.iter().map(|column| column.name.as_str()));
    let row = |(name, errors): (&String, &InstrumentEvaluation)| {
        let cells = columns.iter().map(|column| match column.value(errors) {
            None => "-".to_owned(),
            Some(share) if column.is_share() => format!("{:.1} %", 100.0 * share),
            Some(value) => significant(value, 4),
        });
        [name.clone(), grouped(errors.samples as u64)].into_iter().chain(cells).collect()
    };
    // Shares and entropies have no unit.
    let unit = if evaluation.model.classes.is_some() || evaluation.model.accuracy.is_some() {
        String::new()
    } else {
        format!(", in {unit}")
    };
    let target = evaluation.unit_names.target;
    let caption = format!("Errors by instrument, averaged over the {target}s{unit}; {BASELINES_ARE_OF_ALL}");
    Some(Table::new(caption, head, evaluation.instruments.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straw_man_does_not_flatten_the_others() {
        let one = Evaluation::with_one_horizon([("model", 1.0), ("mean", 1.1), ("linear", 50.0)]);
        let html = section(&one, "bars of M1", "pips").body;
        assert!(html.contains("linear, beyond the picture") && !html.contains("mean, beyond"), "{html}");
        let weak = Evaluation::with_one_horizon([("model", 50.0), ("mean", 1.1)]);
        assert!(!section(&weak, "bars of M1", "pips").body.contains("beyond the picture"), "the model is always seen");
    }

    /// The table of a model of classes had the RMSE of probabilities, and a column without numbers.
    #[test]
    fn classes_have_their_own_errors() {
        let mut evaluation = Evaluation::with_one_horizon([("model", 777.0), ("most_frequent", 777.0)]);
        let errors = |accuracy: f64| {
            let (accuracy, balanced_accuracy, cross_entropy) = (vec![accuracy], vec![accuracy / 2.0], vec![0.75]);
            Some(Box::new(ClassErrors { accuracy, balanced_accuracy, cross_entropy, ..ClassErrors::default() }))
        };
        evaluation.model.classes = errors(0.5);
        evaluation.baselines.get_mut("most_frequent").unwrap().classes = errors(0.25);
        let html = section(&evaluation, "bars of M1", "pips").body;
        let cells = "<td class=\"n\">50.0 %</td><td class=\"n\">25.0 %</td><td class=\"n\">25.0 %</td><td class=\"n\">12.5 %</td>";
        assert!(html.contains(cells) && html.contains("balanced accuracy, most frequent"), "{html}");
        assert!(!html.contains("777") && !html.contains("direction"), "{html}");
    }

    #[test]
    fn targets_with_names_are_named_beside_their_numbers() {
        let mut evaluation = Evaluation::with_one_horizon([("model", 1.0), ("mean", 1.1)]);
        evaluation.target_names = vec!["forward_3".to_owned()];
        let html = section(&evaluation, "bars of M1", "units of the targets").body;
        assert!(html.contains("<th scope=\"row\">1 forward_3</th>"), "{html}");
    }

    #[test]
    fn several_instruments_have_a_table_of_their_own() {
        let one = Evaluation::with_one_horizon([("model", 1.0), ("mean", 2.0)]);
        let body = |evaluation: &Evaluation| section(evaluation, "bars of M1", "pips").body;
        assert!(!body(&one).contains("Errors by instrument"));
        let html = body(&one.with_two_instruments());
        let row = html.split("<th scope=\"row\">USDJPY</th>").nth(1).unwrap_or_else(|| panic!("{html}"));
        let cells = "<td class=\"n\">4</td><td class=\"n\">2.000</td><td class=\"n\">4.000</td>";
        assert!(row.starts_with(cells), "{row}");
    }
}
