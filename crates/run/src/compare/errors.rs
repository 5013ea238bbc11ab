//! The errors of a run and its baselines, one number for each measure.

use Predictions::{Classes, Numbers, Ranks};
use Unit::{Number, Share};
use serde_json::{Map, Value, json};

use super::Side;
use crate::evaluate::folds::Spread;
use crate::text::number::grouped;

/// A measure: its name for a reader, its key in JSON, and its place among the metrics of a
/// contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) unit: Unit,
    pointer: &'static str,
    predictions: Predictions,
}

/// Unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Unit of the targets, or none.
    Number,
    /// Share of 1.
    Share,
}

/// Predictions that a measure applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Predictions {
    /// Numbers in the unit of the targets.
    Numbers,
    /// Numbers or ranks of the nodes of graphs; measured at the first horizon, as `train` and
    /// `eval` do.
    Ranks,
    Classes,
}

/// A number over the folds of a run: its mean and, of several folds, the standard deviation of a
/// sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) mean: f64,
    pub(super) deviation: Option<f64>,
}

const fn measure(
    name: &'static str,
    key: &'static str,
    pointer: &'static str,
    unit: Unit,
    predictions: Predictions,
) -> Measure {
    Measure { name, key, unit, pointer, predictions }
}

pub(super) const MEASURES: [Measure; 9] = [
    measure("RMSE", "rmse", "/rmse", Number, Numbers),
    measure("MAE", "mae", "/mae", Number, Numbers),
    measure("signs predicted", "direction_accuracy", "/direction_accuracy", Share, Numbers),
    measure("IC, first horizon", "ic", "/ic/0", Number, Ranks),
    measure("rank IC, first horizon", "rank_ic", "/rank_ic/0", Number, Ranks),
    measure("accuracy", "accuracy", "/classes/accuracy", Share, Classes),
    measure("balanced accuracy", "balanced_accuracy", "/classes/balanced_accuracy", Share, Classes),
    measure("cross entropy", "cross_entropy", "/classes/cross_entropy", Number, Classes),
    measure("accuracy of samples", "sample_accuracy", "/accuracy", Share, Classes),
];

/// The errors of a run: an evaluation, or one a fold.
pub(super) struct Errors<'a> {
    evaluations: &'a [Value],
    /// The model ranks. Its outputs have no unit.
    ranks: bool,
}

impl<'a> Errors<'a> {
    /// `None` for a run that has not been evaluated.
    pub(super) fn from_side(side: &'a Side) -> Option<Self> {
        let is_evaluated = |evaluation: &Value| evaluation["rmse"].is_array();
        let ranks = side.settings.get("training.loss").is_some_and(|loss| loss.starts_with("rank_"));
        let evaluations = side.evaluations.as_slice();
        (!evaluations.is_empty() && evaluations.iter().all(is_evaluated)).then_some(Errors { evaluations, ranks })
    }

    /// The part of the data that was predicted.
    pub(super) fn split(&self) -> &'a str {
        self.evaluations[0]["split"].as_str().unwrap_or("unknown")
    }

    /// Name of the part; for estimates also the number of samples or graphs taken.
    pub(super) fn judged_on(&self) -> String {
        let draw = |key: &str| self.evaluations.iter().map(|evaluation| evaluation[key].as_u64()).sum::<Option<u64>>();
        match draw("drawn").zip(draw("drawn_from")) {
            Some((taken, all)) => format!("{}, estimate from {} of {}", self.split(), grouped(taken), grouped(all)),
            None if self.evaluations.iter().any(|evaluation| evaluation["drawn"].is_u64()) => {
                format!("{}, in part estimates", self.split())
            }
            None => self.split().to_owned(),
        }
    }

    /// Number of samples with a known target that were predicted.
    pub(super) fn samples(&self) -> u64 {
        self.evaluations.iter().filter_map(|evaluation| evaluation["samples"].as_u64()).sum()
    }

    /// True if none of the errors is an estimate.
    pub(super) fn are_of_whole_parts(&self) -> bool {
        self.evaluations.iter().all(|evaluation| evaluation["drawn"].is_null())
    }

    /// Error of the model, averaged over horizons with known values; for ranks at the first
    /// horizon.
    pub(super) fn model(&self, measure: Measure) -> Option<Measured> {
        self.is_meant(measure).then(|| self.measured(|evaluation| evaluation.pointer(measure.pointer)))?
    }

    /// Errors of the baselines, by name.
    pub(super) fn baselines(&self, measure: Measure) -> Vec<(&'a str, Measured)> {
        let named = |name: &'a str| {
            Some((name, self.measured(|evaluation| evaluation["baselines"][name].pointer(measure.pointer))?))
        };
        // No change is no sign, be it right or wrong.
        let is_meant = |name: &&str| measure.key != "direction_accuracy" || *name != "no_change";
        if self.model(measure).is_some() {
            self.names().filter(is_meant).filter_map(named).collect()
        } else {
            Vec::new()
        }
    }

    /// The root mean square errors by horizon, from 1: the model's, or those of a baseline.
    pub(super) fn rmse_by_horizon(&self, baseline: Option<&str>) -> Vec<(f64, f64)> {
        let metrics = |evaluation: &'a Value| match baseline {
            None => evaluation,
            Some(name) => &evaluation["baselines"][name],
        };
        let horizons = metrics(&self.evaluations[0])["rmse"].as_array().map_or(0, Vec::len);
        let rmse = |k: usize| self.measured(|evaluation| metrics(evaluation)["rmse"].get(k));
        (0..horizons).filter_map(|k| Some(((k + 1) as f64, rmse(k)?.mean))).filter(|_| !self.ranks).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let means = |number: &dyn Fn(Measure) -> Option<Measured>| -> Map<String, Value> {
            MEASURES
                .iter()
                .filter_map(|&measure| Some((measure.key.to_owned(), json!(number(measure)?.mean))))
                .collect()
        };
        let baselines = self.names().map(|name| {
            let baseline =
                |measure| self.baselines(measure).into_iter().find(|(found, _)| *found == name).map(|(_, error)| error);
            (name.to_owned(), Value::Object(means(&baseline)))
        });
        let mut json = json!({
            "split": self.evaluations[0]["split"],
            "drawn": self.evaluations.iter().map(|evaluation| evaluation["drawn"].as_u64()).sum::<Option<u64>>(),
            "samples": self.samples(),
            "step": self.evaluations[0]["step"],
            "model": means(&|measure| self.model(measure)),
            "baselines": baselines.collect::<Map<_, _>>(),
        });
        if self.evaluations.len() > 1 {
            let deviations = MEASURES
                .iter()
                .filter_map(|&measure| Some((measure.key.to_owned(), json!(self.model(measure)?.deviation?))));
            json["deviations"] = Value::Object(deviations.collect());
            json["step"] = Value::Null;
        }
        json
    }

    /// Baselines that every evaluation has.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        self.evaluations[0]["baselines"].as_object().into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// True if a measure means something for the model's predictions.
    fn is_meant(&self, measure: Measure) -> bool {
        let evaluation = &self.evaluations[0];
        let predicts_classes = evaluation["classes"].is_object() || evaluation["accuracy"].is_number();
        !(measure.predictions == Numbers && (predicts_classes || self.ranks))
    }

    /// Mean and deviation over the evaluations, all of which must have the number.
    fn measured(&self, number: impl Fn(&'a Value) -> Option<&'a Value>) -> Option<Measured> {
        let numbers =
            self.evaluations.iter().map(|evaluation| mean(number(evaluation)?)).collect::<Option<Vec<f64>>>()?;
        let Spread { mean, deviation } = Spread::from_values(&numbers);
        Some(Measured { mean, deviation })
    }
}

/// A number, or the mean of those of a list that are known.
fn mean(value: &Value) -> Option<f64> {
    let Some(values) = value.as_array() else { return value.as_f64() };
    let known: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with the loss `loss`, and an evaluation a fold.
    fn side(loss: &str, evaluations: Vec<Value>) -> Side {
        Side {
            folder: "run".into(),
            label: "run".to_owned(),
            samples: 'A',
            settings: [("training.loss", loss.to_owned())].into(),
            plan: Value::Null,
            metrics: Vec::new(),
            evaluations,
            folds: None,
        }
    }

    fn by_key(key: &str) -> Measure {
        *MEASURES.iter().find(|measure| measure.key == key).unwrap()
    }

    fn means(errors: &Errors<'_>) -> Vec<Option<f64>> {
        MEASURES.iter().map(|&measure| errors.model(measure).map(|error| error.mean)).collect()
    }

    #[test]
    fn errors_are_means_over_known_horizons_beside_those_of_baselines() {
        let evaluation = json!({
            "split": "test", "samples": 5, "step": 9, "rmse": [1.0, null, 3.0], "mae": [1.0], "direction_accuracy": [null],
            "baselines": { "linear": { "rmse": [4.0], "mae": [2.0], "direction_accuracy": [0.5] } },
        });
        let side = side("mse", vec![evaluation]);
        let errors = Errors::from_side(&side).unwrap();
        assert_eq!(means(&errors)[..3], [Some(2.0), Some(1.0), None]);
        assert_eq!(errors.baselines(MEASURES[0]), [("linear", Measured { mean: 4.0, deviation: None })]);
        assert_eq!(errors.rmse_by_horizon(None), [(1.0, 1.0), (3.0, 3.0)]);
        let json = errors.to_json();
        assert_eq!((&json["model"]["rmse"], &json["baselines"]["linear"]["mae"]), (&json!(2.0), &json!(2.0)));
        assert!(Errors::from_side(&self::side("mse", vec![Value::Null])).is_none());
        assert!(Errors::from_side(&self::side("mse", Vec::new())).is_none());
    }

    #[test]
    fn classes_show_no_errors_of_probabilities() {
        let evaluation = json!({
            "rmse": [0.4], "mae": [0.3], "classes": { "accuracy": [0.5, 0.7] },
            "baselines": { "most_frequent": { "rmse": [0.4], "classes": { "accuracy": [0.4] } } },
        });
        let side = side("cross_entropy", vec![evaluation]);
        let errors = Errors::from_side(&side).unwrap();
        assert_eq!((errors.model(MEASURES[0]), errors.baselines(MEASURES[0]).len()), (None, 0));
        let accuracy = by_key("accuracy");
        assert!((errors.model(accuracy).unwrap().mean - 0.6).abs() < 1e-12);
        assert_eq!(errors.baselines(accuracy), [("most_frequent", Measured { mean: 0.4, deviation: None })]);
    }

    /// `compare` of two runs of ranks showed their RMSE, and a rank IC averaged over horizons under
    /// the name that `train` has for the first.
    #[test]
    fn ranks_show_the_coefficients_of_the_first_horizon_alone() {
        let evaluation = |ic: f64| {
            json!({
                "rmse": [777.0], "mae": [777.0], "direction_accuracy": [0.5], "ic": [ic, 9.0], "rank_ic": [2.0 * ic, 9.0],
                "baselines": { "linear": { "rmse": [777.0], "ic": [0.5, 9.0] }, "mean": { "rmse": [777.0], "ic": [null, null] } },
            })
        };
        let side = side("rank_pairwise", vec![evaluation(0.1), evaluation(0.3)]);
        let errors = Errors::from_side(&side).unwrap();
        let shown: Vec<&str> =
            MEASURES.iter().filter(|&&measure| errors.model(measure).is_some()).map(|measure| measure.key).collect();
        assert_eq!(shown, ["ic", "rank_ic"]);
        let Measured { mean, deviation } = errors.model(by_key("ic")).unwrap();
        assert!((mean - 0.2).abs() < 1e-12 && (deviation.unwrap() - 0.02f64.sqrt()).abs() < 1e-12);
        let baselines = errors.baselines(by_key("ic"));
        assert_eq!(baselines, [("linear", Measured { mean: 0.5, deviation: Some(0.0) })]);
        assert!(errors.rmse_by_horizon(None).is_empty());
        assert!(errors.to_json()["deviations"]["rank_ic"].is_number(), "{}", errors.to_json());
    }
}
