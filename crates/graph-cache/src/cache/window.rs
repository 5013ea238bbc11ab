//! Ordered delivery of blocks that several threads build.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::file::GraphBlock;

/// Reorder buffer between threads that build blocks and one that takes them in order. A thread that
/// is far ahead waits, which bounds the memory; the thread with the next block never waits.
#[derive(Debug)]
pub(super) struct OrderedBlocks {
    ahead_bytes_max: usize,
    state: Mutex<WindowState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WindowState {
    next: usize,
    made: BTreeMap<usize, Result<GraphBlock>>,
    made_bytes: usize,
    closed: bool,
}

impl OrderedBlocks {
    /// From graph `next` on.
    pub(super) fn new(next: usize, ahead_bytes_max: usize) -> Self {
        let state = Mutex::new(WindowState { next, ..WindowState::default() });
        OrderedBlocks { ahead_bytes_max, state, changed: Condvar::new() }
    }

    /// Delivers the block of graph `index`, or its error.
    ///
    /// # Errors
    /// [`Error::Stopped`] once the window is closed.
    pub(super) fn put(&self, index: usize, block: Result<GraphBlock>) -> Result<()> {
        let is_early =
            |state: &mut WindowState| !state.closed && index != state.next && state.made_bytes > self.ahead_bytes_max;
        let waited = self.changed.wait_while(self.state(), is_early);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Error::Stopped);
        }
        state.made_bytes += block.as_ref().map_or(0, |block| block.bytes.len());
        state.made.insert(index, block);
        self.changed.notify_all();
        Ok(())
    }

    /// The next block.
    ///
    /// # Errors
    /// The error of the block; [`Error::Stopped`] once the window is closed.
    pub(super) fn take(&self) -> Result<GraphBlock> {
        let is_missing = |state: &mut WindowState| !state.closed && !state.made.contains_key(&state.next);
        let waited = self.changed.wait_while(self.state(), is_missing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let next = state.next;
        let block = state.made.remove(&next).unwrap_or(Err(Error::Stopped))?;
        state.next += 1;
        state.made_bytes -= block.bytes.len();
        self.changed.notify_all();
        Ok(block)
    }

    /// Wakes all waiting threads.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// No operation under the lock leaves the state half changed, so poison is ignored.
    fn state(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the window when its thread panics, so that nobody waits for it in vain.
pub(super) struct ClosedByPanic<'w>(pub(super) &'w OrderedBlocks);

impl Drop for ClosedByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(nodes: u64) -> GraphBlock {
        GraphBlock { nodes, edges: 0, known_time: None, bytes: vec![0; 100] }
    }

    #[test]
    fn blocks_come_in_order_and_no_more_are_ahead_than_may_be() {
        let window = OrderedBlocks::new(5, 250);
        let taken: Vec<u64> = std::thread::scope(|scope| {
            for start in 0..3 {
                let window = &window;
                scope.spawn(move || {
                    (5 + start..50).step_by(3).try_for_each(|index| window.put(index, Ok(block(index as u64))))
                });
            }
            let take = |_| {
                let block = window.take().unwrap();
                assert!(window.state().made_bytes <= 250 + 3 * 100, "{window:?}");
                block.nodes
            };
            (5..50).map(take).collect()
        });
        assert!(taken.into_iter().eq(5..50));
    }

    #[test]
    fn a_failure_comes_in_its_turn() {
        let window = OrderedBlocks::new(0, 1000);
        window.put(1, Err(Error::NotGraphs { path: "x".into() })).unwrap();
        window.put(0, Ok(block(0))).unwrap();
        assert_eq!(window.take().unwrap().nodes, 0);
        assert!(matches!(window.take(), Err(Error::NotGraphs { .. })));
    }

    #[test]
    fn a_closed_window_lets_all_go() {
        let window = OrderedBlocks::new(0, 0);
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| window.take());
            window.close();
            assert!(matches!(taking.join().unwrap(), Err(Error::Stopped)));
        });
        let window = OrderedBlocks::new(0, 0);
        window.put(0, Ok(block(0))).unwrap();
        std::thread::scope(|scope| {
            let early = scope.spawn(|| window.put(1, Ok(block(1))));
            window.close();
            assert!(matches!(early.join().unwrap(), Err(Error::Stopped)));
        });
    }
}
