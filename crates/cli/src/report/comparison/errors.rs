//! The errors of a run's evaluation as one number a measure, the model's beside those of its baselines.

use serde_json::{Map, Value, json};

use Predictions::{Classes, Numbers};
use Unit::{Number, Share};

/// What is measured: the name that a reader sees, the key in JSON, and where it stands among the metrics of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) unit: Unit,
    pointer: &'static str,
    of: Predictions,
}

/// How a measure reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// That of the targets, or none.
    Number,
    /// Of 1.
    Share,
}

/// What a model predicts for which a measure means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Predictions {
    Numbers,
    Classes,
}

const fn measure(name: &'static str, [key, pointer]: [&'static str; 2], (unit, of): (Unit, Predictions)) -> Measure {
    Measure { name, key, unit, pointer, of }
}

pub(super) const MEASURES: [Measure; 8] = [
    measure("RMSE", ["rmse", "/rmse"], (Number, Numbers)),
    measure("MAE", ["mae", "/mae"], (Number, Numbers)),
    measure("signs predicted", ["direction_accuracy", "/direction_accuracy"], (Share, Numbers)),
    measure("rank IC", ["rank_ic", "/rank_ic"], (Number, Numbers)),
    measure("accuracy", ["accuracy", "/classes/accuracy"], (Share, Classes)),
    measure("balanced accuracy", ["balanced_accuracy", "/classes/balanced_accuracy"], (Share, Classes)),
    measure("cross entropy", ["cross_entropy", "/classes/cross_entropy"], (Number, Classes)),
    measure("accuracy of samples", ["sample_accuracy", "/accuracy"], (Share, Classes)),
];

/// An evaluation.json that holds errors.
pub(super) struct Errors<'a> {
    evaluation: &'a Value,
}

impl<'a> Errors<'a> {
    /// `None` for a run that has not been evaluated.
    pub(super) fn of(evaluation: &'a Value) -> Option<Self> {
        evaluation["rmse"].is_array().then_some(Errors { evaluation })
    }

    /// The part of the data that was predicted.
    pub(super) fn split(&self) -> &'a str {
        self.evaluation["split"].as_str().unwrap_or("unknown")
    }

    /// The model's, averaged over the horizons of which something is known.
    pub(super) fn model(&self, measure: Measure) -> Option<f64> {
        let predicts_classes = self.evaluation["classes"].is_object() || self.evaluation["accuracy"].is_number();
        if predicts_classes && measure.of == Numbers {
            return None;
        }
        mean(self.evaluation.pointer(measure.pointer)?)
    }

    /// Those of the baselines, by name.
    pub(super) fn baselines(&self, measure: Measure) -> Vec<(&'a str, f64)> {
        let all = self.evaluation["baselines"].as_object().into_iter().flatten();
        let one =
            |(name, metrics): (&'a String, &'a Value)| Some((name.as_str(), mean(metrics.pointer(measure.pointer)?)?));
        if self.model(measure).is_some() { all.filter_map(one).collect() } else { Vec::new() }
    }

    /// The root mean square errors by horizon, from 1: the model's, or those of a baseline.
    pub(super) fn rmse_by_horizon(&self, baseline: Option<&str>) -> Vec<(f64, f64)> {
        let metrics = baseline.map_or(self.evaluation, |name| &self.evaluation["baselines"][name]);
        let values = metrics["rmse"].as_array().into_iter().flatten().map(|value| value.as_f64().unwrap_or(f64::NAN));
        values.enumerate().map(|(k, rmse)| ((k + 1) as f64, rmse)).filter(|(_, rmse)| rmse.is_finite()).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let of = |number: &dyn Fn(Measure) -> Option<f64>| -> Map<String, Value> {
            MEASURES.iter().filter_map(|&measure| Some((measure.key.to_owned(), json!(number(measure)?)))).collect()
        };
        let names = self.evaluation["baselines"].as_object().into_iter().flat_map(Map::keys);
        let baselines = names.map(|name| {
            let of_name =
                |measure| self.baselines(measure).into_iter().find(|(found, _)| found == name).map(|(_, error)| error);
            (name.clone(), Value::Object(of(&of_name)))
        });
        json!({
            "split": self.evaluation["split"],
            "samples": self.evaluation["samples"],
            "step": self.evaluation["step"],
            "model": of(&|measure| self.model(measure)),
            "baselines": baselines.collect::<Map<_, _>>(),
        })
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

    #[test]
    fn errors_are_means_over_known_horizons_beside_those_of_baselines() {
        let evaluation = json!({
            "split": "test", "samples": 5, "step": 9, "rmse": [1.0, null, 3.0], "mae": [1.0], "direction_accuracy": [null],
            "baselines": { "linear": { "rmse": [4.0], "mae": [2.0], "direction_accuracy": [0.5] } },
        });
        let errors = Errors::of(&evaluation).unwrap();
        assert_eq!(MEASURES.map(|measure| errors.model(measure))[..3], [Some(2.0), Some(1.0), None]);
        assert_eq!(errors.baselines(MEASURES[0]), [("linear", 4.0)]);
        assert_eq!(errors.rmse_by_horizon(None), [(1.0, 1.0), (3.0, 3.0)]);
        let json = errors.to_json();
        assert_eq!((&json["model"]["rmse"], &json["baselines"]["linear"]["mae"]), (&json!(2.0), &json!(2.0)));
        assert!(Errors::of(&Value::Null).is_none());
    }

    #[test]
    fn of_classes_the_errors_of_probabilities_are_not_shown() {
        let evaluation = json!({
            "rmse": [0.4], "mae": [0.3], "classes": { "accuracy": [0.5, 0.7] },
            "baselines": { "most_frequent": { "rmse": [0.4], "classes": { "accuracy": [0.4] } } },
        });
        let errors = Errors::of(&evaluation).unwrap();
        assert_eq!((errors.model(MEASURES[0]), errors.baselines(MEASURES[0]).len()), (None, 0));
        assert!((errors.model(MEASURES[4]).unwrap() - 0.6).abs() < 1e-12);
        assert_eq!(errors.baselines(MEASURES[4]), [("most_frequent", 0.4)]);
    }
}
