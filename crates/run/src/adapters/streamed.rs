//! Series that stay in their file through the trainer's port.

use std::error::Error;
use std::ops::Range;

use megabatch_chunk_io::SeriesSource;
use megabatch_trainer::{StreamedSeries, Waits};

use super::samples::SourceSamples;

impl SourceSamples {
    fn in_file(&self) -> &SeriesSource {
        self.source().series().expect("what is streamed is a series")
    }
}

impl StreamedSeries for SourceSamples {
    fn bars(&self, k: usize) -> usize {
        self.in_file().file().bars(k)
    }

    fn segment_starts(&self, k: usize) -> &[i64] {
        &self.segment_starts[k]
    }

    fn read_window_ends(
        &self,
        k: usize,
        samples: &[usize],
        ends: &mut [i64],
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.in_file().read_sample_ends(k, samples, ends)?;
        Ok(())
    }

    fn read_bars(&self, k: usize, rows: &[Range<usize>], bars: &mut [f32]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.in_file().read_bars(k, rows, bars)?;
        Ok(())
    }

    fn read_times(&self) -> Waits {
        let cost = self.in_file().read_cost();
        Waits { disk: cost.disk, decode: cost.decode, copy: cost.copy, bytes_read: cost.bytes_read }
    }
}
