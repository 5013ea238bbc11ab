//! Information coefficients: correlations between predictions and targets over the nodes of a
//! graph, or over the instruments of a time.

use serde::Serialize;

use super::newey_west::t_statistic;

/// Correlations between predictions and targets over the nodes of a graph, by horizon: element k
/// belongs to target k. Means over the graphs in which they are defined: with two labelled nodes or
/// more, among which neither predictions nor targets are all equal. `None` where there is no such
/// graph; standard deviation and t-statistic also where there is one only, and the latter where all
/// graphs have the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InformationCoefficients {
    /// Pearson's correlation, mean over graphs.
    pub ic: Vec<Option<f64>>,
    /// Its standard deviation over graphs, n - 1 in the denominator.
    pub ic_std: Vec<Option<f64>>,
    /// Its t-statistic by Newey and West, see [`t_statistic`].
    pub ic_t: Vec<Option<f64>>,
    /// Lag of the t-statistics: how many later graphs have targets that overlap with those of one
    /// graph. At a horizon of h bars, with a graph a bar, it is h - 1.
    pub ic_lags: Vec<usize>,
    /// Graphs in which it is defined.
    pub ic_graphs: Vec<usize>,
    /// Spearman's correlation: Pearson's of ranks, equal numbers having the mean of theirs.
    pub rank_ic: Vec<Option<f64>>,
    /// Its standard deviation.
    pub rank_ic_std: Vec<Option<f64>>,
    /// Its t-statistic.
    pub rank_ic_t: Vec<Option<f64>>,
}

/// Correlations between predictions and targets over the nodes of one graph, or over the
/// instruments of one time, by horizon; `None` where they are not defined, see
/// [`InformationCoefficients`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphCorrelations {
    /// When the samples were taken, ns since 1970 UTC, where the data tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<i64>,
    /// The graph, by its place in the source; the time, by its place among those with correlations.
    pub graph: usize,
    /// Pearson's correlation.
    pub ic: Vec<Option<f64>>,
    /// Spearman's.
    pub rank_ic: Vec<Option<f64>>,
}

/// Correlations of the graphs seen, of one horizon.
#[derive(Clone, Debug, Default)]
pub(super) struct Correlations {
    ic: Vec<Option<f64>>,
    rank_ic: Vec<Option<f64>>,
}

impl Correlations {
    /// Adds one graph.
    pub(super) fn add(&mut self, predictions: &[f64], targets: &[f64]) {
        self.ic.push(pearson(predictions, targets));
        self.rank_ic.push(pearson(&ranks(predictions), &ranks(targets)));
    }
}

impl GraphCorrelations {
    /// Correlations of the graph with the number `graph`, the `place`-th that `horizons` saw.
    pub(super) fn new(horizons: &[Correlations], place: usize, graph: usize) -> Self {
        let values = |select: fn(&Correlations) -> &[Option<f64>]| {
            horizons.iter().map(|horizon| select(horizon)[place]).collect()
        };
        GraphCorrelations {
            time_ns: None,
            graph,
            ic: values(|horizon| &horizon.ic),
            rank_ic: values(|horizon| &horizon.rank_ic),
        }
    }
}

impl InformationCoefficients {
    /// The summary of `horizons`. `lags` has for each the number of later graphs whose targets
    /// overlap; 0 beyond its end.
    pub(super) fn new(horizons: &[Correlations], lags: &[usize]) -> Self {
        let mut all = InformationCoefficients::default();
        for (k, Correlations { ic, rank_ic }) in horizons.iter().enumerate() {
            let lag = lags.get(k).copied().unwrap_or(0);
            all.ic_lags.push(lag);
            all.ic_graphs.push(ic.iter().flatten().count());
            for (values, [means, deviations, t_statistics]) in [
                (ic, [&mut all.ic, &mut all.ic_std, &mut all.ic_t]),
                (rank_ic, [&mut all.rank_ic, &mut all.rank_ic_std, &mut all.rank_ic_t]),
            ] {
                let defined: Vec<f64> = values.iter().copied().flatten().collect();
                means.push(mean(&defined));
                deviations.push(deviation(&defined));
                t_statistics.push(t_statistic(values, lag));
            }
        }
        all
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// `None` where either is constant, or there are fewer than two.
fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let is_constant = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    if x.len() < 2 || is_constant(x) || is_constant(y) {
        return None;
    }
    let (x_mean, y_mean) = (mean(x)?, mean(y)?);
    let [mut xx, mut xy, mut yy] = [0.0; 3];
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x - x_mean, y - y_mean);
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    Some(xy / (xx * yy).sqrt()).filter(|correlation| correlation.is_finite())
}

/// Ranks from 0; equal numbers have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = below as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|&place| ranks[place] = rank);
        below += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_share_their_ranks() {
        assert_eq!(ranks(&[3.0, -1.0, 3.0, 0.0, -0.0, 3.0]), [4.0, 0.0, 4.0, 1.5, 1.5, 4.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn correlations_by_hand_and_where_there_are_none() {
        let close = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}");
        close(pearson(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), 1.0);
        close(pearson(&[1.0, 2.0, 4.0], &[1.0, 1.0, 0.0]), -5.0 / 28f64.sqrt());
        assert_eq!([pearson(&[0.1; 3], &[1.0, 2.0, 3.0]), pearson(&[1.0], &[1.0]), pearson(&[], &[])], [None; 3]);
    }

    #[test]
    fn means_deviations_and_t_statistics_over_graphs() {
        let mut horizons = vec![Correlations::default(); 3];
        horizons[0].add(&[1.0, 2.0, 3.0], &[1.0, 2.0, 4.0]);
        horizons[0].add(&[3.0, 2.0, 1.0], &[1.0, 2.0, 3.0]);
        horizons[0].add(&[1.0, 1.0], &[1.0, 2.0]);
        horizons[1].add(&[1.0, 2.0], &[1.0, 2.0]);
        let all = InformationCoefficients::new(&horizons, &[]);
        assert_eq!((all.ic_graphs, all.ic_lags), (vec![2, 1, 0], vec![0; 3]));
        assert_eq!(
            (all.rank_ic.clone(), all.rank_ic_t),
            (vec![Some(0.0), Some(1.0), None], vec![Some(0.0), None, None])
        );
        assert_eq!(all.rank_ic_std, [Some(2f64.sqrt()), None, None]);
        let r = 9.0 / 84f64.sqrt();
        let (mean, deviation) = ((r - 1.0) / 2.0, (r + 1.0) / 2f64.sqrt());
        assert!((all.ic[0].unwrap() - mean).abs() < 1e-12 && (all.ic_std[0].unwrap() - deviation).abs() < 1e-12);
        assert!((all.ic_t[0].unwrap() - mean / deviation * 2f64.sqrt()).abs() < 1e-12);
    }
    #[test]
    fn t_statistics_allow_for_targets_that_overlap() {
        let mut horizons = vec![Correlations::default(); 2];
        // Correlations 1, 1, -1 and 1 at both horizons: mean 0.5, products 3, 0.25 - 0.75 - 0.75.
        for sign in [1.0, 1.0, -1.0, 1.0] {
            horizons.iter_mut().for_each(|horizon| horizon.add(&[1.0, 2.0], &[sign, 2.0 * sign]));
        }
        let all = InformationCoefficients::new(&horizons, &[0, 1]);
        let by_hand = [3.0, 3.0 + 2.0 * 0.5 * -1.25].map(|sum: f64| 0.5 / (sum / 12.0).sqrt());
        for t in [&all.ic_t, &all.rank_ic_t] {
            let found: Vec<f64> = t.iter().copied().flatten().collect();
            assert!(found.iter().zip(by_hand).all(|(found, t)| (found - t).abs() < 1e-12), "{found:?}");
        }
        assert_eq!((all.ic_lags, all.ic_std[0]), (vec![0, 1], all.ic_std[1]));
    }
}
