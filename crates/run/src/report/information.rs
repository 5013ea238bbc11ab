//! Information coefficients over time: the ranking of the nodes, graph by graph.

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, Table, paragraph, side_by_side};
use crate::evaluate::{Evaluation, GraphCorrelations};
use crate::text::number::{fixed, plural};

/// Graphs whose mean is drawn: single ones are mostly noise.
const TOGETHER: usize = 20;

/// A correlation: the values of one horizon in one graph, its mean over graphs and its t-statistic.
struct Kind {
    name: &'static str,
    by_graph: fn(&GraphCorrelations) -> &[Option<f64>],
    mean: Option<f64>,
    t: Option<f64>,
}

impl Kind {
    fn ic(mean: Option<f64>, t: Option<f64>) -> Self {
        Kind { name: "IC", by_graph: |ranking| &ranking.ic, mean, t }
    }

    fn rank_ic(mean: Option<f64>, t: Option<f64>) -> Self {
        Kind { name: "Rank IC", by_graph: |ranking| &ranking.rank_ic, mean, t }
    }
}

/// IC by day, over a `mean` with the t-statistic `t`.
pub(super) fn ic_chart(days: &[GraphCorrelations], mean: Option<f64>, t: Option<f64>) -> String {
    chart(&Kind::ic(mean, t), days, "day").to_html()
}

/// Rank IC by day, over a `mean` with the t-statistic `t`.
pub(super) fn rank_ic_chart(days: &[GraphCorrelations], mean: Option<f64>, t: Option<f64>) -> String {
    chart(&Kind::rank_ic(mean, t), days, "day").to_html()
}

/// None where nothing was ranked.
pub(crate) fn section(evaluation: &Evaluation) -> Option<Section> {
    let information = evaluation.model.information.as_ref()?;
    let first = |values: &[Option<f64>]| values.first().copied().flatten();
    let kinds = [
        Kind::ic(first(&information.ic), first(&information.ic_t)),
        Kind::rank_ic(first(&information.rank_ic), first(&information.rank_ic_t)),
    ];
    let unit = evaluation.unit();
    let mut body = paragraph(&format!(
        "The correlation of predictions with targets, within each {unit}: of the values (IC) and of their ranks (rank IC), over \
         {} of the {} split. Zero is chance. The pictures show the first horizon, each {unit} faint and the mean of {TOGETHER} in a row over it.",
        plural(evaluation.graphs.len(), unit),
        evaluation.split.name(),
    ));
    let charts: Vec<String> = kinds.iter().map(|kind| chart(kind, &evaluation.graphs, unit).to_html()).collect();
    body.push_str(&side_by_side(&charts));
    body.push_str(&table(evaluation).to_html());
    Some(Section { id: "information", title: "Correlation by day", body })
}

fn chart(kind: &Kind, graphs: &[GraphCorrelations], unit: &str) -> Chart {
    let value = |ranking: &GraphCorrelations| (kind.by_graph)(ranking).first().copied().flatten();
    let x = |ranking: &GraphCorrelations| ranking.time_ns.map_or(ranking.graph as f64, |time| time as f64);
    let points: Vec<(f64, f64)> = graphs.iter().filter_map(|ranking| Some((x(ranking), value(ranking)?))).collect();
    let mean = kind.mean.unwrap_or(f64::NAN);
    let ends = points.first().zip(points.last()).map_or(Vec::new(), |(first, last)| vec![first.0, last.0]);
    let t = kind.t.map_or(String::new(), |t| format!(", t = {}", fixed(t, 2)));
    let is_timed = graphs.iter().any(|ranking| ranking.time_ns.is_some());
    Chart {
        words: Words::new(
            format!("{} by {unit}: {} on average{t}", kind.name, fixed(mean, 4)),
            format!("The correlation within each {unit}, its mean over {TOGETHER}, and that over all."),
        ),
        size: Size::Half,
        x: if is_timed { Axis::time("time of the samples, UTC") } else { Axis::count("graph") },
        y: Axis::number("correlation").with_zero(),
        series: vec![
            Series { name: format!("each {unit}"), mark: Mark::Cloud, color: 4, points: points.clone() },
            Series { name: format!("mean of {TOGETHER}"), mark: Mark::Line, color: 0, points: running_mean(&points) },
            Series::new("mean of all", Mark::Guide, 6, ends.into_iter().map(|x| (x, mean)).collect()),
        ],
    }
}

/// Means of [`TOGETHER`] points in a row, each at the last of them.
fn running_mean(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |some: &[(f64, f64)]| some.iter().map(|point| point.1).sum::<f64>() / some.len() as f64;
    points.windows(TOGETHER).map(|some| (some[TOGETHER - 1].0, mean(some))).collect()
}

fn table(evaluation: &Evaluation) -> Table {
    let columns = evaluation.information_columns();
    let names = columns.iter().map(|column| column.name.clone());
    let target = evaluation.unit_names.target;
    let head = std::iter::once(target.to_owned()).chain(names).chain(["lag".to_owned(), "graphs".to_owned()]);
    let rows = evaluation.model.information.iter().flat_map(|information| {
        let counts = information.ic_lags.iter().zip(&information.ic_graphs).enumerate();
        counts.map(|(k, (lag, graphs))| {
            let cells = columns.iter().map(|column| column.cell(k));
            let target = std::iter::once(evaluation.target_cell(k, k + 1));
            target.chain(cells).chain([lag.to_string(), graphs.to_string()]).collect()
        })
    });
    let caption = format!("Correlations by {target}: mean and deviation over graphs; t by Newey-West with the lag");
    Table::new(caption, head, rows)
}

#[cfg(test)]
mod tests {
    use megabatch_trainer::InformationCoefficients;

    use super::*;
    use crate::text::DAY_NS;
    use crate::unit_names::UnitNames;

    fn evaluation(times: bool) -> Evaluation {
        let mut evaluation = Evaluation::with_one_horizon([("model", 1.0)]);
        evaluation.graphs = (0..30)
            .map(|graph| GraphCorrelations {
                time_ns: times.then_some(graph as i64 * DAY_NS),
                graph,
                ic: vec![(graph != 3).then_some(0.25)],
                rank_ic: vec![Some(0.5)],
            })
            .collect();
        evaluation.model.information = Some(InformationCoefficients {
            ic: vec![Some(0.25)],
            ic_std: vec![Some(0.125)],
            ic_t: vec![None],
            ic_lags: vec![0],
            ic_graphs: vec![29],
            rank_ic: vec![Some(0.5)],
            rank_ic_std: vec![Some(0.0625)],
            rank_ic_t: vec![Some(3.5)],
        });
        evaluation
    }

    #[test]
    fn every_day_is_drawn_and_every_horizon_told() {
        let html = section(&evaluation(true)).unwrap().body;
        for part in [
            "over 30 days of the test split",
            "IC by day: 0.2500 on average<",
            "Rank IC by day: 0.5000 on average, t = 3.50",
            "mean of 20",
            ">0.0625<",
            ">29<",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let cloud = |n: usize| {
            html.split("class=\"cloud c4\" d=\"").nth(n).unwrap().split('"').next().unwrap().matches('M').count()
        };
        assert_eq!((cloud(1), cloud(2)), (29, 30), "a day without a correlation has no point");
    }

    #[test]
    fn targets_with_names_are_named_beside_their_numbers() {
        let mut evaluation = evaluation(true);
        evaluation.target_names = vec!["forward_3".to_owned()];
        let html = section(&evaluation).unwrap().body;
        assert!(html.contains("<th scope=\"row\">1 forward_3</th>"), "{html}");
        // Targets of graphs without names were called horizons.
        evaluation.target_names = Vec::new();
        evaluation.unit_names = UnitNames { target: "target", ..UnitNames::SAMPLES };
        let html = section(&evaluation).unwrap().body;
        assert!(html.contains("Correlations by target:") && !html.contains("Correlations by horizon"), "{html}");
    }

    #[test]
    fn graphs_without_times_are_numbered_and_a_model_that_ranks_nothing_has_no_section() {
        let html = section(&evaluation(false)).unwrap().body;
        assert!(html.contains("over 30 graphs") && html.contains("IC by graph"), "{html}");
        assert!(section(&Evaluation::with_one_horizon([("model", 1.0)])).is_none());
    }

    #[test]
    fn a_running_mean_is_of_the_last_points() {
        let points: Vec<(f64, f64)> = (0..22).map(|k| (f64::from(k), f64::from(k))).collect();
        assert_eq!(running_mean(&points), [(19.0, 9.5), (20.0, 10.5), (21.0, 11.5)]);
        assert!(running_mean(&points[..19]).is_empty());
    }
}
