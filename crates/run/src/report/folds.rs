//! The page of a run of several folds: the errors of each, and their mean.

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::horizons::behind;
use super::html::{Section, Table, escape, page, paragraph, side_by_side};
use super::information;
use crate::adapters::fold_plan::FoldKind;
use crate::evaluate::GraphCorrelations;
use crate::evaluate::folds::{Fold, FoldColumn, Folds, columns};
use crate::text::number::grouped;
use crate::text::utc;

/// The page as a single HTML file.
pub(crate) fn folds_page(folds: &Folds<'_>) -> String {
    let over = match folds.plan.kind {
        FoldKind::WalkForward => "Walk-forward evaluation",
        FoldKind::CrossValidation => "Cross-validation",
    };
    let run = folds.run.display().to_string();
    let head = format!(
        "<p class=\"over\">{over}</p>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n",
        escape(&run),
        escape(&folds.verdict())
    );
    let sections: Vec<Section> = [Some(table(folds)), by_fold(folds), by_day(folds)].into_iter().flatten().collect();
    page(&format!("megabatch: {run}"), &head, &sections)
}

fn table(folds: &Folds<'_>) -> Section {
    let columns = folds.done.first().map_or(Vec::new(), |first| columns(&first.evaluation));
    let names = columns.iter().map(|column| column.name.clone());
    let head = ["fold", "test begins", "train", "test"].map(str::to_owned).into_iter().chain(names).collect();
    let cells = |fold: &Fold| -> Vec<String> {
        let begins = fold.split.test_start_ns.map_or("-".to_owned(), |time| utc(time).replace(" UTC", ""));
        let counts = [fold.fold.to_string(), begins, grouped(fold.split.train as u64), fold.judged()];
        let cells = columns.iter().map(|column| column.cell(column.value(&fold.evaluation)));
        counts.into_iter().chain(cells).collect()
    };
    let summary = folds.summary_rows(&columns).into_iter().map(|(name, cells)| {
        [name.to_owned(), String::new(), String::new(), String::new()].into_iter().chain(cells).collect()
    });
    let rows = folds.done.iter().map(cells).chain(summary).collect();
    let table = Table { caption: "Errors on the test of each fold".to_owned(), head, rows };
    let intro = paragraph(
        "Each fold is a run of its own, with its report in its folder. The deviation over folds is that of a sample; \
         t below them is that of the model's correlations over the days of all tests.",
    );
    Section { id: "folds", title: "Folds", body: intro + &table.to_html() }
}

/// A chart for each leading measure: a line for the model and for each baseline.
fn by_fold(folds: &Folds<'_>) -> Option<Section> {
    let columns = columns(&folds.done.first()?.evaluation);
    let charts: Vec<String> = columns
        .iter()
        .filter(|column| column.leads && column.baseline.is_none())
        .map(|model| {
            let lines = columns.iter().filter(|column| column.is_of_the_same(model));
            let line = |(color, column): (usize, &FoldColumn)| Series {
                name: column.baseline.unwrap_or("model").replace('_', " "),
                mark: Mark::Dots,
                color,
                points: folds
                    .done
                    .iter()
                    .filter_map(|fold| Some((fold.fold as f64, column.value(&fold.evaluation)?)))
                    .collect(),
            };
            Chart {
                words: Words::new(format!("{} by fold", model.name), "On the test of each fold. One line a contender."),
                size: Size::Half,
                x: Axis::count("fold"),
                y: Axis::number(model.name.clone()),
                series: behind(lines.enumerate().map(line).collect()),
            }
            .to_html()
        })
        .collect();
    (!charts.is_empty()).then(|| Section { id: "by-fold", title: "Fold by fold", body: side_by_side(&charts) })
}

/// Correlations over the days of all tests.
fn by_day(folds: &Folds<'_>) -> Option<Section> {
    let first = folds.over_days()?.first().copied()?;
    let days: Vec<GraphCorrelations> = folds.days().into_iter().cloned().collect();
    let charts = [
        information::ic_chart(&days, first.ic, first.ic_t),
        information::rank_ic_chart(&days, first.rank_ic, first.rank_ic_t),
    ];
    let intro = paragraph(&format!(
        "The correlation of predictions with targets, within each day, on the {} days of all tests, at the first horizon. Zero is \
         chance. t is by Newey-West with lag {}.",
        days.len(),
        first.lag
    ));
    Some(Section { id: "information", title: "Correlation by day", body: intro + &side_by_side(&charts) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::adapters::fold_plan::FoldPlan;
    use crate::evaluate::Evaluation;
    use crate::plan::SplitPlan;

    #[test]
    fn every_fold_has_a_row_and_the_page_needs_nothing_else() {
        let fold = |number: usize, rmse: f64| Fold {
            fold: number,
            run: format!("<walk>/fold-{number}").into(),
            steps: 3,
            split: SplitPlan {
                train: 70,
                validation: 10,
                test: 20,
                purged: 0,
                validation_start_ns: None,
                test_start_ns: Some(0),
            },
            evaluation: Evaluation::with_one_horizon([("model", rmse), ("no_change", 5.0)]),
        };
        let done = [fold(1, 2.0), fold(2, 4.0)];
        let plan = FoldPlan { kind: FoldKind::WalkForward, folds: 2, overlap: 0 };
        let html = folds_page(&Folds { plan, run: Path::new("<walk>"), done: &done });
        assert!(!html.contains("beyond the picture"), "{html}");
        let straw = [fold(1, 0.2), fold(2, 0.3)];
        let straw = folds_page(&Folds { plan, run: Path::new("<walk>"), done: &straw });
        assert!(straw.contains("no change, beyond the picture"), "{straw}");
        for part in [
            "rmse 3.000 ± 1.414; rmse no change 5.000 ± 0.000: mean ± deviation over 2 folds.",
            "&lt;walk&gt;",
            "rmse by fold",
            "1970-01-01 00:00",
            "<th scope=\"row\">deviation</th>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        for outside in ["http:", "https:", "<script", "src=", "url(", "@import", "NaN", "<walk>"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
