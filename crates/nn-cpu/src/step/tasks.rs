//! Shards in tasks, on all threads.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::worker::{Worker, loss_gradient};
use super::{RoundWork, Totals};
use crate::schedule::TaskGraph;
use crate::shard::{Shard, ShardRun, SharedGradients, TaskKind, Weights};
use crate::team::ThreadTeam;

/// A task of one of some shards.
#[derive(Clone, Copy)]
struct ShardTask {
    shard: usize,
    kind: TaskKind,
}

/// Forward, loss and backward of `shards`, each in the memory and with the gradients of a worker.
pub(super) fn train(pool: &rayon::ThreadPool, workers: &mut [Worker], work: RoundWork<'_>, shards: &[Shard<'_>]) {
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
    run(pool, &graph, |ShardTask { shard, kind }, team| {
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
}

/// The forward pass of `shards`, each in the memory of a worker.
pub(super) fn forward(pool: &rayon::ThreadPool, workers: &mut [Worker], weights: Weights<'_>, shards: &[Shard<'_>]) {
    let workers = workers.iter_mut().zip(shards);
    let runs: Vec<_> = workers.map(|(worker, shard)| worker.memory.run(weights, shard, None)).collect();
    let graph = graph(&runs);
    run(pool, &graph, |ShardTask { shard, kind }, team| runs[shard].work(kind, team, |_, _| ()));
}

/// Multiply-adds that one thread does while the others wake up, several times over.
const FEW: f64 = 4e6;

/// Does the tasks of `graph`: on one thread if they are done before others would begin.
fn run(pool: &rayon::ThreadPool, graph: &TaskGraph<ShardTask>, work: impl Fn(ShardTask, &ThreadTeam) + Sync) {
    if graph.tasks().iter().map(|task| task.cost).sum::<f64>() < FEW {
        pool.install(|| graph.run_here(&work));
    } else {
        graph.run(pool, work);
    }
}

fn graph(runs: &[ShardRun<'_>]) -> TaskGraph<ShardTask> {
    let mut graph = TaskGraph::default();
    for (shard, run) in runs.iter().enumerate() {
        run.push(&mut graph, |kind| ShardTask { shard, kind });
    }
    graph
}
