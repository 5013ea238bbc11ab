#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use megabatch_gpu_core::Device;
use serde::Serialize;

use crate::baseline::Baselines;
use crate::carried::series_of;
use crate::error::{Error, Result};
use crate::loss::Loss;
use crate::metrics::{Metrics, MetricsSum};
use crate::model::Model;
use crate::prefetch::{Source, with_batches};
use crate::samples::Samples;
use crate::step::{Compute, Engine, Purpose};
use crate::stream::{Streamed, distinct_ends};
use crate::tensor::TensorSet;
use crate::view::BatchView;
use crate::weights::load_weights;

/// A model's errors on some samples, beside those of the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Number of samples.
    pub samples: usize,
    /// Mean loss.
    pub loss: f64,
    /// The model's errors by horizon.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Each baseline's errors by horizon, by name: `no_change`, `mean`, `linear`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<&'static str, Metrics>,
    /// The same of the samples of each instrument, by name; empty where the source does not tell instruments apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instruments: BTreeMap<String, InstrumentEvaluation>,
}

/// A model's errors on the samples of one instrument, beside those of the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstrumentEvaluation {
    /// Number of samples.
    pub samples: usize,
    /// The model's errors by horizon.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Each baseline's errors by horizon, by name. The baselines are the same for all instruments.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<&'static str, Metrics>,
}

/// What is evaluated: samples by index, visited in this order.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// The source.
    pub samples: &'a dyn Samples,
    /// Which of them.
    pub indices: &'a [usize],
}

/// A trained model that predicts.
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    parameters: TensorSet<f32>,
    engine: Engine,
    device: Device,
    compute: Compute,
    carry_state: bool,
}

impl Predictor {
    /// The model with the weights of a safetensors file.
    ///
    /// # Errors
    /// As [`load_weights`]; [`Error::Memory`], [`Error::Threads`] and [`Error::Setting`] as for training.
    pub fn open(device: &Device, model: Model, weights: &Path, compute: Compute) -> Result<Self> {
        let mut parameters = TensorSet::zeros(&device.scope("model/parameters"), model.layout())?;
        load_weights(weights, &mut parameters)?;
        let engine = Engine::new(device, &model, compute, Purpose::Prediction)?;
        Ok(Predictor { model, parameters, engine, device: device.clone(), compute, carry_state: false })
    }

    /// The predictor for a model that was trained with carried state: a sample's outputs are those of the states at its windows'
    /// last bars in one pass over each segment from zero, one step a bar. They depend on nothing else, neither on which samples
    /// are asked for nor on batches or threads. The samples must be slices of series.
    pub fn with_carried_state(self) -> Self {
        Predictor { carry_state: true, ..self }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Gives `sink` the predictions [B, K] of each batch, in order, with the indices of its samples.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] for samples of another model, [`Error::Gather`], [`Error::Memory`], with carried state
    /// [`Error::Setting`] for samples that are stored as windows, and whatever `sink` returns.
    pub fn predict<E: From<Error>>(
        &mut self,
        selection: Selection<'_>,
        mut sink: impl FnMut(&[usize], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        let mut refused = None;
        let mut source = self.source();
        source.for_each(selection, |batch, predictions| {
            let indices = &selection.indices[done..done + batch.len()];
            done += batch.len();
            refused = sink(indices, predictions).err();
            Ok(if refused.is_some() { Next::Stop } else { Next::Continue })
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// The model's errors, beside those of the baselines if there are any.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`Error::NothingLeft`] for no samples, [`Error::Setting`] for a loss out of range.
    pub fn evaluate(
        &mut self,
        selection: Selection<'_>,
        loss: Loss,
        baselines: Option<&Baselines>,
    ) -> Result<Evaluation> {
        evaluate(self.source(), selection, (loss, baselines))
    }

    fn source(&mut self) -> Predictions<'_> {
        Predictions {
            model: &self.model,
            parameters: &self.parameters,
            engine: &mut self.engine,
            device: &self.device,
            compute: self.compute,
            carry_state: self.carry_state,
        }
    }
}

/// A model in use: what predictions are computed with.
pub(crate) struct Predictions<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet<f32>,
    pub(crate) engine: &'a mut Engine,
    pub(crate) device: &'a Device,
    pub(crate) compute: Compute,
    pub(crate) carry_state: bool,
}

/// Whether to go on to the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Stop,
}

impl Predictions<'_> {
    /// Predicts batch after batch, in order.
    fn for_each(
        &mut self,
        selection: Selection<'_>,
        mut each: impl FnMut(&BatchView<'_>, &[f32]) -> Result<Next>,
    ) -> Result<()> {
        check_shape(self.model, selection.samples)?;
        let Compute { batch_size, form, .. } = self.compute;
        let batches = self.device.scope("batches");
        let source = Source { samples: selection.samples, scope: &batches, capacity: batch_size, form };
        let schedule = selection.indices.chunks(batch_size).map(<[usize]>::to_vec);
        let mut outputs = vec![0.0; batch_size * self.model.shape().outputs];
        self.engine.load(self.model, self.parameters);
        let mut streamed = if self.carry_state { Some(self.stream(selection)?) } else { None };
        with_batches(source, schedule, |feed| {
            while let Some(batch) = feed.next()? {
                let outputs = &mut outputs[..batch.targets().len()];
                match &mut streamed {
                    None => self.engine.predict(self.model, self.parameters, &batch, outputs),
                    Some(streamed) => streamed.predict((self.model, self.parameters), &batch, outputs),
                }
                if each(&batch, outputs)? == Next::Stop {
                    break;
                }
            }
            Ok(())
        })
    }
}

impl Predictions<'_> {
    /// The states at the last bars of the selection's windows.
    fn stream(&mut self, selection: Selection<'_>) -> Result<Streamed> {
        let series = series_of(selection.samples)?;
        let ends = distinct_ends(selection.samples, selection.indices)?;
        let mut streamed = Streamed::new(&self.device.scope("carried/streamed"), self.model, ends)?;
        self.engine.stream((self.model, self.parameters), &series.timeframes, &mut streamed);
        Ok(streamed)
    }
}

/// Errors of a model and of baselines over the same samples, in one pass.
pub(crate) fn evaluate(
    mut predictions: Predictions<'_>,
    selection: Selection<'_>,
    (loss, baselines): (Loss, Option<&Baselines>),
) -> Result<Evaluation> {
    loss.check()?;
    if selection.indices.is_empty() {
        let advice = "give the part a fraction in data.split";
        return Err(Error::NothingLeft { part: "evaluation", before: 0, after: 0, advice });
    }
    let outputs = predictions.model.shape().outputs;
    let mut loss_sum = 0.0;
    let mut all = Sums::new(outputs);
    let mut by_instrument: BTreeMap<&str, Sums> = BTreeMap::new();
    let mut unseen = selection.indices;
    predictions.for_each(selection, |batch, predictions| {
        loss_sum += loss.sum(predictions, batch.targets());
        let others = baselines.map_or(Vec::new(), |baselines| baselines.predict(batch).into());
        let rows = Rows { predictions, targets: batch.targets(), baselines: &others };
        all.add(rows, 0..batch.len());
        let (seen, rest) = unseen.split_at(batch.len());
        unseen = rest;
        for (row, &sample) in seen.iter().enumerate() {
            if let Some(name) = selection.samples.instrument(sample) {
                by_instrument.entry(name).or_insert_with(|| Sums::new(outputs)).add(rows, row..row + 1);
            }
        }
        Ok(Next::Continue)
    })?;
    let InstrumentEvaluation { samples, metrics, baselines } = all.finish();
    let instruments = by_instrument.into_iter().map(|(name, sums)| (name.to_owned(), sums.finish())).collect();
    Ok(Evaluation { samples, loss: loss_sum / (samples * outputs) as f64, metrics, baselines, instruments })
}

/// What a model and the baselines predict for the samples of a batch, and what came, [B, K] each.
#[derive(Clone, Copy)]
struct Rows<'a> {
    predictions: &'a [f32],
    targets: &'a [f32],
    baselines: &'a [(&'static str, Vec<f32>)],
}

/// Sums of the errors of a model and of baselines.
struct Sums {
    outputs: usize,
    model: MetricsSum,
    baselines: BTreeMap<&'static str, MetricsSum>,
}

impl Sums {
    fn new(outputs: usize) -> Self {
        Sums { outputs, model: MetricsSum::new(outputs), baselines: BTreeMap::new() }
    }

    /// Adds some rows of a batch.
    fn add(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        let values = rows.start * self.outputs..rows.end * self.outputs;
        let targets = &batch.targets[values.clone()];
        self.model.add(&batch.predictions[values.clone()], targets);
        for (name, predictions) in batch.baselines {
            let sum = self.baselines.entry(name).or_insert_with(|| MetricsSum::new(self.outputs));
            sum.add(&predictions[values.clone()], targets);
        }
    }

    fn finish(&self) -> InstrumentEvaluation {
        InstrumentEvaluation {
            samples: self.model.samples(),
            metrics: self.model.finish(),
            baselines: self.baselines.iter().map(|(&name, sum)| (name, sum.finish())).collect(),
        }
    }
}

/// Refuses samples that the model was not built for.
pub(crate) fn check_shape(model: &Model, samples: &dyn Samples) -> Result<()> {
    if samples.shape() == model.shape() {
        return Ok(());
    }
    Err(Error::SamplesShape { model: model.shape().to_string(), samples: samples.shape().to_string() })
}
