//! Pearson's correlation of pairs of numbers that come one by one.

/// Sums of pairs, of numbers less those of the first pair: so a large mean takes no digits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairSums {
    pub(super) count: f64,
    first: [f64; 2],
    sum: [f64; 2],
    squares: [f64; 2],
    products: f64,
}

impl PairSums {
    pub(super) fn add(&mut self, value: f64, later: f64) {
        if self.count == 0.0 {
            self.first = [value, later];
        }
        let [x, y] = [value - self.first[0], later - self.first[1]];
        self.count += 1.0;
        self.sum = [self.sum[0] + x, self.sum[1] + y];
        self.squares = [self.squares[0] + x * x, self.squares[1] + y * y];
        self.products += x * y;
    }

    /// Pearson's correlation; `None` where one of both does not vary.
    pub(super) fn correlation(&self) -> Option<f64> {
        let variance = [0, 1].map(|k| self.squares[k] - self.sum[k] * self.sum[k] / self.count);
        let covariance = self.products - self.sum[0] * self.sum[1] / self.count;
        let correlation = covariance / (variance[0] * variance[1]).sqrt();
        correlation.is_finite().then_some(correlation)
    }
}
