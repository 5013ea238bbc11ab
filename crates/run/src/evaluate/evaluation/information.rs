//! Ranking of the nodes of each graph, or of the instruments of each time, by a model, beside its
//! baselines.

use std::collections::BTreeSet;

use megabatch_trainer::{InformationCoefficients, Metrics};

use super::Evaluation;
use crate::text::DAY_NS;

/// The line on instruments of a series that stays in its file.
const STREAMED: &str = "no IC: correlations over the instruments need the series in memory, and it is streamed\n";

/// Correlations of a contender at one horizon.
struct Coefficients {
    ic: Option<f64>,
    ic_t: Option<f64>,
    rank_ic: Option<f64>,
    rank_ic_t: Option<f64>,
}

impl Coefficients {
    fn at_horizon(information: &InformationCoefficients, horizon: usize) -> Self {
        let value = |values: &[Option<f64>]| values.get(horizon).copied().flatten();
        Coefficients {
            ic: value(&information.ic),
            ic_t: value(&information.ic_t),
            rank_ic: value(&information.rank_ic),
            rank_ic_t: value(&information.rank_ic_t),
        }
    }

    fn sentence(&self) -> String {
        let with_t = |value: Option<f64>, t: Option<f64>| {
            let t = t.map_or(String::new(), |t| format!(" (t = {t:.2})"));
            value.map_or("undefined".to_owned(), |value| format!("{value:.4}{t}"))
        };
        format!("IC {}, rank IC {}", with_t(self.ic, self.ic_t), with_t(self.rank_ic, self.rank_ic_t))
    }
}

impl Evaluation {
    /// One sentence: IC and rank IC at the first horizon, and those of the baselines. Empty for a
    /// model that ranks nothing.
    pub(super) fn information_verdict(&self) -> String {
        let Some(information) = &self.model.information else { return String::new() };
        let model = Coefficients::at_horizon(information, 0);
        if model.ic.is_none() && model.rank_ic.is_none() {
            return format!(
                "IC and rank IC are undefined at the first horizon: in no {} do both predictions and targets differ between {}.",
                self.unit(),
                self.ranked()
            );
        }
        let baselines_text = self.ranking_baselines().map(|(name, information)| {
            format!("; {}: {}", name.replace('_', " "), Coefficients::at_horizon(information, 0).sentence())
        });
        format!(
            "{} at the first horizon, mean over {} {}s{}.",
            model.sentence(),
            information.ic_graphs[0],
            self.unit(),
            baselines_text.collect::<String>()
        )
    }

    /// A row a horizon: correlations within graphs, averaged over them, the model's and those of
    /// the baselines. In its place a line for instruments that have none because they are streamed.
    pub(super) fn information_text(&self) -> String {
        let Some(information) = &self.model.information else {
            let is_told = self.is_streamed_universe && self.drawn.is_none();
            return if is_told { STREAMED.to_owned() } else { String::new() };
        };
        let mut text = format!("correlations of predictions and targets within each {}\n\n", self.unit());
        let targets = self.target_column(self.unit_names.target, information.ic_graphs.len());
        text.push_str(&targets[0]);
        let columns = self.information_columns();
        columns.iter().for_each(|column| text.push_str(&format!("  {:>width$}", column.name, width = column.width())));
        text.push_str(&format!("  {:>4}  {:>8}\n", "lag", format!("{}s", self.unit())));
        for (k, (graphs, lag)) in information.ic_graphs.iter().zip(&information.ic_lags).enumerate() {
            text.push_str(&targets[k + 1]);
            for column in &columns {
                text.push_str(&format!("  {:>width$}", column.cell(k), width = column.width()));
            }
            text.push_str(&format!("  {lag:>4}  {graphs:>8}\n"));
        }
        text + "t is the t-statistic by Newey-West with the lag of the row: how many later targets overlap with one.\n"
            + &self.unranked_baselines_text()
    }

    /// Columns of the table: the model's, then those of each baseline that ranks.
    pub(crate) fn information_columns(&self) -> Vec<InformationColumn<'_>> {
        let model = self.model.information.iter().flat_map(|information| {
            [
                InformationColumn::new("IC", 4, &information.ic),
                InformationColumn::new("std", 4, &information.ic_std),
                InformationColumn::new("t", 2, &information.ic_t),
                InformationColumn::new("rank IC", 4, &information.rank_ic),
                InformationColumn::new("std", 4, &information.rank_ic_std),
                InformationColumn::new("t", 2, &information.rank_ic_t),
            ]
        });
        let baselines = self.ranking_baselines().flat_map(|(name, information)| {
            let name = name.replace('_', " ");
            [
                InformationColumn::new(format!("IC {name}"), 4, &information.ic),
                InformationColumn::new("t", 2, &information.ic_t),
                InformationColumn::new(format!("rank IC {name}"), 4, &information.rank_ic),
                InformationColumn::new("t", 2, &information.rank_ic_t),
            ]
        });
        model.chain(baselines).collect()
    }

    /// Baselines that give the nodes of a graph different numbers.
    fn ranking_baselines(&self) -> impl Iterator<Item = (&'static str, &InformationCoefficients)> {
        self.baselines.iter().filter_map(|(name, metrics)| Some((*name, ranking(metrics)?)))
    }

    /// The baselines that have no correlation, in a sentence.
    fn unranked_baselines_text(&self) -> String {
        let names = self.baselines.iter().filter(|(_, metrics)| ranking(metrics).is_none());
        let names: Vec<String> = names.map(|(name, _)| name.replace('_', " ")).collect();
        if names.is_empty() {
            return String::new();
        }
        format!("{}: the same for all {}, so that there is no correlation.\n", names.join(", "), self.ranked())
    }

    /// The plural of what is ranked within a unit.
    fn ranked(&self) -> &'static str {
        if self.unit() == "graph" { "nodes" } else { "instruments" }
    }

    /// Unit of a graph: where the data have times, the day of a cross-section, or its time if there
    /// are several a day.
    pub(crate) fn unit(&self) -> &'static str {
        let times = || self.graphs.iter().filter_map(|ranking| ranking.time_ns);
        let days: BTreeSet<i64> = times().map(|time| time.div_euclid(DAY_NS)).collect();
        match times().count() {
            0 => "graph",
            count if count == days.len() => "day",
            _ => "time",
        }
    }
}

/// The correlations of a contender, if any is defined.
fn ranking(metrics: &Metrics) -> Option<&InformationCoefficients> {
    metrics.information.as_ref().filter(|information| information.ic_graphs.iter().any(|&graphs| graphs > 0))
}

/// A column of the table of correlations, a value a horizon.
pub(crate) struct InformationColumn<'a> {
    pub(crate) name: String,
    digits: usize,
    values: &'a [Option<f64>],
}

impl<'a> InformationColumn<'a> {
    fn new(name: impl Into<String>, digits: usize, values: &'a [Option<f64>]) -> Self {
        InformationColumn { name: name.into(), digits, values }
    }

    /// The value at the horizon in place `horizon`; a dash where it is not defined.
    pub(crate) fn cell(&self, horizon: usize) -> String {
        let value = self.values.get(horizon).copied().flatten();
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}", digits = self.digits))
    }

    fn width(&self) -> usize {
        self.name.chars().count().max(7)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use megabatch_trainer::GraphCorrelations;

    use super::*;

    fn coefficients(ic: f64, t: f64) -> Metrics {
        let both = |value: f64| vec![Some(value), Some(2.0 * value)];
        Metrics {
            rmse: vec![777.0; 2],
            mae: vec![777.0; 2],
            direction_accuracy: vec![Some(0.5); 2],
            information: Some(InformationCoefficients {
                ic: both(ic),
                ic_std: both(0.25),
                ic_t: both(t),
                ic_lags: vec![0, 1],
                ic_graphs: vec![9; 2],
                rank_ic: both(-ic),
                rank_ic_std: both(0.5),
                rank_ic_t: both(-t),
            }),
            ..Metrics::default()
        }
    }

    fn constant() -> Metrics {
        let nothing = vec![None; 2];
        Metrics {
            information: Some(InformationCoefficients {
                ic: nothing.clone(),
                ic_graphs: vec![0; 2],
                ic_lags: vec![0, 1],
                ic_std: nothing.clone(),
                ic_t: nothing.clone(),
                rank_ic: nothing.clone(),
                rank_ic_std: nothing.clone(),
                rank_ic_t: nothing,
            }),
            ..coefficients(0.0, 0.0)
        }
    }

    /// Two instruments and two days, learnt with a loss of ranks.
    fn evaluation() -> Evaluation {
        let one = Evaluation::with_one_horizon([("model", 1.0), ("linear", 1.0)]).with_two_instruments();
        let day = |graph| GraphCorrelations {
            time_ns: Some(graph as i64 * DAY_NS),
            graph,
            ic: vec![Some(0.5); 2],
            rank_ic: vec![Some(0.5); 2],
        };
        Evaluation {
            ranks: true,
            model: coefficients(0.01, 1.5),
            baselines: BTreeMap::from([("linear", coefficients(0.03, 2.5)), ("mean", constant())]),
            graphs: vec![day(0), day(1)],
            ..one
        }
    }

    /// `eval --run R` with `training.loss=rank_pairwise` on 88 shares: a table of RMSE and 87 rows
    /// of instruments came first, and the baselines' coefficients were in the JSON only.
    #[test]
    fn a_model_of_ranks_shows_its_coefficients_first_and_no_errors() {
        let text = evaluation().to_text();
        let table: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(table[0], "correlations of predictions and targets within each day", "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let head = "horizon IC std t rank IC std t IC linear t rank IC linear t lag days";
        assert_eq!(words(table[2]), words(head), "{text}");
        let second = "2 0.0200 0.5000 3.00 -0.0200 1.0000 -3.00 0.0600 5.00 -0.0600 -5.00 1 9";
        assert_eq!(words(table[4]), words(second), "{text}");
        for absent in ["rmse", "RMSE", "777", "EURUSD", "direction"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        assert!(text.contains("mean: the same for all instruments"), "{text}");
    }

    #[test]
    fn the_headline_has_the_baselines_coefficients_beside_the_models() {
        let expected = "IC 0.0100 (t = 1.50), rank IC -0.0100 (t = -1.50) at the first horizon, mean over 9 days; \
                        linear: IC 0.0300 (t = 2.50), rank IC -0.0300 (t = -2.50).";
        assert_eq!(evaluation().verdict(), expected);
        // `eval` of minutes called each of them a day.
        let mut minutes = evaluation();
        minutes.graphs[1].time_ns = Some(60_000_000_000);
        assert!(minutes.verdict().contains("mean over 9 times;"), "{}", minutes.verdict());
        let nothing = Evaluation { model: constant(), ..evaluation() };
        assert!(nothing.verdict().starts_with("IC and rank IC are undefined at the first horizon"));
    }

    #[test]
    fn streamed_instruments_are_told_to_have_no_coefficients() {
        let one = Evaluation::with_one_horizon([("model", 1.0), ("mean", 2.0)]);
        assert!(!one.to_text().contains("no IC"));
        let streamed = Evaluation { is_streamed_universe: true, ..one };
        assert!(streamed.to_text().contains(STREAMED), "{}", streamed.to_text());
        // Estimates have none in any case.
        assert!(!Evaluation { drawn: Some(3), ..streamed }.to_text().contains("no IC"));
    }

    #[test]
    fn a_model_of_numbers_has_its_errors_first() {
        let evaluation = Evaluation { ranks: false, ..evaluation() };
        let text = evaluation.to_text();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(place("rmse model") < place("rank IC linear"), "{text}");
        assert!(evaluation.verdict().starts_with("RMSE 777,"), "{}", evaluation.verdict());
        assert!(evaluation.verdict().contains(" IC 0.0100 (t = 1.50)"), "{}", evaluation.verdict());
    }
}
