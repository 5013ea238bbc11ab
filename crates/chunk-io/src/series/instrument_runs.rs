//! Instruments of consecutive samples.

/// Instruments of samples, as runs of consecutive samples of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InstrumentRuns {
    /// First sample of each run.
    starts: Vec<usize>,
    instruments: Vec<i32>,
}

impl InstrumentRuns {
    pub(super) fn push(&mut self, sample: usize, instrument: i32) {
        if self.instruments.last() != Some(&instrument) {
            self.starts.push(sample);
            self.instruments.push(instrument);
        }
    }

    /// Each run's first sample and instrument.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        self.starts.iter().copied().zip(self.instruments.iter().copied())
    }

    pub(super) fn instrument(&self, sample: usize) -> Option<i32> {
        let run = self.starts.partition_point(|&start| start <= sample).checked_sub(1)?;
        Some(self.instruments[run])
    }

    /// The first sample of an instrument after `instrument`, where the instruments come in order;
    /// `None` without one.
    pub(super) fn first_sample_after(&self, instrument: usize) -> Option<usize> {
        let run = self.instruments.partition_point(|&own| own as usize <= instrument);
        self.starts.get(run).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_instrument_may_lack_samples() {
        let mut runs = InstrumentRuns::default();
        assert_eq!(runs.first_sample_after(0), None);
        [0, 0, 1, 3, 3].into_iter().enumerate().for_each(|(sample, instrument)| runs.push(sample, instrument));
        assert_eq!(
            [0, 1, 2, 3].map(|instrument| runs.first_sample_after(instrument)),
            [Some(2), Some(3), Some(3), None]
        );
    }
}
