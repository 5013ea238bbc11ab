//! The nouns of each kind of data, chosen here alone: what a plan, a table or a report calls the
//! things it counts.

use megabatch_nn::graph::{GraphTargets, Graphs};
use megabatch_nn::loss::Loss;

use crate::adapters::data::Data;

/// The nouns for one kind of data and one kind of model, each the singular of a regular plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nouns {
    /// Element of splits, batches and the order.
    pub(crate) unit: &'static str,
    /// Row of predictions.
    pub(crate) row: &'static str,
    /// Number, or class, that is predicted for a row.
    pub(crate) target: &'static str,
    pub(crate) targets: TargetKind,
}

/// The meaning of a target of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// Moves of a price: zero is no change, and the sign is a direction.
    Moves,
    /// Other quantities: zero and the sign mean nothing by themselves.
    Quantities,
}

impl Nouns {
    /// Samples that are windows of bars.
    pub(crate) const SAMPLES: Nouns =
        Nouns { unit: "sample", row: "sample", target: "horizon", targets: TargetKind::Moves };

    /// Samples of one time together.
    const CROSS_SECTIONS: Nouns = Nouns { unit: "cross-section", ..Nouns::SAMPLES };

    /// Graphs with features and targets of their own, whose `row` is predicted.
    const fn of_graphs(row: &'static str) -> Nouns {
        Nouns { unit: "graph", row, target: "target", targets: TargetKind::Quantities }
    }

    /// The nouns of `data`.
    pub(crate) fn of(data: &Data) -> Nouns {
        match data {
            Data::Samples(_) => Nouns::SAMPLES,
            Data::CrossSections(_) => Nouns::CROSS_SECTIONS,
            Data::Graphs(graphs) if graphs.targets_of() == Some(GraphTargets::Graphs) => Nouns::of_graphs("graph"),
            Data::Graphs(_) => Nouns::of_graphs("node"),
        }
    }

    /// The same beside a model that learns with `loss`: a class has no horizon.
    pub(crate) fn with(self, loss: Loss) -> Nouns {
        match loss {
            Loss::Classes(_) | Loss::CrossEntropy => Nouns { target: "target", ..self },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::Classes;

    use super::*;

    #[test]
    fn classes_are_targets_and_numbers_of_bars_have_horizons() {
        assert_eq!(Nouns::SAMPLES.with(Loss::Mse).target, "horizon");
        assert_eq!(Nouns::SAMPLES.with(Loss::Classes(Classes::Labels(3))).target, "target");
        assert_eq!(Nouns::of_graphs("node").with(Loss::Mse).target, "target");
    }
}
