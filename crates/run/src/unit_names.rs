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

/// Names of the targets of `data`, a series whose targets are columns or graphs with numbers that
/// were named; none for others.
pub(crate) fn target_names(data: &Data) -> Vec<String> {
    if let Data::Graphs(graphs) = data {
        let names = graphs.target_names();
        let has_none = graphs.targets_are_labels() || are_columns_of_y(names);
        return if has_none { Vec::new() } else { names.to_vec() };
    }
    let kind = target_kind(data).and_then(|kind| kind.parse::<megabatch_bars::TargetKind>().ok());
    kind.map_or(Vec::new(), |kind| kind.columns().to_vec())
}

/// True for the names that columns of an array `y` have by themselves, with the type of its numbers
/// where it was another one: `y`, or `y_0:int64`, `y_1:int64` and so on, which count from 0.
fn are_columns_of_y(names: &[String]) -> bool {
    let is_numbered = |(place, name): (usize, &String)| {
        let column = name.split(':').next().unwrap_or_default();
        column == "y" || column == format!("y_{place}")
    };
    names.iter().enumerate().all(is_numbered)
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

    /// Tables had `1 y_0` and `y:int64` for targets that nobody had named.
    #[test]
    fn columns_of_an_array_have_no_names() {
        let are_columns =
            |names: &[&str]| are_columns_of_y(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        for names in [&["y"][..], &["y:int64"], &["y_0", "y_1"], &["y_0:bool", "y_1:bool"]] {
            assert!(are_columns(names), "{names:?}");
        }
        for names in [&["gap"][..], &["y_0", "gap"], &["y_1", "y_2"], &["y_0_scaled"]] {
            assert!(!are_columns(names), "{names:?}");
        }
    }

    #[test]
    fn classes_are_targets_and_numbers_of_bars_have_horizons() {
        assert_eq!(UnitNames::SAMPLES.with(Loss::Mse).target, "horizon");
        assert_eq!(UnitNames::SAMPLES.with(Loss::Classes(Classes::Labels(3))).target, "target");
        assert_eq!(UnitNames::for_graphs("node").with(Loss::Mse).target, "target");
    }
}
