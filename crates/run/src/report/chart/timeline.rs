//! Spans along an axis, in rows.

use super::axis::{Axis, Tick};
use super::canvas::{Words, for_both_widths};
use super::file::standalone;
use crate::report::html::{Figure, Size, Table, escape};

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

const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
/// Room for the axis.
const FOOT: f64 = 28.0;
const RIGHT: f64 = 18.0;
const CHARACTER: f64 = 7.4;
/// Characters of the longest name that is written whole.
const NAME_MAX: usize = 28;
/// Most spans in the table of a chart.
const SPANS_MAX: usize = 100;
/// Thinner spans than this would not be seen.
const THINNEST: f64 = 1.0;

impl Timeline {
    /// The chart as a figure, or nothing where it has no spans.
    pub(crate) fn to_html(&self) -> String {
        let Some(range) = self.range() else { return String::new() };
        let svg = for_both_widths(|size| self.draw(size, range));
        let numbers = Some(self.numbers());
        Figure { title: &self.words.title, size: Size::Wide, svg: &svg, legend: &self.legend, note: "", numbers }
            .to_html()
    }

    /// The text of each span.
    fn numbers(&self) -> Table {
        let spans = self.rows.iter().flat_map(|row| row.spans.iter().map(move |span| (row, span)));
        let rows: Vec<Vec<String>> = spans.map(|(row, span)| vec![row.name.clone(), span.text.clone()]).collect();
        let caption = match rows.len() {
            0..=SPANS_MAX => self.words.title.clone(),
            count => format!("{}, the first {SPANS_MAX} of {count}", self.words.title),
        };
        Table { caption, head: Vec::new(), rows: rows.into_iter().take(SPANS_MAX).collect() }
    }

    /// The chart as a file of its own, or nothing where it has no spans.
    pub(crate) fn to_file(&self) -> Option<String> {
        let svg = self.draw(Size::Wide, self.range()?);
        Some(standalone(&svg, Size::Wide.width(), ROW * self.rows.len() as f64 + FOOT, &self.legend))
    }

    /// The ends of the axis; none without spans.
    fn range(&self) -> Option<(f64, f64)> {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        let from = spans().map(|span| span.from).fold(f64::INFINITY, f64::min);
        let to = spans().map(|span| span.to).fold(f64::NEG_INFINITY, f64::max);
        (from < to).then_some((from, to))
    }

    fn draw(&self, size: Size, range: (f64, f64)) -> String {
        let (from, to) = range;
        let (width, ticks) = if size == Size::Wide { (size.width(), 9) } else { (size.width(), 4) };
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).min(NAME_MAX);
        let left = 16.0 + CHARACTER * longest as f64;
        let x_at = |x: f64| left + (x - from) / (to - from) * (width - RIGHT - left);
        let bottom = ROW * self.rows.len() as f64;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width} {}\" role=\"img\" aria-label=\"{2}\"><title>{2}</title><desc>{1}</desc>",
            bottom + FOOT,
            escape(&self.words.description),
            escape(&self.words.title)
        );
        for Tick { at, text } in self.x.ticks(from, to, ticks) {
            let x = x_at(at);
            svg.push_str(&format!(
                "<path class=\"grid\" d=\"M{x:.1} 0V{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                bottom + 18.0
            ));
        }
        for (k, row) in self.rows.iter().enumerate() {
            svg.push_str(&row.draw(ROW * k as f64, left, &x_at));
        }
        svg + "</svg>"
    }
}

impl Row {
    fn draw(&self, top: f64, left: f64, x_at: &dyn Fn(f64) -> f64) -> String {
        let mut name = escape(&self.name);
        if self.name.chars().count() > NAME_MAX {
            let start: String = self.name.chars().take(NAME_MAX - 1).collect();
            name = format!("{}…<title>{name}</title>", escape(&start));
        }
        let mut svg = format!(
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            left - 8.0,
            top + ROW / 2.0 + 4.0,
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
        assert_eq!(html.matches("<rect class=\"block c2\"").count(), 4, "two spans for wide and for narrow windows");
        assert!(html.contains("r&lt;") && html.contains("width=\"1.0\""), "{html}");
        assert!(html.contains("class=\"legend\"") && html.contains("two</li>"), "{html}");
        let mut long = timeline(vec![span(0.0, 1.0)]);
        long.rows[0].name = "n".repeat(90);
        let ellipsis = format!(">{}…<title>{}</title></text>", "n".repeat(27), "n".repeat(90));
        assert!(long.to_html().contains(&ellipsis), "{}", long.to_html());
        assert!(timeline(vec![]).to_html().is_empty() && timeline(vec![]).to_file().is_none());
        let file = timeline(vec![span(0.0, 1.0)]).to_file().unwrap();
        for part in ["xmlns=\"http://www.w3.org/2000/svg\"", "prefers-color-scheme: dark", ">two</text>", "r&lt;"] {
            assert!(file.contains(part), "{part}: {file}");
        }
        assert_eq!(file.matches("<svg").count(), file.matches("</svg>").count());
    }
}
