use std::ops::Range;
use std::time::Instant;

use megabatch_gpu_core::{Buffer, Scope};

use super::series_stream::{CacheBounds, SeriesStream, SuitedChunks};
use crate::cost::ReadCost;
use crate::error::Result;
use crate::numeric_dataset::NumericDataset;
use crate::read::RowSelection;
use crate::series::{SeriesColumn, SeriesFile};
use crate::shape::SampleSlices;

/// Bytes of a table that are read at once where all of it is.
const SCAN_BYTES: usize = 4 << 20;

/// A series file with its bars and targets: in memory, or read through a cache.
#[derive(Debug)]
pub struct SeriesSource {
    file: SeriesFile,
    data: SeriesData,
    scope: Scope,
}

#[derive(Debug)]
enum SeriesData {
    Resident(ResidentSeries),
    Streamed(SeriesStream),
}

/// Bars and targets of a series in memory.
#[derive(Debug)]
pub struct ResidentSeries {
    /// One array `[bars, F]` a timeframe.
    values: Vec<Buffer<f32>>,
    /// `[N, K]`.
    targets: Buffer<f32>,
}

impl ResidentSeries {
    fn load(file: &SeriesFile, scope: &Scope) -> Result<Self> {
        let read = |table: &NumericDataset| table.read_f32_buffer(scope);
        let values = file.timeframes().iter().map(|timeframe| read(timeframe.values_table())).collect::<Result<_>>()?;
        Ok(ResidentSeries { values, targets: read(file.targets_table())? })
    }

    /// The scaled bars of a timeframe, `[bars, F]`, row-major.
    pub fn values(&self, timeframe: usize) -> &[f32] {
        self.values[timeframe].as_slice()
    }

    /// `[N, K]`, row-major.
    pub fn targets(&self) -> &[f32] {
        self.targets.as_slice()
    }
}

impl SeriesSource {
    /// The series of `file` with its bars and targets in memory booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Hdf5`](crate::Error::Hdf5) or [`Error::Memory`](crate::Error::Memory).
    pub fn load(file: SeriesFile, scope: &Scope) -> Result<Self> {
        let data = SeriesData::Resident(ResidentSeries::load(&file, scope)?);
        Ok(SeriesSource { file, data, scope: scope.clone() })
    }

    /// The series of `file`, whose bars and targets are read when they are asked for, through a
    /// cache of about `cache_bytes`, at least [`CacheBounds::bytes_min`]. Memory is taken by the
    /// first read.
    ///
    /// # Errors
    /// As [`Source::storage`](crate::Source::storage).
    pub fn stream(file: SeriesFile, cache_bytes: usize, scope: &Scope) -> Result<Self> {
        let data = SeriesData::Streamed(SeriesStream::new(&file, cache_bytes, &scope.child("cache"))?);
        Ok(SeriesSource { file, data, scope: scope.clone() })
    }

    /// The file, with its index arrays.
    pub fn file(&self) -> &SeriesFile {
        &self.file
    }

    /// Bars and targets, where they are in memory.
    pub fn resident(&self) -> Option<&ResidentSeries> {
        match &self.data {
            SeriesData::Resident(resident) => Some(resident),
            SeriesData::Streamed(_) => None,
        }
    }

    /// Bytes that bars and targets take in memory.
    pub fn table_bytes(&self) -> u64 {
        self.table_blocks().sum()
    }

    /// Bytes of bars by timeframe, then of the targets, in memory.
    fn table_blocks(&self) -> impl Iterator<Item = u64> {
        let len = |rows: usize, width: usize| (rows as u64).saturating_mul(width as u64 * size_of::<f32>() as u64);
        self.file.tables().map(move |table| len(table.rows(), table.row_len()))
    }

    /// Bytes of each block that [`SeriesSource::load_resident`] takes, in its order: the lists of
    /// the index where it is not there yet, then bars and targets.
    pub fn resident_blocks(&self) -> Vec<u64> {
        let index = if self.file.has_index() { Vec::new() } else { self.file.index_blocks() };
        index.into_iter().chain(self.table_blocks()).collect()
    }

    /// Sum of [`SeriesSource::resident_blocks`].
    pub fn resident_bytes(&self) -> u64 {
        self.resident_blocks().into_iter().sum()
    }

    /// Least and most bytes of a cache.
    ///
    /// # Errors
    /// As [`Source::storage`](crate::Source::storage).
    pub fn cache_bounds(&self) -> Result<CacheBounds> {
        SeriesStream::bounds(&self.file)
    }

    /// Bytes that `batches`, each a list of samples, read from the file through a cache of about
    /// `cache_bytes` in which the small datasets lie already, those of long timeframes among them.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows), and those of
    /// [`Source::storage`](crate::Source::storage).
    pub fn batch_bytes(&self, cache_bytes: usize, batches: &[Vec<usize>]) -> Result<u64> {
        let ranges = batches.iter().map(|samples| self.ranges_of(samples));
        let bytes = SeriesStream::batch_bytes(&self.file, cache_bytes, ranges)?;
        let samples: usize = batches.iter().map(Vec::len).sum();
        Ok(bytes + (samples * self.file.timeframes().len() * size_of::<i64>()) as u64)
    }

    /// Chunks of compressed bars and targets that suit `batches`, each a list of samples, better
    /// than those of the file, read through a cache of about `cache_bytes`; `None` where there are
    /// none.
    ///
    /// # Errors
    /// As [`SeriesSource::batch_bytes`].
    pub fn suited_chunks(&self, cache_bytes: usize, batches: &[Vec<usize>]) -> Result<Option<SuitedChunks>> {
        let ranges = batches.iter().map(|samples| self.ranges_of(samples)).collect::<Result<Vec<_>>>()?;
        SeriesStream::suited_chunks(&self.file, cache_bytes, &ranges)
    }

    /// Rows that a batch reads: of bars by timeframe, then of targets.
    fn ranges_of(&self, samples: &[usize]) -> Result<Vec<Vec<Range<usize>>>> {
        let timeframes = self.file.timeframes();
        let mut ranges = Vec::with_capacity(timeframes.len() + 1);
        let mut ends = vec![0; samples.len()];
        for (k, timeframe) in timeframes.iter().enumerate() {
            self.read_sample_ends(k, samples, &mut ends)?;
            let window = |&end: &i64| (end as usize + 1).saturating_sub(timeframe.steps())..end as usize + 1;
            ranges.push(ends.iter().map(window).collect::<Vec<Range<usize>>>());
        }
        ranges.push(RowSelection::List(samples).runs().collect());
        Ok(ranges)
    }

    /// Reads bars and targets into memory.
    ///
    /// # Errors
    /// As [`SeriesSource::load`].
    pub fn load_resident(&mut self) -> Result<()> {
        self.file.load_index()?;
        if self.resident().is_none() {
            self.data = SeriesData::Resident(ResidentSeries::load(&self.file, &self.scope)?);
        }
        Ok(())
    }

    /// Reads bars and targets through a new cache of about `cache_bytes` from now on, the memory of
    /// which is taken here.
    ///
    /// # Errors
    /// As [`SeriesSource::stream`], and [`Error::Memory`](crate::Error::Memory).
    pub fn set_cache(&mut self, cache_bytes: usize) -> Result<()> {
        let stream = SeriesStream::new(&self.file, cache_bytes, &self.scope.child("cache"))?;
        // What is held is given back before the memory of the new cache is taken.
        self.data = SeriesData::Streamed(stream);
        let SeriesData::Streamed(stream) = &self.data else { unreachable!("set above") };
        stream.reserve(&self.file)
    }

    /// Gives `each` all bars of a timeframe, or after the last timeframe all targets, in order,
    /// some rows at a time and past the cache.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows), and whatever `each` returns.
    ///
    /// # Panics
    /// If there are not so many timeframes.
    pub fn scan_table<E: From<crate::Error>>(
        &self,
        table: usize,
        mut each: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let SeriesData::Resident(resident) = &self.data {
            return each(resident.values.get(table).unwrap_or(&resident.targets).as_slice());
        }
        let table = self.table(table);
        let rows = table.part_rows(SCAN_BYTES)?;
        let mut part = Vec::new();
        for first in (0..table.rows()).step_by(rows) {
            let range = first..table.rows().min(first + rows);
            part.resize(range.len() * table.row_len(), 0.0);
            let read = table.read_f32_range(range.clone(), &mut part);
            read.map_err(|source| table.rows_failed(&[range], source))?;
            each(&part)?;
        }
        Ok(())
    }

    /// Copies bars of a timeframe to `out`, one range of rows after the other.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows) names the dataset and the rows that cannot be read.
    ///
    /// # Panics
    /// If a range passes the end, or `out` has another length than the rows.
    pub fn read_bars(&self, timeframe: usize, rows: &[Range<usize>], out: &mut [f32]) -> Result<ReadCost> {
        assert!(timeframe < self.file.timeframes().len(), "timeframe {timeframe}");
        self.read_table(timeframe, rows, out)
    }

    /// Copies the targets of the samples of `ranges` to `out`, `[.., K]`, one range after the
    /// other.
    ///
    /// # Errors
    /// As [`SeriesSource::read_bars`].
    ///
    /// # Panics
    /// As [`SeriesSource::read_bars`].
    pub fn read_targets(&self, samples: &[Range<usize>], out: &mut [f32]) -> Result<ReadCost> {
        self.read_table(self.file.timeframes().len(), samples, out)
    }

    /// Cost of all reads through the cache so far; nothing for a series in memory.
    pub fn read_cost(&self) -> ReadCost {
        match &self.data {
            SeriesData::Resident(_) => ReadCost::default(),
            SeriesData::Streamed(stream) => stream.cost(),
        }
    }

    /// Bars by timeframe, then the targets.
    fn table(&self, i: usize) -> &NumericDataset {
        self.file.tables().nth(i).expect("a table of each timeframe and one of targets")
    }

    /// Rows of a table: bars by timeframe, then the targets.
    fn read_table(&self, i: usize, ranges: &[Range<usize>], out: &mut [f32]) -> Result<ReadCost> {
        let table = self.table(i);
        let rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        assert_eq!(out.len(), rows * table.row_len(), "memory for exactly the rows");
        assert!(ranges.iter().all(|range| range.end <= table.rows()), "rows up to {}", table.rows());
        match &self.data {
            SeriesData::Streamed(stream) => stream.read(i, table, ranges, out),
            SeriesData::Resident(resident) => {
                let started = Instant::now();
                let values = resident.values.get(i).unwrap_or(&resident.targets).as_slice();
                let (width, mut out) = (table.row_len(), out);
                for range in ranges {
                    let (rows, rest) = out.split_at_mut(range.len() * width);
                    rows.copy_from_slice(&values[range.start * width..range.end * width]);
                    out = rest;
                }
                Ok(ReadCost { copy: started.elapsed(), ..ReadCost::default() })
            }
        }
    }

    /// Close time of the first bar of each sample's window, `[N]`, ns since 1970 UTC: nothing in
    /// the window is older than the bar that closed then. The index is in memory.
    pub fn window_start_times(&self, timeframe: usize) -> impl Iterator<Item = i64> + '_ {
        let timeframe = &self.file.timeframes()[timeframe];
        let (close_times, steps) = (timeframe.close_times(), timeframe.steps());
        timeframe.sample_ends().iter().map(move |&end| close_times[end as usize + 1 - steps])
    }

    /// Earliest opening of the first bar of each sample's window, `[N]`, where times only order
    /// bars: the close of the last bar that an earlier sample of the instrument shows. The smallest
    /// number for bars that the first one shows, which may have opened at any time. The index is in
    /// memory.
    pub fn window_start_ordinals(&self, timeframe: usize) -> impl Iterator<Item = i64> + '_ {
        let (timeframe, apart) = (&self.file.timeframes()[timeframe], self.file.ordinals_apart());
        let (close_times, steps) = (timeframe.close_times(), timeframe.steps());
        let instruments = self.file.sample_instruments();
        timeframe.sample_ends().iter().enumerate().map(move |(n, &end)| {
            let first = end as usize + 1 - steps;
            let instrument_start =
                instruments.map_or(0, |instruments| timeframe.instrument_starts()[instruments[n] as usize] as usize);
            let before = &close_times[instrument_start..first];
            let shown_before = (close_times[first] - 1).div_euclid(apart) * apart;
            let shown = before.partition_point(|&close| close <= shown_before);
            before[..shown].last().copied().unwrap_or(i64::MIN)
        })
    }

    /// Close time of the bar that lies `bars` bars of the shortest timeframe after each sample's
    /// last closed one, `[N]`, ns since 1970 UTC; `None` beyond its instrument's last bar. The
    /// index is in memory.
    pub fn close_times_ahead(&self, bars: usize) -> impl Iterator<Item = Option<i64>> + '_ {
        let base = &self.file.timeframes()[0];
        let instruments = self.file.sample_instruments();
        let all = base.close_times().len();
        base.sample_ends().iter().enumerate().map(move |(n, &end)| {
            let bars_end =
                instruments.map_or(all, |instruments| base.instrument_starts()[instruments[n] as usize + 1] as usize);
            base.close_times()[..bars_end].get((end as usize).saturating_add(bars)).copied()
        })
    }

    /// Last bar of the window of each of `samples` in a timeframe, written to `ends`, which is as
    /// long.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows).
    ///
    /// # Panics
    /// For a sample that the file does not have.
    pub fn read_sample_ends(&self, timeframe: usize, samples: &[usize], ends: &mut [i64]) -> Result<()> {
        let mut left = ends;
        for run in RowSelection::List(samples).runs() {
            let (ends, rest) = left.split_at_mut(run.len());
            self.file.read_column(SeriesColumn::SampleEnd(timeframe), run, ends)?;
            left = rest;
        }
        Ok(())
    }

    /// Copies samples into memory of the right size; each is a sample of the file.
    pub(super) fn gather(
        &self,
        samples: impl Iterator<Item = usize> + Clone,
        out: SampleSlices<'_>,
    ) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        for (timeframe, features) in out.features.into_iter().enumerate() {
            // The window of a sample is `steps` consecutive rows of the bars.
            let index = &self.file.timeframes()[timeframe];
            let list: Vec<usize> = samples.clone().collect();
            let mut ends = vec![0; list.len()];
            self.read_sample_ends(timeframe, &list, &mut ends)?;
            let window = |&end: &i64| end as usize + 1 - index.steps()..end as usize + 1;
            let windows: Vec<Range<usize>> = ends.iter().map(window).collect();
            cost += self.read_bars(timeframe, &windows, features)?;
        }
        let rows: Vec<Range<usize>> = samples.map(|sample| sample..sample + 1).collect();
        cost += self.read_targets(&rows, out.targets)?;
        Ok(cost)
    }
}
