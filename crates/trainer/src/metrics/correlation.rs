#![forbid(unsafe_code)]

//! Information coefficients: how well the predictions for the nodes of a graph are in line with what came.

use serde::Serialize;

/// Correlations between predictions and targets over the nodes of a graph, by horizon: element k belongs to target k. Means over the graphs
/// in which they are defined: with two labelled nodes or more, among which neither predictions nor targets are all equal. `None` where there
/// is no such graph; standard deviation and t-statistic also where there is one only, and the latter where all graphs have the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InformationCoefficients {
    /// Pearson's correlation, mean over graphs.
    pub ic: Vec<Option<f64>>,
    /// Its standard deviation over graphs, n - 1 in the denominator.
    pub ic_std: Vec<Option<f64>>,
    /// Its t-statistic: the mean over the standard deviation, times the root of the number of graphs.
    pub ic_t: Vec<Option<f64>>,
    /// Graphs in which it is defined.
    pub ic_graphs: Vec<usize>,
    /// Spearman's correlation: Pearson's of ranks, equal numbers having the mean of theirs.
    pub rank_ic: Vec<Option<f64>>,
    /// Its standard deviation.
    pub rank_ic_std: Vec<Option<f64>>,
    /// Its t-statistic.
    pub rank_ic_t: Vec<Option<f64>>,
}

/// Correlations between predictions and targets over the nodes of one graph, by horizon; `None` where they are not defined, see
/// [`InformationCoefficients`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphCorrelations {
    /// The graph, by its place in the source.
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
    /// Takes account of one graph.
    pub(super) fn add(&mut self, predictions: &[f64], targets: &[f64]) {
        self.ic.push(pearson(predictions, targets));
        self.rank_ic.push(pearson(&ranks(predictions), &ranks(targets)));
    }
}

impl GraphCorrelations {
    /// Those of the graph with the number `graph`, which was the one at `place` that `horizons` took account of.
    pub(super) fn of(horizons: &[Correlations], (place, graph): (usize, usize)) -> Self {
        let values =
            |of: fn(&Correlations) -> &[Option<f64>]| horizons.iter().map(|horizon| of(horizon)[place]).collect();
        GraphCorrelations { graph, ic: values(|horizon| &horizon.ic), rank_ic: values(|horizon| &horizon.rank_ic) }
    }
}

impl InformationCoefficients {
    pub(super) fn of(horizons: &[Correlations]) -> Self {
        let mut all = InformationCoefficients::default();
        for Correlations { ic, rank_ic } in horizons {
            let defined = |values: &[Option<f64>]| values.iter().copied().flatten().collect::<Vec<f64>>();
            let (ic, rank_ic) = (defined(ic), defined(rank_ic));
            all.ic_graphs.push(ic.len());
            for (values, [means, deviations, t_statistics]) in [
                (&ic, [&mut all.ic, &mut all.ic_std, &mut all.ic_t]),
                (&rank_ic, [&mut all.rank_ic, &mut all.rank_ic_std, &mut all.rank_ic_t]),
            ] {
                let (mean, deviation) = (mean(values), deviation(values));
                let t = mean.zip(deviation).map(|(mean, deviation)| mean / deviation * (values.len() as f64).sqrt());
                means.push(mean);
                deviations.push(deviation);
                t_statistics.push(t.filter(|t| t.is_finite()));
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
        let all = InformationCoefficients::of(&horizons);
        assert_eq!(all.ic_graphs, [2, 1, 0]);
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
}
