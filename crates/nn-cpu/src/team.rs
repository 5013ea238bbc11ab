//! Loops of one task that several threads share.
//!
//! The thread that does the task splits a loop into parts and does some of them; threads of the
//! pool without a task of their own do the others, as `schedule.rs` says. A part writes
//! numbers of its own, so that the results do not depend on who does it.

use rayon::prelude::*;

/// The threads that share the loops of a task.
#[derive(Debug)]
pub struct ThreadTeam {
    threads: usize,
}

impl ThreadTeam {
    /// Threads that loops are split for.
    pub fn new(threads: usize) -> Self {
        ThreadTeam { threads: threads.max(1) }
    }

    /// One thread.
    pub fn alone() -> &'static Self {
        static ALONE: ThreadTeam = ThreadTeam { threads: 1 };
        &ALONE
    }

    /// Parts that a loop is best split into.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Does `work` for each of `parts`, on the pool that this is called in.
    pub fn for_each<P: Send>(&self, parts: Vec<P>, work: impl Fn(P) + Sync) {
        if self.threads > 1 && parts.len() > 1 {
            parts.into_par_iter().with_max_len(1).for_each(&work);
        } else {
            parts.into_iter().for_each(work);
        }
    }
}
