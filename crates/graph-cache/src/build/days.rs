//! The graphs of many days.

#![forbid(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::correlation::Correlation;
use super::nearest::{Parallelism, search};
use super::pairwise::{Pearson, Products};
use super::panel::Panel;
use super::sliding::{DAYS_MAX, Sliding};
use super::window::LookbackWindow;
use crate::error::Result;
use crate::graph::Graph;

/// Days that are best built one from another: as long as the sliding sums last.
pub(crate) const RUN_DAYS: usize = DAYS_MAX + 1;

/// Runs of days that a thread keeps in memory before they are handed on.
const RUNS_PER_THREAD: usize = 2;

impl Correlation {
    /// The graphs of `days`, handed to `sink` in order. Each is the one that [`build`](Self::build)
    /// makes, bit for bit: sums carried from day to day only propose candidates. All threads of
    /// rayon's current pool share the work, each a run of days.
    ///
    /// # Errors
    /// As [`check`](Self::check), and the error of `sink`, at once.
    ///
    /// # Panics
    /// If the last of the days is more than one after those of the panel.
    pub fn build_days(
        &self,
        panel: &Panel<'_>,
        days: Range<usize>,
        mut sink: impl FnMut(usize, Graph) -> Result<()>,
    ) -> Result<()> {
        self.check(panel)?;
        let starts: Vec<usize> = days.clone().step_by(RUN_DAYS).collect();
        for starts in starts.chunks(RUNS_PER_THREAD * rayon::current_num_threads()) {
            let run = |&start: &usize| self.run(panel, start..days.end.min(start + RUN_DAYS));
            let runs: Vec<Vec<_>> = starts.par_iter().map(|start| run(start).collect()).collect();
            runs.into_iter().flatten().try_for_each(|built| built.and_then(|(day, graph)| sink(day, graph)))?;
        }
        Ok(())
    }

    /// The graphs of `days`, one after another on this thread. The options have been checked.
    pub(crate) fn run<'r>(
        &'r self,
        panel: &'r Panel<'_>,
        days: Range<usize>,
    ) -> impl Iterator<Item = Result<(usize, Graph)>> + 'r {
        let (mut window, mut sliding) = (LookbackWindow::default(), Sliding::default());
        days.map(move |t| {
            window.fill(self, panel, t);
            // A window that still grows gains a day without losing one.
            let neighbours = if t >= self.lookback && Sliding::pays(&window) {
                sliding.advance(&window, self.lookback, self.half_life);
                search(&Pearson::new(&window, self.min_observations, &sliding), self.choice(), Parallelism::Alone)
            } else {
                search(&Pearson::new(&window, self.min_observations, Products), self.choice(), Parallelism::Alone)
            };
            self.graph(panel, t, &window, &neighbours).map(|graph| (t, graph))
        })
    }
}
