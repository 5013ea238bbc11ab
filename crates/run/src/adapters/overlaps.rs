//! Samples of a later part that look back to before the end of an earlier part's labels, counted in
//! pieces where the file does not tell the spans of its samples.

use std::ops::Range;

use megabatch_chunk_io::{AttributeValue, SeriesColumn, SeriesFile, longest_bar_ns};
use megabatch_trainer::SampleRanges;

use crate::error::Result;

/// Samples whose spans are reckoned at once.
const PIECE: usize = 1 << 16;

/// Spans of the samples of a series whose index stays in the file, as
/// [`SampleSpans`](super::spans::SampleSpans) reckons them with the index in memory.
pub(super) struct ReckonedSpans<'a> {
    file: &'a SeriesFile,
    /// Bars of the shortest timeframe to the end of the farthest target.
    horizon: usize,
    /// The longest time that a bar of each timeframe covers, ns; 0 where the name tells no
    /// duration.
    durations_ns: Vec<i64>,
    /// True if times only order bars.
    is_ordinal: bool,
}

impl<'a> ReckonedSpans<'a> {
    /// The spans of the samples of `file`, whose targets reach `horizon` bars of its shortest
    /// timeframe ahead.
    ///
    /// # Errors
    /// Lists that cannot be read.
    pub(super) fn new(file: &'a SeriesFile, horizon: usize) -> Result<Self> {
        let is_ordinal = file.attribute("time_kind")? == Some(AttributeValue::from("ordinal"));
        let duration = |name: &str| longest_bar_ns(name).unwrap_or(0);
        let durations_ns = file.timeframes().iter().map(|timeframe| duration(timeframe.name())).collect();
        Ok(ReckonedSpans { file, horizon, durations_ns, is_ordinal })
    }

    /// Number of samples of `later` whose windows begin before the last label of `earlier` ends
    /// whose end is known.
    ///
    /// # Errors
    /// Lists that cannot be read.
    pub(super) fn count_overlaps(&self, earlier: &SampleRanges, later: &SampleRanges) -> Result<usize> {
        let mut last_label_ns = i64::MIN;
        for piece in earlier.runs().flat_map(pieces) {
            last_label_ns = self.label_ends(&piece)?.into_iter().flatten().fold(last_label_ns, i64::max);
        }
        let mut count = 0;
        for piece in later.runs().flat_map(pieces) {
            count += self.reaches(&piece)?.into_iter().filter(|&reach| reach < last_label_ns).count();
        }
        Ok(count)
    }

    /// When the labels of `samples` end, where that is known.
    fn label_ends(&self, samples: &Range<usize>) -> Result<Vec<Option<i64>>> {
        if self.file.has_column(SeriesColumn::LabelEndTime) {
            return Ok(self.column(SeriesColumn::LabelEndTime, samples)?.into_iter().map(Some).collect());
        }
        let starts = self.file.timeframes()[0].instrument_starts();
        let bars_end = |sample: usize| match self.file.instrument_of(sample) {
            Some(instrument) => starts[instrument + 1] as usize,
            None => self.file.bars(0),
        };
        let ends = self.column(SeriesColumn::SampleEnd(0), samples)?;
        let ahead = ends.iter().zip(samples.clone()).map(|(&end, sample)| {
            Some((end as usize).saturating_add(self.horizon)).filter(|&bar| bar < bars_end(sample))
        });
        let ahead: Vec<Option<usize>> = ahead.collect();
        let known: Vec<usize> = ahead.iter().flatten().copied().collect();
        let mut times = self.file.read_close_times(0, &known)?.into_iter();
        Ok(ahead.into_iter().map(|bar| bar.and_then(|_| times.next())).collect())
    }

    /// When the first bar in any window of `samples` opened, as far as that is known.
    fn reaches(&self, samples: &Range<usize>) -> Result<Vec<i64>> {
        if self.file.has_column(SeriesColumn::ReachTime) {
            return self.column(SeriesColumn::ReachTime, samples);
        }
        let mut reaches = vec![i64::MAX; samples.len()];
        for (k, timeframe) in self.file.timeframes().iter().enumerate() {
            let ends = self.column(SeriesColumn::SampleEnd(k), samples)?;
            let first_bars: Vec<usize> = ends.iter().map(|&end| end as usize + 1 - timeframe.steps()).collect();
            let opens = match self.is_ordinal {
                true => self.open_ordinals(k, samples, &first_bars)?,
                false => {
                    let closes = self.file.read_close_times(k, &first_bars)?;
                    closes.into_iter().map(|close| close - self.durations_ns[k]).collect()
                }
            };
            for (reach, open) in reaches.iter_mut().zip(opens) {
                *reach = (*reach).min(open);
            }
        }
        Ok(reaches)
    }

    /// As `SeriesSource::window_start_ordinals`, of windows that begin with `first_bars`.
    fn open_ordinals(&self, timeframe: usize, samples: &Range<usize>, first_bars: &[usize]) -> Result<Vec<i64>> {
        let starts = self.file.timeframes()[timeframe].instrument_starts();
        let instrument_start =
            |sample: usize| self.file.instrument_of(sample).map_or(0, |instrument| starts[instrument] as usize);
        let (closes, apart) = (self.file.read_close_times(timeframe, first_bars)?, self.file.ordinals_apart());
        let mut opens = vec![i64::MIN; first_bars.len()];
        // Places of windows, each with a bar that the sample which shows the window's first bar may
        // be the first to show, too.
        let mut left: Vec<(usize, usize)> = first_bars.iter().copied().enumerate().collect();
        loop {
            left.retain(|&(place, bar)| bar > instrument_start(samples.start + place));
            if left.is_empty() {
                return Ok(opens);
            }
            left.iter_mut().for_each(|(_, bar)| *bar -= 1);
            let bars: Vec<usize> = left.iter().map(|&(_, bar)| bar).collect();
            let mut closes_before = self.file.read_close_times(timeframe, &bars)?.into_iter();
            left.retain(|&(place, _)| {
                let close = closes_before.next().expect("a close for each bar");
                let is_shown_before = close <= (closes[place] - 1).div_euclid(apart) * apart;
                if is_shown_before {
                    opens[place] = close;
                }
                !is_shown_before
            });
        }
    }

    fn column(&self, column: SeriesColumn, samples: &Range<usize>) -> Result<Vec<i64>> {
        let mut found = vec![0; samples.len()];
        self.file.read_column(column, samples.clone(), &mut found)?;
        Ok(found)
    }
}

fn pieces(samples: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    samples.clone().step_by(PIECE).map(move |first| first..samples.end.min(first + PIECE))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use megabatch_chunk_io::{
        AttributeValue, Instruments, Series, SeriesTimeframe, Source, SourceOptions, Storage, WriteOptions,
        write_series,
    };
    use megabatch_gpu_core::Device;

    use super::ReckonedSpans;
    use crate::adapters::split::{remarks_on_purge, split_source};
    use crate::config::Config;

    const MINUTE_NS: i64 = 60_000_000_000;
    const BARS: i64 = 300;

    /// Two instruments that take turns in time, with windows of five bars and of two long ones.
    fn write(path: &Path, time_kind: Option<&str>) {
        let ends: Vec<i64> = (0..2 * (BARS - 20)).map(|n| n % 2 * BARS + n / 2 + 20).collect();
        let minute = |end: &i64| end % BARS + 1;
        let timeframe = |name: &str, minutes: i64, steps: usize| SeriesTimeframe {
            name: name.to_owned(),
            steps,
            feature_names: vec!["x".to_owned()],
            values: (0..2 * BARS / minutes).map(|bar| bar as f32).collect(),
            close_time: (0..2 * BARS / minutes).map(|bar| (bar % (BARS / minutes) + 1) * minutes * MINUTE_NS).collect(),
            sample_end: ends.iter().map(|end| end / BARS * (BARS / minutes) + minute(end) / minutes - 1).collect(),
            instrument_start: (0..3).map(|instrument| instrument * BARS / minutes).collect(),
            segment_start: Vec::new(),
            scaler: None,
        };
        let mut attributes: BTreeMap<String, AttributeValue> = [("horizon_bars".to_owned(), 4.into())].into();
        attributes.extend(time_kind.map(|kind| ("time_kind".to_owned(), AttributeValue::from(kind))));
        let series = Series {
            timeframes: vec![timeframe("M1", 1, 5), timeframe("M10", 10, 2)],
            sample_time: ends.iter().map(|end| minute(end) * MINUTE_NS).collect(),
            targets: vec![0.0; 4 * ends.len()],
            instruments: Some(Instruments {
                names: vec!["A".to_owned(), "B".to_owned()],
                sample_instrument: ends.iter().map(|end| (end / BARS) as i32).collect(),
            }),
            attributes,
            ..Series::default()
        };
        write_series(path, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
    }

    /// Windows of three bars of two instruments without times, as `convert` writes them; samples of
    /// the second are two bars apart. The bars of its first window, which all get ordinals beside
    /// that of the sample, were taken to have opened there.
    #[test]
    fn first_windows_without_times_may_reach_back_to_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        let timeframe = SeriesTimeframe {
            name: "M1".to_owned(),
            steps: 3,
            feature_names: vec!["x".to_owned()],
            values: (0..16).map(|bar| bar as f32).collect(),
            close_time: vec![2, 3, 4, 8, 12, 16, 20, 24, 32, 26, 27, 28, 35, 36, 39, 40],
            sample_end: vec![2, 3, 4, 5, 6, 7, 11, 8, 13, 15],
            instrument_start: vec![0, 9, 16],
            segment_start: Vec::new(),
            scaler: None,
        };
        let series = Series {
            timeframes: vec![timeframe],
            sample_time: (1..=10).map(|sample| 4 * sample).collect(),
            targets: vec![0.0; 10],
            instruments: Some(Instruments {
                names: vec!["A".to_owned(), "B".to_owned()],
                sample_instrument: vec![0, 0, 0, 0, 0, 0, 1, 0, 1, 1],
            }),
            attributes: [("time_kind".to_owned(), AttributeValue::from("ordinal"))].into(),
            ..Series::default()
        };
        write_series(&path, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
        let options = SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() };
        let source = Source::open_with(&path, &Device::cpu().scope("data"), options).unwrap();
        let series = source.series().unwrap();
        let unknown = i64::MIN;
        let expected = [unknown, unknown, unknown, 4, 8, 12, unknown, 16, unknown, 28];
        assert_eq!(ReckonedSpans::new(series.file(), 1).unwrap().reaches(&(0..10)).unwrap(), expected);
        series.file().load_index().unwrap();
        assert!(series.window_start_ordinals(0).eq(expected));
    }

    /// The first windows of an instrument that begins in the test of a fold left no training, and
    /// the error named the reach of all others.
    #[test]
    fn folds_without_times_name_the_first_windows_of_an_instrument() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        // Instrument and bar of each sample. The second instrument has bars from the 90th on.
        let ends: Vec<[usize; 2]> =
            (1..100_usize).flat_map(|bar| [[0, bar], [1, bar - bar.min(90)]]).filter(|&[_, bar]| bar > 0).collect();
        let sample_time: Vec<i64> = (1..=ends.len() as i64).map(|sample| 3 * sample).collect();
        let place = |&[instrument, bar]: &[usize; 2]| 100 * instrument + bar;
        let mut close_time = vec![0; 110];
        for (end, &time) in ends.iter().zip(&sample_time) {
            close_time[place(end)] = time;
            if end[1] == 1 {
                close_time[place(end) - 1] = time - 1;
            }
        }
        let series = Series {
            timeframes: vec![SeriesTimeframe {
                name: "M1".to_owned(),
                steps: 2,
                feature_names: vec!["x".to_owned()],
                values: vec![0.0; 110],
                close_time,
                sample_end: ends.iter().map(|end| place(end) as i64).collect(),
                instrument_start: vec![0, 100, 110],
                segment_start: Vec::new(),
                scaler: None,
            }],
            targets: vec![0.0; ends.len()],
            instruments: Some(Instruments {
                names: vec!["A".to_owned(), "B".to_owned()],
                sample_instrument: ends.iter().map(|end| end[0] as i32).collect(),
            }),
            sample_time,
            attributes: [
                ("horizon_bars".to_owned(), 1.into()),
                ("time_kind".to_owned(), AttributeValue::from("ordinal")),
            ]
            .into(),
            ..Series::default()
        };
        write_series(&path, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
        let source = Source::open_with(&path, &Device::cpu().scope("data"), SourceOptions::default()).unwrap();
        let split = |purge: &str| {
            let settings = ["data.split=[0.6,0.1,0.3]", "data.walk_forward=2", purge].map(str::to_owned);
            split_source(&source, &Config::load(None, &[], &settings).unwrap())
        };
        let error = split("data.purge=auto").unwrap_err().to_string();
        assert!(error.contains("the first windows of an instrument, some of which lie in a later part"), "{error}");
        assert!(error.contains("no samples are left for training"), "{error}");
        split("data.purge=0s").unwrap();
    }

    #[test]
    fn overlaps_that_a_duration_leaves_are_counted_without_the_index() {
        let folder = tempfile::tempdir().unwrap();
        for time_kind in [None, Some("ordinal")] {
            let path = folder.path().join(time_kind.unwrap_or("times"));
            write(&path, time_kind);
            let open = || {
                let options = SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() };
                Source::open_with(&path, &Device::cpu().scope("data"), options).unwrap()
            };
            let mut noted = 0;
            // Durations mean nothing to ordinals.
            let purges: &[&str] = if time_kind.is_some() { &["0s"] } else { &["0s", "2m", "19m", "34m"] };
            for purge in purges {
                let config = Config::load(None, &[], &[format!("data.purge={purge}")]).unwrap();
                let (in_file, in_memory) = (open(), open());
                in_memory.series().unwrap().file().load_index().unwrap();
                let split = split_source(&in_file, &config).unwrap();
                let notes = remarks_on_purge(&in_file, &config, &split).unwrap().notes;
                assert_eq!(notes, remarks_on_purge(&in_memory, &config, &split).unwrap().notes, "{purge}");
                assert!(!in_file.series().unwrap().file().has_index(), "{purge}");
                noted += notes.len();
            }
            assert_eq!(noted, purges.len().min(3), "34 minutes are enough");
        }
    }
}
