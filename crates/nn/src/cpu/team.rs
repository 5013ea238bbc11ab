#![forbid(unsafe_code)]

//! Loops of one task that several threads share.
//!
//! The thread that does the task splits a loop into parts and does some of them; threads of the
//! pool without a task of their own do the others, see [`schedule`](super::schedule). A part writes
//! numbers of its own, so that the results do not depend on who does it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rayon::prelude::*;

/// The threads that share the loops of a task.
#[derive(Debug)]
pub struct Team {
    threads: usize,
    /// When the task began; `None` for one thread.
    begin: Option<Instant>,
    loops: Mutex<Vec<SharedLoop>>,
}

/// A loop that was shared, in the time of its task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedLoop {
    /// Begin.
    pub start: Duration,
    /// End.
    pub end: Duration,
    /// Time of each part, in seconds.
    pub parts: Vec<f64>,
}

impl Team {
    /// Threads that loops are split for.
    pub fn new(threads: usize) -> Self {
        Team { threads: threads.max(1), begin: Some(Instant::now()), loops: Mutex::new(Vec::new()) }
    }

    /// One thread.
    pub fn alone() -> &'static Self {
        static ALONE: Team = Team { threads: 1, begin: None, loops: Mutex::new(Vec::new()) };
        &ALONE
    }

    /// Parts that a loop is best split into.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Does `work` for each of `parts`, on the pool that this is called in.
    pub fn for_each<P: Send>(&self, parts: Vec<P>, work: impl Fn(P) + Sync) {
        let begin = match self.begin {
            Some(begin) if self.threads > 1 && parts.len() > 1 => begin,
            _ => return parts.into_iter().for_each(work),
        };
        let start = begin.elapsed();
        let timed = |part| {
            let start = begin.elapsed();
            work(part);
            (begin.elapsed() - start).as_secs_f64()
        };
        let parts = parts.into_par_iter().with_max_len(1).map(timed).collect();
        let shared = SharedLoop { start, end: begin.elapsed(), parts };
        self.loops.lock().expect("nobody panics with the lock held").push(shared);
    }

    /// The loops that were shared, in their order.
    pub(super) fn into_loops(self) -> Vec<SharedLoop> {
        self.loops.into_inner().expect("nobody panics with the lock held")
    }
}
