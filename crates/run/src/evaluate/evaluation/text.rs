//! An evaluation as `eval` prints it: tables and the verdict.

use std::iter;

use megabatch_nn::loss::{Ascending, Loss};
use megabatch_trainer::ClassErrors;

use super::{BASELINES_ARE_OF_ALL, Evaluation, InstrumentColumn, mean};
use crate::text::number::{plural, significant};
use crate::unit_names::TargetKind;

impl Evaluation {
    /// The table that `eval` prints.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} ({}), checkpoint of step {}\n\n",
            plural(self.samples, self.unit_names.row),
            self.part(),
            self.step
        );
        if !self.tasks.is_empty() {
            // Horizons of a task are counted from its first target.
            let task_text =
                |(name, task): (String, Evaluation)| format!("{name}\n\n{}\n\n", task.errors_text().trim_end());
            return text + &self.by_task().map(task_text).collect::<String>() + &self.verdict();
        }
        text.push_str(&self.errors_text());
        text + "\n" + &self.verdict()
    }

    /// The tables below each other.
    fn errors_text(&self) -> String {
        let mut text = String::new();
        if self.model.accuracy.is_some() {
            return self.accuracy_text() + &self.instruments_text();
        }
        if self.ranks {
            // Outputs of a model of ranks have no unit, so that their errors say nothing.
            return self.information_text();
        }
        if self.model.classes.is_some() {
            return text + &self.classes_text() + &self.instruments_text();
        }
        let moves = self.unit_names.targets == TargetKind::Moves;
        let targets = self.target_column(self.unit_names.target, self.model.rmse.len());
        text.push_str(&targets[0]);
        for (name, _) in self.contenders() {
            text.push_str(&format!("  {:>14}", format!("rmse {}", name.replace('_', " "))));
        }
        text.push_str(&format!("  {:>10}{}\n", "mae", if moves { "   direction" } else { "" }));
        for k in 0..self.model.rmse.len() {
            text.push_str(&targets[k + 1]);
            for (_, metrics) in self.contenders() {
                text.push_str(&format!("  {:>14}", shown(metrics.rmse[k])));
            }
            let direction = self.model.direction_accuracy[k].map_or("-".to_owned(), shown);
            let direction = if moves { format!("  {direction:>10}") } else { String::new() };
            text.push_str(&format!("  {:>10}{direction}\n", shown(self.model.mae[k])));
        }
        let information = self.information_text();
        let blank = if information.is_empty() { "" } else { "\n" };
        text + &self.quantiles_text() + blank + &information + &self.instruments_text()
    }

    /// The first column of a table with a row for each of `count` targets: its head, then their
    /// names, or numbers where they have none.
    pub(super) fn target_column(&self, head: &str, count: usize) -> Vec<String> {
        let names: Vec<String> = match self.target_names.len() == count {
            true => self.target_names.clone(),
            false => (1..=count).map(|number| number.to_string()).collect(),
        };
        let cells: Vec<String> = iter::once(head.to_owned()).chain(names).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0).max(8);
        cells.iter().map(|cell| format!("{cell:>width$}")).collect()
    }

    /// Accuracies of a model that predicts one class a row, and of the baselines.
    fn accuracy_text(&self) -> String {
        let contenders: Vec<(String, f64)> =
            self.contenders().filter_map(|(name, metrics)| Some((name.replace('_', " "), metrics.accuracy?))).collect();
        let head: String = contenders.iter().map(|(name, _)| format!("  {name:>13}")).collect();
        let row: String = contenders.iter().map(|(_, accuracy)| format!("  {:>13}", shown(*accuracy))).collect();
        format!("{:>8}{head}\n{:>8}{row}\n", "", "accuracy")
    }

    /// A row a target: accuracies and cross entropies.
    fn classes_text(&self) -> String {
        type ByHorizon = fn(&ClassErrors) -> &[f64];
        let contenders = self.contenders().filter_map(|(name, metrics)| Some((name, metrics.classes.as_deref()?)));
        let contenders: Vec<(&str, &ClassErrors)> = contenders.collect();
        let columns: [(&str, ByHorizon); 3] = [
            ("accuracy", |classes| &classes.accuracy),
            ("balanced", |classes| &classes.balanced_accuracy),
            ("cross entropy", |classes| &classes.cross_entropy),
        ];
        let cells = columns.iter().flat_map(|column| contenders.iter().map(move |contender| (column, contender)));
        let cells: Vec<_> = cells.collect();
        let targets = self.target_column(self.unit_names.target, self.model.rmse.len());
        let mut text = targets[0].clone();
        for ((column, _), (name, _)) in &cells {
            text.push_str(&format!("  {:>27}", format!("{column} {}", name.replace('_', " "))));
        }
        text.push('\n');
        for k in 0..self.model.rmse.len() {
            text.push_str(&targets[k + 1]);
            for ((_, values), (_, classes)) in &cells {
                text.push_str(&format!("  {:>27}", shown(values(classes)[k])));
            }
            text.push('\n');
        }
        text
    }

    /// A row a level, averaged over the horizons.
    fn quantiles_text(&self) -> String {
        let Some(quantiles) = &self.model.quantiles else { return String::new() };
        let mut text =
            "\nquantiles, averaged over the horizons; coverage is the share of targets that are no higher\n\n"
                .to_owned();
        text.push_str(&format!("{:>8}  {:>14}  {:>10}\n", "level", "pinball loss", "coverage"));
        for (level, (loss, coverage)) in
            quantiles.levels.iter().zip(quantiles.pinball_loss.iter().zip(&quantiles.coverage))
        {
            text.push_str(&format!("{level:>8}  {:>14}  {:>10}\n", shown(mean(loss)), shown(mean(coverage))));
        }
        if quantiles.levels.len() > 1 {
            let (crossing, shown) = (100.0 * mean(&quantiles.crossing), self.coverage_note());
            text.push_str(&format!("{crossing:.2} % cross: a quantile is above one of a higher level.{shown}\n"));
        }
        text
    }

    /// Note on the quantile that the errors by horizon refer to.
    fn coverage_note(&self) -> String {
        let levels = self.model.quantiles.as_ref().and_then(|quantiles| Ascending::new(&quantiles.levels));
        levels.map_or(String::new(), |levels| {
            let level = levels.as_slice()[Loss::Quantile { levels }.point()];
            format!(" RMSE, MAE and direction are those of level {level}.")
        })
    }

    /// A row an instrument.
    fn instruments_text(&self) -> String {
        let columns = self.instrument_columns();
        if columns.is_empty() {
            return String::new();
        }
        let width = self.instruments.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(10);
        let cell_width = |column: &InstrumentColumn| column.name.len().max(14);
        let mut text =
            format!("\nby instrument, averaged over the {}s; {BASELINES_ARE_OF_ALL}\n\n", self.unit_names.target);
        text.push_str(&format!("{:<width$}  {:>8}", "instrument", "samples"));
        columns.iter().for_each(|column| text.push_str(&format!("  {:>w$}", column.name, w = cell_width(column))));
        for (name, errors) in &self.instruments {
            text.push_str(&format!("\n{name:<width$}  {:>8}", errors.samples));
            for column in &columns {
                let value = column.value(errors).unwrap_or(f64::NAN);
                text.push_str(&format!("  {:>w$}", shown(value), w = cell_width(column)));
            }
        }
        text + "\n"
    }
}

/// Four significant digits; of a horizon without known targets, a dash.
fn shown(value: f64) -> String {
    significant(value, 4)
}
