//! Further similarities of an edge's ends, as edge attributes.

use super::assemble::NeighbourEdges;
use super::panel::Panel;
use crate::error::{Error, Result};

/// A similarity of two nodes, such as of size or sector, that becomes an attribute of their edges.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Name of the attribute.
    pub name: String,
    /// Compared values.
    pub values: ChannelValues,
}

/// Values that a [`Channel`] compares.
///
/// If values are given by day, a graph uses those of the day before it. One value for all days is
/// used by all graphs; it should have been known before the first.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelValues {
    /// Positive numbers, such as market capitalisations: the ratio of the smaller to the larger,
    /// min(a, b) / max(a, b), which is 1 for equal sizes (Ružička, or weighted Jaccard,
    /// similarity). `[N]` for the nodes of the panel, or `[N, D]` for each day. 0 where either is
    /// not a positive finite number.
    Sizes(Vec<f64>),
    /// Labels, such as sectors, `[N]`: 1 where they are equal, else 0. An empty label is unknown
    /// and equals no other.
    Labels(Vec<String>),
}

impl Channel {
    /// True if there is a value for each node of the panel.
    pub(crate) fn check(&self, panel: &Panel<'_>) -> Result<()> {
        let (nodes, days) = (panel.names().len(), panel.days());
        let (found, by_days) = match &self.values {
            ChannelValues::Sizes(sizes) => (sizes.len(), sizes.len() == nodes * days),
            ChannelValues::Labels(labels) => (labels.len(), false),
        };
        if found == nodes || by_days {
            return Ok(());
        }
        let object = format!("channel {:?} with {found} values", self.name);
        Err(Error::Data {
            object,
            expected: format!("one for each of {nodes} nodes, or sizes for each of {days} days too"),
        })
    }

    /// The similarity of two nodes of the panel, `nodes` in all, as the graph of day `t` sees it.
    fn between(&self, a: usize, b: usize, nodes: usize, t: usize) -> f32 {
        match &self.values {
            ChannelValues::Sizes(sizes) => {
                let days = if sizes.len() == nodes { 1 } else { sizes.len() / nodes };
                let last = t.saturating_sub(1).min(days - 1);
                let (a, b) = (sizes[a * days + last], sizes[b * days + last]);
                let known = [a, b].iter().all(|size| size.is_finite() && *size > 0.0);
                if known { (a.min(b) / a.max(b)) as f32 } else { 0.0 }
            }
            ChannelValues::Labels(labels) => f32::from(!labels[a].is_empty() && labels[a] == labels[b]),
        }
    }
}

/// [E, A] of the edges of the graph of day `t`, whose nodes are `nodes` of the panel.
pub(crate) fn attributes(
    channels: &[Channel],
    nodes: &[u32],
    panel_nodes: usize,
    t: usize,
    edges: &NeighbourEdges,
) -> Vec<f32> {
    if channels.is_empty() {
        return Vec::new();
    }
    let place = |node: usize| nodes[node] as usize;
    let ends = edges.ends().map(|(row, column)| (place(row), place(column)));
    ends.flat_map(|(dst, src)| channels.iter().map(move |channel| channel.between(dst, src, panel_nodes, t))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(values: ChannelValues, t: usize) -> f32 {
        Channel { name: "similarity".into(), values }.between(0, 1, 2, t)
    }

    #[test]
    fn sizes_are_compared_by_their_ratio_and_labels_by_being_equal() {
        let sizes = |sizes: &[f64]| ChannelValues::Sizes(sizes.to_vec());
        let labels = |a: &str, b: &str| ChannelValues::Labels(vec![a.to_owned(), b.to_owned()]);
        let cases = [
            (sizes(&[2.0, 8.0]), 0.25),
            (sizes(&[8.0, 2.0]), 0.25),
            (sizes(&[3.0, 3.0]), 1.0),
            (sizes(&[3.0, f64::NAN]), 0.0),
            (sizes(&[0.0, 0.0]), 0.0),
            (sizes(&[f64::INFINITY, f64::INFINITY]), 0.0),
            (labels("Energy", "Energy"), 1.0),
            (labels("Energy", "Utilities"), 0.0),
            (labels("", ""), 0.0),
        ];
        for (values, expected) in cases {
            assert_eq!(between(values.clone(), 5), expected, "{values:?}");
        }
    }

    #[test]
    fn sizes_by_day_are_those_of_the_day_before() {
        let values = ChannelValues::Sizes(vec![1.0, 2.0, 3.0, 4.0, 4.0, 4.0]);
        let found: Vec<f32> = (1..=3).map(|t| between(values.clone(), t)).collect();
        assert_eq!(found, [0.25, 0.5, 0.75]);
    }
}
