use serde::Serialize;

use crate::error::Result;
use crate::numeric_dataset::NumericDataset;

/// A scan reads pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// Statistics of one feature or of one horizon's targets.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ColumnStatistics {
    /// Name of the feature, or the horizon from 1.
    pub name: String,
    /// Number of finite values.
    pub count: u64,
    /// Smallest finite value; this and the next three are `None` if there is none.
    pub min: Option<f64>,
    /// Largest finite value.
    pub max: Option<f64>,
    /// Mean of the finite values.
    pub mean: Option<f64>,
    /// Standard deviation of the finite values, with their number as divisor.
    pub std: Option<f64>,
    /// Values that are not a number.
    pub nan: Occurrences,
    /// Infinite values.
    pub infinite: Occurrences,
}

/// Count of a value, and its first place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Occurrences {
    /// Count.
    pub count: u64,
    /// The first: `[bar]` in a series, `[sample, step]` in windows, `[sample]` in targets.
    pub first: Option<Vec<usize>>,
}

/// Statistics of each column, where `names` are the columns: the last axis of `table`.
pub(super) fn scan(table: &NumericDataset, names: Vec<String>) -> Result<Vec<ColumnStatistics>> {
    let (rows, row_len) = (table.rows(), table.row_len());
    let piece_rows = table.part_rows(PIECE_BYTES)?;
    let mut columns = vec![ColumnSums::default(); names.len()];
    let mut piece = Vec::new();
    for first in (0..rows).step_by(piece_rows) {
        let end = rows.min(first + piece_rows);
        piece.resize((end - first) * row_len, 0.0);
        table.read_f32_range(first..end, &mut piece)?;
        let lines_before = first * row_len / columns.len();
        for (line, values) in piece.chunks_exact(columns.len()).enumerate() {
            columns.iter_mut().zip(values).for_each(|(column, &value)| column.add(value, lines_before + line));
        }
    }
    let lines_a_row = row_len / names.len();
    Ok(columns.into_iter().zip(names).map(|(column, name)| column.finish(name, lines_a_row)).collect())
}

/// Sums of one column. Deviations are taken from the first finite value, which keeps the squares
/// from cancelling.
#[derive(Clone, Debug, Default)]
struct ColumnSums {
    count: u64,
    shift: f64,
    sum: f64,
    sum_of_squares: f64,
    min: f64,
    max: f64,
    nan: LineCount,
    infinite: LineCount,
}

#[derive(Clone, Debug, Default)]
struct LineCount {
    count: u64,
    first_line: Option<usize>,
}

impl LineCount {
    fn add(&mut self, line: usize) {
        self.count += 1;
        self.first_line.get_or_insert(line);
    }

    /// A line is a run of the last axis; `lines_a_row` of them make a row of the first.
    fn finish(self, lines_a_row: usize) -> Occurrences {
        let place = |line| if lines_a_row == 1 { vec![line] } else { vec![line / lines_a_row, line % lines_a_row] };
        Occurrences { count: self.count, first: self.first_line.map(place) }
    }
}

impl ColumnSums {
    fn add(&mut self, value: f32, line: usize) {
        if value.is_nan() {
            return self.nan.add(line);
        }
        if value.is_infinite() {
            return self.infinite.add(line);
        }
        let value = f64::from(value);
        if self.count == 0 {
            (self.shift, self.min, self.max) = (value, value, value);
        }
        let deviation = value - self.shift;
        self.count += 1;
        self.sum += deviation;
        self.sum_of_squares += deviation * deviation;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn finish(self, name: String, lines_a_row: usize) -> ColumnStatistics {
        let count = self.count as f64;
        let mean_deviation = self.sum / count;
        let variance = (self.sum_of_squares / count - mean_deviation * mean_deviation).max(0.0);
        let if_any = |value: f64| (self.count > 0).then_some(value);
        ColumnStatistics {
            name,
            count: self.count,
            min: if_any(self.min),
            max: if_any(self.max),
            mean: if_any(self.shift + mean_deviation),
            std: if_any(variance.sqrt()),
            nan: self.nan.finish(lines_a_row),
            infinite: self.infinite.finish(lines_a_row),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statistics(values: &[f32], lines_a_row: usize) -> ColumnStatistics {
        let mut column = ColumnSums::default();
        values.iter().enumerate().for_each(|(line, &value)| column.add(value, line));
        column.finish("x".to_owned(), lines_a_row)
    }

    #[test]
    fn values_that_are_not_finite_are_counted_apart() {
        let found = statistics(&[f32::NAN, 1.0, f32::INFINITY, f32::NAN, 3.0, f32::NEG_INFINITY], 2);
        assert_eq!((found.count, found.min, found.max), (2, Some(1.0), Some(3.0)));
        assert_eq!((found.mean, found.std), (Some(2.0), Some(1.0)));
        assert_eq!(found.nan, Occurrences { count: 2, first: Some(vec![0, 0]) });
        assert_eq!(found.infinite, Occurrences { count: 2, first: Some(vec![1, 0]) });
        let none = statistics(&[f32::NAN], 1);
        assert_eq!((none.count, none.min, none.mean, none.std), (0, None, None, None));
    }

    proptest! {
        /// One pass agrees with two, also far from zero.
        #[test]
        fn one_pass_agrees_with_two(values in prop::collection::vec(-1.0_f32..1.0, 1..200), offset in -1e6_f32..1e6) {
            let values: Vec<f32> = values.iter().map(|value| value + offset).collect();
            let count = values.len() as f64;
            let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
            let variance = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count;
            let found = statistics(&values, 1);
            prop_assert!((found.mean.unwrap() - mean).abs() <= 1e-9 * mean.abs().max(1.0));
            prop_assert!((found.std.unwrap() - variance.sqrt()).abs() <= 1e-7);
        }
    }
}
