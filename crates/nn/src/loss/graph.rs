//! Losses of one graph's outputs. A row of outputs whose targets hold a NaN is not labelled, and
//! counts nowhere.

use super::Loss;

/// Rows of targets [R, K] without a NaN.
pub fn labelled_rows(targets: &[f32], width: usize) -> usize {
    targets.chunks_exact(width).filter(|row| is_labelled(row)).count()
}

/// True if all targets of a row are known.
pub fn is_labelled(row: &[f32]) -> bool {
    !row.iter().any(|target| target.is_nan())
}

impl Loss {
    /// Terms of [`Loss::graph_sum`] in a graph with so many labelled rows of `width` outputs, over
    /// which the loss of a batch is the mean: numbers, rows for cross entropy, and graphs of two
    /// labelled rows or more for the losses of ranks.
    pub fn graph_terms(self, labelled: usize, width: usize) -> usize {
        match self {
            Loss::Mse | Loss::Huber { .. } | Loss::Quantile { .. } | Loss::Classes(_) => {
                self.terms_of(labelled * width)
            }
            Loss::CrossEntropy => labelled,
            Loss::RankPairwise | Loss::RankListwise { .. } => usize::from(labelled >= 2),
            Loss::Tasks(_) => panic!("tasks are for samples that stand alone"),
        }
    }

    /// The loss of a graph's outputs [R, K = `width`, M] for targets [R, K], without the division
    /// by the number of terms, in double precision.
    pub fn graph_sum(self, outputs: &[f32], targets: &[f32], width: usize) -> f64 {
        let rows = outputs.chunks_exact(width * self.outputs_per_target()).zip(targets.chunks_exact(width));
        let rows = || rows.clone().filter(|(_, targets)| is_labelled(targets));
        match self {
            Loss::Mse | Loss::Huber { .. } | Loss::Quantile { .. } | Loss::Classes(_) => {
                rows().map(|(y, targets)| self.sum(y, targets)).sum()
            }
            Loss::CrossEntropy => rows().map(|(y, targets)| cross_entropy(y, targets)).sum(),
            Loss::RankPairwise | Loss::RankListwise { .. } => {
                let column_loss = |k| self.rank_loss(&Column::new(outputs, targets, width, k), None);
                (0..width).map(column_loss).sum::<f64>() / width as f64
            }
            Loss::Tasks(_) => panic!("tasks are for samples that stand alone"),
        }
    }

    /// The gradient of the sum divided by `count`, the number of terms of the whole batch that the
    /// graph is a part of. That of rows without labels is zero.
    pub fn graph_gradient(self, outputs: &[f32], targets: &[f32], width: usize, count: usize, d_outputs: &mut [f32]) {
        // Without a label in the whole batch there is no term to divide by, and nothing to be
        // divided.
        let count = count.max(1);
        d_outputs.fill(0.0);
        if self.ranks() {
            return (0..width).for_each(|k| self.rank_gradient(outputs, targets, width, k, count, d_outputs));
        }
        let outputs_width = width * self.outputs_per_target();
        let rows = outputs.chunks_exact(outputs_width).zip(targets.chunks_exact(width));
        let rows = rows.zip(d_outputs.chunks_exact_mut(outputs_width));
        for ((y, targets), d) in rows.filter(|((_, targets), _)| is_labelled(targets)) {
            match self {
                Loss::CrossEntropy => cross_entropy_gradient(y, targets, count, d),
                _ => self.gradient(y, targets, count, d),
            }
        }
    }

    fn rank_gradient(
        self,
        outputs: &[f32],
        targets: &[f32],
        width: usize,
        k: usize,
        count: usize,
        d_outputs: &mut [f32],
    ) {
        let column = Column::new(outputs, targets, width, k);
        let mut slopes = vec![0.0; column.rows.len()];
        self.rank_loss(&column, Some(&mut slopes));
        for (&row, slope) in column.rows.iter().zip(slopes) {
            d_outputs[row * width + k] = (slope / (width * count) as f64) as f32;
        }
    }

    /// The loss of one horizon; its slopes are added to `slopes`.
    fn rank_loss(self, column: &Column, slopes: Option<&mut [f64]>) -> f64 {
        match self {
            _ if column.rows.len() < 2 => 0.0,
            Loss::RankListwise { temperature } => listwise(column, temperature, slopes),
            _ => pairwise(column, slopes),
        }
    }
}

/// The labelled rows of one horizon in double precision.
struct Column {
    rows: Vec<usize>,
    y: Vec<f64>,
    targets: Vec<f64>,
}

impl Column {
    fn new(outputs: &[f32], targets: &[f32], width: usize, k: usize) -> Self {
        let labelled = targets.chunks_exact(width).enumerate().filter(|(_, row)| is_labelled(row));
        let rows: Vec<usize> = labelled.map(|(row, _)| row).collect();
        Column {
            y: rows.iter().map(|row| f64::from(outputs[row * width + k])).collect(),
            targets: rows.iter().map(|row| f64::from(targets[row * width + k])).collect(),
            rows,
        }
    }
}

/// The softmax of numbers, and the logarithm of the sum of their exponentials.
pub fn softmax(x: &[f64]) -> (Vec<f64>, f64) {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    (exponentials.iter().map(|e| e / sum).collect(), most + sum.ln())
}

pub(super) fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().copied().map(f64::from).collect()
}

/// -Σ p ln softmax(y)
fn cross_entropy(y: &[f32], targets: &[f32]) -> f64 {
    let y = wide(y);
    let (_, log_sum) = softmax(&y);
    // A class of probability 0 adds nothing, however far its output is away.
    let term = |(&y, p): (&f64, f64)| if p == 0.0 { 0.0 } else { p * (log_sum - y) };
    y.iter().zip(wide(targets)).map(term).sum()
}

fn cross_entropy_gradient(y: &[f32], targets: &[f32], count: usize, d: &mut [f32]) {
    let (shares, targets) = (softmax(&wide(y)).0, wide(targets));
    let sum: f64 = targets.iter().sum();
    for ((d, share), target) in d.iter_mut().zip(shares).zip(targets) {
        *d = ((share * sum - target) / count as f64) as f32;
    }
}

/// The mean over pairs whose targets differ of ln(1 + e^(y_low - y_high)).
fn pairwise(column: &Column, slopes: Option<&mut [f64]>) -> f64 {
    let mut order: Vec<usize> = (0..column.y.len()).collect();
    order.sort_by(|&a, &b| column.targets[a].total_cmp(&column.targets[b]));
    // A row is above those that come before it, but for those of equal targets: +0 and -0 are
    // equal, too.
    let (y, targets): (Vec<f64>, Vec<f64>) = order.iter().map(|&row| (column.y[row], column.targets[row])).unzip();
    let below: Vec<usize> = targets.iter().map(|target| targets.partition_point(|other| other < target)).collect();
    let count = below.iter().sum::<usize>().max(1) as f64;
    let mut sorted_slopes = vec![0.0; y.len()];
    let sum: f64 = match Exponentials::new(&y) {
        Some(exponentials) => {
            let row_pairs = |high: usize| exponentials.pairs(high, &mut sorted_slopes, below[high]);
            (0..y.len()).map(row_pairs).sum()
        }
        None => (0..y.len()).map(|high| far_pairs(&y, high, &mut sorted_slopes, below[high])).sum(),
    };
    if let Some(slopes) = slopes {
        order.iter().zip(sorted_slopes).for_each(|(&row, slope)| slopes[row] += slope / count);
    }
    sum / count
}

/// e^y and e^-y of outputs that are near enough to each other for eight of their quotients to be
/// multiplied: a pair takes a division and no exponential, and eight pairs a logarithm.
struct Exponentials {
    growing: Vec<f64>,
    falling: Vec<f64>,
}

impl Exponentials {
    /// The largest distance of an output from the middle of all. e^(8 · 2 · 40) is in the range of
    /// double precision.
    const REACH: f64 = 40.0;

    fn new(y: &[f64]) -> Option<Self> {
        let (least, most) = y.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &y| (a.min(y), b.max(y)));
        let middle = 0.5 * (least + most);
        let near = y.iter().all(|y| (y - middle).abs() <= Self::REACH);
        near.then(|| Exponentials {
            growing: y.iter().map(|y| (y - middle).exp()).collect(),
            falling: y.iter().map(|y| (middle - y).exp()).collect(),
        })
    }

    /// The loss of a row beside the `below` first, and the slopes of both.
    fn pairs(&self, high: usize, slopes: &mut [f64], below: usize) -> f64 {
        let (own, inverse) = (self.growing[high], self.falling[high]);
        let lows = &self.growing[..below];
        let mut pulled = 0.0;
        for (slope, low) in slopes.iter_mut().zip(lows) {
            let pull = low / (low + own);
            *slope += pull;
            pulled += pull;
        }
        slopes[high] -= pulled;
        lows.chunks(8).map(|lows| lows.iter().map(|low| 1.0 + low * inverse).product::<f64>().ln()).sum()
    }
}

/// [`Exponentials::pairs`] of outputs that are far from each other.
fn far_pairs(y: &[f64], high: usize, slopes: &mut [f64], below: usize) -> f64 {
    // ln(1 + e^x) without overflow.
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let mut sum = 0.0;
    for low in 0..below {
        let pull = 1.0 / (1.0 + (y[high] - y[low]).exp());
        slopes[low] += pull;
        slopes[high] -= pull;
        sum += softplus(y[low] - y[high]);
    }
    sum
}

/// The cross entropy between the softmax of targets and that of outputs.
fn listwise(Column { y, targets, .. }: &Column, temperature: f64, slopes: Option<&mut [f64]>) -> f64 {
    let (wanted, _) = softmax(&targets.iter().map(|target| target / temperature).collect::<Vec<_>>());
    let (shares, log_sum) = softmax(y);
    if let Some(slopes) = slopes {
        slopes.iter_mut().zip(shares.iter().zip(&wanted)).for_each(|(slope, (share, wanted))| *slope += share - wanted);
    }
    wanted.iter().zip(y).map(|(wanted, y)| wanted * (log_sum - y)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oracle;

    const ALL: [Loss; 5] = [
        Loss::Mse,
        Loss::Huber { delta: 0.5 },
        Loss::CrossEntropy,
        Loss::RankPairwise,
        Loss::RankListwise { temperature: 0.5 },
    ];

    #[test]
    fn losses_by_hand() {
        let nan = f32::NAN;
        let (ln2, e) = (2f64.ln(), std::f64::consts::E);
        for (loss, y, targets, width, expected) in [
            (Loss::Mse, &[1.0, 2.0, 9.0, 9.0][..], &[0.0, 0.0, nan, 0.0][..], 2, 5.0),
            (Loss::CrossEntropy, &[3.0, 3.0, 9.0, 0.0], &[1.0, 0.0, nan, nan], 2, ln2),
            (Loss::CrossEntropy, &[1000.0, 0.0], &[1.0, 0.0], 2, 0.0),
            // Pairs (1, 0), (2, 0), (2, 1), of which the last one has equal outputs.
            (Loss::RankPairwise, &[0.0, 1.0, 1.0], &[0.0, 1.0, 2.0], 1, (2.0 * (1.0 + 1.0 / e).ln() + ln2) / 3.0),
            (Loss::RankPairwise, &[0.0, 1.0], &[4.0, 4.0], 1, 0.0),
            (Loss::RankPairwise, &[0.0, 1.0], &[-0.0, 0.0], 1, 0.0),
            // Outputs too far from each other for their exponentials.
            (Loss::RankPairwise, &[1000.0, 0.0], &[0.0, 1.0], 1, 1000.0),
            (Loss::RankListwise { temperature: 1.0 }, &[1.0, 1.0], &[0.0, 5.0], 1, ln2),
            // One labelled row has no rank.
            (Loss::RankListwise { temperature: 1.0 }, &[1.0, 1.0], &[nan, 5.0], 1, 0.0),
        ] {
            let sum = loss.graph_sum(y, targets, width);
            assert!((sum - expected).abs() < 1e-12, "{loss:?}: {sum} for {expected}");
        }
        for (loss, terms) in ALL.into_iter().zip([12, 12, 4, 1, 1]) {
            assert_eq!((loss.graph_terms(4, 3), loss.graph_terms(0, 3)), (terms, 0), "{loss:?}");
        }
        assert_eq!(Loss::RankPairwise.graph_terms(1, 3), 0);
    }

    #[test]
    fn without_a_label_there_is_neither_loss_nor_gradient() {
        for loss in ALL {
            let (y, targets) = ([1.0f32, 2.0, 3.0, 4.0], [f32::NAN; 4]);
            let mut d = [f32::NAN; 4];
            loss.graph_gradient(&y, &targets, 2, 0, &mut d);
            assert_eq!((loss.graph_sum(&y, &targets, 2), d), (0.0, [0.0; 4]), "{loss:?}");
        }
    }

    proptest! {
        /// Both ways to the pairwise loss, whose terms are off by a few units in the last place of
        /// what they are made of: 1 + e^x.
        #[test]
        fn near_outputs_are_ranked_as_far_ones(y in prop::collection::vec(-40.0f64..40.0, 1..40)) {
            let exponentials = Exponentials::new(&y).expect("outputs no farther than eighty from each other");
            let (mut near, mut far) = (vec![0.0; y.len()], vec![0.0; y.len()]);
            for high in 0..y.len() {
                let found = exponentials.pairs(high, &mut near, high);
                let expected = far_pairs(&y, high, &mut far, high);
                prop_assert!((found - expected).abs() <= 1e-13 * (1.0 + expected), "{} and {}", found, expected);
            }
            for (found, expected) in near.iter().zip(&far) {
                prop_assert!((found - expected).abs() <= 1e-13 * y.len() as f64, "{} and {}", found, expected);
            }
        }

        /// Numbers in double precision, rounded once to single precision; the errors of the squares
        /// are in single precision before.
        #[test]
        fn losses_and_gradients_are_the_oracles(
            rows in prop::collection::vec((prop::collection::vec(-2.0f32..2.0, 6), any::<[bool; 3]>()), 1..7),
            width in 1usize..4, classes in any::<bool>(),
        ) {
            let y: Vec<f32> = rows.iter().flat_map(|(row, _)| row[..width].to_vec()).collect();
            let targets: Vec<f32> = rows.iter().flat_map(|(row, [a, b, c])| {
                let one_hot = |k: usize| f32::from(u8::from(k == usize::from(*a) % width));
                let target = |k: usize| if *b && *c { f32::NAN } else if classes { one_hot(k) } else { row[3 + k] };
                (0..width).map(target).collect::<Vec<_>>()
            }).collect();
            for loss in ALL {
                let count = loss.graph_terms(labelled_rows(&targets, width), width).max(1);
                let mut d = vec![f32::NAN; y.len()];
                loss.graph_gradient(&y, &targets, width, count, &mut d);
                let expected = oracle::loss_of_graph(loss, &y, &targets, width);
                let mean = loss.graph_sum(&y, &targets, width) / count as f64;
                prop_assert!((mean - expected.mean).abs() < 1e-12, "{:?}: {} and {}", loss, mean, expected.mean);
                for (d, expected) in wide(&d).into_iter().zip(expected.gradient) {
                    prop_assert!((d - expected).abs() < 1e-6, "{:?}: {} and {}", loss, d, expected);
                }
            }
        }
    }
}
