//! Tasks that depend on one another, on the threads of a pool.
//!
//! ```text
//! rank of a task = its cost + the largest rank of those that wait for it
//! each thread:  the ready task of the largest rank, until none is left
//! ```
//!
//! This is list scheduling by the longest path. No thread is idle while a task is ready. Which
//! thread has which task depends on the moment; what a task computes does not. While a task with a
//! [`ThreadTeam`] is done, threads that have none share its loops.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::team::ThreadTeam;

/// Looks at the number of ready tasks before a thread sleeps: about ten microseconds.
const SPINS: usize = 400;

/// A task: what it does, its estimated cost, and the earlier tasks that it waits for.
#[derive(Clone, Debug)]
pub(crate) struct Task<K> {
    /// Kind of work.
    pub(crate) kind: K,
    /// Multiply-adds and what else takes as long.
    pub(crate) cost: f64,
    /// Places of earlier tasks.
    pub(crate) after: Vec<usize>,
    /// Threads that its loops are split for; 1 where it shares none.
    pub(crate) team: usize,
}

/// Tasks, each after those that it waits for.
#[derive(Clone, Debug)]
pub(crate) struct TaskGraph<K> {
    tasks: Vec<Task<K>>,
}

impl<K> Default for TaskGraph<K> {
    fn default() -> Self {
        TaskGraph { tasks: Vec::new() }
    }
}

impl<K> TaskGraph<K> {
    /// Adds a task; its place, for those that wait for it.
    ///
    /// # Panics
    /// If it waits for a task that is not there yet.
    pub(crate) fn push(&mut self, task: Task<K>) -> usize {
        assert!(task.after.iter().all(|&before| before < self.tasks.len()), "a task after one that does not exist");
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    /// The tasks, each after those that it waits for.
    pub(crate) fn tasks(&self) -> &[Task<K>] {
        &self.tasks
    }

    /// Cost of the longest path that begins with each task.
    fn ranks(&self) -> Vec<f64> {
        let mut ranks = vec![0.0f64; self.tasks.len()];
        for (n, task) in self.tasks.iter().enumerate().rev() {
            ranks[n] += task.cost;
            for &before in &task.after {
                ranks[before] = ranks[before].max(ranks[n]);
            }
        }
        ranks
    }
}

impl<K: Copy + Sync> TaskGraph<K> {
    /// Does the tasks one after another on this thread.
    pub(crate) fn run_here(&self, mut work: impl FnMut(K, &ThreadTeam)) {
        self.tasks.iter().for_each(|task| work(task.kind, ThreadTeam::alone()));
    }

    /// Does the tasks on the threads of `pool`.
    ///
    /// # Panics
    /// If `work` does.
    pub(crate) fn run(&self, pool: &rayon::ThreadPool, work: impl Fn(K, &ThreadTeam) + Sync) {
        let run = GraphRun::new(self);
        pool.broadcast(|_| run.run_tasks(&work));
    }
}

/// A graph that is worked off.
struct GraphRun<'a, K> {
    graph: &'a TaskGraph<K>,
    ranks: Vec<f64>,
    /// The tasks that wait for each.
    followers: Vec<Vec<usize>>,
    state: Mutex<State>,
    /// Number of ready tasks, for threads that look without the lock.
    ready: AtomicUsize,
    /// Number of tasks with a team that are being done. It grows with the lock held.
    shared: AtomicUsize,
    changed: Condvar,
}

struct State {
    /// Tasks that each still waits for.
    waits_for: Vec<usize>,
    ready: BinaryHeap<Ready>,
    /// Tasks that are not done.
    left: usize,
    /// True after a panic.
    is_aborted: bool,
}

/// A ready task; the largest rank is the greatest and, of equal ones, the first task.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ready {
    rank: f64,
    task: usize,
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.total_cmp(&other.rank).then(other.task.cmp(&self.task))
    }
}

/// Wakes the other threads if a task panics, which would wait for it for ever.
struct AbortOnPanic<'r, 'a, K>(&'r GraphRun<'a, K>);

impl<K> Drop for AbortOnPanic<'_, '_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Ok(mut state) = self.0.state.lock() {
                state.is_aborted = true;
            }
            self.0.ready.store(usize::MAX, Ordering::Release);
            self.0.changed.notify_all();
        }
    }
}

impl<'a, K: Copy + Sync> GraphRun<'a, K> {
    fn new(graph: &'a TaskGraph<K>) -> Self {
        let mut followers = vec![Vec::new(); graph.tasks.len()];
        for (n, task) in graph.tasks.iter().enumerate() {
            task.after.iter().for_each(|&before| followers[before].push(n));
        }
        let ranks = graph.ranks();
        let waits_for: Vec<usize> = graph.tasks.iter().map(|task| task.after.len()).collect();
        let first = waits_for.iter().enumerate().filter(|(_, count)| **count == 0);
        let ready: BinaryHeap<Ready> = first.map(|(task, _)| Ready { rank: ranks[task], task }).collect();
        GraphRun {
            graph,
            ranks,
            followers,
            ready: AtomicUsize::new(ready.len()),
            shared: AtomicUsize::new(0),
            state: Mutex::new(State { waits_for, ready, left: graph.tasks.len(), is_aborted: false }),
            changed: Condvar::new(),
        }
    }

    /// The work of one thread.
    fn run_tasks(&self, work: &(impl Fn(K, &ThreadTeam) + Sync)) {
        let mut state = self.lock();
        while state.left > 0 && !state.is_aborted {
            let Some(Ready { task, .. }) = state.ready.pop() else {
                state = self.wait(state);
                continue;
            };
            self.ready.store(state.ready.len(), Ordering::Release);
            let Task { kind, team, .. } = self.graph.tasks[task];
            if team > 1 {
                self.shared.fetch_add(1, Ordering::Release);
                self.changed.notify_all();
            }
            drop(state);
            let guard = AbortOnPanic(self);
            work(kind, &ThreadTeam::new(team));
            drop(guard);
            state = self.lock();
            if team > 1 {
                self.shared.fetch_sub(1, Ordering::Release);
            }
            self.complete(task, &mut state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock held")
    }

    /// Waits until something has changed: a short time awake, then asleep. While a task has a team,
    /// this thread is in it.
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        drop(state);
        let mut looks = 0;
        while looks < SPINS || self.shared.load(Ordering::Acquire) > 0 {
            if self.ready.load(Ordering::Acquire) > 0 {
                return self.lock();
            }
            if self.shared.load(Ordering::Acquire) > 0 && rayon::yield_now() == Some(rayon::Yield::Executed) {
                continue;
            }
            looks += 1;
            match looks < SPINS {
                true => std::hint::spin_loop(),
                // Where there are more threads than cores, one that has work needs this one's.
                false => std::thread::yield_now(),
            }
        }
        let state = self.lock();
        let is_idle = state.ready.is_empty() && state.left > 0 && !state.is_aborted;
        if is_idle && self.shared.load(Ordering::Acquire) == 0 {
            return self.changed.wait(state).expect("no thread panics with the lock held");
        }
        state
    }

    /// Makes ready what waited for `task` alone.
    fn complete(&self, task: usize, state: &mut State) {
        state.left -= 1;
        for &next in &self.followers[task] {
            state.waits_for[next] -= 1;
            if state.waits_for[next] == 0 {
                state.ready.push(Ready { rank: self.ranks[next], task: next });
            }
        }
        self.ready.store(state.ready.len(), Ordering::Release);
        if state.left == 0 {
            self.ready.store(usize::MAX, Ordering::Release);
            self.changed.notify_all();
        } else {
            // This thread takes one of them itself.
            (1..state.ready.len()).for_each(|_| self.changed.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    fn graph(after: &[Vec<prop::sample::Index>]) -> TaskGraph<usize> {
        let mut graph = TaskGraph::default();
        for (n, before) in after.iter().enumerate() {
            let mut before: Vec<usize> = before.iter().filter(|_| n > 0).map(|index| index.index(n)).collect();
            before.sort_unstable();
            before.dedup();
            graph.push(Task { kind: n, cost: 1.0 + (n % 3) as f64, after: before, team: 1 + n % 2 * 2 });
        }
        graph
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_task_is_done_once_and_after_those_it_waits_for(
            after in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0..60),
            threads in 1usize..6,
        ) {
            let (graph, done) = (graph(&after), Mutex::new(Vec::new()));
            graph.run(&pool(threads), |task, team| {
                let before = done.lock().unwrap().clone();
                assert!(graph.tasks()[task].after.iter().all(|place| before.contains(place)), "{task}: {before:?}");
                let mut squares = vec![0; 5];
                let parts = squares.iter_mut().enumerate().collect();
                team.for_each(parts, |(n, square): (usize, &mut usize)| *square = n * n);
                assert_eq!(squares, [0, 1, 4, 9, 16]);
                done.lock().unwrap().push(task);
            });
            let mut done = done.into_inner().unwrap();
            done.sort_unstable();
            prop_assert_eq!(done, (0..after.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_longest_path_goes_first() {
        let mut graph = TaskGraph::default();
        let task = |kind, cost, after: &[usize]| Task { kind, cost, after: after.to_vec(), team: 1 };
        graph.push(task('a', 1.0, &[]));
        graph.push(task('b', 3.0, &[]));
        let long = graph.push(task('c', 2.0, &[]));
        graph.push(task('d', 5.0, &[long]));
        assert_eq!(graph.ranks(), [1.0, 3.0, 7.0, 5.0]);
        let done = Mutex::new(String::new());
        graph.run(&pool(1), |kind, _| done.lock().unwrap().push(kind));
        assert_eq!(done.into_inner().unwrap(), "cdba");
    }

    #[test]
    fn a_panic_ends_the_graph() {
        let mut graph = TaskGraph::default();
        let first = graph.push(Task { kind: 0, cost: 1.0, after: Vec::new(), team: 3 });
        graph.push(Task { kind: 1, cost: 1.0, after: vec![first], team: 1 });
        let run = || graph.run(&pool(3), |task, _| assert_ne!(task, 0, "the first task"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
}
