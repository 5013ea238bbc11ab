//! List scheduling of measured tasks.

use megabatch_nn::cpu::MeasuredTask;

/// A step on some threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    /// Its time by list scheduling.
    pub(super) seconds: f64,
    /// The longest path through its tasks.
    pub(super) critical_path_s: f64,
    /// The time of all tasks.
    pub(super) work_s: f64,
    /// Bytes that they stream.
    pub(super) bytes: f64,
}

impl Forecast {
    /// The share of the threads' time without a task.
    pub(super) fn idle_share(&self, threads: usize) -> f64 {
        (1.0 - self.work_s / (self.seconds * threads as f64)).max(0.0)
    }
}

/// The time of `tasks` on `threads` threads, each of which takes the ready task with the longest
/// path behind it; a task that waited for another begins `hand_over_s` after it.
///
/// Tasks of a round begin when those of the round before are done.
pub(super) fn forecast(tasks: &[MeasuredTask], threads: usize, hand_over_s: f64) -> Forecast {
    let mut whole = Forecast { seconds: 0.0, critical_path_s: 0.0, work_s: 0.0, bytes: 0.0 };
    let mut first = 0;
    for round in tasks.chunk_by(|a, b| a.round == b.round) {
        let ranks = ranks(round, first, hand_over_s);
        whole.seconds += round_seconds(round, first, &ranks, threads, hand_over_s);
        whole.critical_path_s += ranks.iter().copied().fold(0.0, f64::max);
        whole.work_s += round.iter().map(|task| task.seconds).sum::<f64>();
        whole.bytes += round.iter().map(|task| task.bytes).sum::<f64>();
        first += round.len();
    }
    whole
}

/// The time of the longest path that begins with each task. Places of tasks count from `first`.
fn ranks(tasks: &[MeasuredTask], first: usize, hand_over_s: f64) -> Vec<f64> {
    let mut ranks = vec![0.0f64; tasks.len()];
    for (n, task) in tasks.iter().enumerate().rev() {
        ranks[n] += task.seconds;
        for before in task.after.iter().map(|before| before - first) {
            ranks[before] = ranks[before].max(ranks[n] + hand_over_s);
        }
    }
    ranks
}

fn round_seconds(tasks: &[MeasuredTask], first: usize, ranks: &[f64], threads: usize, hand_over_s: f64) -> f64 {
    // When each task is done; when each thread is free.
    let mut done: Vec<Option<f64>> = vec![None; tasks.len()];
    let mut free = vec![0.0f64; threads];
    for _ in 0..tasks.len() {
        // A task is ready at a time if all that it waits for is done then.
        let ready_at = |n: usize| {
            let before = tasks[n].after.iter().map(|before| done[before - first].map(|end| end + hand_over_s));
            before.into_iter().try_fold(0.0f64, |latest, end| end.map(|end| latest.max(end)))
        };
        let ready: Vec<(usize, f64)> =
            (0..tasks.len()).filter(|&n| done[n].is_none()).filter_map(|n| ready_at(n).map(|at| (n, at))).collect();
        let thread = (0..threads).min_by(|&a, &b| free[a].total_cmp(&free[b])).expect("one thread at least");
        let earliest = ready.iter().map(|(_, at)| *at).fold(f64::INFINITY, f64::min);
        let now = free[thread].max(earliest);
        let next = ready.iter().filter(|(_, at)| *at <= now);
        let (task, _) = *next.max_by(|a, b| ranks[a.0].total_cmp(&ranks[b.0])).expect("tasks wait for earlier ones");
        free[thread] = now + tasks[task].seconds;
        done[task] = Some(free[thread]);
    }
    free.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(seconds: f64, after: &[usize]) -> MeasuredTask {
        MeasuredTask { kind: "forward", round: 0, shard: 0, after: after.to_vec(), seconds, bytes: 8.0 }
    }

    #[test]
    fn the_longest_path_is_taken_first() {
        let tasks = [task(1.0, &[]), task(1.0, &[]), task(1.0, &[]), task(3.0, &[2])];
        let one = forecast(&tasks, 1, 0.0);
        assert_eq!((one.seconds, one.critical_path_s, one.work_s, one.bytes), (6.0, 4.0, 6.0, 32.0));
        assert_eq!(one.idle_share(1), 0.0);
        let two = forecast(&tasks, 2, 0.0);
        assert_eq!(two.seconds, 4.0);
        assert_eq!(two.idle_share(2), 0.25);
        assert_eq!(forecast(&tasks, 2, 0.5).seconds, 4.5);
        assert_eq!(forecast(&tasks, 9, 0.5).seconds, 4.5);
    }

    #[test]
    fn a_round_begins_when_the_one_before_is_done() {
        let second = |seconds, after: &[usize]| MeasuredTask { round: 1, ..task(seconds, after) };
        let tasks = [task(2.0, &[]), task(1.0, &[]), second(1.0, &[]), second(1.0, &[2])];
        assert_eq!(forecast(&tasks, 4, 0.0).seconds, 4.0);
        assert_eq!(forecast(&tasks, 1, 0.0).seconds, 5.0);
    }
}
