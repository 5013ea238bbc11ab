//! The comparison as a page in the style of the report of a run.

use super::errors::Errors;
use super::{Comparison, Side};
use crate::report::chart::{Axis, Chart, Columns, Layer, Mark, Series, Size, Words};
use crate::report::html::{Section, escape, page, paragraph, side_by_side};
use crate::report::learning::{points, smooth};
use crate::report::time::PHASES;
use crate::text::number::seconds;

/// Colours of lines, which are used anew by further runs; baselines have one of their own.
const COLORS: usize = 6;
const BASELINE_COLOR: usize = 6;

impl Comparison {
    /// The page as HTML, which needs nothing else.
    pub(crate) fn to_html(&self) -> String {
        let names: Vec<&str> = self.sides.iter().map(|side| side.label.as_str()).collect();
        let title = names.join(", ");
        let intro: String = self.sentences().iter().map(|sentence| paragraph(sentence)).collect();
        let head = format!("<p class=\"over\">Runs side by side</p>\n<h1>{}</h1>\n{intro}", escape(&title));
        let sections = [self.results(), self.settings(), self.learning(), self.horizons(), self.time()];
        page(&format!("megabatch: {title}"), &head, &sections)
    }

    fn results(&self) -> Section {
        let body = self.results_table().to_html();
        Section { id: "results", title: "Results", body }
    }

    fn settings(&self) -> Section {
        let table = self.settings_table();
        let body = if table.rows.is_empty() { paragraph("All settings are the same.") } else { table.to_html() };
        Section { id: "configuration", title: "Settings that differ", body }
    }

    fn learning(&self) -> Section {
        let charts = self.groups().into_iter().flat_map(|(samples, sides)| {
            let validation = |side: &Side| (Mark::Dots, points(&side.metrics, "validation", "loss"));
            let training = |side: &Side| (Mark::Line, smooth(&points(&side.metrics, "step", "loss")));
            [
                by_step(&self.with_samples("Validation loss by step", samples), &sides, validation),
                by_step(&self.with_samples("Training loss by step, smoothed", samples), &sides, training),
            ]
        });
        let body = side_by_side(&charts.map(|chart| chart.to_html()).collect::<Vec<_>>());
        Section { id: "learning", title: "Learning curves", body }
    }

    fn horizons(&self) -> Section {
        let groups = self.groups();
        let charts = groups.iter().map(|(samples, sides)| {
            errors_by_horizon(&self.with_samples("Root mean square error by horizon", *samples), sides).to_html()
        });
        let intro =
            "Dashed lines are baselines, fitted on the training split. Runs that have not ended are not judged yet.";
        Section { id: "horizons", title: "Error by horizon", body: paragraph(intro) + &charts.collect::<String>() }
    }

    fn time(&self) -> Section {
        let layer = |(phase, name): (usize, &&str)| {
            let durations_s: Vec<f64> = self.sides.iter().map(|side| side.times().phases[phase]).collect();
            let text = |(side, &duration_s): (&Side, &f64)| format!("{}, {name}: {}", side.label, seconds(duration_s));
            let texts = self.sides.iter().zip(&durations_s).map(text).collect();
            Layer { name: (*name).to_owned(), heights: durations_s, texts }
        };
        let columns = Columns {
            words: Words::new("Time by phase", "Stacked columns, one a run, in the order of the tables."),
            x: Axis::count("run, in the order of the tables"),
            y: Axis::number("seconds"),
            first: 1.0,
            step: 1.0,
            layers: PHASES.iter().enumerate().map(layer).collect(),
        };
        Section { id: "time", title: "Time by phase", body: columns.to_html() }
    }

    /// `title`, with the letter of the samples where there are several.
    fn with_samples(&self, title: &str, samples: char) -> String {
        if self.groups().len() > 1 { format!("{title}, samples {samples}") } else { title.to_owned() }
    }
}

/// A line a run over the optimizer steps.
fn by_step(title: &str, sides: &[(usize, &Side)], points_of: impl Fn(&Side) -> (Mark, Vec<(f64, f64)>)) -> Chart {
    let line = |&(place, side): &(usize, &Side)| {
        let (mark, points) = points_of(side);
        Series { name: side.label.clone(), mark, color: place % COLORS, points }
    };
    Chart {
        words: Words { title: title.to_owned(), description: "One line a run.".to_owned() },
        size: Size::Half,
        x: Axis::count("optimizer step"),
        y: Axis::number("loss"),
        series: sides.iter().map(line).collect(),
    }
}

/// A line a run, and the baselines of the first that has any: on the same samples they are the
/// same.
fn errors_by_horizon(title: &str, sides: &[(usize, &Side)]) -> Chart {
    let judged = || sides.iter().filter_map(|&(place, side)| Some((place, side, Errors::from_side(side)?)));
    let line = |(place, side, errors): (usize, &Side, Errors<'_>)| {
        let name = format!("{} ({})", side.label, errors.split());
        Series { name, mark: Mark::Dots, color: place % COLORS, points: errors.rmse_by_horizon(None) }
    };
    let baseline = |(side, name): (&Side, &str)| Series {
        name: name.replace('_', " "),
        mark: Mark::Guide,
        color: BASELINE_COLOR,
        points: Errors::from_side(side).map_or_else(Vec::new, |errors| errors.rmse_by_horizon(Some(name))),
    };
    let names = judged().next().into_iter().flat_map(|(_, side, _)| {
        let names = side.evaluations[0]["baselines"].as_object().into_iter().flat_map(|all| all.keys());
        names.map(move |name| (side, name.as_str()))
    });
    Chart {
        words: Words { title: title.to_owned(), description: "Lower is better. One line a run.".to_owned() },
        size: Size::Wide,
        x: Axis::count("horizon"),
        y: Axis::number("RMSE"),
        series: judged().map(line).chain(names.map(baseline)).collect(),
    }
}
