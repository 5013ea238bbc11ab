#![forbid(unsafe_code)]

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
}
