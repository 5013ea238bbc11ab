//! Training by several processes, each with its part of every step.
//!
//! ```text
//! each rank      gradients of its blocks of the step          shared_step.rs, gpu_step.rs
//! together       the sum over all blocks, in their order,     peers/relay.rs
//!                while the last blocks are computed
//! each rank      norm, clip, update, divergence, validation: of the same numbers, to the same end
//! rank 0         checkpoints
//! ```
//!
//! Work of a single rank is agreed on: all ranks go on, or all have its error.

mod fault;
mod gpu_step;
mod shared_step;

pub(in crate::train) use gpu_step::shared_gpu_step;
pub(in crate::train) use shared_step::SharedStep;

use std::ops::ControlFlow;
use std::path::PathBuf;

use megabatch_nn::model::TensorSet;
use megabatch_order::Rank;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use self::fault::{Fault, encode, failure_of, is_interruption};
use super::{Run, Trainer};
use crate::data::sample_ranges::SampleRanges;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::predictions::{Predictions, States};
use crate::evaluate::selection::{EvaluationProgress, Selection};
use crate::evaluate::shared::{self, PredictedBatch, fold, predict_own};
use crate::peers::exchange::{broadcast_bytes, exchange, first_difference, first_failure};
use crate::peers::floats::broadcast_floats;
use crate::peers::relay::Relay;
use crate::peers::{PeerLost, Peers};
use crate::train::checkpoint::{Arithmetic, Resumed, State};
use crate::train::events::{Event, Observer};
use crate::train::oom_fallback::SampleForm;

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
pub(in crate::train) struct ProcessGroup {
    pub(in crate::train) peers: Box<dyn Peers>,
    idle: IdleRanks,
    relay: Relay,
    /// Gradients of this rank's blocks of a step, until the sum over those before them is there. On
    /// rank 0, blocks that are computed before others whose turn is earlier. With GPUs the sum over
    /// all ranks comes first, and this rank's gradients are one block.
    blocks: Vec<TensorSet>,
    /// True if this rank's observer wants the run to end.
    wants_end: bool,
    /// True if any rank reads its samples in chunks.
    pub(in crate::train) has_chunks: bool,
    /// True if any rank can release what stays on its GPU.
    pub(in crate::train) any_rank_releases: bool,
}

/// A checkpoint that rank 0 has read, without its tensors.
#[derive(Serialize, Deserialize)]
struct Restored {
    path: PathBuf,
    state: State,
    updates: u64,
}

impl ProcessGroup {
    /// As [`Trainer::agree_on`].
    fn agree_on<T>(&mut self, own: Result<T>) -> Result<T> {
        if let Err(Error::Peer(_)) = own {
            return own;
        }
        let fails = matches!(&own, Err(error) if !matches!(error, Error::Interrupted { .. }));
        let fault = own.as_ref().err().map(|error| encode(&Fault::new(error)));
        match first_failure(&mut *self.peers, fault.as_deref())? {
            None => own,
            // Ranks that are interrupted agree once more, on a checkpoint. There they hear of a
            // failure, which this rank may have had in the step before.
            Some((_, first)) if fails && is_interruption(&first) => self.agree_on(own),
            Some((rank, first)) => Err(failure_of(rank, &first, self.peers.rank(), own.err())),
        }
    }
}

/// Results that all ranks share.
impl Trainer {
    /// Trains from now on as one of `peers`. All of them have the same settings, samples, weights
    /// and checkpoints, which [`Trainer::train`] checks; each computes its part of every step. On
    /// CPUs all have the weights of a trainer that is alone, bit for bit. On GPUs they have the
    /// same weights for the same number of ranks, and for another number those of another order of
    /// sums. Rank 0 alone saves checkpoints.
    ///
    /// All ranks do the same in the same order: [`Trainer::resume`], then [`Trainer::train`].
    ///
    /// # Errors
    /// As [`Config::check_distributed`](crate::Config::check_distributed).
    pub fn join(&mut self, peers: Box<dyn Peers>, idle: IdleRanks) -> Result<()> {
        self.config.check_distributed()?;
        let (relay, blocks) = (Relay::default(), Vec::new());
        let (wants_end, has_chunks, any_rank_releases) = (false, false, false);
        self.process_group =
            Some(ProcessGroup { peers, idle, relay, blocks, wants_end, has_chunks, any_rank_releases });
        Ok(())
    }

    /// Relays gradients in another way than by default, for tests and measurements. All ranks do
    /// so.
    #[cfg(any(test, feature = "conformance"))]
    pub fn set_relay(&mut self, relay: Relay) {
        self.process_group.iter_mut().for_each(|process_group| process_group.relay = relay);
    }

    /// Goes on alone, as the evaluation after training does.
    pub fn leave(&mut self) -> Option<Box<dyn Peers>> {
        self.process_group.take().map(|process_group| process_group.peers)
    }

    /// The first rank that failed in what is done beside training, and its `failure`; `None` alone,
    /// and where none did.
    ///
    /// # Errors
    /// [`Error::Peer`].
    pub fn first_failure(&mut self, failure: Option<&[u8]>) -> Result<Option<(usize, Vec<u8>)>> {
        let Some(process_group) = &mut self.process_group else { return Ok(None) };
        Ok(first_failure(&mut *process_group.peers, failure)?)
    }

    /// This rank of its world.
    pub(in crate::train) fn rank(&self) -> Rank {
        self.process_group.as_ref().map_or_else(Rank::default, |process_group| {
            Rank::new(process_group.peers.rank(), process_group.peers.world()).expect("a rank of its world")
        })
    }

    /// True for the rank that writes checkpoints; also alone.
    pub fn is_first(&self) -> bool {
        self.rank().rank() == 0
    }

    /// `own`, where every rank's is well; else the error of the first rank whose is not.
    pub(in crate::train) fn agree_on<T>(&mut self, own: Result<T>) -> Result<T> {
        match &mut self.process_group {
            None => own,
            Some(process_group) => process_group.agree_on(own),
        }
    }

    /// `own`, whose error all ranks have at their next agreement. On GPUs every exchange of a run
    /// begins with one, and the run ends with one.
    pub(in crate::train) fn tell_failure<T>(&mut self, own: Result<T>) -> Result<T> {
        if own.is_ok() { own } else { self.agree_on(own) }
    }

    /// As [`Trainer::sync_to_host`], during a run: an error is told as by
    /// [`Trainer::tell_failure`].
    pub(in crate::train) fn sync_to_host_or_tell(&mut self) -> Result<()> {
        let synced = self.sync_to_host();
        self.tell_failure(synced)
    }

    /// `own` of all steps of a run. A step that diverges does so on all ranks, but for one on a GPU
    /// that has failed in it, whose error all have then.
    pub(in crate::train) fn settle_divergence<T>(&mut self, own: Result<T>) -> Result<T> {
        if let Err(Error::NotFinite { .. } | Error::LossSpike { .. } | Error::Scale(_)) = own {
            self.agree_at_the_end(Ok(()))?;
        }
        own
    }

    /// Ends a run, or its steps, of which `own` is the last result on this rank. On GPUs all ranks
    /// hear of one that has failed since the last exchange. True if ranks on GPUs end together.
    pub(in crate::train) fn agree_at_the_end(&mut self, own: Result<()>) -> Result<bool> {
        if self.backend.gpu().is_none() {
            return own.map(|()| false);
        }
        let is_done = own.is_ok();
        match self.agree_on(own) {
            // A rank that is lost by now has given its part of all steps.
            Err(Error::Peer(_)) if is_done => Ok(false),
            agreed => agreed.map(|()| true),
        }
    }

    /// Notes the peak bytes of the rank that has taken most of its GPU. Where a rank is lost by
    /// now, they are this rank's.
    pub(in crate::train) fn gather_gpu_peak(&mut self) {
        let own = self.backend.gpu().map_or(0, |gpu| gpu.usage().allocated_bytes_peak);
        let Some(process_group) = &mut self.process_group else {
            self.gpu_peak_bytes = own;
            return;
        };
        let world = process_group.peers.world();
        let gathered = exchange(&mut *process_group.peers, 0, |peers| {
            let message_from = |rank| {
                let mut message = (own as u64).to_le_bytes();
                peers.broadcast(rank, &mut message).map(|()| u64::from_le_bytes(message) as usize)
            };
            (0..world).map(message_from).collect::<Result<Vec<_>, PeerLost>>()
        });
        self.gpu_peak_bytes = gathered.ok().and_then(|(peaks, _)| peaks.into_iter().max()).unwrap_or(own);
    }

    /// The result of `work`, which rank 0 alone does.
    pub(in crate::train) fn on_first_rank<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let done = if self.is_first() { work(self) } else { Ok(None) };
        self.agree_on(done)
    }

    /// The answer of an observer: alone at once, else with the next step, when all ranks know of
    /// it.
    pub(in crate::train) fn share_answer(&mut self, answer: ControlFlow<()>) -> ControlFlow<()> {
        let Some(process_group) = &mut self.process_group else { return answer };
        process_group.wants_end |= answer.is_break();
        ControlFlow::Continue(())
    }

    /// Sees to it that all ranks train the same, and that each has something to do.
    pub(in crate::train) fn check_process_group(&mut self, run: &Run<'_>, schedule: &Schedule) -> Result<()> {
        let facts = if self.process_group.is_some() { self.facts(run) } else { return Ok(()) };
        let form = SampleForm::new(run.samples);
        let (level, can_release) = (self.fallback.level(), self.fallback.can_release(form));
        let process_group = self.process_group.as_mut().expect("it is there");
        let (ranks, rank) = (process_group.peers.world(), process_group.peers.rank());
        let peers = &mut *process_group.peers;
        let differs = first_difference(peers, &facts)?;
        let differs = differs.map(|difference| Error::RanksDiffer {
            rank,
            what: difference.name,
            here: difference.here,
            first: difference.first,
        });
        // All ranks cut what the one with the least memory had to.
        let own = [u8::try_from(level).unwrap_or(u8::MAX), u8::from(form.has_chunks), u8::from(can_release)];
        let (all, _) = exchange(peers, 0, |peers| {
            let message_from = |rank| {
                let mut message = own;
                peers.broadcast(rank, &mut message).map(|()| message)
            };
            (0..ranks).map(message_from).collect::<Result<Vec<_>, PeerLost>>()
        })?;
        process_group.has_chunks = all.iter().any(|[_, has_chunks, _]| *has_chunks == 1);
        process_group.any_rank_releases = all.iter().any(|[_, _, can_release]| *can_release == 1);
        let idle = process_group.idle;
        let limits = self.fallback.cut_to(all.iter().map(|[level, ..]| usize::from(*level)).max().unwrap_or(level));
        let cut =
            if level == self.fallback.level() { Ok(()) } else { self.backend.cut(&self.model, &self.config, limits) };
        self.agree_on(differs.map_or(cut, Err))?;
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
            ("kind of device".to_owned(), self.backend.gpu().map_or("CPU", |_| "GPU").to_owned()),
            ("shape of samples".to_owned(), format!("{:?}", self.model.shape())),
            ("relay".to_owned(), format!("{:?}", self.process_group.as_ref().map(|process_group| process_group.relay))),
        ];
        for (name, value) in settings.as_object().expect("settings are a struct") {
            // Threads and what lies on a GPU are each machine's own, and change nothing.
            let is_own = ["threads", "chunk_windows"].contains(&name.as_str()) || name.starts_with("keep_");
            if !is_own {
                facts.push((format!("`{name}`"), value.to_string()));
            }
        }
        let hash = |indices: &SampleRanges| {
            let mut hash = Xxh3::new();
            indices.iter().for_each(|index| hash.update(&(index as u64).to_le_bytes()));
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

    /// Gives all ranks the state and the tensors that rank 0 read from a checkpoint.
    pub(in crate::train) fn share_restored(&mut self, own: Option<Resumed>) -> Result<Option<Resumed>> {
        let Some(process_group) = &mut self.process_group else { return Ok(own) };
        let updates = self.optimizer.steps();
        let own_state =
            own.as_ref().map(|resumed| Restored { path: resumed.path.clone(), state: resumed.state.clone(), updates });
        let is_first = process_group.peers.rank() == 0;
        let encoded = is_first.then(|| serde_json::to_vec(&own_state).expect("a state serializes without error"));
        let parameters = &mut self.parameters;
        let (moments, updates) = self.optimizer.state_mut();
        let (restored, _) = exchange(&mut *process_group.peers, 0, |peers| {
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
    pub(in crate::train) fn shares_validations(&self, states: States) -> bool {
        states != States::Stretches
            && self.process_group.as_ref().is_some_and(|process_group| process_group.peers.world() > 1)
    }

    /// The evaluation of `selection`, of which each rank computes its part, on all ranks, or the
    /// error of the first rank that failed.
    pub(in crate::train) fn evaluate_together(
        &mut self,
        selection: Selection<'_>,
        states: States,
        progress: &mut EvaluationProgress<'_>,
    ) -> Result<Evaluation> {
        let (rank, loss) = (self.rank(), self.config.loss);
        let predictions = Predictions { states, ..self.predictions_in_training() };
        let own = predict_own(predictions, selection, loss, rank, progress);
        let own = self.agree_on(own)?;
        let process_group = self.process_group.as_mut().expect("an evaluation of several ranks");
        let (here, world) = (rank.rank(), rank.world());
        let (batches, _) = exchange(&mut *process_group.peers, 0, |peers| {
            let mut own = Some(own);
            let mut all = Vec::new();
            for root in 0..world {
                let root_batches = own.take_if(|_| root == here);
                let message = broadcast_bytes(peers, root, root_batches.as_deref().map(shared::encode))?;
                all.append(&mut root_batches.unwrap_or_else(|| shared::decode(&message)));
            }
            Ok(all)
        })?;
        assert_eq!(batches.iter().map(PredictedBatch::count).sum::<usize>(), selection.indices.len());
        let evaluation = fold(&self.model, selection, loss, self.target_scales.as_ref(), batches, progress);
        self.agree_on(evaluation)
    }

    /// Goes on without ranks that are lost, if the ranks that are left can; else gives `lost` back.
    pub(in crate::train) fn reform(&mut self, lost: PeerLost, observer: &mut Observer<'_>) -> Result<ControlFlow<()>> {
        let Some(process_group) = self.process_group.as_mut().filter(|_| lost.can_reform) else {
            return Err(lost.into());
        };
        let before = process_group.peers.world();
        process_group.peers.reform()?;
        let (rank, world) = (process_group.peers.rank(), process_group.peers.world());
        let cause = lost.to_string();
        let asked = observer(Event::Reformed { step: self.step, rank, world, world_before: before, cause });
        Ok(self.share_answer(asked))
    }
}
