//! Number of digits that a file quotes, and the noise of binary fractions beyond them.
//!
//! A price that went through a float comes out as 1.1687900000000002 (double precision) or
//! 1.1687899827957153 (single). It is taken for what it was where it lies within the error of
//! single precision of a number of at most eight decimals and where such numbers lie far apart
//! beside that error, so that hardly any other price would.

use crate::parse::columns::BarColumns;
use crate::parse::fields::RowFields;
use crate::parse::row::{BarRow, NOISE_MAX};

/// Decimals that a quote may have: those of the smallest coins.
const DECIMALS_MAX: usize = 8;
/// How much wider than the noise the grid of quotes must be.
const GRID_TO_NOISE_MIN: f64 = 16.0;
const POWERS: [f64; DECIMALS_MAX + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];

/// Decimal digits of the prices of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digits {
    /// Most decimals of a price, without noise.
    decimals: usize,
    /// True if some price has noise.
    has_noise: bool,
    /// True if some price has more decimals than a quote, and they are no noise.
    is_exact: bool,
}

impl Digits {
    /// Takes the prices of a row into account.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, columns: &BarColumns) {
        for text in columns.prices().iter().filter_map(|&column| fields.get(column)) {
            let written = text.iter().position(|&byte| byte == b'.').map_or(0, |point| text.len() - point - 1);
            // A price is noisy or exact only where more is written than a quote has.
            let decimals = if written <= DECIMALS_MAX { Some(written) } else { self.denoised(text) };
            match decimals {
                Some(decimals) => self.decimals = self.decimals.max(decimals),
                None => self.is_exact = true,
            }
        }
    }

    fn denoised(&mut self, text: &[u8]) -> Option<usize> {
        self.has_noise = true;
        decimals_without_noise(std::str::from_utf8(text).ok()?.parse().ok()?)
    }

    /// Points in one unit of the price: 100,000 in a file of five digits. `None` where the prices
    /// do not end in quoted digits.
    pub(crate) fn points_per_unit(&self) -> Option<f64> {
        (!self.is_exact).then_some(POWERS[self.decimals])
    }

    /// True if there is noise that can be rounded off: in a file with exact prices of many digits
    /// it cannot be told.
    pub(crate) fn are_noisy(&self) -> bool {
        self.has_noise && !self.is_exact
    }

    /// Rounds the noise off the prices of a row; true if there was any.
    pub(crate) fn denoise(&self, row: &mut BarRow) -> bool {
        let points = POWERS[self.decimals];
        let mut rounded = row.clone();
        for price in [&mut rounded.open, &mut rounded.high, &mut rounded.low, &mut rounded.close] {
            let quote = (*price * points).round() / points;
            if (quote - *price).abs() <= NOISE_MAX * *price {
                *price = quote;
            }
        }
        // Where one price was just noise and its neighbour just not, they could pass each other.
        let changes = rounded != *row && rounded.check().is_ok();
        if changes {
            *row = rounded;
        }
        changes
    }
}

/// The fewest decimals with which the price is written but for noise.
fn decimals_without_noise(price: f64) -> Option<usize> {
    let wide_enough = |points: &&f64| 1.0 / **points >= GRID_TO_NOISE_MIN * NOISE_MAX * price;
    let fits = |points: &f64| ((price * points).round() / points - price).abs() <= NOISE_MAX * price;
    POWERS.iter().take_while(wide_enough).position(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::format::RowFormat;
    use crate::time::timestamp::RowTime;

    fn digits_of(prices: &[&str]) -> Digits {
        let format = RowFormat::detect(&[(1, b"2018-01-01 00:00,1,1,1,1".to_vec())], None, None).unwrap();
        let mut digits = Digits::default();
        for price in prices {
            let line = format!("2018-01-01 00:00,{price},1,1,1");
            digits.add(&RowFields::split(line.as_bytes(), b','), &format.columns);
        }
        digits
    }

    #[test]
    fn digits_are_those_of_the_longest_quote() {
        // Prices, points of a unit, whether they are noisy.
        let cases: [(&[&str], Option<f64>, bool); 8] = [
            (&["1.16879", "1.1688"], Some(1e5), false),
            (&["112.64", "112.645"], Some(1e3), false),
            (&["113788"], Some(1.0), false),
            (&["1.16879", "1.1687900000000002"], Some(1e5), true),
            (&["1.1687899827957153"], Some(1e5), true),
            (&["500.3479919433594"], Some(1e3), true),
            (&["113788.00000000001"], Some(1.0), true),
            (&["1.16879", "24.3613400435"], None, false),
        ];
        for (prices, points, noisy) in cases {
            let digits = digits_of(prices);
            assert_eq!((digits.points_per_unit(), digits.are_noisy()), (points, noisy), "{prices:?}");
        }
    }

    #[test]
    fn rounding_gives_the_quote_and_changes_no_other() {
        let digits = digits_of(&["1.16879", "1.1687900000000002"]);
        let mut row = BarRow::new(RowTime::Utc(0), 1.1687900000000002, 1.16881, 1.1, 1.1687899827957153, 1);
        assert!(digits.denoise(&mut row));
        assert_eq!([row.open, row.high, row.low, row.close], [1.16879, 1.16881, 1.1, 1.16879]);
        assert!(!digits.denoise(&mut row));
        let mut other = BarRow::new(RowTime::Utc(0), 1e-7, 1e308, 1e-7, 1.168_791_2, 1);
        assert!(!digits.denoise(&mut other));
    }

    /// Every price of five digits survives single precision.
    #[test]
    fn single_precision_is_undone() {
        for points in (100_000..200_000).step_by(37) {
            let price = f64::from(points) / 1e5;
            let noisy = f64::from(price as f32);
            let decimals = decimals_without_noise(noisy).unwrap();
            assert_eq!((noisy * POWERS[decimals]).round() / POWERS[decimals], price);
        }
    }
}
