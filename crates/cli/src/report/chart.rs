//! A line chart as SVG text: axes with round ticks, a grid, a legend; colours come from the page's style sheet.

use super::html::escape;

/// One line of a chart. Points whose coordinates are not finite break the line.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A chart of several lines over one x axis.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// More points than this on one line are thinned: a browser draws no more pixels than these.
const POINTS_MAX: usize = 1500;

impl Chart {
    /// The chart as an `<svg>` element, or a sentence where there is nothing to draw.
    pub(crate) fn to_svg(&self) -> String {
        let Some(frame) = Frame::around(&self.lines) else {
            return format!("<p>{}: nothing was recorded.</p>", escape(self.title));
        };
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
            escape(self.title)
        );
        self.draw_axes(&frame, &mut svg);
        for (k, line) in self.lines.iter().enumerate() {
            svg.push_str(&format!("<path class=\"line c{k}\" d=\"{}\"/>", frame.path(&line.points)));
        }
        self.draw_legend(&mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn draw_axes(&self, frame: &Frame, svg: &mut String) {
        for tick in round_ticks(frame.x.0, frame.x.1, 8) {
            let x = frame.x_at(tick);
            let (top, bottom) = (TOP, HEIGHT - BOTTOM);
            svg.push_str(&format!("<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>"));
            svg.push_str(&format!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                short(tick)
            ));
        }
        for tick in round_ticks(frame.y.0, frame.y.1, 6) {
            let y = frame.y_at(tick);
            svg.push_str(&format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT));
            svg.push_str(&format!(
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(tick)
            ));
        }
        let (x_middle, y_middle) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        svg.push_str(&format!(
            "<text class=\"label\" x=\"{x_middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(14 {y_middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(self.x_label),
            escape(self.y_label)
        ));
    }

    fn draw_legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (k, line) in self.lines.iter().enumerate() {
            svg.push_str(&format!(
                "<path class=\"line c{k}\" d=\"M{x} 14h18\"/><text class=\"label\" x=\"{}\" y=\"18\">{}</text>",
                x + 24.0,
                escape(&line.name)
            ));
            x += 42.0 + 7.2 * line.name.chars().count() as f64;
        }
    }
}

/// The rectangle of values that a chart shows.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn around(lines: &[Line]) -> Option<Self> {
        let points = || lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let bounds = |value: fn(&(f64, f64)) -> f64| {
            points().map(value).fold(None, |bounds: Option<(f64, f64)>, v| match bounds {
                None => Some((v, v)),
                Some((low, high)) => Some((low.min(v), high.max(v))),
            })
        };
        let (x, y) = (bounds(|point| point.0)?, bounds(|point| point.1)?);
        let room = ((y.1 - y.0) * 0.05).max(y.1.abs().max(1e-12) * 1e-3);
        let bottom = if y.0 >= 0.0 { (y.0 - room).max(0.0) } else { y.0 - room };
        Some(Frame { x: if x.0 == x.1 { (x.0 - 0.5, x.1 + 0.5) } else { x }, y: (bottom, y.1 + room) })
    }

    fn x_at(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (y - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        let mut pen = 'M';
        for &(x, y) in points.iter().step_by(points.len().div_ceil(POINTS_MAX).max(1)) {
            if x.is_finite() && y.is_finite() {
                path.push_str(&format!("{pen}{:.1} {:.1}", self.x_at(x), self.y_at(y)));
                pen = 'L';
            } else {
                pen = 'M';
            }
        }
        path
    }
}

/// At most `count` multiples of 1, 2 or 5 times a power of ten between `low` and `high`.
fn round_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * magnitude).find(|&step| step >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|k| k as f64 * step).collect()
}

/// A tick's number with no more digits than it needs.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 || (magnitude > 0.0 && magnitude < 1e-4) {
        format!("{value:.1e}")
    } else {
        let text = format!("{value:.5}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let lines = vec![Line { name: "a<b".into(), points }];
        Chart { title: "t", x_label: "x", y_label: "y", lines }.to_svg()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(round_ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_ticks(0.13, 0.29, 4), [0.15, 0.2, 0.25].map(|v: f64| (v / 0.05).round() * 0.05));
        assert!(round_ticks(-3.0, 1e6, 8).len() <= 9);
        assert_eq!([0.0, 1.5, 1e-5, 2e7, -0.25].map(short), ["0", "1.5", "1.0e-5", "2.0e7", "-0.25"]);
    }

    #[test]
    fn charts_of_nothing_one_point_and_holes_are_drawn() {
        assert!(chart(vec![]).starts_with("<p>"));
        assert!(chart(vec![(1.0, f64::NAN)]).starts_with("<p>"));
        let one = chart(vec![(1.0, 0.0)]);
        assert!(one.contains("a&lt;b") && !one.contains("NaN") && !one.contains("inf"));
        let hole = chart(vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0)]);
        let line = hole.split("class=\"line c0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert!(chart((0..100_000).map(|k| (f64::from(k), 1.0)).collect()).len() < 60_000);
    }
}
