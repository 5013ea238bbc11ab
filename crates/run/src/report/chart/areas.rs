//! Stacked areas: how a whole is made of parts while it changes.

use super::axis::Axis;
use super::canvas::{Axes, Canvas, Words, for_both_widths, not_empty};
use super::numbers::{Column, table};
use crate::report::html::{Figure, Size, escape};

/// A chart of parts that stand on one another, over one x axis. A part keeps its height up to the
/// next x.
pub(crate) struct Areas {
    pub(crate) words: Words,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Positions at which heights change, ascending; the last one is the end.
    pub(crate) xs: Vec<f64>,
    /// The lowest first.
    pub(crate) areas: Vec<Area>,
    /// A line over them, with a value at each x.
    pub(crate) line: (String, Vec<f64>),
}

/// One part.
pub(crate) struct Area {
    pub(crate) name: String,
    /// Number of the colour.
    pub(crate) color: usize,
    /// A height at each x.
    pub(crate) heights: Vec<f64>,
    /// Text shown on hover.
    pub(crate) text: String,
}

impl Areas {
    /// The chart as a figure with its legend, or a sentence where there is nothing to draw.
    pub(crate) fn to_html(&self) -> String {
        let (Some(&first), Some(&last)) = (self.xs.first(), self.xs.last()) else {
            return format!("<p>{}: nothing was recorded.</p>\n", escape(&self.words.title));
        };
        let total = |k: usize| self.areas.iter().map(|area| area.heights[k]).sum::<f64>();
        let (name, line) = &self.line;
        let highest = (0..self.xs.len()).map(total).chain(line.iter().copied()).fold(1e-12, f64::max);
        let axes = Axes { x: (&self.x, not_empty(first, last)), y: (&self.y, (0.0, highest * 1.05)) };
        let svg = for_both_widths(|size| {
            let mut canvas = Canvas::new(&self.words, size, &axes);
            let mut base = vec![0.0; self.xs.len()];
            let mut drawn: String = self.areas.iter().map(|area| self.draw(&canvas, area, &mut base)).collect();
            drawn.push_str(&format!("<path class=\"line c6\" d=\"{}\"/>", self.steps(&canvas, line)));
            canvas.clipped(&drawn);
            canvas.finish()
        });
        let areas = self.areas.iter().map(|area| (format!("c{} block", area.color), area.name.clone()));
        let legend: Vec<(String, String)> = areas.chain([("c6 line".to_owned(), name.clone())]).collect();
        let column = |name, heights: &[f64]| Column {
            name,
            points: self.xs.iter().copied().zip(heights.iter().copied()).collect(),
        };
        let parts = self.areas.iter().map(|area| column(&area.name, &area.heights));
        let columns: Vec<Column<'_>> = parts.chain([column(name, line)]).collect();
        let numbers = table(&self.words.title, &self.x, &columns);
        Figure { title: &self.words.title, size: Size::Wide, svg: &svg, legend: &legend, note: "", numbers }.to_html()
    }

    /// Draws a part over what lies below it, and adds its heights to that.
    fn draw(&self, canvas: &Canvas, area: &Area, base: &mut [f64]) -> String {
        let top: Vec<f64> = base.iter().zip(&area.heights).map(|(base, height)| base + height).collect();
        let mut back = String::new();
        for k in (0..self.xs.len()).rev() {
            let end = self.xs[(k + 1).min(self.xs.len() - 1)];
            let y = canvas.y_at(base[k]);
            back.push_str(&format!("L{:.1} {y:.1}L{:.1} {y:.1}", canvas.x_at(end), canvas.x_at(self.xs[k])));
        }
        let path = self.steps(canvas, &top);
        base.copy_from_slice(&top);
        format!(
            "<path class=\"block c{}\" d=\"{path}{back}Z\"><title>{}</title></path>",
            area.color,
            escape(&area.text)
        )
    }

    /// A path from left to right that keeps each height up to the next x.
    fn steps(&self, canvas: &Canvas, heights: &[f64]) -> String {
        let mut path = String::new();
        for (k, &height) in heights.iter().enumerate() {
            let end = self.xs[(k + 1).min(self.xs.len() - 1)];
            let (pen, y) = (if k == 0 { 'M' } else { 'L' }, canvas.y_at(height));
            path.push_str(&format!("{pen}{:.1} {y:.1}L{:.1} {y:.1}", canvas.x_at(self.xs[k]), canvas.x_at(end)));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(xs: Vec<f64>, heights: [Vec<f64>; 2]) -> String {
        let area =
            |(color, heights): (usize, Vec<f64>)| Area { name: format!("n{color}<"), color, heights, text: "t".into() };
        let line = ("held".to_owned(), vec![10.0; xs.len()]);
        let areas = heights.into_iter().enumerate().map(area).collect();
        let words = Words { title: "t<".into(), description: "d".into() };
        Areas { words, x: Axis::number("x"), y: Axis::number("y"), xs, areas, line }.to_html()
    }

    fn numbers(html: &str, class: &str) -> Vec<f64> {
        let path = html.split(&format!("<path class=\"{class}\" d=\"")).nth(1).unwrap().split('"').next().unwrap();
        path.split(['M', 'L', 'Z', ' ']).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_part_begins_where_the_one_below_it_ends() {
        let html = areas(vec![0.0, 1.0, 2.0], [vec![1.0, 2.0, 2.0], vec![3.0, 0.0, 0.0]]);
        let (low, high) = (numbers(&html, "block c0"), numbers(&html, "block c1"));
        // Each way has an x and a y at both ends of each of three steps.
        assert_eq!((low.len(), high.len()), (24, 24));
        let forth = |path: &[f64]| path[..12].to_vec();
        let back = |path: &[f64]| -> Vec<f64> { path[12..].chunks(2).rev().flatten().copied().collect() };
        assert_eq!(back(&high), forth(&low));
        assert_eq!(forth(&high)[5], forth(&low)[5], "a part without height");
        assert!(html.contains("n0&lt;") && html.contains(">held</li>") && !html.contains("NaN"), "{html}");
    }

    #[test]
    fn nothing_and_one_moment_are_drawn() {
        assert!(areas(vec![], [vec![], vec![]]).starts_with("<p>t&lt;: nothing"));
        let html = areas(vec![5.0], [vec![1.0], vec![2.0]]);
        assert!(html.contains("<path") && !html.contains("NaN"), "{html}");
    }
}
