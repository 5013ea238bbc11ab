//! Centre and scale of columns that lie in a temporary file. They are those of all rows at once,
//! bit for bit.
//!
//! ```text
//! median and quartiles   of few rows: sort the values; of more:
//!                        1. count the upper 16 bits of all values, in the order of numbers
//!                        2. count the lower 16 bits of those in the buckets that hold a rank
//! mean, deviation        one pass each, summed in the order of the rows
//! ```

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::series::feature::Feature;
use crate::series::scale::{SPREAD_MIN, Scaler, Scaling, is_constant_between, median_and_spread};
use crate::spool::{failed, read_at};

/// Most rows whose values are sorted: counting takes the time of some tens of thousands, however
/// few they are.
const SORTED_ROWS_MAX: usize = 1 << 14;

/// Columns of rows that came in pieces: of each piece, one column after the other.
pub(crate) struct ColumnsFile {
    folder: PathBuf,
    file: File,
    width: usize,
    /// Rows of each piece.
    pieces: Vec<usize>,
    bytes: Vec<f32>,
    /// Most rows whose values are sorted.
    sorted_rows_max: usize,
}

impl ColumnsFile {
    pub(crate) fn create(folder: &Path, width: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed(folder, "create"))?;
        let (folder, sorted_rows_max) = (folder.to_owned(), SORTED_ROWS_MAX);
        Ok(ColumnsFile { folder, file, width, pieces: Vec::new(), bytes: Vec::new(), sorted_rows_max })
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Adds rows, `[n, width]`.
    pub(crate) fn push(&mut self, rows: &[f32]) -> Result<()> {
        let count = rows.len() / self.width;
        if count == 0 {
            return Ok(());
        }
        self.bytes.clear();
        for column in 0..self.width {
            self.bytes.extend(rows.iter().skip(column).step_by(self.width));
        }
        self.pieces.push(count);
        self.file.write_all(bytemuck::cast_slice(&self.bytes)).map_err(failed(&self.folder, "write"))
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.pieces.iter().sum()
    }

    /// Goes through one column in the order of the rows.
    fn for_each(&self, column: usize, mut visit: impl FnMut(&[f32])) -> Result<()> {
        let (mut first, mut values) = (0, Vec::new());
        for &count in &self.pieces {
            values.resize(count, 0.0f32);
            let offset = 4 * (first * self.width + column * count);
            let bytes = bytemuck::cast_slice_mut(&mut values);
            read_at(&self.file, bytes, offset as u64).map_err(failed(&self.folder, "read"))?;
            visit(&values);
            first += count;
        }
        Ok(())
    }

    /// Scaler of the columns, which are `features`.
    pub(crate) fn fit(&self, scaling: Scaling, features: &[Feature]) -> Result<Scaler> {
        if self.rows() == 0 {
            assert_eq!(scaling, Scaling::None, "a scaler is fitted to rows");
            return Ok(Scaler::neutral(features));
        }
        let mut scaler = Scaler { center: Vec::new(), scale: Vec::new(), constant: Vec::new() };
        for (place, feature) in features.iter().enumerate() {
            let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
            self.for_each(place, |values| {
                for &value in values {
                    (lowest, highest) = (lowest.min(f64::from(value)), highest.max(f64::from(value)));
                }
            })?;
            let is_constant = is_constant_between(lowest, highest);
            if is_constant {
                scaler.constant.push(feature.clone());
            }
            let (center, scale) = match feature.is_cyclic() {
                true => (0.0, 1.0),
                false => self.center_and_spread(scaling, place)?,
            };
            scaler.center.push(center);
            scaler.scale.push(if is_constant { 1.0 } else { scale });
        }
        Ok(scaler)
    }

    fn center_and_spread(&self, scaling: Scaling, column: usize) -> Result<(f64, f64)> {
        match scaling {
            Scaling::None => Ok((0.0, 1.0)),
            Scaling::Standard => self.mean_and_deviation(column),
            Scaling::Robust => {
                let [lower, median, upper] = self.quartiles(column)?;
                let spread = upper - lower;
                if spread > SPREAD_MIN {
                    return Ok((median, spread));
                }
                // Half of the values are equal. The deviation is summed in the order in which the
                // selection leaves them, so that the column must be held: 8 bytes a row.
                let mut values = Vec::with_capacity(self.rows());
                self.for_each(column, |piece| values.extend(piece.iter().copied().map(f64::from)))?;
                Ok(median_and_spread(&mut values))
            }
        }
    }

    fn mean_and_deviation(&self, column: usize) -> Result<(f64, f64)> {
        let (count, nothing) = (self.rows() as f64, std::iter::empty::<f64>().sum::<f64>());
        let mut sum = nothing;
        self.for_each(column, |values| sum = values.iter().fold(sum, |sum, &value| sum + f64::from(value)))?;
        let mean = sum / count;
        let mut squares = nothing;
        self.for_each(column, |values| {
            squares = values.iter().fold(squares, |sum, &value| sum + (f64::from(value) - mean).powi(2));
        })?;
        Ok((mean, (squares / count).sqrt()))
    }

    /// Lower quartile, median and upper quartile, interpolated linearly.
    fn quartiles(&self, column: usize) -> Result<[f64; 3]> {
        let last = self.rows() - 1;
        let positions = [0.25, 0.5, 0.75].map(|part| part * last as f64);
        let mut ranks: Vec<usize> =
            positions.iter().flat_map(|&position| [position as usize, (position as usize + 1).min(last)]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let values = match self.rows() <= self.sorted_rows_max {
            true => self.ranked_by_sorting(column, &ranks)?,
            false => self.ranked_by_counting(column, &ranks)?,
        };
        let ranked = |rank: usize| values[ranks.binary_search(&rank).expect("a rank that was asked for")];
        Ok(positions.map(|position| {
            let (lower, upper) = (ranked(position as usize), ranked((position as usize + 1).min(last)));
            lower + (upper - lower) * position.fract()
        }))
    }

    /// The values at ranks.
    fn ranked_by_sorting(&self, column: usize, ranks: &[usize]) -> Result<Vec<f64>> {
        let mut keys = Vec::with_capacity(self.rows());
        self.for_each(column, |values| keys.extend(values.iter().map(|&value| key(value))))?;
        keys.sort_unstable();
        Ok(ranks.iter().map(|&rank| f64::from(from_key(keys[rank]))).collect())
    }

    /// The values at increasing ranks.
    fn ranked_by_counting(&self, column: usize, ranks: &[usize]) -> Result<Vec<f64>> {
        let mut upper = vec![0_u64; 1 << 16];
        self.for_each(column, |values| values.iter().for_each(|&value| upper[(key(value) >> 16) as usize] += 1))?;
        // The bucket of each rank, and the rank within it.
        let within: Vec<(usize, u64)> = ranks.iter().map(|&rank| place_of(&upper, rank as u64)).collect();
        let mut buckets: Vec<usize> = within.iter().map(|&(bucket, _)| bucket).collect();
        buckets.dedup();
        let mut lower = vec![vec![0_u64; 1 << 16]; buckets.len()];
        let mut slot = vec![u8::MAX; 1 << 16];
        buckets.iter().enumerate().for_each(|(place, &bucket)| slot[bucket] = place as u8);
        self.for_each(column, |values| {
            for &value in values {
                let key = key(value);
                if let Some(counts) = lower.get_mut(usize::from(slot[(key >> 16) as usize])) {
                    counts[(key & 0xffff) as usize] += 1;
                }
            }
        })?;
        let value = |&(bucket, rank): &(usize, u64)| {
            let (low, _) = place_of(&lower[usize::from(slot[bucket])], rank);
            f64::from(from_key((bucket << 16 | low) as u32))
        };
        Ok(within.iter().map(value).collect())
    }
}

/// The place of the element of rank `rank` among counted ones, and its rank at that place.
fn place_of(counts: &[u64], mut rank: u64) -> (usize, u64) {
    for (place, &count) in counts.iter().enumerate() {
        if rank < count {
            return (place, rank);
        }
        rank -= count;
    }
    panic!("a rank below the number of values")
}

/// Bits of a number in the order of [`f32::total_cmp`].
fn key(value: f32) -> u32 {
    let bits = value.to_bits();
    bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 }
}

fn from_key(key: u32) -> f32 {
    f32::from_bits(key ^ if key >> 31 == 1 { 1 << 31 } else { u32::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::scale::{mean_and_deviation, scale_rows};

    /// The scaler of all rows at once.
    fn whole(scaling: Scaling, features: &[Feature], rows: &[f32]) -> Scaler {
        let mut scaler = Scaler { center: Vec::new(), scale: Vec::new(), constant: Vec::new() };
        for (place, feature) in features.iter().enumerate() {
            let column = rows.iter().skip(place).step_by(features.len());
            let mut values: Vec<f64> = column.copied().map(f64::from).collect();
            let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let is_constant = is_constant_between(lowest, highest);
            scaler.constant.extend(is_constant.then(|| feature.clone()));
            let (center, scale) = match scaling {
                _ if feature.is_cyclic() => (0.0, 1.0),
                Scaling::None => (0.0, 1.0),
                Scaling::Standard => mean_and_deviation(&values),
                Scaling::Robust => median_and_spread(&mut values),
            };
            scaler.center.push(center);
            scaler.scale.push(if is_constant { 1.0 } else { scale });
        }
        scaler
    }

    /// The scaler of rows that come one by one.
    fn fit(scaling: Scaling, features: &[Feature], rows: &[f32]) -> Scaler {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ColumnsFile::create(folder.path(), features.len()).unwrap();
        rows.chunks_exact(features.len()).for_each(|row| file.push(row).unwrap());
        file.fit(scaling, features).unwrap()
    }

    const PAIR: [Feature; 2] = [Feature::Body, Feature::DaySin];

    #[test]
    fn known_scalers() {
        let rows = [1.0, 0.5, 2.0, 0.25, 3.0, 0.0, 4.0, 0.125, 100.0, 0.25];
        let cases =
            [(Scaling::Robust, 3.0, 2.0), (Scaling::Standard, 22.0, (1522.0f64).sqrt()), (Scaling::None, 0.0, 1.0)];
        for (scaling, center, scale) in cases {
            let scaler = fit(scaling, &PAIR, &rows);
            assert_eq!((scaler.center[0], scaler.center[1], scaler.scale[1]), (center, 0.0, 1.0), "{scaling}");
            assert!((scaler.scale[0] - scale).abs() < 1e-12, "{scaling}: {}", scaler.scale[0]);
            assert_eq!(scaler.constant, []);
            let mut scaled = rows;
            scale_rows(&mut scaled, &scaler.center, &scaler.scale);
            assert!((f64::from(scaled[8]) - (100.0 - center) / scale).abs() < 1e-5);
            assert_eq!(scaled[9], 0.25);
        }
    }

    #[test]
    fn a_constant_feature_keeps_its_size_and_is_named() {
        for scaling in [Scaling::Robust, Scaling::Standard, Scaling::None] {
            let scaler = fit(scaling, &PAIR, &[7.0, 1.0, 7.0, 1.0, 7.0, 1.0]);
            let center = if scaling == Scaling::None { 0.0 } else { 7.0 };
            assert_eq!((scaler.center[0], scaler.scale[0]), (center, 1.0), "{scaling}");
            assert_eq!(scaler.constant, PAIR);
        }
        let rounding = fit(Scaling::Robust, &PAIR[..1], &[1e-16, 0.0, -1e-16, 2e-16]);
        assert_eq!(rounding.constant, [Feature::Body]);
    }

    #[test]
    fn without_rows_nothing_is_scaled_and_nothing_is_constant() {
        let scaler = fit(Scaling::None, &PAIR, &[]);
        assert_eq!((scaler.center, scaler.scale, scaler.constant), (vec![0.0; 2], vec![1.0; 2], vec![]));
    }

    #[test]
    fn mostly_equal_values_are_scaled_by_their_deviation() {
        let scaler = fit(Scaling::Robust, &PAIR[..1], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0]);
        assert_eq!((scaler.center[0], scaler.constant.len()), (0.0, 0));
        assert!((scaler.scale[0] - 1.75f64.sqrt()).abs() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The scaler of all rows at once, bit for bit, however they come.
        #[test]
        fn agrees_with_all_rows_at_once(
            values in prop::collection::vec(prop_oneof![
                -5.0f32..5.0, Just(0.0f32), Just(-0.0f32), Just(1.5f32), -1e-13f32..1e-13, any::<f32>().prop_filter("finite", |x| x.is_finite()),
            ], 3..400),
            pieces in prop::collection::vec(1usize..50, 1..5), equal in any::<bool>(),
        ) {
            let features = [Feature::Body, Feature::DaySin, Feature::Range];
            let mut rows = values[..values.len() / 3 * 3].to_vec();
            if equal {
                // More than half of the values of a column, so that its quartiles are one.
                let count = rows.len() / 3;
                rows.chunks_exact_mut(3).take(count * 4 / 5).for_each(|row| row[0] = 0.25);
            }
            let folder = tempfile::tempdir().unwrap();
            let mut file = ColumnsFile::create(folder.path(), 3).unwrap();
            let (mut left, mut pieces) = (&rows[..], pieces.iter().cycle());
            while !left.is_empty() {
                let (piece, rest) = left.split_at(left.len().min(3 * pieces.next().unwrap()));
                file.push(piece).unwrap();
                left = rest;
            }
            let ways = [(Scaling::Robust, 0), (Scaling::Robust, usize::MAX), (Scaling::Standard, 0), (Scaling::None, 0)];
            for (scaling, sorted_rows_max) in ways {
                file.sorted_rows_max = sorted_rows_max;
                let (found, expected) = (file.fit(scaling, &features).unwrap(), whole(scaling, &features, &rows));
                let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&found.center), bits(&expected.center), "{}", scaling);
                prop_assert_eq!(bits(&found.scale), bits(&expected.scale), "{}", scaling);
                prop_assert_eq!(found.constant, expected.constant);
            }
        }
    }
}
