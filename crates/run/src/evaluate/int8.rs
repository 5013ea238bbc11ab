//! Errors with weights in eight bits: the accuracy report of `eval --int8`.

use std::ops::ControlFlow;

use megabatch_amp::Accuracy;
use megabatch_trainer::{self as trainer, Metrics, Predictor, Selection};
use serde::{Serialize, Serializer};

use crate::error::Result;
use crate::evaluate::mean;

/// A model with its LSTMs' matrices in eight bits, beside the model as trained, on the same
/// samples.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The errors of the model as it was trained.
    as_trained: Metrics,
    /// Errors of the predictions against those of the model as trained, in the unit of the targets.
    predictions: Errors,
    /// Accuracy of each matrix, in the order of the layers.
    weights: Vec<Tensor>,
}

#[derive(Clone, Debug, Serialize)]
struct Tensor {
    tensor: String,
    #[serde(flatten)]
    errors: Errors,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Errors {
    max_error: f64,
    rms_error: f64,
    /// Infinite without error; null in JSON.
    #[serde(serialize_with = "finite_or_null")]
    sqnr_db: f64,
}

impl Errors {
    fn from_accuracy(Accuracy { max_error, rms_error, sqnr_db }: Accuracy) -> Self {
        Errors { max_error, rms_error, sqnr_db }
    }
}

fn finite_or_null<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

impl Report {
    /// Accuracy of `int8` against `predictor`, whose errors on the samples of `selection` are
    /// `as_trained`. `follow` makes a progress callback for the predictions of each.
    pub(crate) fn compare<F>(
        as_trained: Metrics,
        predictor: &mut Predictor,
        int8: &mut Predictor,
        selection: Selection<'_>,
        follow: impl Fn() -> F,
    ) -> Result<Self>
    where
        F: FnMut(usize) -> ControlFlow<()>,
    {
        let as_is = predicted(predictor, selection, follow())?;
        let predictions = Errors::from_accuracy(Accuracy::new(&as_is, &predicted(int8, selection, follow())?));
        let tensor = |(name, accuracy): &(String, Accuracy)| Tensor {
            tensor: name.clone(),
            errors: Errors::from_accuracy(*accuracy),
        };
        let weights = int8.weight_errors().iter().map(tensor).collect();
        Ok(Report { as_trained, predictions, weights })
    }

    /// Text that `eval` prints below the errors in eight bits, whose RMSE by horizon is `rmse`.
    pub(crate) fn to_text(&self, rmse: &[f64]) -> String {
        let mut text = format!(
            "\nRMSE in eight bits {:.5}, as trained {:.5}, averaged over the horizons.\n",
            mean(rmse),
            mean(&self.as_trained.rmse)
        );
        text.push_str(&format!("{:<28}  {:>10}  {:>10}  {:>8}\n", "", "max error", "rms error", "SQNR dB"));
        let rows = self.weights.iter().map(|Tensor { tensor, errors }| (tensor.as_str(), errors));
        for (name, Errors { max_error, rms_error, sqnr_db }) in
            std::iter::once(("predictions", &self.predictions)).chain(rows)
        {
            text.push_str(&format!("{name:<28}  {max_error:>10.2e}  {rms_error:>10.2e}  {sqnr_db:>8.1}\n"));
        }
        text
    }
}

/// All predictions of `selection`, in its order.
fn predicted(
    predictor: &mut Predictor,
    selection: Selection<'_>,
    mut follow: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<f32>> {
    let (mut all, mut done) = (Vec::new(), 0);
    predictor.predict(selection, |rows, batch| {
        all.extend_from_slice(batch);
        // Nodes of a graph count as the graph that they belong to.
        done = selection.indices.len().min(done + rows.len());
        match follow(done) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(trainer::Error::Interrupted { work: "the evaluation" }),
        }
    })?;
    Ok(all)
}
