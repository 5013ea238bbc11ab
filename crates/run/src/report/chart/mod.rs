//! Charts as SVG text, without a script: axes with round ticks, a grid, a legend; colours come from
//! the page's style sheet.

mod areas;
mod axis;
mod canvas;
mod columns;
mod file;
mod layout;
mod network;
mod numbers;
mod timeline;

pub(crate) use areas::{Area, Areas};
pub(crate) use axis::Axis;
use canvas::{Axes, Canvas, DOT, bounds, for_both_widths, not_empty, with_room};

pub(crate) use super::html::Size;
pub(crate) use canvas::Words;
pub(crate) use columns::{Columns, Layer};
pub(crate) use network::Network;
use numbers::series_table;
pub(crate) use timeline::{Row, Span, Timeline};

use super::html::{Figure, escape};
use crate::text::number::significant;

/// A chart of several series over one x axis.
pub(crate) struct Chart {
    pub(crate) words: Words,
    pub(crate) size: Size,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// Points that belong together. One whose coordinates are not finite breaks a line.
pub(crate) struct Series {
    /// Empty for one that the legend leaves out.
    pub(crate) name: String,
    pub(crate) mark: Mark,
    /// Number of the colour; the style sheet knows six.
    pub(crate) color: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Mark of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    /// A line behind the others that may run out of the picture: the other series decide what range
    /// is shown.
    Faint,
    /// A dashed line that belongs to the chart rather than to the data; it does not decide the
    /// range either.
    Guide,
    /// A line with a dot at each point that says its values.
    Dots,
    /// Points without a line, each nearly transparent.
    Cloud,
}

/// More columns of points than these are thinned to them: a browser draws no more pixels.
const COLUMNS_MAX: usize = 400;
/// A line of more points than these has no dots.
const DOTS_MAX: usize = 80;

impl Chart {
    /// The chart as a figure with its legend, or a sentence where there is nothing to draw.
    pub(crate) fn to_html(&self) -> String {
        self.to_html_above("")
    }

    /// The same above a `note`.
    pub(crate) fn to_html_above(&self, note: &str) -> String {
        match self.frame() {
            Some(frame) => {
                let draw = |size| self.draw(size, frame.0, frame.1);
                let svg = if self.size == Size::Wide { for_both_widths(draw) } else { draw(self.size) };
                let legend = self.legend();
                let numbers = series_table(&self.words.title, &self.x, &self.y, &self.series);
                Figure { title: &self.words.title, size: self.size, svg: &svg, legend: &legend, note, numbers }
                    .to_html()
            }
            None => format!("<p>{}: nothing was recorded.</p>\n", escape(&self.words.title)),
        }
    }

    fn legend(&self) -> Vec<(String, String)> {
        let entry = |series: &Series| (format!("c{} {}", series.color, series.mark.class()), series.name.clone());
        let named = self.series.iter().filter(|series| !series.points.is_empty() && !series.name.is_empty());
        named.map(entry).collect()
    }

    fn draw(&self, size: Size, x: (f64, f64), y: (f64, f64)) -> String {
        let mut canvas = Canvas::new(&self.words, size, &Axes { x: (&self.x, x), y: (&self.y, y) });
        let drawn: String = self.series.iter().map(|series| series.draw(&canvas)).collect();
        canvas.clipped(&drawn);
        canvas.finish()
    }

    /// The ranges of x and y that are shown.
    fn frame(&self) -> Option<((f64, f64), (f64, f64))> {
        let deciding = |mark: Mark| !matches!(mark, Mark::Faint | Mark::Guide);
        self.series.iter().flat_map(|series| &series.points).find(|(x, y)| x.is_finite() && y.is_finite())?;
        let any = self.series.iter().any(|series| deciding(series.mark) && !series.points.is_empty());
        let points = || {
            let series = self.series.iter().filter(move |series| !any || deciding(series.mark));
            series.flat_map(|series| &series.points).filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        let x = bounds(points().map(|point| point.0).chain(self.x.includes))?;
        let y = bounds(points().map(|point| point.1).chain(self.y.includes))?;
        if self.size == Size::Square {
            let both = not_empty(x.0.min(y.0), x.1.max(y.1));
            return Some((both, both));
        }
        Some((not_empty(x.0, x.1), with_room(y.0, y.1)))
    }
}

impl Mark {
    fn class(self) -> &'static str {
        match self {
            Mark::Line | Mark::Dots => "line",
            Mark::Faint => "line faint",
            Mark::Guide => "line guide",
            Mark::Cloud => "cloud",
        }
    }
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, mark: Mark, color: usize, points: Vec<(f64, f64)>) -> Self {
        Series { name: name.into(), mark, color, points }
    }

    fn draw(&self, canvas: &Canvas) -> String {
        let class = format!("{} c{}", self.mark.class(), self.color);
        let dots =
            if self.mark == Mark::Dots && self.points.len() <= DOTS_MAX { self.dots(canvas) } else { String::new() };
        let path =
            if self.mark == Mark::Cloud { cloud(&self.points, canvas) } else { line(&thin(&self.points), canvas) };
        format!("<path class=\"{class}\" d=\"{path}\"/>{dots}")
    }

    fn dots(&self, canvas: &Canvas) -> String {
        let finite = self.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let dot = |&(x, y): &(f64, f64)| {
            format!(
                "<circle class=\"dot c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{DOT}\"><title>{} {}: {}</title></circle>",
                self.color,
                canvas.x_at(x),
                canvas.y_at(y),
                escape(&self.name),
                significant(x, 1),
                significant(y, 4)
            )
        };
        finite.map(dot).collect()
    }
}

fn line(points: &[(f64, f64)], canvas: &Canvas) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for &(x, y) in points {
        if x.is_finite() && y.is_finite() {
            path.push_str(&format!("{pen}{:.1} {:.1}", canvas.x_at(x), canvas.y_at(y)));
            pen = 'L';
        } else {
            pen = 'M';
        }
    }
    path
}

/// Lines of no length, which round caps make points.
fn cloud(points: &[(f64, f64)], canvas: &Canvas) -> String {
    let finite = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    finite.map(|&(x, y)| format!("M{:.1} {:.1}h0", canvas.x_at(x), canvas.y_at(y))).collect()
}

/// The points where they are few; else the lowest and the highest of each of many neighbourhoods,
/// so that no peak is lost.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= 2 * COLUMNS_MAX {
        return points.to_vec();
    }
    let extremes = |column: &[(f64, f64)]| {
        let by_height = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let finite = || (0..column.len()).filter(|&k| column[k].1.is_finite());
        let mut kept: Vec<usize> = finite().min_by(by_height).into_iter().chain(finite().max_by(by_height)).collect();
        kept.sort_unstable();
        kept.dedup();
        kept.into_iter().map(|k| column[k]).collect::<Vec<_>>()
    };
    points.chunks(points.len().div_ceil(COLUMNS_MAX)).flat_map(extremes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(mark: Mark, points: Vec<(f64, f64)>) -> String {
        Chart {
            words: Words { title: "t<".into(), description: "d".into() },
            size: Size::Half,
            x: Axis::number("x"),
            y: Axis::number("y"),
            series: vec![Series { name: "a<b".into(), mark, color: 0, points }],
        }
        .to_html()
    }

    fn path(html: &str, class: &str) -> String {
        html.split(&format!("<path class=\"{class}\" d=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    #[test]
    fn charts_of_nothing_one_point_and_holes_are_drawn() {
        assert!(chart(Mark::Line, vec![]).starts_with("<p>t&lt;: nothing"));
        assert!(chart(Mark::Line, vec![(1.0, f64::NAN)]).starts_with("<p>"));
        for mark in [Mark::Line, Mark::Faint, Mark::Guide, Mark::Dots, Mark::Cloud] {
            let one = chart(mark, vec![(1.0, 0.0)]);
            assert!(one.contains("a&lt;b") && !one.contains("NaN") && !one.contains("inf"), "{one}");
        }
        let hole = chart(Mark::Line, vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0)]);
        assert_eq!(path(&hole, "line c0").matches('M').count(), 2, "{hole}");
    }

    #[test]
    fn many_points_keep_their_peaks_and_little_room() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|k| (f64::from(k), 1.0)).collect();
        points[34_567].1 = 9.0;
        assert!(thin(&points).contains(&(34_567.0, 9.0)));
        assert!(thin(&points).len() <= 2 * COLUMNS_MAX);
        assert!(chart(Mark::Line, points).len() < 20_000);
    }

    #[test]
    fn a_faint_line_does_not_decide_the_range() {
        let series = |mark, high| Series { name: String::new(), mark, color: 0, points: vec![(0.0, 0.0), (1.0, high)] };
        let mut chart = Chart {
            words: Words { title: String::new(), description: String::new() },
            size: Size::Wide,
            x: Axis::number("x"),
            y: Axis::number("y"),
            series: vec![series(Mark::Faint, 100.0), series(Mark::Line, 1.0)],
        };
        assert!(chart.frame().unwrap().1.1 < 2.0);
        chart.series.pop();
        assert!(chart.frame().unwrap().1.1 >= 100.0, "alone it does");
    }

    #[test]
    fn dots_say_their_values() {
        let html = chart(Mark::Dots, vec![(3.0, 0.5)]);
        assert!(html.contains("<title>a&lt;b 3: 0.5000</title>"), "{html}");
    }
}
