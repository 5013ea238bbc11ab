use std::fmt;

/// Accuracy of numbers in place of others: of a tensor of weights, or of a model's results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// The largest error, in the unit of the numbers.
    pub max_error: f64,
    /// The root of the mean square error, in the unit of the numbers.
    pub rms_error: f64,
    /// Signal to quantisation noise in decibels: 10 · log₁₀ (Σ exact² / Σ error²); infinite without
    /// error.
    pub sqnr_db: f64,
}

impl Accuracy {
    /// Accuracy of `found` against `exact`.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn new(exact: &[f32], found: &[f32]) -> Self {
        assert_eq!(exact.len(), found.len(), "numbers, and what stands for them");
        let (mut max_error, mut signal, mut noise) = (0.0f64, 0.0, 0.0);
        for (&exact, &found) in exact.iter().zip(found) {
            let (exact, error) = (f64::from(exact), f64::from(found) - f64::from(exact));
            // Unlike `max`, this keeps a NaN.
            max_error = if error.abs() <= max_error { max_error } else { error.abs() };
            signal += exact * exact;
            noise += error * error;
        }
        let rms_error = (noise / exact.len().max(1) as f64).sqrt();
        let sqnr_db = if noise == 0.0 { f64::INFINITY } else { 10.0 * (signal / noise).log10() };
        Accuracy { max_error, rms_error, sqnr_db }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max error {:.3e}, rms error {:.3e}, SQNR {:.1} dB", self.max_error, self.rms_error, self.sqnr_db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_measured_against_the_signal() {
        let accuracy = Accuracy::new(&[3.0, 4.0, 0.0, 0.0], &[3.0, 4.5, 0.0, 0.0]);
        assert_eq!((accuracy.max_error, accuracy.rms_error, accuracy.sqnr_db), (0.5, 0.25, 20.0));
        assert_eq!(accuracy.to_string(), "max error 5.000e-1, rms error 2.500e-1, SQNR 20.0 dB");
        assert_eq!(Accuracy::new(&[], &[]).sqnr_db, f64::INFINITY);
        let broken = Accuracy::new(&[1.0, 1.0], &[f32::NAN, 1.5]);
        assert!(broken.max_error > 0.4 && broken.rms_error.is_nan() && broken.sqnr_db.is_nan());
    }
}
