//! Every operation in the plainest form, in float64, column by column.

/// Rows of `columns` numbers in segments.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) index: &'a [u32],
    pub(crate) segments: usize,
    pub(crate) columns: usize,
}

impl Rows<'_> {
    /// For each segment and column the numbers of `x` with their rows, as `reduce` makes one of
    /// them: [segments, columns].
    fn reduced<T>(&self, x: &[f64], reduce: impl Fn(&[(usize, f64)]) -> T) -> Vec<T> {
        let mut out = Vec::new();
        for segment in 0..self.segments {
            for column in 0..self.columns {
                let rows = (0..self.index.len()).filter(|&row| self.index[row] as usize == segment);
                let numbers: Vec<_> = rows.map(|row| (row, x[row * self.columns + column])).collect();
                out.push(reduce(&numbers));
            }
        }
        out
    }

    pub(crate) fn sum(&self, x: &[f64]) -> Vec<f64> {
        self.reduced(x, |numbers| numbers.iter().map(|(_, x)| x).sum())
    }

    pub(crate) fn mean(&self, x: &[f64]) -> Vec<f64> {
        self.reduced(x, |numbers| numbers.iter().map(|(_, x)| x).sum::<f64>() / numbers.len().max(1) as f64)
    }

    /// The first of the greatest of `x` times `sign`, a NaN being greater than all: its value and
    /// its row.
    pub(crate) fn extremum(&self, x: &[f64], sign: f64) -> Vec<(f64, usize)> {
        let greater = |a: f64, b: f64| a * sign > b * sign || a.is_nan() && !b.is_nan();
        self.reduced(x, |numbers| {
            let best =
                numbers.iter().copied().reduce(|best, number| if greater(number.1, best.1) { number } else { best });
            best.map_or((0.0, self.index.len()), |(row, x)| (x, row))
        })
    }

    pub(crate) fn gather(&self, values: &[f64]) -> Vec<f64> {
        let number = |row: usize, column| values[self.index[row] as usize * self.columns + column];
        (0..self.index.len()).flat_map(|row| (0..self.columns).map(move |column| number(row, column))).collect()
    }

    pub(crate) fn softmax(&self, x: &[f64]) -> Vec<f64> {
        let greatest: Vec<f64> = self.extremum(x, 1.0).into_iter().map(|(value, _)| value).collect();
        let exp: Vec<f64> = x.iter().zip(self.gather(&greatest)).map(|(x, greatest)| (x - greatest).exp()).collect();
        exp.iter().zip(self.gather(&self.sum(&exp))).map(|(exp, sum)| exp / sum).collect()
    }
}
