use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::ReadContext;
use super::scratch::ThreadBuffers;
use crate::cost::ReadCost;
use crate::error::{Error, Result};

/// Cost and finding of a piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) cost: ReadCost,
    /// True if values are NaN or infinite and the options check them.
    pub(crate) has_non_finite: bool,
}

impl Done {
    pub(super) fn merge(&mut self, other: Done) {
        self.cost += other.cost;
        self.has_non_finite |= other.has_non_finite;
    }
}

/// Does the tasks in their order on `workers` threads, this one among them. The error is that of
/// the first task in order that fails, whatever the number of threads. Once `stop` is true, no
/// further task is begun, and the error is [`Error::Stopped`] if any is left.
pub(super) fn in_parallel<T: Send>(
    reading: &ReadContext,
    stop: &AtomicBool,
    workers: usize,
    tasks: Vec<T>,
    work: impl Fn(&mut ThreadBuffers, usize, T) -> Result<Done> + Sync,
) -> Result<Done> {
    let workers = workers.clamp(1, tasks.len().max(1));
    let queue = Queue { tasks: Mutex::new(tasks.into_iter().enumerate()), failed: AtomicBool::new(false), stop };
    let labour = || {
        let mut scratch = reading.take_scratch();
        let result = queue.run(|k, task| work(&mut scratch, k, task));
        reading.give_scratch(scratch);
        result
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(labour)).collect();
        let own = labour();
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(joined).collect()
    });
    let mut done = Done::default();
    let mut first_failure = None;
    for result in results {
        match result {
            Ok(part) => done.merge(part),
            Err((k, error)) if first_failure.as_ref().is_none_or(|(first, _)| k < *first) => {
                first_failure = Some((k, error));
            }
            Err(_) => {}
        }
    }
    first_failure.map_or(Ok(done), |(_, error)| Err(*error))
}

struct Queue<'a, I> {
    tasks: Mutex<I>,
    failed: AtomicBool,
    stop: &'a AtomicBool,
}

impl<T, I: Iterator<Item = (usize, T)>> Queue<'_, I> {
    /// Takes tasks until there are none or one has failed. Those taken before it, which are earlier
    /// in the order, are completed.
    fn run(&self, mut work: impl FnMut(usize, T) -> Result<Done>) -> Result<Done, (usize, Box<Error>)> {
        let mut done = Done::default();
        while !self.failed.load(Ordering::Relaxed) {
            let next = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((k, task)) = next else { break };
            let worked = if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { work(k, task) };
            match worked {
                Ok(part) => done.merge(part),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err((k, Box::new(error)));
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::UNSTOPPED;

    #[test]
    fn every_task_is_done_once_and_the_first_failure_is_told() {
        let reading = ReadContext::default();
        for workers in [1, 3, 100] {
            let done = in_parallel(&reading, &UNSTOPPED, workers, (0..50_u64).collect(), |_, k, task| {
                assert_eq!(k as u64, task);
                let cost = ReadCost { bytes_read: task, ..ReadCost::default() };
                Ok(Done { cost, has_non_finite: task == 7 })
            });
            let Done { cost, has_non_finite } = done.unwrap();
            assert_eq!((cost.bytes_read, has_non_finite), (49 * 50 / 2, true));

            let failed =
                in_parallel(&reading, &UNSTOPPED, workers, (0..50).collect(), |_, _, task: usize| match task {
                    20.. => Err(Error::NotFound { path: task.to_string().into() }),
                    _ => Ok(Done::default()),
                });
            assert!(failed.unwrap_err().to_string().starts_with("20: "), "{workers}");
        }
        let nothing = in_parallel(&reading, &UNSTOPPED, 4, Vec::<()>::new(), |_, _, ()| unreachable!()).unwrap();
        assert!(!nothing.has_non_finite);
    }

    #[test]
    fn no_task_is_begun_after_a_request_to_stop() {
        let reading = ReadContext::default();
        let (stop, begun) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let work = |workers| {
            in_parallel(&reading, &stop, workers, (0..50).collect(), |_, _, task: usize| {
                begun.lock().unwrap().push(task);
                stop.fetch_or(task == 20, Ordering::Relaxed);
                Ok(Done::default())
            })
        };
        assert!(matches!(work(1), Err(Error::Stopped)));
        assert_eq!(*begun.lock().unwrap(), (0..21).collect::<Vec<_>>());
        assert!(matches!(work(3), Err(Error::Stopped)));
        assert_eq!(begun.lock().unwrap().len(), 21);
    }
}
