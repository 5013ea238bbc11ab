//! The days of a panel that one day's graph uses.

use std::cell::Cell;
use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};

use super::kernel::{LANES, sum};
use super::panel::{Panel, is_observed};
use super::rows::RowMatrix;

/// A series is constant if its deviations are at most this fraction of its largest value, which
/// rounding alone produces from equal numbers.
const CONSTANT: f64 = 1e-12;

/// Most observations of a window that a thread keeps: 8 MB, and as much in standard rows.
const KEPT_MAX: usize = 1 << 20;

/// Demeaning of observations before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demeaning {
    /// Nothing.
    #[default]
    None,
    /// The mean of the day over all nodes of the panel that have an observation on it: of returns,
    /// that of an equally weighted market.
    CrossSectional,
}

/// Options of [`Correlation`](super::Correlation) that decide the contents of a window.
#[derive(Clone, Copy)]
pub(crate) struct LookbackOptions {
    pub(crate) lookback: usize,
    pub(crate) half_life: Option<f64>,
    pub(crate) demeaning: Demeaning,
    pub(crate) min_observations: usize,
}

/// Inputs of a graph: the observations of its nodes on the days of its look-back, and on none
/// other.
#[derive(Clone, Debug, Default)]
pub(crate) struct LookbackWindow {
    /// Places of the nodes in the panel, ascending.
    pub(crate) nodes: Vec<u32>,
    /// [W] weight of each day, and zeros to whole sums; the last is 1.
    pub(crate) weights: Vec<f64>,
    /// [N, stride] observations; zero where there is none, and after the last day.
    pub(crate) values: Vec<f64>,
    /// [N, stride] 1 where there is an observation and else 0; empty where there are all.
    pub(crate) observed: Vec<f64>,
    /// Kind of each node, [N].
    pub(crate) kinds: Vec<NodeKind>,
    /// [N, W]: √w · (x − x̄) / √(Σ w (x − x̄)²) of nodes that vary and are complete, else zeros. A
    /// product of two rows is their correlation.
    pub(crate) standard: RowMatrix,
    /// [N] x̄ of such nodes, else 0.
    pub(crate) means: Vec<f64>,
    /// [N] √(Σ w (x − x̄)²) of such nodes, else 1.
    pub(crate) norms: Vec<f64>,
    /// Mean of each day over all nodes of the panel, if observations are demeaned.
    day_means: Vec<f64>,
}

/// Kind of a node, by how its similarities are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Observed on every day, and not always the same: products of standard rows.
    Complete,
    /// Not observed on some days: over the days that both nodes of a pair have.
    Incomplete,
    /// Always the same, so that it correlates with nothing.
    Constant,
}

impl LookbackWindow {
    /// Calls `work` with the window that this thread used last, or a new one. Its contents are
    /// computed anew for each graph; only its memory is reused, which saves zeroing pages.
    pub(crate) fn with_last<R>(work: impl FnOnce(&mut LookbackWindow) -> R) -> R {
        thread_local! {
            static LAST: Cell<LookbackWindow> = Cell::default();
        }
        // A graph that starts on this thread while another waits for its tasks gets a new window.
        let mut window = LAST.take();
        let result = work(&mut window);
        if window.values.capacity() <= KEPT_MAX {
            LAST.set(window);
        }
        result
    }

    /// Numbers from one row of `values` to the next.
    pub(crate) fn stride(&self) -> usize {
        self.weights.len()
    }

    /// The row of a node in `values` or `observed`.
    pub(crate) fn row<'r>(&self, values: &'r [f64], node: usize) -> &'r [f64] {
        &values[node * self.stride()..][..self.stride()]
    }

    /// Fills the window with the days that the graph of day `t` sees.
    pub(crate) fn fill(&mut self, options: LookbackOptions, panel: &Panel<'_>, t: usize) {
        let days = t.saturating_sub(options.lookback)..t;
        self.weigh(options, days.len());
        self.average_days(options, panel, days.clone());
        let min_observations = options.min_observations;
        Isa::best().run(Observe { window: self, panel, days: days.clone(), min_observations });
        self.standard.reset(self.nodes.len(), days.len());
        self.means.clear();
        self.norms.clear();
        Isa::best().run(Standardise(self));
    }

    /// Equal weights, or 2^(−a / half-life) for the day that is a days before the last.
    fn weigh(&mut self, options: LookbackOptions, days: usize) {
        let weight = |age: usize| options.half_life.map_or(1.0, |half_life| power_of_two(-(age as f64) / half_life));
        self.weights.clear();
        self.weights.extend((0..days).rev().map(weight));
        self.weights.resize(days.next_multiple_of(LANES), 0.0);
    }

    fn average_days(&mut self, options: LookbackOptions, panel: &Panel<'_>, days: Range<usize>) {
        self.day_means.clear();
        self.day_means.resize(days.len(), 0.0);
        if options.demeaning == Demeaning::None {
            return;
        }
        let mut counts = vec![0.0; days.len()];
        for node in 0..panel.names().len() {
            let series = &panel.series(node)[days.clone()];
            for ((&x, mean), count) in series.iter().zip(&mut self.day_means).zip(&mut counts) {
                let observed = is_observed(x);
                *mean += if observed { x } else { 0.0 };
                *count += if observed { 1.0 } else { 0.0 };
            }
        }
        self.day_means.iter_mut().zip(&counts).for_each(|(mean, &count)| *mean /= f64::max(count, 1.0));
    }
}

/// Collects the nodes with enough observations, and their observations.
struct Observe<'w> {
    window: &'w mut LookbackWindow,
    panel: &'w Panel<'w>,
    days: Range<usize>,
    min_observations: usize,
}

impl Loops for Observe<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Observe { window, panel, days, min_observations } = self;
        let stride = window.stride();
        window.nodes.clear();
        window.kinds.clear();
        window.observed.clear();
        // Every number of a row is written, so that those of the last day need not be cleared.
        window.values.resize(panel.names().len() * stride, 0.0);
        for node in 0..panel.names().len() {
            let series = &panel.series(node)[days.clone()];
            let count: usize = series.iter().map(|&x| usize::from(is_observed(x))).sum();
            if count < min_observations {
                continue;
            }
            let complete = count == series.len();
            let begin = window.nodes.len() * stride;
            if !complete && window.observed.is_empty() {
                window.observed.resize(begin, 1.0);
            }
            let (row, rest) = window.values[begin..begin + stride].split_at_mut(series.len());
            for ((to, &x), mean) in row.iter_mut().zip(series).zip(&window.day_means) {
                *to = if is_observed(x) { x - mean } else { 0.0 };
            }
            rest.fill(0.0);
            if !complete || !window.observed.is_empty() {
                window.observed.extend(series.iter().map(|&x| if is_observed(x) { 1.0 } else { 0.0 }));
                window.observed.resize(begin + stride, 0.0);
            }
            window.nodes.push(node as u32);
            window.kinds.push(if complete { NodeKind::Complete } else { NodeKind::Incomplete });
        }
        window.values.truncate(window.nodes.len() * stride);
    }
}

/// Finds the nodes that do not vary, and brings the complete ones that do to mean 0 and norm 1.
struct Standardise<'w>(&'w mut LookbackWindow);

impl Loops for Standardise<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let window = self.0;
        let roots: Vec<f64> = window.weights.iter().map(|weight| weight.sqrt()).collect();
        let weight = sum([&window.weights], |[w]| w);
        for node in 0..window.nodes.len() {
            let (mut mean, mut norm) = (0.0, 1.0);
            if window.kinds[node] == NodeKind::Complete {
                let values = &window.values[node * roots.len()..][..roots.len()];
                mean = sum([&window.weights, values], |[w, x]| w * x) / weight;
                let squares = sum([&window.weights, values], |[w, x]| w * ((x - mean) * (x - mean)));
                if varies(squares, weight, values) {
                    norm = squares.sqrt();
                    let row = window.standard.row_mut(node);
                    for ((z, &x), &root) in row.iter_mut().zip(values).zip(&roots) {
                        *z = root * (x - mean) / norm;
                    }
                    window.standard.propose_by(node, 0.0, |_, z| z as f32);
                } else {
                    window.kinds[node] = NodeKind::Constant;
                    mean = 0.0;
                }
            }
            window.means.push(mean);
            window.norms.push(norm);
        }
    }
}

/// 2ˣ for x ≤ 0, within two units in the last place, and 0 where that is subnormal. Not
/// `f64::exp2`, which fuses on some CPUs and then gives other bits.
pub(crate) fn power_of_two(x: f64) -> f64 {
    let whole = x.round();
    let exponent = (x - whole) * std::f64::consts::LN_2;
    // Horner's form of Σ eⁿ / n!, of whose rest 10⁻¹⁹ is left.
    let series = (1..=14).rev().fold(1.0, |sum, n| 1.0 + sum * exponent / f64::from(n));
    series * 2f64.powi(whole as i32)
}

/// True if numbers whose weighted squared deviations add up to `squares` vary by more than
/// rounding.
#[inline(always)]
pub(crate) fn varies(squares: f64, weight: f64, values: &[f64]) -> bool {
    let noise = CONSTANT * largest(values);
    squares > noise * noise * weight
}

/// Largest magnitude of a multiple of eight numbers without NaN: eight at a time, so that
/// comparisons do not wait for each other.
#[inline(always)]
fn largest(values: &[f64]) -> f64 {
    let larger = |one: f64, other: f64| if other > one { other } else { one };
    let mut lanes = [0.0; LANES];
    for eight in values.as_chunks::<LANES>().0 {
        for (lane, x) in lanes.iter_mut().zip(eight) {
            *lane = larger(*lane, x.abs());
        }
    }
    lanes.into_iter().fold(0.0, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_magnitude_is_found_wherever_it_is() {
        for place in 0..3 * LANES {
            let mut values = [0.5; 3 * LANES];
            values[place] = -7.0;
            assert_eq!(largest(&values), 7.0, "{place}");
        }
        assert_eq!(largest(&[]), 0.0);
    }

    #[test]
    fn powers_of_two() {
        for k in 0..3700 {
            let x = -f64::from(k) / 3.7;
            let (found, expected) = (power_of_two(x), x.exp2());
            assert!(
                (found - expected).abs() <= 5e-16 * expected + f64::from_bits(2),
                "2^{x} is {found}, not {expected}"
            );
        }
        assert_eq!([0.0, -1.0, -20.0, -1e9].map(power_of_two), [1.0, 0.5, 1.0 / 1_048_576.0, 0.0]);
    }
}
