//! Attention of the model: in its windows, a chart a timeframe and a line a head, and among its
//! timeframes.

use super::chart::{Axis, Chart, Mark, Row, Series, Size, Span, Timeline, Words};
use super::html::{Section, Table, paragraph, side_by_side};
use crate::evaluate::attention::{Attended, Attention, Fused};
use crate::text::number::{percent, plural, significant};

pub(crate) fn section(attention: &Attention) -> Section {
    let samples =
        format!("averaged over {} of the {} split", plural(attention.samples, "sample"), attention.part.name());
    let mut body = String::new();
    if !attention.timeframes.is_empty() {
        body.push_str(&windows(&attention.timeframes, &samples));
    }
    if let Some(fused) = &attention.fusion {
        body.push_str(&timeframes(fused, &samples));
    }
    Section { id: "attention", title: "Where the model looks", body }
}

/// The weights of pooling.
fn windows(timeframes: &[Attended], samples: &str) -> String {
    let body = paragraph(&format!(
        "The weights with which attention pools the states of a window, {samples}: the share of each bar in the window's \
         summary. On the dashed line, all bars have the same weight. A state depends on the bars before it too.",
    ));
    let charts: Vec<String> = timeframes.iter().map(|attended| chart(attended).to_html()).collect();
    body + &side_by_side(&charts)
}

/// The weights of fusion: a bar a timeframe that looks, and the mean over them.
fn timeframes(Fused { names, weights }: &Fused, samples: &str) -> String {
    let name = |k: usize| if names[k].is_empty() { "the window" } else { &names[k] };
    let text = paragraph(&format!(
        "The weights with which attention fuses the timeframes, {samples} and over heads: how much each timeframe takes from the others and from \
         itself. The model reads the mean over those that look, which is the lowest bar.",
    ));
    let count = names.len();
    let mean = (0..count).map(|k| weights.iter().map(|row| row[k]).sum::<f64>() / count as f64).collect::<Vec<f64>>();
    let most = (0..count).max_by(|&a, &b| mean[a].total_cmp(&mean[b])).unwrap_or(0);
    let rows = || weights.iter().enumerate().map(|(k, row)| (name(k), row)).chain([("mean", &mean)]);
    let bar = |(who, row): (&str, &Vec<f64>)| {
        let mut from = 0.0;
        let span = |(k, &weight): (usize, &f64)| {
            let text = format!("{who} looks at {}: {}", name(k), percent(weight));
            let span = Span { from, to: from + 100.0 * weight, color: k % COLORS, text };
            from = span.to;
            span
        };
        Row { name: who.to_owned(), spans: row.iter().enumerate().map(span).collect() }
    };
    let timeline = Timeline {
        words: Words {
            title: match mean[most] * count as f64 {
                // Within a hundredth of an even share.
                ..1.01 => "All timeframes have about the same weight".to_owned(),
                _ => format!("Most of the weight is on {}: {}", name(most), percent(mean[most])),
            },
            description: "Stacked bars: the shares of its attention that each timeframe gives to each, in percent."
                .to_owned(),
        },
        x: Axis::number("share in percent"),
        rows: rows().map(bar).collect(),
        legend: (0..count).map(|k| (format!("c{} block", k % COLORS), format!("looked at: {}", name(k)))).collect(),
    };
    let cells = |(who, row): (&str, &Vec<f64>)| {
        std::iter::once(who.to_owned()).chain(row.iter().map(|&weight| percent(weight))).collect()
    };
    let head = std::iter::once("who looks".to_owned()).chain((0..count).map(|k| name(k).to_owned()));
    let table = Table::new("Attention among timeframes: who looks, and at whom", head, rows().map(cells));
    text + &timeline.to_html() + &table.to_html()
}

/// Colours that tell blocks apart.
const COLORS: usize = 6;

fn chart(attended: &Attended) -> Chart {
    let Attended { name, heads } = attended;
    let steps = heads.first().map_or(0, Vec::len);
    let name = if name.is_empty() { "the window" } else { name };
    let line = |(head, weights): (usize, &Vec<f64>)| Series {
        name: if heads.len() == 1 { "attention".to_owned() } else { format!("head {}", head + 1) },
        mark: Mark::Line,
        color: head,
        points: weights.iter().enumerate().map(|(t, weight)| (before_last(t, steps), weight * steps as f64)).collect(),
    };
    let even = Series {
        name: "all bars alike".to_owned(),
        mark: Mark::Guide,
        color: 6,
        points: [0, steps.saturating_sub(1)].map(|t| (before_last(t, steps), 1.0)).to_vec(),
    };
    Chart {
        words: Words::new(
            format!("{name}: half of the weight on the last {}", last_half(heads)),
            format!("Attention over the {} of {name}, one line a head.", plural(steps, "bar")),
        ),
        size: Size::Half,
        x: Axis::count("bar, counted from the window's last"),
        y: Axis::number("times an even share").with_zero(),
        series: heads.iter().enumerate().map(line).chain([even]).collect(),
    }
}

/// 0 for the last bar, -1 for the one before it.
fn before_last(t: usize, steps: usize) -> f64 {
    t as f64 - (steps as f64 - 1.0)
}

/// The bars at the window's end that have half of the weight, averaged over heads.
fn last_half(heads: &[Vec<f64>]) -> String {
    let bars = |weights: &Vec<f64>| {
        let mut sum = 0.0;
        let at_end = weights.iter().rev().take_while(|&&weight| {
            sum += weight;
            sum < 0.5
        });
        at_end.count() + 1
    };
    let mean = heads.iter().map(bars).sum::<usize>() as f64 / heads.len().max(1) as f64;
    if mean.fract() == 0.0 { plural(mean as usize, "bar") } else { format!("{} bars", significant(mean, 2)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Part;

    fn attention(heads: Vec<Vec<f64>>) -> Attention {
        let timeframes = vec![Attended { name: "M<1".into(), heads }];
        Attention { part: Part::Test, samples: 12, timeframes, fusion: None }
    }

    #[test]
    fn timeframes_that_are_fused_have_a_bar_each_and_one_for_their_mean() {
        let names = ["M<1", "H1"].map(str::to_owned).to_vec();
        let fusion = Some(Fused { names, weights: vec![vec![0.25, 0.75], vec![0.5, 0.5]] });
        let html = section(&Attention { part: Part::Test, samples: 12, timeframes: Vec::new(), fusion }).body;
        for part in [
            "averaged over 12 samples of the test split and over heads",
            "Most of the weight is on H1: 62.5 %",
            "M&lt;1 looks at H1: 75.0 %",
            "mean looks at M&lt;1: 37.5 %",
            "looked at: H1",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(
            html.matches("<rect class=\"block c1\"").count(),
            2 * 3,
            "at both widths a bar a timeframe, and one for their mean"
        );
        assert!(!html.contains("half of the weight"), "nothing was pooled");
        let even = Fused { names: vec!["M1".into(), "H1".into()], weights: vec![vec![0.5; 2]; 2] };
        assert!(timeframes(&even, "").contains("All timeframes have about the same weight"));
    }

    #[test]
    fn a_chart_has_a_line_a_head_and_says_where_half_of_the_weight_is() {
        let html = section(&attention(vec![vec![0.1, 0.2, 0.3, 0.4], vec![0.0, 0.0, 0.0, 1.0]])).body;
        for part in [
            "averaged over 12 samples of the test split",
            "M&lt;1: half of the weight on the last 1.5 bars",
            "head 1",
            "head 2",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let html = section(&attention(vec![vec![0.25; 4]])).body;
        assert!(html.contains("half of the weight on the last 2 bars") && !html.contains("head 1"), "{html}");
    }
}
