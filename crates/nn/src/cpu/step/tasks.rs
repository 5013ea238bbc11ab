#![forbid(unsafe_code)]

//! Shards in tasks, on all threads.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::worker::{Worker, loss_gradient};
use super::{RoundWork, Totals};
use crate::cpu::schedule::{Task, TaskGraph, TaskTime};
use crate::cpu::shard::{Shard, ShardRun, SharedGradients, TaskKind, Weights};
use crate::cpu::team::Team;

/// A task of one of some shards.
#[derive(Clone, Copy)]
struct ShardTask {
    shard: usize,
    kind: TaskKind,
}

/// A task of a step as it was measured, see [`Engine::take_tasks`](super::Engine::take_tasks).
#[derive(Clone, Debug)]
pub struct MeasuredTask {
    /// Its kind, such as `forward`; `shard` for a shard that one thread computes.
    pub kind: &'static str,
    /// The shards that are computed at the same time: tasks of one round begin after those of the
    /// round before it.
    pub round: usize,
    /// Its shard in the round.
    pub shard: usize,
    /// The tasks of the step that it waits for, without those of the round before.
    pub after: Vec<usize>,
    /// Its time.
    pub seconds: f64,
    /// Bytes that it streams through the caches.
    pub bytes: f64,
}

/// Tasks of a step, in their order.
#[derive(Debug, Default)]
pub(super) struct TaskLog {
    tasks: Vec<MeasuredTask>,
    rounds: usize,
}

impl TaskLog {
    fn add(&mut self, graph: &TaskGraph<ShardTask>, times: &[TaskTime]) {
        // The last place of each task of the graph: one with shared loops has several.
        let mut places: Vec<usize> = Vec::with_capacity(times.len());
        for (task, time) in graph.tasks().iter().zip(times) {
            let after = task.after.iter().map(|&before| places[before]).collect();
            places.push(self.add_task(task, time, after));
        }
        self.rounds += 1;
    }

    /// Adds a task that begins after those at `after`; its last place. Each part of a shared loop
    /// waits for what the task does before the loop, and what it does next waits for all parts.
    fn add_task(&mut self, task: &Task<ShardTask>, time: &TaskTime, mut after: Vec<usize>) -> usize {
        let ShardTask { shard, kind } = task.kind;
        let (round, mut done) = (self.rounds, Duration::ZERO);
        let mut push = |kind, seconds, after, bytes| {
            self.tasks.push(MeasuredTask { kind, round, shard, after, seconds, bytes });
            self.tasks.len() - 1
        };
        for shared in &time.loops {
            let before = push(kind.name(), shared.start.saturating_sub(done).as_secs_f64(), after, 0.0);
            after =
                shared.parts.iter().map(|&seconds| push(kind.name_of_parts(), seconds, vec![before], 0.0)).collect();
            done = shared.end;
        }
        push(kind.name(), (time.end - time.start).saturating_sub(done).as_secs_f64(), after, task.bytes)
    }

    /// Adds shards that one thread computed each.
    pub(super) fn add_shards(&mut self, workers: &[Worker]) {
        let shards = workers.iter().enumerate().map(|(shard, worker)| MeasuredTask {
            kind: "shard",
            round: self.rounds,
            shard,
            after: Vec::new(),
            seconds: (worker.totals.forward + worker.totals.backward).as_secs_f64(),
            bytes: 0.0,
        });
        self.tasks.extend(shards);
        self.rounds += 1;
    }

    /// The tasks since the last call.
    pub(super) fn take(&mut self) -> Vec<MeasuredTask> {
        self.rounds = 0;
        std::mem::take(&mut self.tasks)
    }
}

/// Forward, loss and backward of `shards`, each in the memory and with the gradients of a worker.
pub(super) fn train(
    pool: &rayon::ThreadPool,
    workers: &mut [Worker],
    work: RoundWork<'_>,
    shards: &[Shard<'_>],
    log: Option<&mut TaskLog>,
) {
    let RoundWork { weights, objective, .. } = work;
    let begin = Instant::now();
    let (mut runs, mut totals) = (Vec::new(), Vec::new());
    for (n, (Worker { memory, gradients, totals: own, .. }, shard)) in workers.iter_mut().zip(shards).enumerate() {
        let gradients = gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        let gradients = SharedGradients::new(gradients, work.finals_of(n));
        runs.push(memory.run(weights, shard, Some(gradients)));
        totals.push(Mutex::new(own));
    }
    let graph = graph(&runs);
    let times = run(pool, &graph, |ShardTask { shard, kind }, team| {
        runs[shard].work(kind, team, |y, d_y| {
            let forward = begin.elapsed();
            let (loss_sum, terms) = loss_gradient(weights, &shards[shard], objective, y, d_y);
            **totals[shard].lock().expect("nobody panics with the lock held") =
                Totals { loss_sum, terms, forward, backward: Duration::ZERO };
        });
    });
    drop(runs);
    let whole = begin.elapsed();
    for total in totals {
        let total = total.into_inner().expect("nobody panicked with the lock held");
        total.backward = whole - total.forward;
    }
    if let Some(log) = log {
        log.add(&graph, &times);
    }
}

/// The forward pass of `shards`, each in the memory of a worker.
pub(super) fn forward(
    pool: &rayon::ThreadPool,
    workers: &mut [Worker],
    weights: Weights<'_>,
    shards: &[Shard<'_>],
    log: Option<&mut TaskLog>,
) {
    let workers = workers.iter_mut().zip(shards);
    let runs: Vec<_> = workers.map(|(worker, shard)| worker.memory.run(weights, shard, None)).collect();
    let graph = graph(&runs);
    let times = run(pool, &graph, |ShardTask { shard, kind }, team| runs[shard].work(kind, team, |_, _| ()));
    if let Some(log) = log {
        log.add(&graph, &times);
    }
}

/// Multiply-adds that one thread does while the others wake up, several times over.
const FEW: f64 = 4e6;

/// Does the tasks of `graph`: on one thread if they are done before others would begin.
fn run(
    pool: &rayon::ThreadPool,
    graph: &TaskGraph<ShardTask>,
    work: impl Fn(ShardTask, &Team) + Sync,
) -> Vec<TaskTime> {
    if graph.tasks().iter().map(|task| task.cost).sum::<f64>() < FEW {
        return pool.install(|| graph.run_here(&work));
    }
    graph.run(pool, work)
}

fn graph(runs: &[ShardRun<'_>]) -> TaskGraph<ShardTask> {
    let mut graph = TaskGraph::default();
    for (shard, run) in runs.iter().enumerate() {
        run.push(&mut graph, |kind| ShardTask { shard, kind });
    }
    graph
}
