#![forbid(unsafe_code)]

//! Training by several processes, each with its part of every step.
//!
//! ```text
//! each rank      gradients of its blocks of the step          begin_own, compute_last
//! together       the sum over all blocks, in their order,     peers/relay.rs
//!                while the last blocks are computed
//! each rank      norm, clip, update, divergence, validation: of the same numbers, to the same end
//! rank 0         checkpoints
//! ```
//!
//! What one rank alone can do or fail at is settled: all ranks go on, or all have its error.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use megabatch_nn::batch::BatchView;
use megabatch_nn::cpu::{BlockSinks, BlockSums, Engine, FinalGradients, FinalSink, Totals};
use megabatch_nn::loss::Objective;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_order::Rank;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::step::{ON_PROCESSOR, StepPlan};
use super::{Run, Trainer, purpose};
use crate::data::prefetch::BatchFeed;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::evaluate::predict::{Predictions, Selection, States};
use crate::evaluate::shared::{self, PredictedBatch, fold, predict_own};
use crate::evaluate::{Evaluation, EvaluationProgress};
use crate::peers::exchange::{GO_ON, broadcast_bytes, exchange, first_difference, first_failure};
use crate::peers::relay::{Relay, StepSums, broadcast_floats, relay};
use crate::peers::step_gradients::{Outcome, OwnBlocks, StepGradients};
use crate::peers::{PeerLost, Peers};
use crate::train::checkpoint::{Arithmetic, Resumed, State};
use crate::train::events::{Event, Observer};

/// Label of the memory for gradients that wait for the sum of the ranks before.
pub(crate) const BLOCKS: &str = "model/gradients/blocks";

/// Treatment of ranks for which a step has no block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRanks {
    /// They are refused.
    #[default]
    Refuse,
    /// They wait for the others.
    Allow,
}

/// The ranks that train together.
#[derive(Debug)]
pub(super) struct Team {
    pub(super) peers: Box<dyn Peers>,
    idle: IdleRanks,
    relay: Relay,
    /// Gradients of this rank's blocks of a step, until the sum over those before them is there. On
    /// rank 0, blocks that are computed before others whose turn is earlier.
    blocks: Vec<TensorSet>,
    /// True if this rank's observer wants the run to end.
    wants_end: bool,
    /// True if any rank reads its samples in chunks.
    pub(super) has_chunks: bool,
}

/// This rank's part of a step. Gradients are in the trainer's sum on rank 0, and in the team's
/// blocks on others, up to the last batch.
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    losses: Vec<(f64, u64)>,
    times: Totals,
}

/// The last batch of a rank's part of a step.
pub(super) struct LastBatch<'a> {
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

/// An error as another rank hears of it.
#[derive(Serialize, Deserialize)]
enum Fault {
    NotFinite { step: u64, loss_bits: u64, tensor: String, index: usize },
    Interrupted,
    Other { message: String, is_shortage: bool },
}

/// A checkpoint that rank 0 has read, without its tensors.
#[derive(Serialize, Deserialize)]
struct Restored {
    path: PathBuf,
    state: State,
    updates: u64,
}

impl Fault {
    fn of(error: &Error) -> Self {
        match error {
            Error::NotFinite { step, loss, tensor, index } => {
                Fault::NotFinite { step: *step, loss_bits: loss.to_bits(), tensor: tensor.clone(), index: *index }
            }
            Error::Interrupted { .. } => Fault::Interrupted,
            other => Fault::Other { message: other.to_string(), is_shortage: other.is_shortage() },
        }
    }

    fn on(self, rank: usize) -> Error {
        match self {
            Fault::NotFinite { step, loss_bits, tensor, index } => {
                Error::NotFinite { step, loss: f64::from_bits(loss_bits), tensor, index }
            }
            Fault::Interrupted => Error::Interrupted { work: "the evaluation" },
            Fault::Other { message, is_shortage } => Error::OnRank { rank, message, is_shortage },
        }
    }
}

/// Results that all ranks share.
impl Trainer {
    /// Trains from now on as one of `peers`. All of them have the same settings, samples, weights
    /// and checkpoints, which [`Trainer::train`] checks; each computes its part of every step, and
    /// all have the weights of a trainer that is alone, bit for bit. Rank 0 alone saves
    /// checkpoints.
    ///
    /// All ranks do the same in the same order: [`Trainer::resume`], then [`Trainer::train`].
    ///
    /// # Errors
    /// [`Error::NotDistributed`] for a GPU and for carried state.
    pub fn join(&mut self, peers: Box<dyn Peers>, idle: IdleRanks) -> Result<()> {
        if self.config.carry_state {
            return Err(Error::NotDistributed { setting: "carry_state", value: true.to_string() });
        }
        if self.accelerator.is_some() {
            return Err(Error::NotDistributed { setting: "device", value: self.device().to_string() });
        }
        let (relay, blocks) = (Relay::default(), Vec::new());
        self.team = Some(Team { peers, idle, relay, blocks, wants_end: false, has_chunks: false });
        Ok(())
    }

    /// Relays gradients in another way than by default, for tests and measurements. All ranks do
    /// so.
    pub fn set_relay(&mut self, relay: Relay) {
        self.team.iter_mut().for_each(|team| team.relay = relay);
    }

    /// Goes on alone, as the evaluation after training does.
    pub fn leave(&mut self) -> Option<Box<dyn Peers>> {
        self.team.take().map(|team| team.peers)
    }

    /// The first rank that failed in what is done beside training, and its `failure`; `None` alone,
    /// and where none did.
    ///
    /// # Errors
    /// [`Error::Peer`].
    pub fn first_failure(&mut self, failure: Option<&[u8]>) -> Result<Option<(usize, Vec<u8>)>> {
        let Some(team) = &mut self.team else { return Ok(None) };
        Ok(first_failure(&mut *team.peers, failure)?)
    }

    /// This rank of its world.
    pub(super) fn rank(&self) -> Rank {
        self.team.as_ref().map_or_else(Rank::default, |team| {
            Rank::new(team.peers.rank(), team.peers.world()).expect("a rank of its world")
        })
    }

    /// True for the rank that writes checkpoints; also alone.
    pub fn is_first(&self) -> bool {
        self.rank().rank() == 0
    }

    /// `own`, where every rank's is well; else the error of the first rank whose is not.
    pub(super) fn settle<T>(&mut self, own: Result<T>) -> Result<T> {
        let Some(team) = &mut self.team else { return own };
        if let Err(Error::Peer(_)) = own {
            return own;
        }
        let fault = own.as_ref().err().map(|error| encode(&Fault::of(error)));
        match first_failure(&mut *team.peers, fault.as_deref())? {
            None => own,
            Some((rank, fault)) => Err(failure_of(rank, &fault, team.peers.rank(), own.err())),
        }
    }

    /// The result of `work`, which rank 0 alone does.
    pub(super) fn by_first<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<Option<T>>) -> Result<Option<T>> {
        let done = if self.is_first() { work(self) } else { Ok(None) };
        self.settle(done)
    }

    /// The answer of an observer: alone at once, else with the next step, when all ranks know of
    /// it.
    pub(super) fn heard(&mut self, answer: ControlFlow<()>) -> ControlFlow<()> {
        let Some(team) = &mut self.team else { return answer };
        team.wants_end |= answer.is_break();
        ControlFlow::Continue(())
    }

    /// Sees to it that all ranks train the same, and that each has something to do.
    pub(super) fn check_team(&mut self, run: &Run<'_>, schedule: &Schedule) -> Result<()> {
        let facts = if self.team.is_some() { self.facts(run) } else { return Ok(()) };
        let has_chunks = run.samples.load_ahead().is_some();
        let level = self.fallback.level();
        let team = self.team.as_mut().expect("it is there");
        let (ranks, rank) = (team.peers.world(), team.peers.rank());
        let peers = &mut *team.peers;
        let differs = first_difference(peers, &facts)?;
        let differs = differs.map(|difference| Error::RanksDiffer {
            rank,
            what: difference.name,
            here: difference.here,
            first: difference.first,
        });
        // All ranks cut what the one with the least memory had to.
        let own = [u8::try_from(level).unwrap_or(u8::MAX), u8::from(has_chunks)];
        let (all, _) = exchange(peers, 0, |peers| {
            let of_rank = |rank| {
                let mut message = own;
                peers.broadcast(rank, &mut message).map(|()| message)
            };
            (0..ranks).map(of_rank).collect::<Result<Vec<_>, PeerLost>>()
        })?;
        team.has_chunks = all.iter().any(|[_, has_chunks]| *has_chunks == 1);
        let idle = team.idle;
        self.settle(differs.map_or(Ok(()), Err))?;
        let limits = self.fallback.cut_to(all.iter().map(|[level, _]| usize::from(*level)).max().unwrap_or(level));
        if level != self.fallback.level() {
            self.engine.cut_to(&self.model, limits.batch_size, purpose(&self.config, limits, false));
        }
        let blocks = schedule.blocks_of(&schedule.step(0)).len();
        if ranks > blocks && idle == IdleRanks::Refuse {
            return Err(Error::TooManyRanks { ranks, blocks });
        }
        Ok(())
    }

    /// Everything by which ranks must be equal, by name.
    fn facts(&self, run: &Run<'_>) -> Vec<(String, String)> {
        let settings = serde_json::to_value(&self.config).expect("settings serialize without error");
        let mut facts = vec![
            ("arithmetic".to_owned(), Arithmetic::here(self.config.precision).to_string()),
            ("shape of samples".to_owned(), format!("{:?}", self.model.shape())),
            ("relay".to_owned(), format!("{:?}", self.team.as_ref().map(|team| team.relay))),
        ];
        for (name, value) in settings.as_object().expect("settings are a struct") {
            // Threads are each machine's own, and change nothing.
            if name != "threads" {
                facts.push((format!("`{name}`"), value.to_string()));
            }
        }
        let hash = |indices: &[usize]| {
            let mut hash = Xxh3::new();
            indices.iter().for_each(|&index| hash.update(&(index as u64).to_le_bytes()));
            format!("{} of hash {:016x}", indices.len(), hash.digest())
        };
        let mut weights = Xxh3::new();
        let moments = self.optimizer.moments().into_iter().flat_map(|moments| [&moments.exp_avg, &moments.exp_avg_sq]);
        let sets = moments.chain([&self.parameters]);
        sets.flat_map(TensorSet::values).for_each(|value| weights.update(&value.to_le_bytes()));
        let every = run.checkpoints.map(|checkpoints| checkpoints.every_steps);
        facts.extend([
            ("training samples".to_owned(), hash(run.train)),
            ("validation samples".to_owned(), hash(run.validation)),
            ("checkpoints".to_owned(), format!("{every:?}")),
            ("step".to_owned(), self.step.to_string()),
            ("weights".to_owned(), format!("hash {:016x}", weights.digest())),
        ]);
        facts
    }

    /// What rank 0 read from a checkpoint, on all ranks.
    pub(super) fn share_restored(&mut self, own: Option<Resumed>) -> Result<Option<Resumed>> {
        let Some(team) = &mut self.team else { return Ok(own) };
        let updates = self.optimizer.steps();
        let of_first =
            own.as_ref().map(|resumed| Restored { path: resumed.path.clone(), state: resumed.state.clone(), updates });
        let is_first = team.peers.rank() == 0;
        let encoded = is_first.then(|| serde_json::to_vec(&of_first).expect("a state serializes without error"));
        let parameters = &mut self.parameters;
        let (moments, updates) = self.optimizer.state_mut();
        let (restored, _) = exchange(&mut *team.peers, 0, |peers| {
            let restored = broadcast_bytes(peers, 0, encoded)?;
            let restored: Option<Restored> = serde_json::from_slice(&restored).expect("a state of the same program");
            if restored.is_some() {
                let moments = moments.into_iter().flat_map(|moments| [&mut moments.exp_avg, &mut moments.exp_avg_sq]);
                for set in moments.chain([parameters]) {
                    broadcast_floats(peers, 0, set.values_mut())?;
                }
            }
            Ok(restored)
        })?;
        Ok(restored.map(|restored| {
            *updates = restored.updates;
            own.unwrap_or(Resumed {
                path: restored.path,
                state: restored.state,
                skipped: Vec::new(),
                skipped_paths: Vec::new(),
                changed: Vec::new(),
                other_arithmetic: None,
            })
        }))
    }

    /// True if each rank computes its part of a validation. A warm-up before each stretch of
    /// samples would be another where a rank's part begins.
    pub(super) fn shares_validations(&self, states: States) -> bool {
        states != States::Stretches && self.team.as_ref().is_some_and(|team| team.peers.world() > 1)
    }

    /// The evaluation of `selection`, of which each rank computes its part, on all ranks.
    pub(super) fn evaluate_together(
        &mut self,
        selection: Selection<'_>,
        states: States,
        progress: &mut EvaluationProgress<'_>,
    ) -> Result<Evaluation> {
        let (rank, loss) = (self.rank(), self.config.loss);
        let predictions = Predictions { states, ..self.predictions() };
        let own = predict_own(predictions, selection, loss, rank, progress);
        let own = self.settle(own)?;
        let team = self.team.as_mut().expect("an evaluation of several ranks");
        let (here, world) = (rank.rank(), rank.world());
        let (batches, _) = exchange(&mut *team.peers, 0, |peers| {
            let mut own = Some(own);
            let mut all = Vec::new();
            for root in 0..world {
                let of_root = own.take_if(|_| root == here);
                let message = broadcast_bytes(peers, root, of_root.as_deref().map(shared::encode))?;
                all.append(&mut of_root.unwrap_or_else(|| shared::decode(&message)));
            }
            Ok(all)
        })?;
        assert_eq!(batches.iter().map(PredictedBatch::count).sum::<usize>(), selection.indices.len());
        fold(&self.model, selection, loss, batches, progress)
    }

    /// Goes on without ranks that are lost, if the ranks that are left can; else gives `lost` back.
    pub(super) fn reform(&mut self, lost: PeerLost, observer: &mut Observer<'_>) -> Result<ControlFlow<()>> {
        let Some(team) = self.team.as_mut().filter(|_| lost.can_reform) else { return Err(lost.into()) };
        let before = team.peers.world();
        team.peers.reform()?;
        let (rank, world) = (team.peers.rank(), team.peers.world());
        let cause = lost.to_string();
        let asked = observer(Event::Reformed { step: self.step, rank, world, world_before: before, cause });
        Ok(self.heard(asked))
    }
}

/// A step of several ranks.
impl Trainer {
    /// Room for the gradients of this rank's blocks of a step.
    pub(super) fn make_room_for_blocks(&mut self, schedule: &Schedule) -> Result<()> {
        let (is_first, count) = (self.is_first(), schedule.own_blocks_max());
        let at_once = if self.relays_early() { self.engine.blocks_at_once().min(count) } else { 0 };
        let Some(team) = &mut self.team else { return Ok(()) };
        // Rank 0 adds its own to the sum at once, but for those that come before their turn.
        let count = OwnBlocks { is_first, done: 0, in_turn: count - at_once, count }.held();
        team.blocks.truncate(count);
        self.make_room_for(count)
    }

    /// True if the relay takes gradients while others are computed. A single piece is not there
    /// before all of them are.
    fn relays_early(&self) -> bool {
        let len = self.model.layout().len();
        self.team
            .as_ref()
            .is_some_and(|Team { peers, relay, .. }| relay.overlaps && peers.world() > 1 && len > relay.piece_len)
    }

    /// Room for the gradients of `count` blocks. In dense training there are more where series end.
    fn make_room_for(&mut self, count: usize) -> Result<()> {
        let Some(team) = &mut self.team else { return Ok(()) };
        let scope = self.device.scope(BLOCKS);
        while team.blocks.len() < count {
            team.blocks.push(TensorSet::zeros(&scope, self.model.layout())?);
        }
        Ok(())
    }

    /// Computes this rank's blocks of a step up to the last batch, and takes that.
    fn begin_own<'f>(
        &mut self,
        feed: &'f mut BatchFeed<'_>,
        work: &StepPlan,
    ) -> Result<(OwnPart, Option<LastBatch<'f>>)> {
        const NEXT: &str = "the feed has the batches of every step";
        self.gradients.as_mut().expect(ON_PROCESSOR).clear();
        self.engine.load(&self.model, &self.parameters);
        let mut own = OwnPart::default();
        let Some((last, before)) = work.batches.split_last() else { return Ok((own, None)) };
        for positions in before {
            let batch = feed.next()?.expect(NEXT);
            let objective = work.over(&batch, positions);
            if let Some(found) = self.accumulate_own(&batch, objective, &mut own)? {
                return Err(self.not_finite(&batch, objective, found));
            }
        }
        let batch = feed.next()?.expect(NEXT);
        let objective = work.over(&batch, last);
        let round = self.engine.last_round(&batch, objective);
        let early = if self.relays_early() { round } else { round.end..round.end };
        let last = LastBatch { batch, objective, early };
        self.make_room_for(self.own_blocks(&own, Some(&last)).held())?;
        Ok((own, Some(last)))
    }

    /// This rank's blocks: those of `own`, and of the last batch.
    fn own_blocks(&self, own: &OwnPart, last: Option<&LastBatch<'_>>) -> OwnBlocks {
        let (done, early) = (own.losses.len(), last.map_or(0..0, |last| last.early.clone()));
        OwnBlocks { is_first: self.is_first(), done, in_turn: done + early.start, count: done + early.end }
    }

    /// Computes the blocks of a batch that is not the last: adds them to the sum on rank 0, and
    /// keeps them on others.
    fn accumulate_own(
        &mut self,
        batch: &BatchView<'_>,
        objective: Objective,
        own: &mut OwnPart,
    ) -> Result<Option<NonFinite>> {
        let (is_first, before) = (self.is_first(), own.losses.len());
        let sum = self.gradients.as_mut().expect(ON_PROCESSOR);
        let held = &mut self.team.as_mut().expect("a step of several ranks").blocks;
        let (scope, layout) = (self.device.scope(BLOCKS), self.model.layout());
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
        let times = self.engine.accumulate_blocks(&self.model, &self.parameters, batch, objective, sinks);
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
        let is_fault = !loss.is_finite() || (gradient.is_some() && self.scaler.is_none());
        Ok(is_fault.then_some(NonFinite { loss, gradient }))
    }

    /// The error of a batch with a number that is not finite.
    fn not_finite(&mut self, batch: &BatchView<'_>, objective: Objective, found: NonFinite) -> Error {
        if let Err(error) = objective.loss.check_rows(batch.targets(), self.model.shape().outputs) {
            return error.into();
        }
        let loss = found.loss / objective.count as f64;
        let first = self.locate_non_finite(batch, objective, found.gradient);
        let (tensor, index) = first.unwrap_or_else(|| ("the loss".to_owned(), 0));
        Error::NotFinite { step: self.step + 1, loss, tensor, index }
    }

    /// A step of all ranks: their sums, with the gradients in place; the answer to all observers
    /// before it.
    pub(super) fn step_together(
        &mut self,
        feed: &mut BatchFeed<'_>,
        work: Result<StepPlan>,
    ) -> Result<(StepPlan, Totals, ControlFlow<()>)> {
        let begun = work.and_then(|work| self.begin_own(feed, &work).map(|(part, last)| (work, part, last)));
        let (mut own, mut part, last) = match begun {
            Ok((work, part, last)) => (Ok(work), part, last),
            Err(error) => (Err(error), OwnPart::default(), None),
        };
        let (relayed, found) = self.relay_step(&mut part, last.as_ref(), own.is_err());
        if let (Some(found), Some(LastBatch { batch, objective, .. })) = (found, &last) {
            own = Err(self.not_finite(batch, *objective, found));
        }
        let (StepSums { loss_sum, terms, failed }, agreed) = relayed?;
        let team = self.team.as_mut().expect("a step of several ranks");
        let (rank, world) = (team.peers.rank(), team.peers.world());
        if failed.is_some() {
            let fault = own.as_ref().err().map(|error| encode(&Fault::of(error)));
            let first = first_failure(&mut *team.peers, fault.as_deref())?;
            let (failed, fault) = first.expect("a rank that failed says so");
            return Err(failure_of(failed, &fault, rank, own.err()));
        }
        let work = own.expect("a rank that failed has said so");
        let terms = usize::try_from(terms).expect("terms that are counted in memory");
        let totals = Totals { loss_sum, terms, ..part.times };
        if world > 1 {
            self.check_sums(&totals, &work)?;
        }
        let asked = if agreed & GO_ON == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        Ok((work, totals, asked))
    }

    /// Computes the last batch of this rank, and relays the gradients of all ranks as they come.
    fn relay_step(
        &mut self,
        part: &mut OwnPart,
        last: Option<&LastBatch<'_>>,
        failed: bool,
    ) -> (Relayed, Option<NonFinite>) {
        let (places, is_scaled) = (self.model.gradient_groups(), self.scaler.is_some());
        // Nothing of a part that failed is added.
        let (blocks, overlaps) = (self.own_blocks(part, last), self.relays_early() && last.is_some());
        let team = self.team.as_mut().expect("a step of several ranks");
        let sum = self.gradients.as_mut().expect(ON_PROCESSOR).values_mut();
        let held = team.blocks.iter_mut().map(TensorSet::values_mut);
        let own = StepGradients::new(blocks, &places, team.relay.piece_len, sum, held);
        let (peers, flags) = (&mut *team.peers, if team.wants_end { 0 } else { GO_ON });
        let (engine, model, parameters) = (&mut self.engine, &self.model, &self.parameters);
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
    fn check_sums(&self, totals: &Totals, work: &StepPlan) -> Result<()> {
        let gradients = self.gradients.as_ref().expect(ON_PROCESSOR);
        let first = if self.scaler.is_some() { None } else { gradients.first_non_finite() };
        if totals.loss_sum.is_finite() && first.is_none() {
            return Ok(());
        }
        let (tensor, index) =
            first.map_or(("the loss".to_owned(), 0), |(name, index)| (format!("the gradient of {name}"), index));
        let loss = totals.loss_sum / work.objective.count as f64;
        Err(Error::NotFinite { step: self.step + 1, loss, tensor, index })
    }
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
    let finals = |of: FinalGradients<'_>| own.give_place(before + of.block, &of.range, of.values);
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
    at: usize,
    zeros: impl FnOnce() -> megabatch_nn::Result<TensorSet>,
    gradients: &TensorSet,
) -> Option<megabatch_nn::Error> {
    if at == held.len() {
        match zeros() {
            Ok(block) => held.push(block),
            Err(error) => return Some(error),
        }
    }
    held[at].values_mut().copy_from_slice(gradients.values());
    None
}

fn encode(fault: &Fault) -> Vec<u8> {
    serde_json::to_vec(fault).expect("a fault has no maps and no unusual numbers")
}

/// The error of rank `failed`, as it is on rank `here`, which has one of its `own` perhaps.
fn failure_of(failed: usize, fault: &[u8], here: usize, own: Option<Error>) -> Error {
    match own {
        Some(own) if failed == here => own,
        _ => match serde_json::from_slice::<Fault>(fault) {
            Ok(fault) => fault.on(failed),
            Err(error) => Error::OnRank { rank: failed, message: error.to_string(), is_shortage: false },
        },
    }
}
