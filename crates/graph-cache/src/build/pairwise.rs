//! Correlation over the days that both nodes of a pair have.

use megabatch_gpu_core::isa::{Isa, Loops};

use super::kernel::{RowMeasure, sum};
use super::nearest::Similarity;
use super::window::{LookbackWindow, NodeKind, varies};

/// The correlations of a window's nodes. Proposals are products of standard rows, and so are the
/// values where both nodes are complete.
pub(crate) struct Pearson<'w, P> {
    pub(crate) window: &'w LookbackWindow,
    pub(crate) proposals: P,
    pub(crate) min_observations: usize,
    unproposed: Unproposed,
}

/// Proposals for the correlations of complete nodes.
pub(crate) trait Proposals: Sync {
    /// As [`Similarity::propose`].
    fn propose(&self, window: &LookbackWindow, panel: usize, to: &mut [f32]);
    /// As [`Similarity::error`].
    fn error(&self, window: &LookbackWindow) -> f32;
}

/// Products of the standard rows.
pub(crate) struct Products;

impl Proposals for Products {
    fn propose(&self, window: &LookbackWindow, panel: usize, to: &mut [f32]) {
        window.standard.propose(Isa::best(), panel, to);
    }

    fn error(&self, window: &LookbackWindow) -> f32 {
        window.standard.error()
    }
}

/// Columns without proposals, for each kind of row.
struct Unproposed {
    complete: Vec<u32>,
    incomplete: Vec<u32>,
}

impl<'w, P: Proposals> Pearson<'w, P> {
    pub(crate) fn new(window: &'w LookbackWindow, min_observations: usize, proposals: P) -> Self {
        let complete = |&column: &u32| window.kinds[column as usize] == NodeKind::Complete;
        let all = 0..window.nodes.len() as u32;
        let unproposed = Unproposed {
            complete: all.clone().filter(|column| !complete(column)).collect(),
            incomplete: all.collect(),
        };
        Pearson { window, proposals, min_observations, unproposed }
    }
}

impl<P: Proposals> Similarity for Pearson<'_, P> {
    fn len(&self) -> usize {
        self.window.nodes.len()
    }

    fn columns(&self) -> usize {
        self.window.standard.columns()
    }

    fn propose(&self, panel: usize, to: &mut [f32]) {
        self.proposals.propose(self.window, panel, to);
    }

    fn error(&self) -> f32 {
        self.proposals.error(self.window)
    }

    fn unproposed(&self, row: usize) -> &[u32] {
        match self.window.kinds[row] {
            NodeKind::Complete => &self.unproposed.complete,
            NodeKind::Incomplete | NodeKind::Constant => &self.unproposed.incomplete,
        }
    }

    fn values(&self, row: usize, columns: &[u32], to: &mut [f64]) {
        let window = self.window;
        if window.kinds[row] == NodeKind::Complete {
            // Columns of other kinds come after them, see `candidates`.
            let proposed = columns.partition_point(|&column| window.kinds[column as usize] == NodeKind::Complete);
            let (complete, others) = to.split_at_mut(proposed);
            window.standard.between(Isa::best(), RowMeasure::Product, row as u32, &columns[..proposed], complete);
            complete.iter_mut().for_each(|r| *r = r.clamp(-1.0, 1.0));
            Isa::best().run(IncompletePairs { pearson: self, row, columns: &columns[proposed..], to: others });
        } else {
            Isa::best().run(IncompletePairs { pearson: self, row, columns, to });
        }
    }
}

/// Pairs with at least one incomplete node.
struct IncompletePairs<'a, P> {
    pearson: &'a Pearson<'a, P>,
    row: usize,
    columns: &'a [u32],
    to: &'a mut [f64],
}

impl<P: Proposals> Loops for IncompletePairs<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&column, to) in self.columns.iter().zip(self.to) {
            *to = pair(self.pearson.window, self.pearson.min_observations, self.row, column as usize);
        }
    }
}

/// Pearson's r over the days that both nodes have; NaN where these are fewer than
/// `min_observations` or one of the two does not vary over them.
#[inline(always)]
fn pair(window: &LookbackWindow, min_observations: usize, i: usize, j: usize) -> f64 {
    if window.kinds[i] == NodeKind::Constant || window.kinds[j] == NodeKind::Constant {
        return f64::NAN;
    }
    let row = |values, node| window.row(values, node);
    let (x, y) = (row(&window.values, i), row(&window.values, j));
    let both = [row(&window.observed, i), row(&window.observed, j)];
    let count = sum(both, |[a, b]| a * b);
    if count < min_observations as f64 {
        return f64::NAN;
    }
    let weights = &window.weights[..];
    let common = [weights, both[0], both[1]];
    let weight = sum(common, |[w, a, b]| w * (a * b));
    let mean = |x| sum([weights, both[0], both[1], x], |[w, a, b, x]| w * (a * b) * x) / weight;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let moment = |[x, y]: [&[f64]; 2], [mean_x, mean_y]: [f64; 2]| {
        let terms = [weights, both[0], both[1], x, y];
        sum(terms, |[w, a, b, x, y]| w * (a * b) * ((x - mean_x) * (y - mean_y)))
    };
    let (xx, yy) = (moment([x, x], [mean_x; 2]), moment([y, y], [mean_y; 2]));
    if !(varies(xx, weight, x) && varies(yy, weight, y)) {
        return f64::NAN;
    }
    (moment([x, y], [mean_x, mean_y]) / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0)
}
