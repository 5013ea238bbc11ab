//! Rows of numbers that graphs are built over: features of nodes, or places in space.

use crate::error::{Error, Result};

/// Largest magnitude of a number whose square and sums stay finite.
const LARGEST: f64 = 1e100;

/// N rows of F finite numbers. A view.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    values: &'a [f64],
    width: usize,
}

impl<'a> Points<'a> {
    /// The rows of `values`, `[N, width]` row-major.
    ///
    /// # Errors
    /// [`Error::Data`] where the values are no whole rows, or one is not finite or above 10¹⁰⁰ in
    /// magnitude.
    pub fn new(values: &'a [f64], width: usize) -> Result<Self> {
        if width == 0 || !values.len().is_multiple_of(width) {
            let object = format!("{} numbers of points", values.len());
            return Err(Error::Data { object, expected: format!("rows of {width}, which is 1 or more") });
        }
        if let Some(at) = values.iter().position(|x| !x.is_finite() || x.abs() > LARGEST) {
            let object = format!("point {}, number {}, is {}", at / width, at % width, values[at]);
            return Err(Error::Data { object, expected: "a finite number up to 1e100 in magnitude".into() });
        }
        Ok(Points { values, width })
    }

    /// N.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// True if there are no points.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// F.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A row, `[F]`.
    ///
    /// # Panics
    /// If there is none such.
    pub fn row(&self, row: usize) -> &'a [f64] {
        &self.values[row * self.width..][..self.width]
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f64]> {
        self.values.chunks_exact(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_are_no_points_is_said() {
        let error = |values: &[f64], width| Points::new(values, width).unwrap_err().to_string();
        assert_eq!(error(&[0.0; 4], 3), "4 numbers of points: expected rows of 3, which is 1 or more");
        assert_eq!(error(&[], 0), "0 numbers of points: expected rows of 0, which is 1 or more");
        let expected = "point 1, number 0, is NaN: expected a finite number up to 1e100 in magnitude";
        assert_eq!(error(&[0.0, 1.0, f64::NAN, 2.0], 2), expected);
        assert!(Points::new(&[0.0, -1e101], 1).is_err());
        assert_eq!(Points::new(&[], 3).unwrap().len(), 0);
    }
}
