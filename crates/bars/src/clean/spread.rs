//! The column of spreads that MetaTrader 5 and others write, in units of the price.
//!
//! MetaTrader 5 counts points: units of the last digit of the quote, 0.00001 where EURUSD has five
//! digits. So whole numbers are points, and the size of a point follows from the digits of the
//! file's prices. A column with fractions is in units of the price. A column that would make
//! trading cost half a percent is taken for something else.

use crate::error::Result;
use crate::parse::bar_file::BarFile;

/// Mean spread relative to the price above which the column is not believed.
const MEAN_SPREAD_MAX: f64 = 0.005;

/// Turns the spreads of a file into units of the price, or, with a warning, into none.
pub(crate) fn in_units_of_the_price(source: &mut BarFile) -> Result<Option<String>> {
    if source.format.columns.spread.is_none() || source.rows.iter().all(|row| row.spread == 0.0) {
        return Ok(None);
    }
    let are_points = source.rows.iter().all(|row| row.spread.fract() == 0.0);
    let per_unit = if are_points { source.digits.points_per_unit() } else { Some(1.0) };
    let relative: f64 = source.rows.iter().map(|row| row.spread / row.close).sum();
    let mean = relative / source.rows.len() as f64 / per_unit.unwrap_or(0.0);
    let believed = mean <= MEAN_SPREAD_MAX;
    source.rows.update(|row| row.spread = if believed { row.spread / per_unit.unwrap_or(1.0) } else { 0.0 })?;
    Ok((!believed).then(|| {
        let path = source.path.display();
        let why = match per_unit {
            None => "the prices have no quoted digits that would tell the size of a point".to_owned(),
            Some(_) => format!("they would be {:.1} % of the price on average", 100.0 * mean),
        };
        format!("the spreads of {path} are not used: {why}")
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::parse::options::ReadOptions;
    use crate::parse::symbol_rows::SymbolRows;
    use crate::place::ReadPlace;

    /// Reads rows of price and spread; the spreads that come out, and whether there is a warning.
    fn spreads(rows: &[(&str, &str)]) -> (Vec<f64>, bool) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "date,time,open,high,low,close,tickvol,vol,spread").unwrap();
        for (minute, (price, spread)) in rows.iter().enumerate() {
            writeln!(file, "2018.06.01,00:{minute:02},{price},{price},{price},{price},1,0,{spread}").unwrap();
        }
        let mut source =
            BarFile::read(file.path(), &ReadOptions::default(), &SymbolRows::default(), &ReadPlace::MEMORY).unwrap();
        let warning = in_units_of_the_price(&mut source).unwrap();
        (source.rows.iter().map(|row| row.spread).collect(), warning.is_some())
    }

    #[test]
    fn points_are_the_last_digit_of_the_file() {
        assert_eq!(spreads(&[("1.16879", "47"), ("1.1688", "0")]), (vec![0.000_47, 0.0], false));
        assert_eq!(spreads(&[("112.645", "3"), ("112.6", "12")]), (vec![0.003, 0.012], false));
        assert_eq!(spreads(&[("1.16879", "0.00012"), ("1.16879", "0")]), (vec![0.000_12, 0.0], false));
        assert_eq!(spreads(&[("1.16879", "0"), ("1.16879", "0")]), (vec![0.0; 2], false));
    }

    #[test]
    fn what_cannot_be_a_spread_is_not_used() {
        // Pips as fractions, points that would be a third of the price, and prices without digits.
        for rows in [[("1.16879", "1.2"), ("1.16879", "0.9")], [("1.2", "4"), ("1.2", "4")]] {
            assert_eq!(spreads(&rows), (vec![0.0; 2], true), "{rows:?}");
        }
        assert_eq!(spreads(&[("24.3613400435", "2"), ("24.3613400436", "2")]), (vec![0.0; 2], true));
    }
}
