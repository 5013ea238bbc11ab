//! A step of several ranks: each computes its blocks, and the relay adds up the gradients of all.

use std::ops::{ControlFlow, Range};

use megabatch_gpu_core::Device;
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::Objective;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_nn_cpu::{BlockSinks, BlockSums, Engine, FinalGradients, FinalSink, Totals};

use super::fault::{Fault, encode, failure_of};
use super::{BLOCKS, ProcessGroup};
use crate::data::prefetch::BatchFeed;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::peers::PeerLost;
use crate::peers::exchange::{GO_ON, exchange, first_failure};
use crate::peers::relay::{StepSums, relay};
use crate::peers::step_gradients::{Outcome, OwnBlocks, StepGradients};
use crate::train::Trainer;
use crate::train::backend::Backend;
use crate::train::on_cpu::{CpuBackend, StepInputs, locate_non_finite};
use crate::train::step_plan::StepPlan;

/// This rank's part of a step. Gradients are in the trainer's sum on rank 0, and in the team's
/// blocks on others, up to the last batch.
#[derive(Debug, Default)]
struct OwnPart {
    losses: Vec<(f64, u64)>,
    times: Totals,
}

/// The last batch of a rank's part of a step.
struct LastBatch<'a> {
    batch: BatchView<'a>,
    objective: Objective,
    /// Its blocks whose gradients the relay takes while they are computed, see
    /// [`Engine::last_round`]. They are its last ones; none where it waits for all.
    early: Range<usize>,
}

/// A number that is not finite in a batch.
struct NonFinite {
    /// The batch's loss, without the division by its count.
    loss: f64,
    /// The first gradient that is not finite: its tensor, and its index there.
    gradient: Option<(String, usize)>,
}

/// The sums of a step that the ranks share, or the loss of one of them.
type Relayed = std::result::Result<(StepSums, u32), PeerLost>;

/// A step of this rank with the others.
pub(in crate::train) struct SharedStep<'a> {
    pub(in crate::train) cpu: &'a mut CpuBackend,
    pub(in crate::train) process_group: &'a mut ProcessGroup,
    pub(in crate::train) inputs: StepInputs<'a>,
    /// Memory of the blocks' gradients.
    pub(in crate::train) device: &'a Device,
}

impl Trainer {
    /// Room for the gradients of this rank's blocks of a step.
    pub(in crate::train) fn make_room_for_blocks(&mut self, schedule: &Schedule) -> Result<()> {
        let Some(process_group) = &mut self.process_group else { return Ok(()) };
        let is_first = process_group.is_first();
        let Backend::Cpu(cpu) = &self.backend else {
            // The sum, which rank 0 begins with its own.
            return process_group.make_room_for(if is_first { 1 } else { 2 }, &self.device, &self.model);
        };
        let count = schedule.own_blocks_max();
        let overlaps = process_group.relays_early(&self.model);
        let at_once = if overlaps { cpu.engine.blocks_at_once().min(count) } else { 0 };
        // Rank 0 adds its own to the sum at once, but for those that come before their turn.
        let count = OwnBlocks { is_first, done: 0, in_turn: count - at_once, count }.held();
        process_group.blocks.truncate(count);
        process_group.make_room_for(count, &self.device, &self.model)
    }
}

impl ProcessGroup {
    pub(super) fn is_first(&self) -> bool {
        self.peers.rank() == 0
    }

    /// This rank's part in the answer of all observers.
    pub(super) fn flags(&self) -> u32 {
        if self.wants_end { 0 } else { GO_ON }
    }

    /// `own` of a step in which no rank `failed`; else the error of the first that did.
    pub(super) fn settle<T>(&mut self, own: Result<T>, failed: Option<usize>) -> Result<T> {
        if failed.is_none() {
            return own;
        }
        let fault = own.as_ref().err().map(|error| encode(&Fault::new(error)));
        let first = first_failure(&mut *self.peers, fault.as_deref())?;
        let (failed, fault) = first.expect("a rank that failed says so");
        Err(failure_of(failed, &fault, self.peers.rank(), own.err()))
    }

    /// True if the relay takes gradients while others are computed. A single piece is not there
    /// before all of them are.
    fn relays_early(&self, model: &Model) -> bool {
        self.relay.overlaps && self.peers.world() > 1 && model.layout().len() > self.relay.piece_len
    }

    /// Room for the gradients of `count` blocks. In dense training there are more where series end.
    fn make_room_for(&mut self, count: usize, device: &Device, model: &Model) -> Result<()> {
        let scope = device.scope(BLOCKS);
        while self.blocks.len() < count {
            self.blocks.push(TensorSet::zeros(&scope, model.layout())?);
        }
        Ok(())
    }
}

impl SharedStep<'_> {
    /// Computes this rank's blocks of a step up to the last batch, and takes that.
    fn begin_own<'f>(
        &mut self,
        feed: &'f mut BatchFeed<'_>,
        plan: &StepPlan,
    ) -> Result<(OwnPart, Option<LastBatch<'f>>)> {
        const NEXT: &str = "the feed has the batches of every step";
        let StepInputs { model, parameters, .. } = self.inputs;
        self.cpu.gradients.clear();
        self.cpu.engine.load(model, parameters);
        let mut own = OwnPart::default();
        let Some((last, before)) = plan.batches.split_last() else { return Ok((own, None)) };
        for positions in before {
            let batch = feed.next()?.expect(NEXT);
            let objective = plan.objective_over(&batch, positions);
            if let Some(found) = self.accumulate_own(&batch, objective, &mut own)? {
                return Err(self.not_finite(&batch, objective, found));
            }
        }
        let batch = feed.next()?.expect(NEXT);
        let objective = plan.objective_over(&batch, last);
        let round = self.cpu.engine.last_round(&batch, objective);
        let early = if self.process_group.relays_early(model) { round } else { round.end..round.end };
        let last = LastBatch { batch, objective, early };
        let held = self.own_blocks(&own, Some(&last)).held();
        self.process_group.make_room_for(held, self.device, model)?;
        Ok((own, Some(last)))
    }

    /// This rank's blocks: those of `own`, and of the last batch.
    fn own_blocks(&self, own: &OwnPart, last: Option<&LastBatch<'_>>) -> OwnBlocks {
        let (done, early) = (own.losses.len(), last.map_or(0..0, |last| last.early.clone()));
        OwnBlocks {
            is_first: self.process_group.is_first(),
            done,
            in_turn: done + early.start,
            count: done + early.end,
        }
    }

    /// Computes the blocks of a batch that is not the last: adds them to the sum on rank 0, and
    /// keeps them on others.
    fn accumulate_own(
        &mut self,
        batch: &BatchView<'_>,
        objective: Objective,
        own: &mut OwnPart,
    ) -> Result<Option<NonFinite>> {
        let StepInputs { model, parameters, is_scaled, .. } = self.inputs;
        let (is_first, before) = (self.process_group.is_first(), own.losses.len());
        let CpuBackend { engine, gradients: sum, .. } = &mut *self.cpu;
        let held = &mut self.process_group.blocks;
        let (scope, layout) = (self.device.scope(BLOCKS), model.layout());
        let mut shortage = None;
        let blocks = &mut |block: BlockSums<'_>| {
            if is_first {
                sum.add(block.gradients);
            } else if shortage.is_none() {
                // In dense training a block has more parts than one where series end.
                shortage = hold(held, own.losses.len(), || TensorSet::zeros(&scope, layout), block.gradients);
            }
            own.losses.push((block.loss_sum, block.terms as u64));
        };
        let sinks = BlockSinks { blocks, finals: None };
        let times = engine.accumulate_blocks(model, parameters, batch, objective, sinks);
        if let Some(shortage) = shortage {
            return Err(shortage.into());
        }
        own.times.forward += times.forward;
        own.times.backward += times.backward;
        let loss: f64 = own.losses[before..].iter().map(|(loss_sum, _)| loss_sum).sum();
        let first = if is_first {
            sum.first_non_finite()
        } else {
            held[before..own.losses.len()].iter().find_map(TensorSet::first_non_finite)
        };
        let gradient = first.map(|(tensor, index)| (tensor.to_owned(), index));
        let is_fault = !loss.is_finite() || (gradient.is_some() && !is_scaled);
        Ok(is_fault.then_some(NonFinite { loss, gradient }))
    }

    /// The error of a batch with a number that is not finite.
    fn not_finite(&mut self, batch: &BatchView<'_>, objective: Objective, found: NonFinite) -> Error {
        if let Err(error) = objective.loss.check_rows(batch.targets(), self.inputs.model.shape().outputs) {
            return error.into();
        }
        let loss = found.loss / objective.count as f64;
        // Several ranks carry no states.
        let first = locate_non_finite(&mut self.cpu.engine, None, self.inputs, batch, objective, found.gradient);
        let (tensor, index) = first.unwrap_or_else(|| ("the loss".to_owned(), 0));
        Error::NotFinite { step: self.inputs.step, loss, tensor, index }
    }

    /// A step of all ranks: their sums, with the gradients in place; the answer to all observers
    /// before it.
    pub(in crate::train) fn compute(
        &mut self,
        feed: &mut BatchFeed<'_>,
        plan: Result<StepPlan>,
    ) -> Result<(StepPlan, Totals, ControlFlow<()>)> {
        let begun = plan.and_then(|plan| self.begin_own(feed, &plan).map(|(part, last)| (plan, part, last)));
        let (mut own, mut part, last) = match begun {
            Ok((plan, part, last)) => (Ok(plan), part, last),
            Err(error) => (Err(error), OwnPart::default(), None),
        };
        let (relayed, found) = self.relay_step(&mut part, last.as_ref(), own.is_err());
        if let (Some(found), Some(LastBatch { batch, objective, .. })) = (found, &last) {
            own = Err(self.not_finite(batch, *objective, found));
        }
        let (StepSums { loss_sum, terms, failed }, agreed) = relayed?;
        let plan = self.process_group.settle(own, failed)?;
        let terms = usize::try_from(terms).expect("terms that are counted in memory");
        let totals = Totals { loss_sum, terms, ..part.times };
        if self.process_group.peers.world() > 1 {
            self.check_sums(&totals, &plan)?;
        }
        Ok((plan, totals, answer(agreed)))
    }

    /// Computes the last batch of this rank, and relays the gradients of all ranks as they come.
    fn relay_step(
        &mut self,
        part: &mut OwnPart,
        last: Option<&LastBatch<'_>>,
        failed: bool,
    ) -> (Relayed, Option<NonFinite>) {
        let StepInputs { model, parameters, is_scaled, .. } = self.inputs;
        let places = model.gradient_groups();
        // Nothing of a part that failed is added.
        let overlaps = self.process_group.relays_early(model) && last.is_some();
        let (blocks, flags) = (self.own_blocks(part, last), self.process_group.flags());
        let SharedStep { cpu, process_group, .. } = self;
        let CpuBackend { engine, gradients, .. } = &mut **cpu;
        let sum = gradients.values_mut();
        let held = process_group.blocks.iter_mut().map(TensorSet::values_mut);
        let own = StepGradients::new(blocks, &places, process_group.relay.piece_len, sum, held);
        let peers = &mut *process_group.peers;
        let mut compute = || {
            let guard = own.failed_on_drop();
            let found = last.and_then(|last| compute_last(engine, model, parameters, last, &own, part));
            let found = found.filter(|found| !found.loss.is_finite() || !is_scaled);
            own.finish(Outcome { losses: part.losses.clone(), failed: failed || found.is_some() });
            drop(guard);
            found
        };
        let mut relayed = || exchange(peers, flags, |peers| relay(peers, &own));
        if !overlaps {
            let found = compute();
            return (relayed(), found);
        }
        std::thread::scope(|scope| {
            let relayed = scope.spawn(relayed);
            let found = compute();
            (relayed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), found)
        })
    }

    /// Refuses sums that are not finite though their terms are.
    fn check_sums(&self, totals: &Totals, plan: &StepPlan) -> Result<()> {
        let first = if self.inputs.is_scaled { None } else { self.cpu.gradients.first_non_finite() };
        if totals.loss_sum.is_finite() && first.is_none() {
            return Ok(());
        }
        let (tensor, index) =
            first.map_or(("the loss".to_owned(), 0), |(name, index)| (format!("the gradient of {name}"), index));
        let loss = totals.loss_sum / plan.objective.count as f64;
        Err(Error::NotFinite { step: self.inputs.step, loss, tensor, index })
    }
}

/// The answer of all observers, whose flags these are.
pub(super) fn answer(agreed: u32) -> ControlFlow<()> {
    if agreed & GO_ON == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Computes the blocks of the last batch, and gives `own` their gradients: those of the last round
/// as soon as they are final.
fn compute_last(
    engine: &mut Engine,
    model: &Model,
    parameters: &TensorSet,
    LastBatch { batch, objective, early }: &LastBatch<'_>,
    own: &StepGradients<'_>,
    part: &mut OwnPart,
) -> Option<NonFinite> {
    let before = part.losses.len();
    let finals =
        |gradients: FinalGradients<'_>| own.give_place(before + gradients.block, &gradients.range, gradients.values);
    let blocks = &mut |block: BlockSums<'_>| {
        if part.losses.len() < before + early.start {
            own.give_block(part.losses.len(), block.gradients.values());
        }
        part.losses.push((block.loss_sum, block.terms as u64));
    };
    let finals: FinalSink<'_> = &finals;
    let sinks = BlockSinks { blocks, finals: (!early.is_empty()).then_some(finals) };
    let times = engine.accumulate_blocks(model, parameters, batch, *objective, sinks);
    part.times.forward += times.forward;
    part.times.backward += times.backward;
    let loss: f64 = part.losses[before..].iter().map(|(loss_sum, _)| loss_sum).sum();
    let gradient = own.first_non_finite().map(|index| model.layout().element(index));
    let gradient = gradient.map(|(tensor, index)| (tensor.to_owned(), index));
    (!loss.is_finite() || gradient.is_some()).then_some(NonFinite { loss, gradient })
}

/// Keeps the gradients of block `at`; the error where there is no memory for them.
fn hold(
    held: &mut Vec<TensorSet>,
    block: usize,
    zeros: impl FnOnce() -> megabatch_nn::Result<TensorSet>,
    gradients: &TensorSet,
) -> Option<megabatch_nn::Error> {
    if block == held.len() {
        match zeros() {
            Ok(block) => held.push(block),
            Err(error) => return Some(error),
        }
    }
    held[block].values_mut().copy_from_slice(gradients.values());
    None
}
