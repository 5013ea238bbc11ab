//! Graphs of the most correlated nodes.

use serde_json::json;

use super::assemble::{EdgeOptions, SelfLoops, Symmetry, assemble};
use super::channel::{Channel, attributes};
use super::nearest::{Choice, NeighbourLists, Parallelism, Sign, search};
use super::pairwise::{Pearson, Products};
use super::panel::Panel;
use super::window::{Demeaning, LookbackOptions, LookbackWindow};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::schema::Schema;

/// Graphs of the k nearest neighbours by Pearson's correlation over a look-back window of a
/// [`Panel`].
///
/// The graph of day t sees days t − W to t − 1, and nothing of day t or later; W is the `lookback`.
/// With x, y the observations of two nodes on those days, and w = 1 or, with a half-life of h, w =
/// 2^(−a / h) for the day that is a days before t − 1:
///
/// ```text
/// x̄ = Σ w x / Σ w        r = Σ w (x − x̄)(y − ȳ) / √(Σ w (x − x̄)² · Σ w (y − ȳ)²)
/// ```
///
/// * *Nodes* are those of the panel with at least `min_observations` in the window, in the order of
///   their names in the panel.
/// * *Missing observations*: where both nodes have all of the window, sums go over it; else over
///   the days that both have (pairwise-complete, as pandas' `DataFrame.corr`), of which there must
///   be `min_observations`.
/// * A node that does *not vary* over those days, but for rounding (10⁻¹² of its largest value),
///   has no correlation. It stays a node.
/// * *Neighbours* of a node are the k others with the largest r, or |r|; edges go neighbour → node.
///   Of equal ones the first are taken. Neighbours below the `threshold` are dropped, except the
///   `min_degree` nearest.
/// * Edges are then made [symmetric](Symmetry) if requested; the `min_degree` nearest of each node
///   always stay.
/// * *Weights* are r, with its sign, rounded to single precision; that of a self-loop is 1.
///
/// Sums are in double precision, in one order, so that graphs are the same bits on every CPU
/// and for any number of threads.
///
/// Sources: Pearson, *Notes on regression and inheritance in the case of two parents* (Proc. R.
/// Soc. Lond. 58, 1895), for r; Pozzi, Di Matteo & Aste, *Exponential smoothing weighted
/// correlations* (Eur. Phys. J. B 85:175, 2012), eq. 4, for weights; Mantegna, *Hierarchical
/// structure in financial markets* (Eur. Phys. J. B 11, 1999), for correlations of log returns as
/// edges.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlation {
    /// W, in days of the panel: 60.
    pub lookback: usize,
    /// k: 10.
    pub k: usize,
    /// h, in days; `None` weighs all days equally.
    pub half_life: Option<f64>,
    /// Removal of what all nodes have in common, before correlating.
    pub demeaning: Demeaning,
    /// 40.
    pub min_observations: usize,
    /// 0.
    pub min_degree: usize,
    /// Ranking by r or by |r|.
    pub sign: Sign,
    /// The least r, or |r|, of a neighbour.
    pub threshold: Option<f64>,
    /// Rule for the reverse of an edge.
    pub symmetry: Symmetry,
    /// Rule for self-loops.
    pub self_loops: SelfLoops,
    /// Attributes of edges: further similarities of their ends.
    pub channels: Vec<Channel>,
}

impl Default for Correlation {
    fn default() -> Self {
        Correlation {
            lookback: 60,
            k: 10,
            half_life: None,
            demeaning: Demeaning::None,
            min_observations: 40,
            min_degree: 0,
            sign: Sign::Signed,
            threshold: None,
            symmetry: Symmetry::None,
            self_loops: SelfLoops::None,
            channels: Vec::new(),
        }
    }
}

impl Correlation {
    /// Schema of the graphs of a panel.
    pub fn schema(&self, panel: &Panel<'_>) -> Schema {
        Schema {
            names: panel.names().to_vec(),
            weighted: true,
            edge_attributes: self.channels.iter().map(|channel| channel.name.clone()).collect(),
            ..Schema::default()
        }
    }

    /// The options as JSON in one canonical form, but for the values of channels, which are data.
    pub fn parameters(&self) -> String {
        let demeaning = match self.demeaning {
            Demeaning::None => "none",
            Demeaning::CrossSectional => "cross-sectional",
        };
        json!({
            "lookback": self.lookback,
            "k": self.k,
            "half_life": self.half_life,
            "demeaning": demeaning,
            "min_observations": self.min_observations,
            "min_degree": self.min_degree,
            "sign": if self.sign == Sign::Signed { "signed" } else { "absolute" },
            "threshold": self.threshold,
            "symmetry": self.symmetry.name(),
            "self_loops": self.self_loops.name(),
            "channels": self.channels.iter().map(|channel| &channel.name).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Checks the options, and that channels fit the panel.
    ///
    /// # Errors
    /// [`Error::Option`] for one that is out of its range; [`Error::Data`] for a channel with too
    /// few or too many values.
    pub fn check(&self, panel: &Panel<'_>) -> Result<()> {
        let half_life_is_positive = self.half_life.is_none_or(|h| h.is_finite() && h > 0.0);
        let threshold_is_a_correlation = self.threshold.is_none_or(|r| (-1.0..=1.0).contains(&r));
        let ranges = [
            ("lookback", self.lookback.to_string(), "2 days or more", self.lookback >= 2),
            ("k", self.k.to_string(), "1 or more", self.k >= 1),
            ("half_life", given(self.half_life), "a positive number of days", half_life_is_positive),
            (
                "min_observations",
                self.min_observations.to_string(),
                "from 2 to the look-back",
                (2..=self.lookback).contains(&self.min_observations),
            ),
            ("min_degree", self.min_degree.to_string(), "k or less", self.min_degree <= self.k),
            ("threshold", given(self.threshold), "from -1 to 1", threshold_is_a_correlation),
        ];
        if let Some((option, found, expected, _)) = ranges.into_iter().find(|range| !range.3) {
            return Err(Error::Option { option, found, expected });
        }
        self.channels.iter().try_for_each(|channel| channel.check(panel))
    }

    /// The graph of day `t`, which sees days before it only; `t` may be the day after the last. It
    /// is known when day `t` − 1 is.
    ///
    /// All threads of rayon's current pool share the work.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`Error::Data`] for more edges than a `u32` counts.
    ///
    /// # Panics
    /// If `t` is more than the number of days.
    pub fn build(&self, panel: &Panel<'_>, t: usize) -> Result<Graph> {
        self.check(panel)?;
        LookbackWindow::with_last(|window| {
            window.fill(self.lookback_options(), panel, t);
            let pearson = Pearson::new(window, self.min_observations, Products);
            let neighbours = search(&pearson, self.choice(), Parallelism::Rows);
            self.graph(panel, t, window, &neighbours)
        })
    }

    pub(crate) fn lookback_options(&self) -> LookbackOptions {
        LookbackOptions {
            lookback: self.lookback,
            half_life: self.half_life,
            demeaning: self.demeaning,
            min_observations: self.min_observations,
        }
    }

    pub(crate) fn choice(&self) -> Choice {
        Choice { k: self.k, sign: self.sign, threshold: self.threshold, kept: self.min_degree }
    }

    pub(crate) fn graph(
        &self,
        panel: &Panel<'_>,
        t: usize,
        window: &LookbackWindow,
        neighbours: &NeighbourLists,
    ) -> Result<Graph> {
        let parts = EdgeOptions { symmetry: self.symmetry, self_loops: self.self_loops, own: 1.0 };
        let edges = assemble(neighbours, parts)?;
        let attributes = attributes(&self.channels, &window.nodes, panel.names().len(), t, &edges);
        Ok(Graph {
            nodes: window.nodes.clone(),
            weights: edges.values.iter().map(|&r| r as f32).collect(),
            row_ptr: edges.row_ptr,
            col: edges.col,
            edge_attributes: attributes,
            known_time: t.checked_sub(1).map(|last| panel.known()[last]),
            ..Graph::default()
        })
    }
}

/// An option's value, for messages.
fn given(value: Option<f64>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}
