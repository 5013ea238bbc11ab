//! Names of samples, rows and targets of each kind of data, for plans, tables and reports.

use megabatch_chunk_io::{AttributeValue, Source};
use megabatch_nn::graph::{GraphTargets, Graphs};
use megabatch_nn::loss::Loss;

use crate::adapters::data::Data;

/// Names for one kind of data and one kind of model, each the singular of a regular plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitNames {
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

impl UnitNames {
    /// Samples that are windows of bars.
    pub(crate) const SAMPLES: UnitNames =
        UnitNames { unit: "sample", row: "sample", target: "horizon", targets: TargetKind::Moves };

    /// Samples of one time together.
    const CROSS_SECTIONS: UnitNames = UnitNames { unit: "cross-section", ..UnitNames::SAMPLES };

    /// Graphs with features and targets of their own, whose `row` is predicted.
    const fn for_graphs(row: &'static str) -> UnitNames {
        UnitNames { unit: "graph", row, target: "target", targets: TargetKind::Quantities }
    }

    /// The nouns of `data`.
    pub(crate) fn for_data(data: &Data) -> UnitNames {
        match data {
            Data::Samples(_) => UnitNames::SAMPLES.with_targets(data),
            Data::CrossSections(_) => UnitNames::CROSS_SECTIONS.with_targets(data),
            Data::Graphs(graphs) if graphs.targets_of() == Some(GraphTargets::Graphs) => UnitNames::for_graphs("graph"),
            Data::Graphs(_) => UnitNames::for_graphs("node"),
        }
    }

    /// The names with targets that are no moves of prices where the file says so.
    fn with_targets(self, data: &Data) -> UnitNames {
        match target_kind(data) {
            Some(kind) if megabatch_bars::TargetKind::ALL.iter().all(|moves| moves.to_string() != kind) => {
                UnitNames { target: "target", targets: TargetKind::Quantities, ..self }
            }
            _ => self,
        }
    }

    /// The names with a model of this `loss`: a class has no horizon.
    pub(crate) fn with(self, loss: Loss) -> UnitNames {
        match loss {
            Loss::Classes(_) | Loss::CrossEntropy => UnitNames { target: "target", ..self },
            _ => self,
        }
    }
}

/// Names of the targets of `data`, a series whose targets are columns or graphs with numbers; none
/// for others.
pub(crate) fn target_names(data: &Data) -> Vec<String> {
    if let Data::Graphs(graphs) = data {
        return if graphs.targets_are_labels() { Vec::new() } else { graphs.target_names().to_vec() };
    }
    let kind = target_kind(data).and_then(|kind| kind.parse::<megabatch_bars::TargetKind>().ok());
    kind.map_or(Vec::new(), |kind| kind.columns().to_vec())
}

/// Kind of the targets of `data`, a series whose file tells it.
fn target_kind(data: &Data) -> Option<String> {
    match data.source().and_then(Source::series)?.file().attribute("target_kind") {
        Ok(Some(AttributeValue::Text(kind))) => Some(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::Classes;

    use super::*;

    #[test]
    fn classes_are_targets_and_numbers_of_bars_have_horizons() {
        assert_eq!(UnitNames::SAMPLES.with(Loss::Mse).target, "horizon");
        assert_eq!(UnitNames::SAMPLES.with(Loss::Classes(Classes::Labels(3))).target, "target");
        assert_eq!(UnitNames::for_graphs("node").with(Loss::Mse).target, "target");
    }
}
