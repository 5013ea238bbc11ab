//! The baseline of classes: their frequencies.

use megabatch_nn::loss::{Classes, Loss, is_known, is_labelled};

use crate::error::Result;

/// Classes counted by horizon.
#[derive(Clone, Debug)]
pub(super) struct ClassCounts {
    classes: Classes,
    counts: Vec<usize>, // [K, C]
}

impl ClassCounts {
    pub(super) fn new(classes: Classes, horizons: usize) -> Self {
        ClassCounts { classes, counts: vec![0; horizons * classes.count()] }
    }

    /// Counts the known classes of `targets` [.., K]; for nodes and graphs, only rows that are
    /// known as a whole.
    pub(super) fn add(&mut self, targets: &[f32], are_of_graphs: bool) -> Result<()> {
        Loss::Classes(self.classes).check_rows(targets, 1)?;
        let width = self.classes.count();
        for row in targets.chunks_exact(self.counts.len() / width).filter(|row| !are_of_graphs || is_labelled(row)) {
            for (&target, counts) in row.iter().zip(self.counts.chunks_exact_mut(width)).filter(|(y, _)| is_known(**y))
            {
                counts[self.classes.index(f64::from(target)).expect("targets were checked")] += 1;
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Outputs for the shares of the classes, [K, C]: their logarithms. Each count is one higher,
    /// so that no class has the probability 0.
    pub(super) fn outputs(&self) -> Vec<f32> {
        let width = self.classes.count();
        let log_shares = |counts: &[usize]| {
            let all = (counts.iter().sum::<usize>() + width) as f64;
            counts.iter().map(|&count| ((count + 1) as f64 / all).ln() as f32).collect::<Vec<_>>()
        };
        self.counts.chunks_exact(width).flat_map(log_shares).collect()
    }
}

/// Probabilities of K classes summed over the rows that are known.
#[derive(Clone, Debug)]
pub(super) struct ProbabilitySums {
    sums: Vec<f64>, // [K]
    rows: usize,
}

impl ProbabilitySums {
    pub(super) fn new(classes: usize) -> Self {
        ProbabilitySums { sums: vec![0.0; classes], rows: 0 }
    }

    /// Adds rows of targets [.., K].
    pub(super) fn add(&mut self, targets: &[f32]) -> Result<()> {
        Loss::CrossEntropy.check_rows(targets, self.sums.len())?;
        for row in targets.chunks_exact(self.sums.len()).filter(|row| is_labelled(row)) {
            self.rows += 1;
            self.sums.iter_mut().zip(row).for_each(|(sum, &p)| *sum += f64::from(p));
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// As [`ClassCounts::outputs`], [K].
    pub(super) fn outputs(&self) -> Vec<f32> {
        let all = (self.rows + self.sums.len()) as f64;
        self.sums.iter().map(|sum| ((sum + 1.0) / all).ln() as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_known_targets() {
        let nan = f32::NAN;
        let shares_with = |are_of_graphs| {
            let mut counts = ClassCounts::new(Classes::Labels(2), 2);
            assert!(counts.is_empty());
            counts.add(&[1.0, 0.0, 1.0, nan, 0.0, 0.0], are_of_graphs).unwrap();
            counts.outputs().iter().map(|y| y.exp()).collect::<Vec<_>>()
        };
        for (are_of_graphs, expected) in [(false, [0.4, 0.6, 0.75, 0.25]), (true, [0.5, 0.5, 0.75, 0.25])] {
            let shares = shares_with(are_of_graphs);
            assert!(shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{shares:?} for {expected:?}");
        }
        assert!(ClassCounts::new(Classes::Labels(2), 1).add(&[2.0], false).is_err());
    }
    #[test]
    fn shares_of_classes_are_means_of_their_probabilities() {
        let mut sums = ProbabilitySums::new(2);
        assert!(sums.is_empty());
        sums.add(&[1.0, 0.0, 0.5, 0.5, f32::NAN, 1.0]).unwrap();
        let shares: Vec<f32> = sums.outputs().iter().map(|y| y.exp()).collect();
        assert!((shares[0] - 0.625).abs() < 1e-6 && (shares[1] - 0.375).abs() < 1e-6, "{shares:?}");
        assert!(sums.add(&[0.5, 0.75]).is_err());
    }
}
