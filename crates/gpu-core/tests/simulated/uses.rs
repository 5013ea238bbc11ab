use std::collections::BTreeMap;
use std::ops::Range;

use megabatch_gpu_core::source::{Granule, StreamId};

/// The last piece of work that used each byte of physical memory.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Disjoint ranges of each granule, in no order.
    by_granule: BTreeMap<Granule, Vec<GranuleUse>>,
}

/// A piece of work: the `ticket`-th of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) stream: StreamId,
    pub(super) ticket: u64,
}

#[derive(Clone, Debug)]
struct GranuleUse {
    bytes: Range<usize>,
    work: Work,
}

impl Uses {
    /// The pieces of work that used some byte of a range last.
    pub(super) fn overlapping(&self, granule: Granule, bytes: &Range<usize>) -> impl Iterator<Item = Work> {
        let uses = self.by_granule.get(&granule).map_or(&[][..], Vec::as_slice);
        uses.iter()
            .filter(move |used| used.bytes.start < bytes.end && bytes.start < used.bytes.end)
            .map(|used| used.work)
    }

    /// Notes the piece of work that uses a range from now on.
    pub(super) fn note(&mut self, granule: Granule, bytes: Range<usize>, work: Work) {
        let uses = self.by_granule.entry(granule).or_default();
        let mut kept = Vec::with_capacity(uses.len() + 2);
        for used in uses.drain(..) {
            let below = used.bytes.start..used.bytes.end.min(bytes.start);
            let above = used.bytes.start.max(bytes.end)..used.bytes.end;
            kept.extend(
                [below, above].into_iter().filter(|rest| !rest.is_empty()).map(|bytes| GranuleUse { bytes, ..used }),
            );
        }
        kept.push(GranuleUse { bytes, work });
        *uses = kept;
    }

    pub(super) fn forget(&mut self, granule: Granule) {
        self.by_granule.remove(&granule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_of_each_byte_is_known() {
        let mut uses = Uses::default();
        let granule = Granule(7);
        let work = |ticket| Work { stream: StreamId(0), ticket };
        uses.note(granule, 0..100, work(1));
        uses.note(granule, 40..60, work(2));
        let tickets = |uses: &Uses, bytes: Range<usize>| {
            uses.overlapping(granule, &bytes).map(|work| work.ticket).collect::<Vec<_>>()
        };
        assert_eq!(tickets(&uses, 0..40), [1]);
        assert_eq!(tickets(&uses, 40..60), [2]);
        assert_eq!(tickets(&uses, 60..61), [1]);
        assert_eq!(tickets(&uses, 39..61), [1, 1, 2]);
        assert!(tickets(&uses, 100..200).is_empty());
        uses.note(granule, 0..100, work(3));
        assert_eq!(tickets(&uses, 0..100), [3]);
        uses.forget(granule);
        assert!(tickets(&uses, 0..100).is_empty());
    }
}
