//! The rectangle that charts are drawn into: axes, grid, labels, and where a value stands.

use super::axis::{Axis, Tick};
use crate::report::html::{Size, escape};

/// Height of a drawing of `size` whose plotted area begins at `left`.
fn height(size: Size, left: f64) -> f64 {
    match size {
        Size::Half | Size::Wide | Size::Slim => 320.0,
        Size::Square => TOP + (size.width() - RIGHT - left) + BOTTOM,
    }
}

/// A drawing for wide windows, and one for narrow ones. The style sheet shows one of them.
pub(crate) fn for_both_widths(draw: impl Fn(Size) -> String) -> String {
    let with_class = |size, class: &str| draw(size).replacen("<svg ", &format!("<svg class=\"{class}\" "), 1);
    with_class(Size::Wide, "broad") + &with_class(Size::Slim, "slim")
}

const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Room for the y axis beside its tick labels.
const LEFT: f64 = 36.0;
const CHARACTER: f64 = 7.0;
/// Radius of the dots that points are marked with.
pub(crate) const DOT: f64 = 3.0;

/// A drawing under way.
pub(crate) struct Canvas {
    pub(crate) svg: String,
    /// The values at the ends of the axes.
    x: (f64, f64),
    y: (f64, f64),
    /// Left, top, right and bottom edge of the plotted area.
    edges: (f64, f64, f64, f64),
}

/// Text alternative of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) title: String,
    pub(crate) description: String,
}

impl Words {
    pub(crate) fn new(title: impl Into<String>, description: impl Into<String>) -> Self {
        Words { title: title.into(), description: description.into() }
    }
}

/// The two axes and the values at their ends.
pub(crate) struct Axes<'a> {
    pub(crate) x: (&'a Axis, (f64, f64)),
    pub(crate) y: (&'a Axis, (f64, f64)),
}

impl Canvas {
    /// A canvas with axes; what is drawn next lies over the grid, within the plotted area.
    pub(crate) fn new(words: &Words, size: Size, axes: &Axes<'_>) -> Self {
        let ((x_axis, x), (y_axis, y)) = (axes.x, axes.y);
        let y_ticks = y_axis.ticks(y.0, y.1, 5);
        let longest = y_ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(1);
        let left = LEFT + CHARACTER * longest as f64;
        let (width, height) = (size.width(), height(size, left));
        let x_ticks = x_axis.ticks(x.0, x.1, if size == Size::Wide { 9 } else { 5 });
        let mut canvas =
            Canvas { svg: open(words, width, height), x, y, edges: (left, TOP, width - RIGHT, height - BOTTOM) };
        canvas.draw_ticks(&x_ticks, &y_ticks);
        canvas.draw_labels(&x_axis.label, &y_axis.label, height);
        canvas
    }

    pub(crate) fn x_at(&self, x: f64) -> f64 {
        let (left, _, right, _) = self.edges;
        left + (x - self.x.0) / (self.x.1 - self.x.0) * (right - left)
    }

    pub(crate) fn y_at(&self, y: f64) -> f64 {
        let (_, top, _, bottom) = self.edges;
        bottom - (y - self.y.0) / (self.y.1 - self.y.0) * (bottom - top)
    }

    /// Width of the plotted area.
    pub(crate) fn width(&self) -> f64 {
        self.edges.2 - self.edges.0
    }

    /// Adds SVG of which nothing shows that is farther outside the plotted area than half a dot.
    pub(crate) fn clipped(&mut self, svg: &str) {
        let (left, top, right, bottom) = self.edges;
        let (x, y) = (left - DOT, top - DOT);
        let (width, height) = (right + DOT - x, bottom + DOT - y);
        self.svg.push_str(&format!(
            "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" viewBox=\"{x} {y} {width} {height}\">{svg}</svg>"
        ));
    }

    /// The finished drawing.
    pub(crate) fn finish(self) -> String {
        self.svg + "</svg>"
    }

    fn draw_ticks(&mut self, x_ticks: &[Tick], y_ticks: &[Tick]) {
        let (left, top, right, bottom) = self.edges;
        let mut grid = String::new();
        let mut texts = String::new();
        for Tick { at, text } in x_ticks {
            let x = self.x_at(*at);
            grid.push_str(&format!("M{x:.1} {top}V{bottom}"));
            texts.push_str(&format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>", bottom + 18.0));
        }
        for Tick { at, text } in y_ticks {
            let y = self.y_at(*at);
            grid.push_str(&format!("M{left} {y:.1}H{right}"));
            texts.push_str(&format!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                left - 7.0,
                y + 4.0
            ));
        }
        self.svg.push_str(&format!("<path class=\"grid\" d=\"{grid}\"/><g class=\"tick\">{texts}</g>"));
    }

    fn draw_labels(&mut self, x_label: &str, y_label: &str, height: f64) {
        let (left, top, right, bottom) = self.edges;
        self.svg.push_str(&format!(
            "<g class=\"label\"><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text></g>",
            (left + right) / 2.0,
            height - 8.0,
            escape(x_label),
            (top + bottom) / 2.0,
            escape(y_label)
        ));
    }
}

/// The opening tag, with the words that screen readers say.
fn open(Words { title, description }: &Words, width: f64, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title><desc>{1}</desc>",
        escape(title),
        escape(description)
    )
}

/// The least and the largest of the finite values, `None` where there are none.
pub(crate) fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |bounds, v| match bounds {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

/// A range of values with a little room around it; zero stays at the edge where no value is beyond
/// it.
pub(crate) fn with_room(low: f64, high: f64) -> (f64, f64) {
    let room = ((high - low) * 0.06).max(low.abs().max(high.abs()).max(1e-12) * 1e-3);
    let bottom = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
    (bottom, high + room)
}

/// A range that is not empty.
pub(crate) fn not_empty(low: f64, high: f64) -> (f64, f64) {
    if low < high { (low, high) } else { (low - 0.5, high + 0.5) }
}
