//! Stacked columns: how a whole is made of parts, one column after another.

use super::axis::Axis;
use super::canvas::{Axes, Canvas, Words, for_both_widths};
use super::numbers::{Column, table};
use crate::report::html::{Figure, Size, escape};

/// A chart of columns, one for each name, all made of the same layers.
pub(crate) struct Columns {
    pub(crate) words: Words,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The columns stand at `first`, `first + step`, … on the x axis.
    pub(crate) first: f64,
    pub(crate) step: f64,
    pub(crate) layers: Vec<Layer>,
}

/// One part of every column, the lowest first.
pub(crate) struct Layer {
    pub(crate) name: String,
    /// A height a column.
    pub(crate) heights: Vec<f64>,
    /// Text of each part shown on hover.
    pub(crate) texts: Vec<String>,
}

/// Share of its place that a column fills.
const FILLED: f64 = 0.8;

impl Columns {
    /// The chart as a figure with its legend.
    pub(crate) fn to_html(&self) -> String {
        let count = self.layers.first().map_or(0, |layer| layer.heights.len());
        let total = |k: usize| self.layers.iter().map(|layer| layer.heights[k]).sum::<f64>();
        let highest = (0..count).map(total).fold(0.0, f64::max).max(1e-12);
        let half = self.step / 2.0;
        let x = (self.first - half, self.first + count.max(1) as f64 * self.step - half);
        let axes = Axes { x: (&self.x, x), y: (&self.y, (0.0, highest * 1.05)) };
        let svg = for_both_widths(|size| {
            let mut canvas = Canvas::new(&self.words, size, &axes);
            let mut base = vec![0.0; count];
            let layers = self.layers.iter().enumerate();
            let drawn: String = layers.map(|(color, layer)| self.draw(&canvas, color, layer, &mut base)).collect();
            canvas.clipped(&drawn);
            canvas.finish()
        });
        let legend: Vec<(String, String)> =
            self.layers.iter().enumerate().map(|(k, layer)| (format!("c{k} block"), layer.name.clone())).collect();
        let points =
            |heights: &[f64]| heights.iter().enumerate().map(|(k, &height)| (self.position(k), height)).collect();
        let columns = self.layers.iter().map(|layer| Column { name: &layer.name, points: points(&layer.heights) });
        let numbers = table(&self.words.title, &self.x, &columns.collect::<Vec<_>>());
        Figure { title: &self.words.title, size: Size::Wide, svg: &svg, legend: &legend, note: "", numbers }.to_html()
    }

    /// Place of a column on the x axis.
    fn position(&self, k: usize) -> f64 {
        self.first + k as f64 * self.step
    }

    /// Draws a layer over what lies below it, and adds its heights to that.
    fn draw(&self, canvas: &Canvas, color: usize, layer: &Layer, base: &mut [f64]) -> String {
        let mut svg = String::new();
        let width = canvas.width() / base.len() as f64 * FILLED;
        for (k, base) in base.iter_mut().enumerate() {
            let top = *base + layer.heights[k];
            let (x, y) = (canvas.x_at(self.position(k)) - width / 2.0, canvas.y_at(top));
            svg.push_str(&format!(
                "<rect class=\"block c{color}\" x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" height=\"{:.2}\"><title>{}</title></rect>",
                canvas.y_at(*base) - y,
                escape(&layer.texts[k])
            ));
            *base = top;
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_stand_on_one_another() {
        let layer = |name: &str, heights: [f64; 2]| Layer {
            name: name.into(),
            heights: heights.to_vec(),
            texts: heights.iter().map(f64::to_string).collect(),
        };
        let html = Columns {
            words: Words { title: "t".into(), description: "d".into() },
            x: Axis::number("x"),
            y: Axis::number("y"),
            first: 1.0,
            step: 1.0,
            layers: vec![layer("low", [1.0, 2.0]), layer("high", [3.0, 0.0])],
        }
        .to_html();
        let numbers = |attribute: &str| -> Vec<f64> {
            let drawing =
                html.split("<svg class=\"broad\"").nth(1).unwrap().split("<svg class=\"slim\"").next().unwrap();
            let rects = drawing.split("<rect ").skip(1).map(|rest| rest.split('>').next().unwrap());
            let values = rects.filter_map(|rect| rect.split(&format!(" {attribute}=\"")).nth(1));
            values.map(|value| value.split('"').next().unwrap().parse().unwrap()).collect()
        };
        let (y, height) = (numbers("y"), numbers("height"));
        assert_eq!(y.len(), 4);
        assert!(
            (y[2] + height[2] - y[0]).abs() < 0.02,
            "the second layer of the first column ends where the first begins"
        );
        assert!((height[2] - 3.0 * height[0]).abs() < 0.1 && height[3] == 0.0, "{height:?}");
    }
}
