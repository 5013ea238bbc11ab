use crate::error::{Error, Result};

/// Unit of repetition in space: a parallelepiped, the unit cell of a crystal or the box of a
/// simulation with periodic boundaries in all three directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCell {
    vectors: [[f64; 3]; 3],
    /// Rows of the inverse: the product of a position with row k is its coordinate along vector k.
    inverse: [[f64; 3]; 3],
}

impl UnitCell {
    /// The cell of three edges, each a vector.
    ///
    /// # Errors
    /// [`Error::Option`] if they span no space, up to rounding.
    pub fn new(vectors: [[f64; 3]; 3]) -> Result<Self> {
        let [a, b, c] = vectors;
        let volume = dot(a, cross(b, c));
        let flat = 1e-6 * norm(a) * norm(b) * norm(c);
        if !(volume.is_finite() && volume.abs() > flat && flat > 0.0) {
            let found = format!("{vectors:?}");
            return Err(Error::Option { option: "cell", found, expected: "three edges that span space" });
        }
        let inverse = [cross(b, c), cross(c, a), cross(a, b)].map(|normal| normal.map(|x| x / volume));
        Ok(UnitCell { vectors, inverse })
    }

    /// The box with edges along the axes.
    ///
    /// # Errors
    /// As [`new`](Self::new), where one is 0.
    pub fn orthorhombic(x: f64, y: f64, z: f64) -> Result<Self> {
        UnitCell::new([[x, 0.0, 0.0], [0.0, y, 0.0], [0.0, 0.0, z]])
    }

    /// Its edges.
    pub fn vectors(&self) -> [[f64; 3]; 3] {
        self.vectors
    }

    /// Position in units of the edges.
    pub(crate) fn fractions(&self, place: [f64; 3]) -> [f64; 3] {
        self.inverse.map(|row| dot(row, place))
    }

    /// The distances between opposite faces.
    pub(crate) fn heights(&self) -> [f64; 3] {
        self.inverse.map(|row| 1.0 / norm(row))
    }

    /// The sum of the edges, each times its number in `times`.
    pub(crate) fn shift(&self, times: [i64; 3]) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = times.map(|times| times as f64);
        std::array::from_fn(|axis| i * a[axis] + j * b[axis] + k * c[axis])
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_and_shifts_are_inverse() {
        let cell = UnitCell::new([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [-0.5, 0.25, 4.0]]).unwrap();
        let fractions = cell.fractions(cell.shift([3, -2, 5]));
        for (found, expected) in fractions.into_iter().zip([3.0, -2.0, 5.0]) {
            assert!((found - expected).abs() < 1e-14, "{fractions:?}");
        }
        assert_eq!(UnitCell::orthorhombic(1.0, 2.0, 4.0).unwrap().heights(), [1.0, 2.0, 4.0]);
    }

    #[test]
    fn what_spans_no_space_is_no_cell() {
        let flat = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
        for vectors in [flat, [[0.0; 3]; 3], [[f64::NAN; 3]; 3], [[f64::INFINITY, 0.0, 0.0], flat[0], flat[1]]] {
            let error = UnitCell::new(vectors).unwrap_err().to_string();
            assert!(error.contains("expected three edges that span space"), "{error}");
        }
        assert!(UnitCell::orthorhombic(1.0, 0.0, 1.0).is_err());
    }
}
