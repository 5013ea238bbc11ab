//! Overlap of consecutive samples, which decides the default order.

use megabatch_chunk_io::{SampleBlock, SeriesColumn, SeriesSource, Shape, Source};

use super::data::Data;
use crate::error::Result;

/// Samples whose last bars are read at once.
const PIECE: usize = 1 << 16;

/// Pairs of windows that are read from a windows file.
const PAIRS: usize = 16;

/// Relation of units that follow one another. Visiting them together saves work if they share bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Their windows overlap.
    Overlap,
    /// Consecutive units share nothing. Files often have them sorted, by class or by instrument.
    Apart,
}

impl Neighbours {
    /// The relation of neighbours in `data`.
    ///
    /// # Errors
    /// Errors of reading a windows file.
    pub(crate) fn find(data: &Data) -> Result<Self> {
        match (data.source(), data) {
            (None, _) | (_, Data::Graphs(_)) => Ok(Neighbours::Apart),
            (Some(source), _) => match source.series() {
                Some(series) if overlap_in_pieces(series)? => Ok(Neighbours::Overlap),
                Some(series) => {
                    series.file().load_index()?;
                    Ok(in_series(series, source.sample_instruments()))
                }
                None => in_windows(source),
            },
        }
    }

    /// The reason for the order, as the plan has it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Neighbours::Overlap => "windows of neighbours overlap",
            Neighbours::Apart => "neighbours have nothing in common",
        }
    }

    fn by_share(overlapping: usize, pairs: usize) -> Self {
        // A file of one sample has no order to choose.
        if 2 * overlapping >= pairs { Neighbours::Overlap } else { Neighbours::Apart }
    }
}

/// True if half of the samples overlap with the sample before them in the shortest timeframe.
/// Samples of two instruments do not overlap.
fn overlap_in_pieces(series: &SeriesSource) -> Result<bool> {
    let (file, mut overlapping) = (series.file(), 0);
    if file.has_index() {
        return Ok(false);
    }
    let (samples, steps) = (file.shape().samples, file.shape().timeframes[0].steps);
    let mut previous: Option<(i64, Option<usize>)> = None;
    for first in (0..samples).step_by(PIECE) {
        let mut ends = vec![0; PIECE.min(samples - first)];
        file.read_column(SeriesColumn::SampleEnd(0), first..first + ends.len(), &mut ends)?;
        for (sample, end) in (first..).zip(ends) {
            let instrument = file.instrument_of(sample);
            let overlaps =
                previous.is_some_and(|(earlier, owner)| owner == instrument && end.abs_diff(earlier) < steps as u64);
            overlapping += usize::from(overlaps);
            previous = Some((end, instrument));
        }
        if 2 * overlapping >= samples {
            return Ok(true);
        }
    }
    Ok(false)
}

/// By the last bars of windows: each sample beside the one before it of the same instrument.
fn in_series(series: &SeriesSource, instruments: Option<&[i32]>) -> Neighbours {
    let timeframes = series.file().timeframes();
    let shape = series.file().shape();
    let mut previous = std::collections::BTreeMap::new();
    let (mut overlapping, mut pairs) = (0, 0);
    for sample in 0..shape.samples {
        let instrument = instruments.map_or(0, |instruments| instruments[sample]);
        let Some(earlier) = previous.insert(instrument, sample) else { continue };
        pairs += 1;
        let overlaps = timeframes.iter().zip(&shape.timeframes).any(|(timeframe, shape)| {
            let ends = timeframe.sample_ends();
            ends[sample].abs_diff(ends[earlier]) < shape.steps as u64
        });
        overlapping += usize::from(overlaps);
    }
    Neighbours::by_share(overlapping, pairs)
}

/// By the rows of windows, compared bit for bit at some places of the file.
fn in_windows(source: &Source) -> Result<Neighbours> {
    let shape = source.shape();
    let pairs = PAIRS.min(shape.samples.saturating_sub(1));
    let mut overlapping = 0;
    for pair in 0..pairs {
        let first = (shape.samples - 2) * pair / pairs.saturating_sub(1).max(1);
        let mut read = SampleBlock::zeros(shape, 2);
        // Samples that the split leaves out may have any numbers.
        source.gather_unchecked(&[first, first + 1], read.slices())?;
        overlapping += usize::from(overlap(shape, &read.features));
    }
    Ok(Neighbours::by_share(overlapping, pairs))
}

/// True if the second of two samples begins with the rows that the first one ends with, in some
/// timeframe.
fn overlap(shape: &Shape, features: &[Vec<f32>]) -> bool {
    shape.timeframes.iter().zip(features).any(|(timeframe, windows)| {
        let bits: Vec<u32> = windows.iter().map(|x| x.to_bits()).collect();
        let (earlier, later) = bits.split_at(bits.len() / 2);
        let mut shifts = (0..timeframe.steps).map(|shift| shift * timeframe.features);
        shifts.any(|moved| earlier[moved..] == later[..later.len() - moved])
    })
}

#[cfg(test)]
mod tests {
    use megabatch_chunk_io::TimeframeShape;

    use super::*;

    #[test]
    fn windows_overlap_that_share_rows_in_any_timeframe() {
        let timeframe = |steps| TimeframeShape { name: None, steps, features: 2 };
        let shape = Shape { samples: 2, timeframes: vec![timeframe(3), timeframe(2)], horizons: 1 };
        let apart = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0];
        let moved = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let [slow_apart, slow_same] =
            [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0]];
        assert!(overlap(&shape, &[moved, slow_apart.to_vec()]));
        assert!(overlap(&shape, &[apart.clone(), slow_same.to_vec()]));
        assert!(!overlap(&shape, &[apart, slow_apart.to_vec()]));
    }

    #[test]
    fn most_pairs_decide() {
        for (overlapping, pairs, expected) in
            [(0, 0, Neighbours::Overlap), (8, 16, Neighbours::Overlap), (7, 16, Neighbours::Apart)]
        {
            assert_eq!(Neighbours::by_share(overlapping, pairs), expected, "{overlapping} of {pairs}");
        }
    }
}
