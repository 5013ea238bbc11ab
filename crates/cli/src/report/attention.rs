//! Where in its windows the model looks: a chart a timeframe, a line a head.

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, paragraph, side_by_side};
use super::number::{plural, significant};
use crate::attention::{Attended, Attention};

pub(crate) fn section(attention: &Attention) -> Section {
    let mut body = paragraph(&format!(
        "The weights with which attention pools the states of a window, averaged over {} of the {} split: how much of the window's summary comes from each \
         bar. On the dashed line, a head looks at all bars alike. A state knows the bars before it, so that weight on a bar is weight on what led up to it.",
        plural(attention.samples, "sample"),
        attention.part.name(),
    ));
    let charts: Vec<String> = attention.timeframes.iter().map(|attended| chart(attended).to_html()).collect();
    body.push_str(&side_by_side(&charts));
    Section { id: "attention", title: "Where the model looks", body }
}

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
        words: Words {
            title: format!("{name}: half of the weight on the last {}", last_half(heads)),
            description: format!("Attention over the {} of {name}, one line a head.", plural(steps, "bar")),
        },
        size: Size::Half,
        x: Axis::number("bar, counted from the window's last"),
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
    use crate::evaluation::Part;

    fn attention(heads: Vec<Vec<f64>>) -> Attention {
        Attention { part: Part::Test, samples: 12, timeframes: vec![Attended { name: "M<1".into(), heads }] }
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
