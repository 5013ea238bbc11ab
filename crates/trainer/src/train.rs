#![forbid(unsafe_code)]

mod resume;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use megabatch_gpu_core::Device;
use megabatch_order::StepSamples;

use crate::baseline::Baselines;
use crate::carried::Carried;
use crate::checkpoint::{Best, Checkpoints};
use crate::clip::{clip_by_norm, global_norm};
use crate::config::Config;
use crate::early_stopping::Plateau;
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, Predictions, Selection, check_shape, evaluate};
use crate::events::{EpochEvent, Event, Observer, StepEvent, ValidationEvent};
use crate::model::{Model, SampleShape};
use crate::optimizer::Optimizer;
use crate::prefetch::{Feed, Source, with_batches};
use crate::samples::Samples;
use crate::schedule::Schedule;
use crate::step::{Changes, Engine, Objective, Totals};
use crate::tensor::TensorSet;
use crate::view::BatchView;
use crate::weights::{load_weights, save_weights};

/// A model in training on one device.
#[derive(Debug)]
pub struct Trainer {
    device: Device,
    config: Config,
    model: Model,
    parameters: TensorSet<f32>,
    gradients: TensorSet<f32>,
    optimizer: Optimizer<f32>,
    engine: Engine,
    /// Optimizer steps done.
    step: u64,
    best: Option<Best>,
    plateau: Plateau,
    /// The states that windows start from, once a run is known.
    carried: Option<Carried>,
}

/// What a trainer trains on.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The source of all samples.
    pub samples: &'a dyn Samples,
    /// Samples to train on, by index; graphs, for a model over graphs. Neighbours in this list are visited together in runs.
    pub train: &'a [usize],
    /// Samples to validate on, or graphs, by index; may be empty.
    pub validation: &'a [usize],
    /// Where checkpoints go, if anywhere.
    pub checkpoints: Option<&'a Checkpoints>,
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Optimizer steps done, those before a resume included.
    pub steps: u64,
    /// Why it ended.
    pub end: End,
    /// The best validation.
    pub best: Option<Best>,
}

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps are done.
    Finished,
    /// The validation loss no longer fell, see [`EarlyStopping`](crate::EarlyStopping). A resumed run stays ended, unless it is
    /// given more patience.
    StoppedEarly,
    /// The observer asked for it.
    Stopped,
}

impl Trainer {
    /// A trainer with initial weights drawn from the seed. All memory of the run is taken here but that of its
    /// batches, carried states and graphs, whose size depends on the samples.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting out of range; [`Error::Memory`] and [`Error::Threads`] when the device has no room.
    pub fn new(device: &Device, config: Config, shape: SampleShape) -> Result<Self> {
        config.check()?;
        let model = Model::new(shape, config.model)?;
        let parameters = model.initial_parameters(&device.scope("model/parameters"), config.seed)?;
        let compute = config.compute();
        Ok(Trainer {
            gradients: TensorSet::zeros(&device.scope("model/gradients"), model.layout())?,
            optimizer: Optimizer::new(&device.scope("optimizer"), config.optimizer, &parameters)?,
            engine: Engine::new(device, &model, compute, config.purpose())?,
            device: device.clone(),
            step: 0,
            best: None,
            plateau: Plateau::default(),
            carried: None,
            config,
            model,
            parameters,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The weights as they are now.
    pub fn parameters(&self) -> &TensorSet<f32> {
        &self.parameters
    }

    /// The optimizer and its moments.
    pub fn optimizer(&self) -> &Optimizer<f32> {
        &self.optimizer
    }

    /// Replaces the weights by those of a safetensors file; the optimizer starts anew.
    ///
    /// # Errors
    /// As [`load_weights`]; the weights are then as before.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        load_weights(path, &mut self.parameters)
    }

    /// Writes the weights to a safetensors file, atomically.
    ///
    /// # Errors
    /// As [`save_weights`].
    pub fn save_weights(&self, path: &Path) -> Result<()> {
        save_weights(path, &self.parameters)
    }

    /// Trains until the configured steps are done, the validation loss no longer falls or the observer asks to stop.
    ///
    /// # Errors
    /// [`Error::Setting`] for early stopping without validation samples, and for carried state of samples that are stored as
    /// windows; [`Error::SamplesShape`], [`Error::NothingLeft`] and
    /// [`Error::SampleOutOfRange`] for samples that cannot be trained on; [`Error::Gather`] when they cannot be read;
    /// for a model over graphs [`Error::Setting`] where the samples are not nodes of graphs, [`Error::GraphOutOfRange`],
    /// [`Error::Graph`] and [`Error::GraphShape`];
    /// [`Error::NotFinite`] when numbers overflow; [`Error::File`] when a checkpoint cannot be saved. The trainer then stands
    /// after the last step that was completed.
    pub fn train(&mut self, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<Outcome> {
        check_shape(&self.model, run.samples)?;
        self.check_validation(run)?;
        let schedule = Schedule::new(&self.config, run.train.len())?;
        if let Some(checkpoints) = run.checkpoints {
            checkpoints.clean()?;
        }
        if let Some(end) = self.end(&schedule) {
            return Ok(self.outcome(end));
        }
        self.carry_states_of(run)?;
        let graphs = self.engine.make_room_for(&self.model, Selection { samples: run.samples, indices: run.train })?;
        let (batches, form) = (self.device.scope("batches"), self.config.form);
        let batch_size = self.config.batch_size;
        let source = Source { samples: run.samples, graphs, scope: &batches, batch_size, form };
        let order = schedule.batches(self.step..schedule.steps, run.train);
        with_batches(source, order, |feed| {
            loop {
                let event = self.training_step(feed, (&schedule, run))?;
                let asked = observer(Event::Step(event));
                if let Some(end) = self.after_step(run, &schedule, (asked, observer))? {
                    return Ok(self.outcome(end));
                }
            }
        })
    }

    /// The errors of the weights as they are now.
    ///
    /// # Errors
    /// As [`Predictor::evaluate`](crate::Predictor::evaluate).
    pub fn evaluate(&mut self, selection: Selection<'_>, baselines: Option<&Baselines>) -> Result<Evaluation> {
        let predictions = Predictions {
            model: &self.model,
            parameters: &self.parameters,
            engine: &mut self.engine,
            device: &self.device,
            compute: self.config.compute(),
            carry_state: self.config.carry_state,
        };
        evaluate(predictions, selection, (self.config.loss, baselines))
    }

    /// One optimizer step: gradients of its batches, norm, clip, update.
    fn training_step(&mut self, feed: &mut Feed<'_>, (schedule, run): (&Schedule, &Run<'_>)) -> Result<StepEvent> {
        let start = Instant::now();
        let work = schedule.step(self.step);
        let terms = self.terms(&work, (schedule, run));
        // In a step of graphs without any label there is nothing to learn, and no term to divide by.
        let count = terms.max(1);
        let objective = Objective {
            loss: self.config.loss,
            count,
            dropout: self.config.dropout_of_step(self.step)?,
            seed_and_step: (self.config.seed, self.step),
        };
        let mut totals = Totals::default();
        self.gradients.clear();
        // What a step noted that failed halfway.
        self.carried.iter_mut().for_each(Carried::discard);
        self.engine.load(&self.model, &self.parameters);
        for _ in 0..schedule.batches_of(&work) {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            let model = (&self.model, &self.parameters);
            let changes = Changes { gradients: &mut self.gradients, carried: self.carried.as_mut() };
            let part = self.engine.accumulate(model, &batch, objective, changes);
            let finite = part.loss_sum.is_finite() && self.gradients.first_non_finite().is_none();
            if !finite {
                return Err(self.blame(&batch, part.loss_sum / count as f64));
            }
            totals.loss_sum += part.loss_sum;
            totals.terms += part.terms;
            totals.forward += part.forward;
            totals.backward += part.backward;
        }

        assert_eq!(
            totals.terms,
            terms,
            "terms of the loss in step {}, and as `Graphs::labelled` has it",
            self.step + 1
        );
        let update_start = Instant::now();
        let loss = totals.loss_sum / count as f64;
        let grad_norm = global_norm(&self.gradients);
        if let Some(clip_norm) = self.config.clip_norm {
            clip_by_norm(&mut self.gradients, grad_norm, clip_norm);
        }
        let lr = self.config.lr_schedule.rate(self.config.optimizer.lr, self.step, schedule.steps);
        self.optimizer.update(&mut self.parameters, &self.gradients, lr);
        self.carried.iter_mut().for_each(Carried::commit);
        self.step += 1;
        self.device.step();

        let (waited, waits) = feed.take_waited();
        Ok(StepEvent {
            step: self.step,
            steps: schedule.steps,
            epoch: work.epoch,
            samples: work.positions.len(),
            loss,
            grad_norm,
            lr,
            data_wait_s: waited.as_secs_f64(),
            data_waits: waits,
            forward_s: totals.forward.as_secs_f64(),
            backward_s: totals.backward.as_secs_f64(),
            optimizer_s: update_start.elapsed().as_secs_f64(),
            samples_per_s: work.positions.len() as f64 / start.elapsed().as_secs_f64(),
            allocated_bytes: self.device.usage().allocated_bytes,
        })
    }

    /// Terms over which the loss of a step is the mean.
    fn terms(&self, work: &StepSamples, (schedule, run): (&Schedule, &Run<'_>)) -> usize {
        let outputs = self.model.shape().outputs;
        match run.samples.graphs() {
            Some(graphs) => {
                let batches = schedule.batches(self.step..self.step + 1, run.train);
                let labelled = batches.flatten().map(|graph| graphs.labelled(graph));
                labelled.map(|labelled| self.config.loss.graph_terms(labelled, outputs)).sum()
            }
            None => work.positions.len() * outputs,
        }
    }

    /// Validates and saves where it is due; saves in any case when the run ends here. A validation that is due is done even if
    /// the observer asked to stop: the resumed run, which begins after it, must know the same best.
    fn after_step(
        &mut self,
        run: &Run<'_>,
        schedule: &Schedule,
        (asked, observer): (ControlFlow<()>, &mut Observer<'_>),
    ) -> Result<Option<End>> {
        let epoch_ends = self.step.is_multiple_of(schedule.steps_per_epoch);
        let due = |every: Option<u64>| every.is_some_and(|every| self.step.is_multiple_of(every));
        let save_due = due(run.checkpoints.and_then(|checkpoints| checkpoints.every_steps));
        let validate = epoch_ends || due(self.config.validate_every_steps) || self.step == schedule.steps;

        let mut flow = asked;
        let mut improved = false;
        if validate && !run.validation.is_empty() {
            let event = self.validate(run, schedule)?;
            improved = event.best;
            let answer = observer(Event::Validation(event));
            flow = if flow.is_break() { flow } else { answer };
        }
        if epoch_ends {
            let answer = observer(Event::Epoch(self.epoch_event(schedule)));
            flow = if flow.is_break() { flow } else { answer };
        }
        if let Some(checkpoints) = run.checkpoints
            && (epoch_ends || save_due || improved || flow.is_break() || self.end(schedule).is_some())
        {
            let state = self.state(schedule, run);
            let path = checkpoints.save(
                &state,
                (&self.parameters, &self.optimizer),
                self.carried.as_ref().map(Carried::states),
            )?;
            let answer = observer(Event::Checkpoint { step: self.step, path: &path });
            flow = if flow.is_break() { flow } else { answer };
        }
        // A stop asked for at the very last step changes nothing: the run is finished.
        Ok(self.end(schedule).or(flow.is_break().then_some(End::Stopped)))
    }

    fn epoch_event(&self, schedule: &Schedule) -> EpochEvent {
        let (usage, stats) = (self.device.usage(), self.device.stats());
        EpochEvent {
            step: self.step,
            epoch: schedule.step(self.step - 1).epoch,
            allocated_bytes: usage.allocated_bytes,
            allocated_bytes_peak: usage.allocated_bytes_peak,
            reserved_bytes: stats.reserved_bytes.now,
            reserved_bytes_peak: stats.reserved_bytes.peak,
            inactive_split_bytes: stats.inactive_split_bytes.now,
        }
    }

    /// Why nothing is left to do, if so.
    fn end(&self, schedule: &Schedule) -> Option<End> {
        if self.step >= schedule.steps {
            return Some(End::Finished);
        }
        let over = self.config.early_stopping.is_some_and(|rule| rule.is_over(self.plateau));
        over.then_some(End::StoppedEarly)
    }

    fn check_validation(&self, run: &Run<'_>) -> Result<()> {
        match self.config.early_stopping {
            Some(rule) if run.validation.is_empty() => {
                let expected = "none where nothing is validated; or give validation a fraction in data.split";
                Err(Error::setting("training.early_stopping", &rule.patience, expected))
            }
            _ => Ok(()),
        }
    }

    fn validate(&mut self, run: &Run<'_>, schedule: &Schedule) -> Result<ValidationEvent> {
        let evaluation = self.evaluate(Selection { samples: run.samples, indices: run.validation }, None)?;
        let loss = evaluation.loss;
        let best = loss.is_finite() && self.best.is_none_or(|best| loss < best.loss);
        if best {
            self.best = Some(Best { step: self.step, loss });
        }
        if let Some(rule) = self.config.early_stopping {
            rule.count(&mut self.plateau, loss);
        }
        let StepSamples { epoch, .. } = schedule.step(self.step - 1);
        Ok(ValidationEvent { step: self.step, epoch, loss, best, metrics: evaluation.metrics })
    }

    fn outcome(&self, end: End) -> Outcome {
        Outcome { steps: self.step, end, best: self.best }
    }

    /// Finds the first number that is not finite, in the order of computation: the batch, the weights, the outputs, the
    /// gradients.
    fn blame(&mut self, batch: &BatchView<'_>, loss: f64) -> Error {
        let mut outputs = vec![0.0; self.model.outputs_len(batch)];
        self.engine.predict(&self.model, &self.parameters, batch, &mut outputs);
        let weights = self.parameters.first_non_finite().map(|(name, index)| (name.to_owned(), index));
        let outputs = outputs.iter().position(|y| !y.is_finite()).map(|index| ("outputs".to_owned(), index));
        let gradients =
            self.gradients.first_non_finite().map(|(name, index)| (format!("the gradient of {name}"), index));
        let found = batch.first_non_finite().or(weights).or(outputs).or(gradients);
        let (tensor, index) = found.expect("a loss or a gradient that is not finite comes from one of these");
        Error::NotFinite { step: self.step + 1, loss, tensor, index }
    }
}
