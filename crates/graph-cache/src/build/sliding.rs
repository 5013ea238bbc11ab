//! Proposals that are carried from one day to the next.
//!
//! The graph of day t + 1 sees one day more than that of day t, and one less. With x̃ = (x −
//! centre) / scale, where centre and scale are the mean and norm when the sums began,
//!
//! ```text
//! S_ij(t + 1) = λ S_ij(t) + x̃_i(t) x̃_j(t) − λ^W x̃_i(t − W) x̃_j(t − W)
//! λ = 2^(−1 / half-life), or 1 without a half-life
//! r_ij = (S_ij − Σw · m_i m_j) / (s_i s_j)
//! ```
//!
//! where means m and norms s, in the same centre and scale, are those of the day's window, formed
//! afresh. That takes four operations a pair where the products take 2 W. Sums are in single
//! precision: they only propose candidates, and the values of a graph are computed from the window
//! alone, so that its bits are the same with or without sums. An error bound is carried along; the
//! sums restart when it grows too large, after some days, and when nodes come, go, or have gaps.

use megabatch_gpu_core::isa::{Isa, Loops};

use super::kernel::PANEL;
use super::pairwise::Proposals;
use super::window::{LookbackWindow, NodeKind, power_of_two};

/// Days after which the sums restart.
pub(crate) const DAYS_MAX: usize = 64;

/// Largest error that still leaves few false candidates.
const ERROR_MAX: f64 = 1e-3;

/// Smallest look-back for which four operations a pair, on sums in memory, cost less than the
/// products.
const LOOKBACK_MIN: usize = 32;

/// Largest array of sums; each thread has one.
const SUMS_MAX: usize = 1 << 26;

/// The largest √(Σ w x̃²) for which the product of two is in range.
const LARGEST_MAX: f64 = 1e15;

/// Sums over a window of the products of any two nodes.
#[derive(Debug, Default)]
pub(crate) struct Sliding {
    /// Nodes and kinds of the sums; `None` before the first window.
    summed: Option<(Vec<u32>, Vec<NodeKind>)>,
    /// Days since the start of the sums.
    days: usize,
    /// [columns] per node, zero for those that are not complete.
    centres: Vec<f64>,
    scales: Vec<f64>,
    /// [columns] x̃ of the first day of the window.
    first: Vec<f32>,
    /// [columns] the largest √(Σ w x̃²) since the sums began.
    largest: Vec<f64>,
    /// [16-row panels · 16, columns].
    sums: Vec<f32>,
    /// [columns] 1 / s.
    inverse: Vec<f32>,
    /// [columns] m / s.
    means: Vec<f32>,
    /// Σ w.
    weight: f64,
    error: f32,
}

impl Sliding {
    /// True if sums are less work than products.
    pub(crate) fn pays(window: &LookbackWindow) -> bool {
        let columns = window.standard.columns();
        window.stride() >= LOOKBACK_MIN && columns.saturating_mul(columns) <= SUMS_MAX
    }

    /// Goes on to the window of the next day, or begins with it. `lookback` is W.
    pub(crate) fn advance(&mut self, window: &LookbackWindow, lookback: usize, half_life: Option<f64>) {
        let goes_on = self.days < DAYS_MAX
            && self.summed.as_ref().is_some_and(|(nodes, kinds)| *nodes == window.nodes && *kinds == window.kinds);
        if goes_on {
            self.slide(window, lookback, half_life);
            self.measure(window, lookback);
        }
        if !goes_on || f64::from(self.error) > ERROR_MAX {
            self.begin(window);
            self.measure(window, lookback);
        }
        self.first = (0..self.centres.len()).map(|node| self.scaled(window, node, 0) as f32).collect();
    }

    /// x̃ of a node on a day of the window; 0 where it is not complete.
    fn scaled(&self, window: &LookbackWindow, node: usize, day: usize) -> f64 {
        if self.scales[node] == 0.0 {
            return 0.0;
        }
        (window.row(&window.values, node)[day] - self.centres[node]) * self.scales[node]
    }

    fn begin(&mut self, window: &LookbackWindow) {
        let (columns, nodes) = (window.standard.columns(), window.nodes.len());
        let complete = |node: usize| node < nodes && window.kinds[node] == NodeKind::Complete;
        self.centres = (0..columns).map(|node| if complete(node) { window.means[node] } else { 0.0 }).collect();
        self.scales = (0..columns).map(|node| if complete(node) { 1.0 / window.norms[node] } else { 0.0 }).collect();
        self.largest = vec![0.0; columns];
        self.sums.resize(nodes.next_multiple_of(PANEL) * columns, 0.0);
        // A window may have no nodes at all.
        for (panel, sums) in self.sums.chunks_exact_mut((PANEL * columns).max(1)).enumerate() {
            window.standard.propose(Isa::best(), panel, sums);
        }
        self.summed = Some((window.nodes.clone(), window.kinds.clone()));
        self.days = 0;
    }

    fn slide(&mut self, window: &LookbackWindow, lookback: usize, half_life: Option<f64>) {
        let decay = half_life.map_or(1.0, |half_life| power_of_two(-1.0 / half_life));
        let first_weight = decay.powi(lookback as i32) as f32;
        let columns = self.centres.len();
        let came: Vec<f32> = (0..columns).map(|node| self.scaled(window, node, lookback - 1) as f32).collect();
        let went: Vec<f32> = self.first.iter().map(|x| first_weight * x).collect();
        let days = Days { came: &came, went: &went, first: &self.first };
        Isa::best().run(Slide { decay: decay as f32, days, sums: &mut self.sums });
        self.days += 1;
    }

    /// Means and norms of the window, and how far proposals may be off.
    fn measure(&mut self, window: &LookbackWindow, lookback: usize) {
        let columns = self.centres.len();
        self.weight = window.weights.iter().sum();
        self.inverse.clear();
        self.inverse.resize(columns, 0.0);
        self.means.clear();
        self.means.resize(columns, 0.0);
        let mut worst: f64 = 1.0;
        for node in (0..window.nodes.len()).filter(|&node| self.scales[node] > 0.0) {
            let norm = window.norms[node] * self.scales[node];
            let mean = (window.means[node] - self.centres[node]) * self.scales[node];
            let largest = &mut self.largest[node];
            *largest = largest.max((norm * norm + self.weight * mean * mean).sqrt());
            (self.inverse[node], self.means[node]) = ((1.0 / norm) as f32, (mean / norm) as f32);
            worst = worst.max(if *largest > LARGEST_MAX { f64::INFINITY } else { *largest / norm });
        }
        // In units of u = 2⁻²⁴ times the largest √(Σ w x̃²) of both nodes: lookback + 3 roundings
        // at the start of the sums, as for products; 16 a day for the factors of two products, the
        // products, their difference, the decay and the sum, with terms up to twice as large; 12
        // for the proposal.
        let roundings = (lookback + 16 * self.days + 16) as f64;
        let underflow = (lookback + self.days) as f64 * f64::from(f32::MIN_POSITIVE);
        self.error = (((roundings * 1.01 / (1u64 << 24) as f64) + underflow) * worst * worst) as f32;
    }
}

impl Proposals for &Sliding {
    fn propose(&self, _window: &LookbackWindow, panel: usize, to: &mut [f32]) {
        Isa::best().run(Propose { sliding: self, panel, to });
    }

    fn error(&self, _window: &LookbackWindow) -> f32 {
        self.error
    }
}

/// The day that a window gains, and the day that it loses, with its weight.
struct Days<'a> {
    came: &'a [f32],
    went: &'a [f32],
    first: &'a [f32],
}

struct Slide<'a> {
    decay: f32,
    days: Days<'a>,
    sums: &'a mut [f32],
}

impl Loops for Slide<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Slide { decay, days: Days { came, went, first }, sums } = self;
        if came.is_empty() {
            return;
        }
        for (row, sums) in sums.chunks_exact_mut(came.len()).enumerate() {
            let (came_row, went_row) = (came[row], went[row]);
            for ((sum, &came), &first) in sums.iter_mut().zip(came).zip(first) {
                *sum = decay * *sum + (came_row * came - went_row * first);
            }
        }
    }
}

struct Propose<'a> {
    sliding: &'a Sliding,
    panel: usize,
    to: &'a mut [f32],
}

impl Loops for Propose<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Sliding { sums, inverse, means, weight, .. } = self.sliding;
        let columns = inverse.len();
        let sums = &sums[self.panel * PANEL * columns..][..PANEL * columns];
        let rows = sums.chunks_exact(columns).zip(self.to.chunks_exact_mut(columns));
        for (row, (sums, to)) in (self.panel * PANEL..).zip(rows) {
            let (inverse_row, mean_row) = (inverse[row], *weight as f32 * means[row]);
            for (((to, &sum), &inverse), &mean) in to.iter_mut().zip(sums).zip(inverse).zip(means) {
                *to = sum * inverse_row * inverse - mean_row * mean;
            }
        }
    }
}
