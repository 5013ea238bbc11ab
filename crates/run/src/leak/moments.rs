//! Samples that a proof looks at.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use megabatch_bars::{Segment, SeriesHeader};
use megabatch_chunk_io::{SeriesColumn, SeriesSource};

use crate::error::Result;
use crate::synth::random::Random;

/// The samples to prove, and why.
pub(super) struct Moments {
    /// Instrument, from 0, and number of the sample in the file.
    pub(super) samples: Vec<(usize, usize)>,
    pub(super) random: usize,
    /// When clocks were changed in the span of the samples.
    pub(super) changes: Vec<i64>,
}

impl Moments {
    /// Up to `count` samples at random, and those around changes of the clocks of `zones`.
    pub(super) fn choose(
        count: usize,
        seed: u64,
        file: &SeriesSource,
        header: &SeriesHeader,
        zones: &[TimeZone],
    ) -> Result<Self> {
        let mut random = Random::new(seed);
        let count = count.min(header.samples);
        let mut chosen = BTreeSet::new();
        while chosen.len() < count {
            chosen.insert((random.uniform() * header.samples as f64) as usize % header.samples);
        }
        let changes = changes(zones, header.instants.first, header.instants.last);
        for segment in &header.segments {
            let samples = &segment.samples;
            let (first, last) = (sample_time(file, samples.start)?, sample_time(file, samples.end - 1)?);
            for &change in changes.iter().filter(|&&change| first <= change && change <= last) {
                // The last sample before the change, the first after it, and the first after the
                // hour that is missing or came twice.
                let first_after = first_sample_from(file, segment, change)?;
                let around = [first_after.saturating_sub(1).max(samples.start), first_after];
                let after_the_hour = first_sample_from(file, segment, change + HOUR_NS)?;
                chosen.extend(around.into_iter().chain([after_the_hour]).filter(|n| samples.contains(n)));
            }
        }
        let segment_of = |n: usize| header.segments.partition_point(|segment| segment.samples.end <= n);
        let samples = chosen.into_iter().map(|n| (header.segments[segment_of(n)].instrument as usize, n)).collect();
        Ok(Moments { samples, random: count, changes })
    }
}

/// Time of a sample, ns since 1970 UTC.
pub(super) fn sample_time(file: &SeriesSource, sample: usize) -> Result<i64> {
    let mut time = [0];
    file.file().read_column(SeriesColumn::SampleTime, sample..sample + 1, &mut time)?;
    Ok(time[0])
}

/// The first sample of a segment that is not before `time`, or the end of its samples.
fn first_sample_from(file: &SeriesSource, segment: &Segment, time: i64) -> Result<usize> {
    let (mut first, mut end) = (segment.samples.start, segment.samples.end);
    while first < end {
        let middle = first + (end - first) / 2;
        if sample_time(file, middle)? < time { first = middle + 1 } else { end = middle }
    }
    Ok(first)
}

pub(super) const HOUR_NS: i64 = 3_600_000_000_000;

/// When the clocks of `zones` are changed from `first` to `last`, in order.
pub(super) fn changes(zones: &[TimeZone], first: i64, last: i64) -> Vec<i64> {
    let Ok(begin) = Timestamp::from_nanosecond(first.into()) else { return Vec::new() };
    let nanoseconds = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    let midnights = |zone: &TimeZone| -> Vec<i64> {
        let times = zone.following(begin).map(|transition| nanoseconds(transition.timestamp()));
        times.take_while(|&time| time <= last).collect()
    };
    let all: BTreeSet<i64> = zones.iter().flat_map(midnights).collect();
    all.into_iter().collect()
}
