//! A graph as a picture: nodes where springs along the edges bring them.

use super::file::standalone;
use super::layout::spring;
use crate::report::html::{Figure, Size, Table, escape};
use crate::text::number::significant;

/// Width and height of the picture, and the margin that names have.
const EXTENT: (f64, f64) = (1100.0, 860.0);
const MARGIN: f64 = 50.0;
/// Nodes whose names are written; all have them for whoever points at one.
const NAMED_MAX: usize = 60;
/// Most edges in the table.
const EDGES_MAX: usize = 40;

/// A graph to be drawn.
pub(crate) struct Network {
    pub(crate) title: String,
    /// Names of the nodes, in order.
    pub(crate) names: Vec<String>,
    /// From, to and weight; an edge of weight below zero is of another colour.
    pub(crate) edges: Vec<(usize, usize, f32)>,
}

impl Network {
    /// The picture as a file of its own.
    pub(crate) fn to_svg(&self) -> String {
        let title = vec![("c0 block".to_owned(), self.title.clone())];
        let legend = if self.has_negative() { [&title[..], &self.legend()[1..]].concat() } else { title };
        standalone(&self.draw(), EXTENT.0, EXTENT.1, &legend)
    }

    /// The picture as a figure with its legend.
    pub(crate) fn to_html(&self) -> String {
        let (svg, legend, numbers) = (self.draw(), self.legend(), Some(self.numbers()));
        Figure { title: &self.title, size: Size::Wide, svg: &svg, legend: &legend, note: "", numbers }.to_html()
    }

    /// The edges, the heaviest first.
    fn numbers(&self) -> Table {
        let mut edges = self.edges.clone();
        edges.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        let caption = match edges.len() {
            0..=EDGES_MAX => self.title.clone(),
            count => format!("{}, the heaviest {EDGES_MAX} of {count} edges", self.title),
        };
        let row = |&(from, to, weight): &(usize, usize, f32)| {
            vec![self.names[from].clone(), self.names[to].clone(), significant(weight.into(), 3)]
        };
        Table::new(caption, ["from", "to", "weight"], edges.iter().take(EDGES_MAX).map(row))
    }

    fn draw(&self) -> String {
        let ends: Vec<(usize, usize)> = self.edges.iter().map(|&(from, to, _)| (from, to)).collect();
        let (width, height) = (EXTENT.0 - 2.0 * MARGIN, EXTENT.1 - 2.0 * MARGIN);
        let places: Vec<(f64, f64)> = spring(self.names.len(), &ends)
            .into_iter()
            .map(|(x, y)| (MARGIN + x * width, MARGIN + y * height))
            .collect();
        let title = escape(&self.title);
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>{}{}</svg>",
            EXTENT.0,
            EXTENT.1,
            self.draw_edges(&places),
            self.draw_nodes(&places)
        )
    }

    /// Legend of edge colours, where there are two.
    fn legend(&self) -> Vec<(String, String)> {
        let entry = |class: &str, name: &str| (class.to_owned(), name.to_owned());
        match self.has_negative() {
            true => vec![entry("c0 block", "edges of positive weight"), entry("c5 block", "edges of negative weight")],
            false => Vec::new(),
        }
    }

    fn has_negative(&self) -> bool {
        self.edges.iter().any(|&(_, _, weight)| weight < 0.0)
    }

    fn draw_edges(&self, places: &[(f64, f64)]) -> String {
        let path = |negative: bool| -> String {
            let edges = self.edges.iter().filter(|&&(_, _, weight)| (weight < 0.0) == negative);
            let line = |&(from, to, _): &(usize, usize, f32)| {
                let ((x, y), (x2, y2)) = (places[from], places[to]);
                format!("M{x:.1} {y:.1}L{x2:.1} {y2:.1}")
            };
            edges.map(line).collect()
        };
        let drawn = [("c0", path(false)), ("c5", path(true))].into_iter().filter(|(_, path)| !path.is_empty());
        drawn.map(|(class, path)| format!("<path class=\"line faint {class}\" d=\"{path}\"/>")).collect()
    }

    /// The more nodes gather from a node, the larger it is; the largest have their names beside
    /// them.
    fn draw_nodes(&self, places: &[(f64, f64)]) -> String {
        let mut degrees = vec![0usize; self.names.len()];
        self.edges.iter().for_each(|&(from, _, _)| degrees[from] += 1);
        let mut largest: Vec<usize> = (0..degrees.len()).collect();
        largest.sort_by_key(|&node| std::cmp::Reverse(degrees[node]));
        let named = &largest[..largest.len().min(NAMED_MAX)];
        let dots: String = (0..degrees.len())
            .map(|node| {
                let ((x, y), degree) = (places[node], degrees[node]);
                let radius = 2.0 + (degree as f64).sqrt();
                let name = escape(&self.names[node]);
                format!(
                    "<circle class=\"dot c0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{name}: {degree} gather from it</title></circle>"
                )
            })
            .collect();
        let words: String = named
            .iter()
            .map(|&node| {
                let (x, y) = places[node];
                format!(
                    "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + 6.0,
                    y - 5.0,
                    escape(&self.names[node])
                )
            })
            .collect();
        dots + &words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_and_edge_is_drawn() {
        let network = Network {
            title: "2021-04-21: <3 nodes>".to_owned(),
            names: ["A&B", "C", "D"].map(str::to_owned).to_vec(),
            edges: vec![(0, 1, 0.5), (0, 2, -0.5)],
        };
        let svg = network.to_svg();
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (3, 2));
        assert!(svg.contains("A&amp;B: 2 gather from it") && svg.contains("&lt;3 nodes&gt;") && !svg.contains("<3"));
        assert_eq!(network.to_svg(), svg, "the same graph has the same picture");
    }
}
