//! The samples after the last one of a series, whose targets lie ahead.

use std::ops::Range;

use super::{Instruments, Series, SeriesColumn, SeriesFile, SeriesTimeframe};
use crate::error::Result;
use crate::text::AttributeValue;

/// The last sample of an instrument.
#[derive(Clone, Copy, Debug)]
struct LastSample {
    time: i64,
    sample: usize,
}

/// Bars of one timeframe from the last one that a sample's window has to the end of its segment.
#[derive(Debug)]
struct Tail {
    /// Row of the first.
    first: usize,
    /// Close time of each.
    close_times: Vec<i64>,
}

impl SeriesFile {
    /// The samples at the closes of the base timeframe after the last sample of each instrument, in
    /// the segment of that sample: what the model sees there is in the file, and the targets lie
    /// ahead. They are a series of their own, of the bars in their windows, with targets NaN.
    /// Instruments whose bars end more than `lag_ns` before the last sample of the file have no
    /// sample in it. `None` if none has.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows), and [`Error::Invalid`](crate::Error::Invalid) for rows
    /// that break a rule.
    pub fn latest(&self, lag_ns: i64) -> Result<Option<Series>> {
        let base = self.base_place()?;
        let last_samples = self.last_samples()?;
        let Some(last) = last_samples.iter().flatten().map(|last| last.time).max() else { return Ok(None) };
        let until = last.saturating_sub(lag_ns);
        let is_named = !self.instruments().is_empty();
        let mut latest = Series {
            timeframes: self.timeframes().iter().map(without_bars).collect(),
            instruments: is_named
                .then(|| Instruments { names: self.instruments().to_vec(), sample_instrument: Vec::new() }),
            attributes: self.attributes()?,
            ..Series::default()
        };
        for (instrument, last) in last_samples.iter().enumerate() {
            if is_named {
                latest.timeframes.iter_mut().for_each(|own| own.instrument_start.push(own.close_time.len() as i64));
            }
            let Some(last) = last else { continue };
            let tails = self.tails(instrument, last.sample)?;
            let times = &tails[base].close_times[1..];
            if times.last().is_none_or(|&time| time < until) {
                continue;
            }
            self.add_windows(&mut latest.timeframes, &tails, times)?;
            latest.sample_time.extend(times);
            if let Some(instruments) = &mut latest.instruments {
                instruments.sample_instrument.extend(times.iter().map(|_| instrument as i32));
            }
        }
        if is_named {
            latest.timeframes.iter_mut().for_each(|own| own.instrument_start.push(own.close_time.len() as i64));
        }
        latest.targets = vec![f32::NAN; latest.sample_time.len() * self.shape().horizons];
        Ok((!latest.sample_time.is_empty()).then_some(latest))
    }

    /// Place of the timeframe whose closes are the times of samples; the shortest if the file does
    /// not have its bars.
    fn base_place(&self) -> Result<usize> {
        let Some(AttributeValue::Text(base)) = self.attribute("base")? else { return Ok(0) };
        Ok(self.timeframes().iter().position(|timeframe| timeframe.name() == base).unwrap_or(0))
    }

    /// The last sample of each instrument.
    fn last_samples(&self) -> Result<Vec<Option<LastSample>>> {
        let mut last: Vec<Option<LastSample>> = vec![None; self.instruments().len().max(1)];
        self.scan_column(SeriesColumn::SampleTime, 0..self.shape().samples, |first, times| -> Result<()> {
            for (sample, &time) in (first..).zip(times) {
                let own = &mut last[self.instrument_of(sample).unwrap_or(0)];
                if own.is_none_or(|own| own.time <= time) {
                    *own = Some(LastSample { time, sample });
                }
            }
            Ok(())
        })?;
        Ok(last)
    }

    /// Bars of each timeframe from the last that the window of `sample` has.
    fn tails(&self, instrument: usize, sample: usize) -> Result<Vec<Tail>> {
        let tail = |place: usize| {
            let mut end = [0];
            self.read_column(SeriesColumn::SampleEnd(place), sample..sample + 1, &mut end)?;
            let first = end[0] as usize;
            let rows = first..self.segment_end(place, instrument, first);
            Ok(Tail { first, close_times: self.read_close_times_of(place, rows)? })
        };
        (0..self.timeframes().len()).map(tail).collect()
    }

    /// Row after the last of the segment that `bar` of `instrument` is in.
    fn segment_end(&self, place: usize, instrument: usize, bar: usize) -> usize {
        let timeframe = &self.timeframes()[place];
        let end = timeframe.instrument_starts().get(instrument + 1).map_or(self.bars(place), |&end| end as usize);
        let starts = timeframe.segment_starts();
        let next = starts.partition_point(|&start| start <= bar as i64);
        starts.get(next).map_or(end, |&start| end.min(start as usize))
    }

    fn read_close_times_of(&self, place: usize, rows: Range<usize>) -> Result<Vec<i64>> {
        let mut close_times = vec![0; rows.len()];
        self.read_column(SeriesColumn::CloseTime(place), rows, &mut close_times)?;
        Ok(close_times)
    }

    /// Adds the windows of samples at `times`, which are ascending, and their bars.
    fn add_windows(&self, timeframes: &mut [SeriesTimeframe], tails: &[Tail], times: &[i64]) -> Result<()> {
        for (place, (own, tail)) in timeframes.iter_mut().zip(tails).enumerate() {
            // The last bar that has closed, as the first of the tail has.
            let end = |&time: &i64| tail.first + tail.close_times.partition_point(|&close| close <= time) - 1;
            let ends: Vec<usize> = times.iter().map(end).collect();
            let rows = ends[0] + 1 - own.steps..ends[ends.len() - 1] + 1;
            let offset = own.close_time.len();
            own.sample_end.extend(ends.iter().map(|end| (offset + end - rows.start) as i64));
            if !self.timeframes()[place].segment_starts().is_empty() {
                own.segment_start.push(offset as i64);
            }
            own.close_time.extend(self.read_close_times_of(place, rows.clone())?);
            let (table, filled) = (self.timeframes()[place].values_table(), own.values.len());
            own.values.resize(filled + rows.len() * table.row_len(), 0.0);
            let read = table.read_f32_range(rows.clone(), &mut own.values[filled..]);
            read.map_err(|source| table.rows_failed(&[rows], source))?;
        }
        Ok(())
    }
}

fn without_bars(timeframe: &super::SeriesTimeframeFile) -> SeriesTimeframe {
    SeriesTimeframe {
        name: timeframe.name().to_owned(),
        steps: timeframe.steps(),
        feature_names: timeframe.feature_names().to_vec(),
        scaler: timeframe.scaler().cloned(),
        ..SeriesTimeframe::default()
    }
}
