//! Steps on the CPU.

use megabatch_amp::{LossScaler, NonFiniteTrace, Overflow, Threads, unscale_and_check};
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::Objective;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_nn_cpu::{Carried, Changes, Engine, Totals};

use super::step_plan::{StepPlan, UpdateOutcome};
use crate::data::prefetch::BatchFeed;
use crate::error::{Error, Result};
use crate::train::optimizer::Optimizer;

/// Memory of steps on the CPU.
#[derive(Debug)]
pub(super) struct CpuBackend {
    pub(super) engine: Engine,
    pub(super) gradients: TensorSet,
}

/// Input of a step's gradients besides its batches.
#[derive(Clone, Copy)]
pub(super) struct StepInputs<'a> {
    pub(super) model: &'a Model,
    pub(super) parameters: &'a TensorSet,
    /// Number of the step, counted from 1.
    pub(super) step: u64,
    /// True if the loss is scaled: gradients may overflow.
    pub(super) is_scaled: bool,
}

/// Settings of an update.
#[derive(Clone, Copy)]
pub(super) struct UpdateSettings {
    /// Factor of the gradients before they are clipped.
    pub(super) inverse_scale: f32,
    pub(super) lr: f64,
    pub(super) clip_norm: Option<f64>,
    /// False if no target of the step is known. Nothing is learnt then.
    pub(super) learns: bool,
}

impl CpuBackend {
    /// The sums over the batches of a step, whose gradients are then in place. Windows start from
    /// the states that are `carried`.
    pub(super) fn accumulate(
        &mut self,
        inputs: StepInputs<'_>,
        mut carried: Option<&mut Carried>,
        feed: &mut BatchFeed<'_>,
        plan: &StepPlan,
    ) -> Result<Totals> {
        let StepInputs { model, parameters, step, is_scaled } = inputs;
        let mut totals = Totals::default();
        self.gradients.clear();
        // What a step noted that failed halfway.
        if let Some(carried) = &mut carried {
            carried.discard();
        }
        self.engine.load(model, parameters);
        for positions in &plan.batches {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            let (objective, before) = (plan.objective_over(&batch, positions), totals.loss_sum);
            let changes = Changes { gradients: &mut self.gradients, carried: carried.as_deref_mut() };
            totals = self.engine.accumulate(model, parameters, &batch, objective, changes, totals);
            let finite = totals.loss_sum.is_finite() && (is_scaled || self.gradients.first_non_finite().is_none());
            if !finite {
                objective.loss.check_rows(batch.targets(), model.shape().outputs)?;
                let loss = (totals.loss_sum - before) / objective.count as f64;
                let gradient = self.gradients.first_non_finite().map(|(tensor, index)| (tensor.to_owned(), index));
                let carried = carried.as_deref();
                let first = locate_non_finite(&mut self.engine, carried, inputs, &batch, objective, gradient);
                let (tensor, index) = first.expect("a loss or a gradient that is not finite comes from one of these");
                return Err(Error::NotFinite { step, loss, tensor, index });
            }
        }
        Ok(totals)
    }

    /// Norm, clip, update along the gradients, and of the states that are `carried`. Nothing is
    /// updated where they overflowed.
    pub(super) fn update(
        &mut self,
        settings: UpdateSettings,
        scaler: Option<&mut LossScaler>,
        optimizer: &mut Optimizer,
        parameters: &mut TensorSet,
        carried: Option<&mut Carried>,
    ) -> Result<UpdateOutcome> {
        let UpdateSettings { inverse_scale, lr, clip_norm, learns } = settings;
        let gradients = &self.gradients;
        let examined = self.engine.on_pool(|| unscale_and_check(&[gradients.values()], inverse_scale, Threads::Pool));
        let first = examined.non_finite.filter(|_| scaler.is_some()).and_then(|_| gradients.first_non_finite());
        let overflow = first.map(|(tensor, index)| format!("{tensor}[{index}]"));
        if let Some(scaler) = scaler {
            scaler.update(first.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        }
        if let Some(factors) = examined.factors(clip_norm) {
            if learns {
                self.engine.on_pool(|| optimizer.step(parameters, gradients, lr, factors, Threads::Pool));
            }
            if let Some(carried) = carried {
                carried.commit();
            }
        }
        Ok(UpdateOutcome { norm: examined.norm, overflow })
    }
}

/// The first number that is not finite, in the order of computation: the batch, the weights,
/// the outputs of each layer, the gradients, of which `gradient` is the first. The name of its
/// tensor, and its index there.
pub(super) fn locate_non_finite(
    engine: &mut Engine,
    carried: Option<&Carried>,
    StepInputs { model, parameters, .. }: StepInputs<'_>,
    batch: &BatchView<'_>,
    objective: Objective,
    gradient: Option<(String, usize)>,
) -> Option<(String, usize)> {
    if let Some(first) = batch.first_non_finite() {
        return Some(first);
    }
    let mut trace = NonFiniteTrace::default();
    parameters.tensors().for_each(|(name, _, values)| trace.look("", name, values));
    if trace.first().is_none() {
        engine.trace(model, parameters, batch, carried, objective, &mut trace);
    }
    let Some(first) = trace.first() else {
        return gradient.map(|(tensor, index)| (format!("the gradient of {tensor}"), index));
    };
    let preposition = if first.layer.is_empty() { "" } else { " in " };
    Some((format!("{}{preposition}{}", first.tensor, first.layer), first.index))
}
