//! `report.html`: what a run came to, on one page that needs nothing else.

mod chart;
mod html;

use megabatch_trainer::Metrics;
use serde_json::Value;

use crate::config::Config;
use crate::evaluation::Evaluation;
use chart::{Chart, Line};
use html::{escape, page, table};

/// What the page is made from.
pub(crate) struct Report<'a> {
    pub(crate) run_name: &'a str,
    /// A sentence on the data, and one on the model.
    pub(crate) summary: &'a [String],
    /// The lines of metrics.jsonl.
    pub(crate) metrics: &'a [Value],
    pub(crate) evaluation: Option<&'a Evaluation>,
    pub(crate) config: &'a Config,
}

const RMSE_TITLE: &str = "Root mean square error";

/// Share of a new loss in the smoothed line.
const SMOOTHING: f64 = 0.05;

impl Report<'_> {
    /// The page as HTML.
    pub(crate) fn to_html(&self) -> String {
        let mut body = String::new();
        for sentence in self.summary {
            body.push_str(&format!("<p>{}</p>\n", escape(sentence)));
        }
        body.push_str("<h2>Loss</h2>\n");
        body.push_str(&self.loss_chart().to_svg());
        if let Some(evaluation) = self.evaluation {
            body.push_str(&evaluation_section(evaluation));
        }
        body.push_str("<h2>Configuration</h2>\n");
        let settings: Vec<Vec<String>> =
            self.config.settings().map(|(key, text)| vec![key.to_owned(), text.to_owned()]).collect();
        body.push_str(&table(&["key", "value"], &settings));
        page(&format!("megabatch: {}", self.run_name), &body)
    }

    fn loss_chart(&self) -> Chart {
        let points = |kind: &str| -> Vec<(f64, f64)> {
            let of_kind = self.metrics.iter().filter(|metric| metric["event"] == kind);
            of_kind.filter_map(|metric| Some((metric["step"].as_f64()?, metric["loss"].as_f64()?))).collect()
        };
        let lines = vec![
            Line { name: "training, smoothed".into(), points: smooth(&points("step")) },
            Line { name: "validation".into(), points: points("validation") },
        ];
        Chart { title: "Loss by step", x_label: "step", y_label: "loss", lines }
    }
}

/// The exponential moving average of a line, free of the bias towards its start (Kingma and Ba, 2015, section 3).
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (mut average, mut weight) = (0.0, 0.0);
    let smoothed = points.iter().map(|&(x, y)| {
        average += SMOOTHING * (y - average);
        weight += SMOOTHING * (1.0 - weight);
        (x, average / weight)
    });
    smoothed.collect()
}

fn evaluation_section(evaluation: &Evaluation) -> String {
    let mut section = format!(
        "<h2>Error by horizon</h2>\n<p>{} samples ({}).</p>\n<p class=\"verdict\">{}</p>\n",
        evaluation.samples,
        evaluation.split.name(),
        escape(&evaluation.verdict())
    );
    type Metric = fn(&Metrics, usize) -> f64;
    let charts: [(&'static str, &'static str, Metric); 2] = [
        (RMSE_TITLE, "RMSE, in units of the target", |metrics, k| metrics.rmse[k]),
        ("Direction accuracy", "share of signs predicted right", |metrics, k| {
            metrics.direction_accuracy[k].unwrap_or(f64::NAN)
        }),
    ];
    for (title, y_label, metric) in charts {
        let drawn = evaluation.contenders().filter(|(_, metrics)| title == RMSE_TITLE || names_directions(metrics));
        let lines = drawn.map(|(name, metrics)| Line {
            name: name.replace('_', " "),
            points: (0..metrics.rmse.len()).map(|k| ((k + 1) as f64, metric(metrics, k))).collect(),
        });
        let chart = Chart { title, x_label: "horizon in bars", y_label, lines: lines.collect() };
        section.push_str(&format!("<h3>{title}</h3>\n{}", chart.to_svg()));
    }
    section.push_str(&evaluation_table(evaluation));
    section
}

/// Whether any prediction had a sign; those of `no_change` have none, and a line at zero would only squeeze the others.
fn names_directions(metrics: &Metrics) -> bool {
    metrics.direction_accuracy.iter().flatten().any(|&share| share > 0.0)
}

fn evaluation_table(evaluation: &Evaluation) -> String {
    let head: Vec<String> = std::iter::once("horizon".to_owned())
        .chain(evaluation.contenders().map(|(name, _)| format!("RMSE {}", name.replace('_', " "))))
        .chain(["MAE model".to_owned(), "direction model".to_owned()])
        .collect();
    let rows = (0..evaluation.model.rmse.len()).map(|k| {
        std::iter::once((k + 1).to_string())
            .chain(evaluation.contenders().map(|(_, metrics)| format!("{:.3}", metrics.rmse[k])))
            .chain([
                format!("{:.3}", evaluation.model.mae[k]),
                evaluation.model.direction_accuracy[k].map_or("-".to_owned(), |share| format!("{share:.3}")),
            ])
            .collect()
    });
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn smoothing_starts_at_the_first_value_and_follows_a_level() {
        let flat: Vec<(f64, f64)> = (0..50).map(|x| (f64::from(x), 3.0)).collect();
        assert!(smooth(&flat).iter().all(|&(_, y)| (y - 3.0).abs() < 1e-12));
        assert!(smooth(&[]).is_empty());
    }

    #[test]
    fn a_page_holds_charts_verdict_and_configuration_and_nothing_from_elsewhere() {
        let config = Config::load(None, &["data.path=<b>.h5".to_owned()]).unwrap();
        let metrics = [
            json!({ "event": "step", "step": 1, "loss": 2.0 }),
            json!({ "event": "step", "step": 2, "loss": 1.0 }),
            json!({ "event": "validation", "step": 2, "loss": 1.5 }),
        ];
        let evaluation = Evaluation::of_one_horizon([("model", 1.0), ("no_change", 2.0)]);
        let report = Report {
            run_name: "a&b",
            summary: &["Trained on x.".to_owned()],
            metrics: &metrics,
            evaluation: Some(&evaluation),
            config: &config,
        };
        let html = report.to_html();
        for part in
            ["megabatch: a&amp;b", "Trained on x.", "Loss by step", "Error by horizon", "50.0 %", "&lt;b&gt;.h5"]
        {
            assert!(html.contains(part), "{part}");
        }
        for outside in ["http:", "https:", "<script", "src="] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
