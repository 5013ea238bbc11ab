//! The search for the most similar rows.
//!
//! ```text
//! for each row i:  the k columns j ≠ i with the largest key(i, j) ≥ threshold,
//!                  of equal keys the lower columns
//! ```
//!
//! Departure from that loop: the keys of all pairs are never formed. Every pair has a *proposal*,
//! its key to within some ε, which is cheap.
//!
//! 1. The columns of a row are dealt into groups, and each group has its largest proposal. The k-th
//!    largest of these is at most the k-th largest of all proposals: at least k columns have keys
//!    of that less ε or more.
//! 2. Only columns whose proposals are that less 2ε or more can be among the k, and only of these
//!    are keys formed, in double precision.
//!
//! So the answer is that of the loop, bit for bit, whatever made the proposals.

use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};
use rayon::prelude::*;

use super::kernel::{self, GROUPS_MAX, PANEL};

/// Similarity of rows. Proposals and keys of a pair are the same from either end.
pub(crate) trait Similarity: Sync {
    /// Number of rows, which are the columns too.
    fn len(&self) -> usize;

    /// Columns of an array of proposals, padded to whole pairs of panels.
    fn columns(&self) -> usize;

    /// Writes the proposals of the sixteen rows of a panel, `to` [16, columns], before any
    /// [`Sign`].
    fn propose(&self, panel: usize, to: &mut [f32]);

    /// Largest error of a proposal.
    fn error(&self) -> f32;

    /// Columns of a row without useful proposals, ascending: their values are always formed.
    fn unproposed(&self, row: usize) -> &[u32];

    /// Writes the value of the pair with each column, NaN if it has none.
    fn values(&self, row: usize, columns: &[u32], to: &mut [f64]);
}

/// Ranking of similarities by value or by magnitude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sign {
    /// The largest are the nearest; those below zero are far.
    #[default]
    Signed,
    /// The largest magnitudes are the nearest. Weights keep their sign.
    Absolute,
}

impl Sign {
    fn key(self, value: f64) -> f64 {
        match self {
            Sign::Signed => value,
            Sign::Absolute => value.abs(),
        }
    }
}

/// Rule that chooses the neighbours among the columns of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) k: usize,
    pub(crate) sign: Sign,
    /// The least key of a neighbour.
    pub(crate) threshold: Option<f64>,
    /// Number of nearest neighbours that are kept whatever the threshold; at most k.
    pub(crate) kept: usize,
}

/// A column that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbour {
    pub(crate) column: u32,
    /// True if it is one of the [`Choice::kept`] nearest.
    pub(crate) kept: bool,
    pub(crate) value: f64,
}

/// The neighbours of every row, columns ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NeighbourLists {
    /// [N + 1].
    pub(crate) offsets: Vec<usize>,
    pub(crate) list: Vec<Neighbour>,
}

impl NeighbourLists {
    pub(crate) fn list_of(&self, row: usize) -> &[Neighbour] {
        &self.list[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// Threads that share the work on one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallelism {
    /// All threads: each takes some rows.
    Rows,
    /// The calling thread alone; others build other graphs.
    Alone,
}

/// The neighbours of every row.
pub(crate) fn search(similarity: &impl Similarity, choice: Choice, spread: Parallelism) -> NeighbourLists {
    let panels = similarity.len().div_ceil(PANEL);
    let part = |panels: Range<usize>| {
        let mut search = TopKSearch::new(similarity, choice);
        search.counts.reserve(panels.len() * PANEL);
        search.found.reserve(panels.len() * PANEL * choice.k.min(similarity.len()));
        panels.for_each(|panel| search.panel(panel));
        (search.counts, search.found)
    };
    let threads = if spread == Parallelism::Alone { 1 } else { rayon::current_num_threads() };
    if threads == 1 {
        let (counts, found) = part(0..panels);
        return NeighbourLists { offsets: offsets(counts), list: found };
    }
    let tasks = panels.min(threads * TASKS_PER_THREAD).max(1);
    let bounds = move |task: usize| task * panels / tasks..(task + 1) * panels / tasks;
    let parts: Vec<_> = (0..tasks).into_par_iter().map(|task| part(bounds(task))).collect();
    let (counts, found): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    NeighbourLists { offsets: offsets(counts.concat()), list: found.concat() }
}

/// Starts of the neighbours of each row, from the counts.
fn offsets(counts: Vec<usize>) -> Vec<usize> {
    let mut end = 0;
    let ends = counts.into_iter().map(|count| {
        end += count;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Enough tasks that a delayed thread does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// Groups for each neighbour: more groups leave fewer false candidates.
const GROUPS_PER_NEIGHBOUR: usize = 3;

/// Searches panel after panel, in arrays of its own.
struct TopKSearch<'s, S> {
    similarity: &'s S,
    choice: Choice,
    isa: Isa,
    proposals: Vec<f32>,
    groups: Vec<f32>,
    places: Vec<u32>,
    values: Vec<f64>,
    ranked: Vec<Neighbour>,
    small: SmallTopK,
    counts: Vec<usize>,
    found: Vec<Neighbour>,
}

impl<'s, S: Similarity> TopKSearch<'s, S> {
    fn new(similarity: &'s S, choice: Choice) -> Self {
        let columns = similarity.columns();
        let groups = choice.k.saturating_mul(GROUPS_PER_NEIGHBOUR).min(columns).min(GROUPS_MAX).next_multiple_of(PANEL);
        TopKSearch {
            similarity,
            choice,
            isa: Isa::best(),
            proposals: vec![0.0; PANEL * columns],
            groups: vec![0.0; groups],
            places: Vec::new(),
            values: Vec::new(),
            ranked: Vec::new(),
            small: SmallTopK::default(),
            counts: Vec::new(),
            found: Vec::new(),
        }
    }

    fn panel(&mut self, panel: usize) {
        let mut proposals = std::mem::take(&mut self.proposals);
        self.similarity.propose(panel, &mut proposals);
        if self.choice.sign == Sign::Absolute {
            self.isa.run(Magnitudes(&mut proposals));
        }
        let (len, columns) = (self.similarity.len(), self.similarity.columns());
        for (row, proposals) in (panel * PANEL..len).zip(proposals.chunks_exact_mut(columns)) {
            // No row is a neighbour of itself, nor are the columns after the last.
            proposals[row] = f32::NEG_INFINITY;
            proposals[len..].fill(f32::NEG_INFINITY);
            for &column in self.similarity.unproposed(row) {
                proposals[column as usize] = f32::NEG_INFINITY;
            }
            self.candidates(row, proposals);
            self.choose(row);
        }
        self.proposals = proposals;
    }

    /// The columns whose values have to be formed, in `places`.
    fn candidates(&mut self, row: usize, proposals: &[f32]) {
        let limit = self.limit(proposals);
        self.places.resize(proposals.len(), 0);
        let found = kernel::at_least(self.isa, proposals, limit, &mut self.places);
        self.places.truncate(found);
        let unproposed = self.similarity.unproposed(row).iter().copied();
        self.places.extend(unproposed.filter(|&column| column as usize != row));
    }

    /// Least proposal that makes its column a candidate.
    fn limit(&mut self, proposals: &[f32]) -> f32 {
        let (k, error) = (self.choice.k, self.similarity.error());
        let by_threshold = match self.choice.threshold {
            Some(threshold) if self.choice.kept == 0 => (threshold - 2.0 * f64::from(error)) as f32,
            _ => f32::MIN,
        };
        if k > self.groups.len() {
            return by_threshold;
        }
        (kernel::kth_group(self.isa, proposals, k, &mut self.groups) - 2.0 * error).max(by_threshold)
    }

    /// Forms the values of the candidates and takes the neighbours among them.
    fn choose(&mut self, row: usize) {
        self.values.resize(self.places.len(), 0.0);
        self.similarity.values(row, &self.places, &mut self.values);
        let is_plain = self.choice.kept == 0 && self.choice.threshold.is_none();
        if !(is_plain && self.similarity.unproposed(row).is_empty() && self.take_small()) {
            self.rank(row);
        }
    }

    /// Takes the k nearest of a few candidates; false if there are too many.
    fn take_small(&mut self) -> bool {
        let Choice { sign, k, .. } = self.choice;
        let Some(nearest) = self.small.nearest(self.isa, &self.places, &self.values, sign, k) else { return false };
        self.counts.push(nearest.len());
        self.found.extend_from_slice(nearest);
        true
    }

    /// Ranks the candidates, and takes the neighbours among them.
    fn rank(&mut self, row: usize) {
        let Choice { sign, threshold, .. } = self.choice;
        let candidates = self.places.iter().zip(&self.values);
        let candidates = candidates.map(|(&column, &value)| Neighbour { column, kept: false, value });
        self.ranked.clear();
        self.ranked.extend(candidates.filter(|candidate| !candidate.value.is_nan()));
        if !self.similarity.unproposed(row).is_empty() {
            self.ranked.sort_unstable_by_key(|neighbour| neighbour.column);
        }
        self.keep_nearest();
        if let Some(threshold) = threshold {
            self.ranked.retain(|neighbour| neighbour.kept || sign.key(neighbour.value) >= threshold);
        }
        self.counts.push(self.ranked.len());
        self.found.extend_from_slice(&self.ranked);
    }

    /// Keeps the k nearest of the candidates, in the order of their columns, and marks those that
    /// are always kept.
    fn keep_nearest(&mut self) {
        let Choice { k, sign, kept, .. } = self.choice;
        if self.ranked.len() <= kept.min(k) {
            return self.ranked.iter_mut().for_each(|neighbour| neighbour.kept = true);
        }
        if kept == 0 && self.ranked.len() <= k {
            return;
        }
        let ranks = ranks(&self.ranked, sign);
        let mut ranks = ranks.iter();
        self.ranked.retain_mut(|neighbour| {
            let rank = *ranks.next().expect("a rank for each");
            neighbour.kept = rank < kept;
            rank < k
        });
    }
}

/// The k nearest of a small number of candidates, each compared with all at once.
struct SmallTopK {
    keys: [f64; SMALL_MAX],
    /// Number of keys as large as each, or larger.
    as_large: [f64; SMALL_MAX],
    /// One more than the maximum, for a write before the check.
    nearest: [Neighbour; SMALL_MAX + 1],
}

/// Candidates that it takes at most. A row rarely has more: three times a usual k.
const SMALL_MAX: usize = 32;

impl Default for SmallTopK {
    fn default() -> Self {
        let none = Neighbour { column: 0, kept: false, value: 0.0 };
        SmallTopK { keys: [0.0; SMALL_MAX], as_large: [0.0; SMALL_MAX], nearest: [none; SMALL_MAX + 1] }
    }
}

impl SmallTopK {
    /// The k nearest of columns with their values, in the order of the columns. `None` if there are
    /// too many, if fewer than k have a value, or if there is a tie at the k-th.
    fn nearest(&mut self, isa: Isa, columns: &[u32], values: &[f64], sign: Sign, k: usize) -> Option<&[Neighbour]> {
        let keys = self.keys.get_mut(..values.len())?;
        keys.iter_mut().zip(values).for_each(|(key, &value)| *key = sign.key(value));
        isa.run(CountGreaterEqual { small: self, len: values.len() });
        let mut taken = 0;
        // The selection is unpredictable, hence branchless.
        for ((&column, &value), &as_large) in columns.iter().zip(values).zip(&self.as_large) {
            self.nearest[taken] = Neighbour { column, kept: false, value };
            taken += usize::from(1.0 <= as_large && as_large <= k as f64);
        }
        (taken == k.min(values.len())).then(|| &self.nearest[..taken])
    }
}

/// Counts, for each key, the keys that are as large or larger.
struct CountGreaterEqual<'f> {
    small: &'f mut SmallTopK,
    len: usize,
}

impl Loops for CountGreaterEqual<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let keys = self.small.keys;
        let mut counts = [0.0; SMALL_MAX];
        for &key in &keys[..self.len] {
            for (count, &other) in counts.iter_mut().zip(&keys) {
                *count += if key >= other { 1.0 } else { 0.0 };
            }
        }
        self.small.as_large = counts;
    }
}

/// Rank of each by its key, 0 being the nearest; of equal keys the lower column comes first.
fn ranks(ranked: &[Neighbour], sign: Sign) -> Vec<usize> {
    let key = |place: usize| sign.key(ranked[place].value);
    let mut order: Vec<usize> = (0..ranked.len()).collect();
    order.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).expect("no key is NaN"));
    let mut ranks = vec![0; ranked.len()];
    order.into_iter().enumerate().for_each(|(rank, place)| ranks[place] = rank);
    ranks
}

struct Magnitudes<'a>(&'a mut [f32]);

impl Loops for Magnitudes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.0.iter_mut().for_each(|x| *x = x.abs());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nearest_of_few_are_those_with_the_first_ranks(
            values in prop::collection::vec(-4i8..4, 1..SMALL_MAX + 2), k in 1usize..SMALL_MAX + 2,
        ) {
            for sign in [Sign::Signed, Sign::Absolute] {
                // -4 stands for a value that there is not.
                let value = |&value: &i8| if value == -4 { f64::NAN } else { f64::from(value) };
                let values: Vec<f64> = values.iter().map(value).collect();
                let columns: Vec<u32> = (0..values.len() as u32).map(|place| 3 * place).collect();
                let neighbour = |(&column, &value)| Neighbour { column, kept: false, value };
                let all: Vec<Neighbour> = columns.iter().zip(&values).map(neighbour).collect();
                let mut small = SmallTopK::default();
                let found = small.nearest(Isa::best(), &columns, &values, sign, k);
                let known: Vec<Neighbour> = all.iter().filter(|neighbour| !neighbour.value.is_nan()).copied().collect();
                let ranks = ranks(&known, sign);
                let key = |rank: usize| sign.key(known[ranks.iter().position(|&other| other == rank).unwrap()].value);
                let is_clear = k >= known.len() || key(k - 1) != key(k);
                let is_small = values.len() <= SMALL_MAX && k.min(known.len()) == k.min(values.len());
                let first = known.iter().zip(&ranks).filter(|&(_, &rank)| rank < k);
                let expected: Vec<Neighbour> = first.map(|(neighbour, _)| *neighbour).collect();
                prop_assert_eq!(found, (is_small && is_clear).then_some(&expected[..]));
            }
        }
    }
}
