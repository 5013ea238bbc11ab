//! Blocks of a collection: reused from an earlier file or built, on several threads, delivered in
//! order.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use super::block_of;
use super::window::{ClosedByPanic, OrderedBlocks};
use crate::builder::Builder;
use crate::error::Result;
use crate::file::{Collection, FileBytes, GraphBlock, encode};

/// Most memory of blocks that are built before their turn, besides one block a thread.
const AHEAD_BYTES_MAX: usize = 64 << 20;

/// A collection and an earlier file that may have some of its blocks.
#[derive(Debug)]
pub(super) struct ReusableBlocks<'c> {
    pub(super) collection: &'c Collection,
    pub(super) earlier: Option<FileBytes>,
}

impl ReusableBlocks<'_> {
    /// The block of a graph, if the earlier file has it whole.
    fn block(&self, index: usize) -> Option<GraphBlock> {
        let file = self.earlier.as_deref()?;
        self.collection.whole_entry(file, index).map(|entry| block_of(file, &entry))
    }

    fn is_missing(&self, index: usize) -> bool {
        let is_whole = |file: &FileBytes| self.collection.whole_entry(file, index).is_some();
        !self.earlier.as_ref().is_some_and(is_whole)
    }

    /// Number of graphs in `range` that the earlier file has whole.
    pub(super) fn intact(&self, range: Range<usize>) -> usize {
        if self.earlier.is_none() { 0 } else { range.filter(|&index| !self.is_missing(index)).count() }
    }

    fn len(&self) -> usize {
        self.collection.keys.len()
    }
}

/// Gives `sink` the blocks of all graphs from `first` on, in order.
pub(super) fn build(
    kept: &ReusableBlocks<'_>,
    builder: &dyn Builder,
    first: usize,
    threads: usize,
    mut sink: impl FnMut(GraphBlock) -> Result<()>,
) -> Result<()> {
    let run_length = builder.run_length().max(1);
    let (window, next_run) = (OrderedBlocks::new(first, AHEAD_BYTES_MAX), AtomicUsize::new(first / run_length));
    let runs = kept.len().div_ceil(run_length) - first / run_length;
    let work = || {
        let _closed = ClosedByPanic(&window);
        loop {
            let start = next_run.fetch_add(1, Relaxed).saturating_mul(run_length);
            let run = start..start.saturating_add(run_length).min(kept.len());
            if run.is_empty() || build_run(kept, first, builder, run, &window).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let _closed = ClosedByPanic(&window);
        for _ in 0..threads.clamp(1, runs.max(1)) {
            scope.spawn(work);
        }
        let written = (first..kept.len()).try_for_each(|_| sink(window.take()?));
        window.close();
        written
    })
}

/// Delivers the blocks of a run from graph `first` on; fails once the build has stopped.
fn build_run(
    kept: &ReusableBlocks<'_>,
    first: usize,
    builder: &dyn Builder,
    run: Range<usize>,
    window: &OrderedBlocks,
) -> Result<()> {
    let mut next = run.start;
    let last_missing = (run.start.max(first)..run.end).rev().find(|&index| kept.is_missing(index));
    if let Some(last) = last_missing {
        let built = builder.build_run(run.start..last + 1, &mut |index, graph| {
            assert_eq!(index, next, "a run is built in order, each graph once");
            next += 1;
            if index < first {
                return Ok(());
            }
            let encoded = || encode(&kept.collection.shape, &kept.collection.keys[index], &graph);
            window.put(index, kept.block(index).map_or_else(encoded, Ok))
        });
        if let Err(error) = built {
            return window.put(next.max(first), Err(error));
        }
        assert_eq!(next, last + 1, "a run is built to its end");
    }
    (next.max(first)..run.end).try_for_each(|index| {
        window.put(index, Ok(kept.block(index).expect("the last block that is missing was built")))
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::builder::Identity;
    use crate::file::{CollectionDescription, Widths};
    use crate::graph::Graph;
    use crate::schema::Schema;

    /// Graphs of a megabyte, without edges.
    struct Large(Schema, Vec<String>);

    impl Builder for Large {
        fn identity(&self) -> Identity {
            Identity::default()
        }

        fn schema(&self) -> &Schema {
            &self.0
        }

        fn keys(&self) -> &[String] {
            &self.1
        }

        fn build(&self, _index: usize) -> Result<Graph> {
            Graph::from_edges(&self.0, (0..1 << 17).collect(), &[])
        }
    }

    #[test]
    fn a_panic_where_blocks_are_taken_ends_the_build() {
        let builder = Large(Schema::default(), (0..100).map(|key| key.to_string()).collect());
        let (identity, schema) = (builder.identity(), builder.schema().clone());
        let description = CollectionDescription { identity, schema, widths: Widths::default() };
        let collection = Collection::new(description, builder.keys()).unwrap();
        let kept = ReusableBlocks { collection: &collection, earlier: None };
        let build = || build(&kept, &builder, 0, 2, |_| panic!("the terminal is gone"));
        assert!(catch_unwind(AssertUnwindSafe(build)).is_err());
    }
}
