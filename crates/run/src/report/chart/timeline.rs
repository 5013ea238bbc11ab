//! Spans along an axis, in rows.

use super::axis::{Axis, Tick};
use super::canvas::{Size, Words};
use super::file::standalone;
use crate::report::html::{escape, figure};

/// A chart of what lies where on an axis.
pub(crate) struct Timeline {
    pub(crate) words: Words,
    /// Horizontal axis.
    pub(crate) x: Axis,
    pub(crate) rows: Vec<Row>,
    /// Classes and name of what the colours stand for; may be empty.
    pub(crate) legend: Vec<(String, String)>,
}

/// Spans with a name.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
}

/// A stretch of the axis, both ends included.
pub(crate) struct Span {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Number of the colour.
    pub(crate) color: usize,
    /// Text shown on hover.
    pub(crate) text: String,
}

const WIDTH: f64 = 1100.0;
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
/// Room for the axis.
const FOOT: f64 = 28.0;
const RIGHT: f64 = 18.0;
const CHARACTER: f64 = 7.4;
/// Thinner spans than this would not be seen.
const THINNEST: f64 = 1.0;

impl Timeline {
    /// The chart as a figure, or nothing where it has no spans.
    pub(crate) fn to_html(&self) -> String {
        let svg = self.draw();
        svg.map_or_else(String::new, |svg| figure(&self.words.title, Size::Wide, &svg, &self.legend))
    }

    /// The chart as a file of its own, or nothing where it has no spans.
    pub(crate) fn to_file(&self) -> Option<String> {
        Some(standalone(&self.draw()?, WIDTH, ROW * self.rows.len() as f64 + FOOT, &self.legend))
    }

    fn draw(&self) -> Option<String> {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        let from = spans().map(|span| span.from).fold(f64::INFINITY, f64::min);
        let to = spans().map(|span| span.to).fold(f64::NEG_INFINITY, f64::max);
        if from >= to || spans().next().is_none() {
            return None;
        }
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let left = 16.0 + CHARACTER * longest as f64;
        let x_at = |x: f64| left + (x - from) / (to - from) * (WIDTH - RIGHT - left);
        let bottom = ROW * self.rows.len() as f64;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{2}\"><title>{2}</title><desc>{1}</desc>",
            bottom + FOOT,
            escape(&self.words.description),
            escape(&self.words.title)
        );
        for Tick { at, text } in self.x.ticks(from, to, 9) {
            let x = x_at(at);
            svg.push_str(&format!(
                "<path class=\"grid\" d=\"M{x:.1} 0V{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                bottom + 18.0
            ));
        }
        for (k, row) in self.rows.iter().enumerate() {
            svg.push_str(&row.draw(ROW * k as f64, left, &x_at));
        }
        Some(svg + "</svg>")
    }
}

impl Row {
    fn draw(&self, top: f64, left: f64, x_at: &dyn Fn(f64) -> f64) -> String {
        let mut svg = format!(
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            top + ROW / 2.0 + 4.0,
            escape(&self.name)
        );
        for span in &self.spans {
            let x = x_at(span.from);
            svg.push_str(&format!(
                "<rect class=\"block c{}\" x=\"{x:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{BAR}\"><title>{}</title></rect>",
                span.color,
                top + (ROW - BAR) / 2.0,
                (x_at(span.to) - x).max(THINNEST),
                escape(&span.text)
            ));
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_drawn_in_their_rows_and_nothing_without_any() {
        let timeline = |spans| Timeline {
            words: Words { title: "t".into(), description: "d".into() },
            x: Axis::number("x"),
            rows: vec![Row { name: "r<".into(), spans }],
            legend: vec![("c2 block".into(), "two".into())],
        };
        let span = |from, to| Span { from, to, color: 2, text: "s".into() };
        let html = timeline(vec![span(0.0, 1.0), span(3.0, 3.0)]).to_html();
        assert_eq!(html.matches("<rect class=\"block c2\"").count(), 2);
        assert!(html.contains("r&lt;") && html.contains("width=\"1.0\""), "{html}");
        assert!(html.contains("class=\"legend\"") && html.contains("two</li>"), "{html}");
        assert!(timeline(vec![]).to_html().is_empty() && timeline(vec![]).to_file().is_none());
        let file = timeline(vec![span(0.0, 1.0)]).to_file().unwrap();
        for part in ["xmlns=\"http://www.w3.org/2000/svg\"", "prefers-color-scheme: dark", ">two</text>", "r&lt;"] {
            assert!(file.contains(part), "{part}: {file}");
        }
        assert_eq!(file.matches("<svg").count(), file.matches("</svg>").count());
    }
}
