//! Rules of the layout, held against bars and samples as they are written: those of an instrument
//! in order, of several instruments at once.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::check::{
    SampleIndex, TimeframeIndex, check_bars, check_given_close_times, check_piece, check_samples, instrument_spans,
};
use super::description::{BarRows, SeriesDescription, TimeframeDescription, WindowEnds};
use crate::error::LayoutFault;

/// Close times that are kept of bars before those written last: windows of new samples end there at
/// the earliest.
const KEPT_BARS: usize = 16;

/// Rows that came out of order: the wanted rows, and the possible ones.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    pub(super) asked: String,
    pub(super) found: String,
}

/// A rule that is broken, or rows that came out of order.
#[derive(Debug)]
pub(super) enum Refusal {
    Fault(LayoutFault),
    OutOfOrder(OutOfOrder),
}

impl From<LayoutFault> for Refusal {
    fn from(fault: LayoutFault) -> Self {
        Refusal::Fault(fault)
    }
}

/// Checks a series that is being written.
#[derive(Debug)]
pub(super) struct RuleChecker<'a> {
    timeframes: Vec<TimeframeChecker<'a>>,
    instruments: Option<usize>,
}

#[derive(Debug)]
struct TimeframeChecker<'a> {
    description: &'a TimeframeDescription,
    /// Bars of each instrument.
    spans: Vec<Range<usize>>,
    progress: Vec<Mutex<InstrumentProgress>>,
}

/// Bars of one instrument so far.
#[derive(Debug)]
struct InstrumentProgress {
    /// Close times of the last bars.
    close_time: Vec<i64>,
    /// Place after the last bar.
    next: usize,
    /// Latest time of the samples whose windows end with the last bar.
    waiting: Option<i64>,
}

impl<'a> RuleChecker<'a> {
    /// Checks the lists of instruments and segments.
    pub(super) fn new(description: &'a SeriesDescription) -> Result<Self, LayoutFault> {
        let instruments = description.instruments.as_ref().map(Vec::len);
        let timeframes = description.timeframes.iter().map(|description| {
            let index = index_of(description, &[], 0);
            check_bars(&index, instruments)?;
            let spans = instrument_spans(&index, instruments)?;
            let begin = |span: &Range<usize>| {
                Mutex::new(InstrumentProgress { close_time: Vec::new(), next: span.start, waiting: None })
            };
            let progress = spans.iter().map(begin).collect();
            Ok(TimeframeChecker { description, spans, progress })
        });
        Ok(RuleChecker { timeframes: timeframes.collect::<Result<_, LayoutFault>>()?, instruments })
    }

    /// Takes the next bars of an instrument.
    pub(super) fn bars(&self, rows: &BarRows<'_>) -> Result<(), Refusal> {
        let timeframe = &self.timeframes[rows.timeframe];
        let Some(last) = rows.close_time.len().checked_sub(1).map(|last| rows.first + last) else { return Ok(()) };
        let instrument = timeframe.spans.partition_point(|span| span.end <= rows.first);
        let span = timeframe.spans.get(instrument).filter(|span| span.contains(&last)).cloned();
        let name = &timeframe.description.name;
        let asked = || format!("bars {} to {last} of {name}", rows.first);
        let Some(span) = span else {
            return Err(out_of_order(asked(), "they are not of one instrument".to_owned()));
        };
        let mut progress = lock(&timeframe.progress[instrument]);
        if rows.first != progress.next {
            return Err(out_of_order(
                asked(),
                format!("bar {} of {} to {} comes next", progress.next, span.start, span.end),
            ));
        }
        let before = progress.close_time.len().saturating_sub(KEPT_BARS);
        progress.close_time.drain(..before);
        let first_new = progress.close_time.len();
        progress.close_time.extend_from_slice(rows.close_time);
        progress.next = last + 1;
        let first_bar = progress.first_bar();
        check_given_close_times(&index_of(timeframe.description, &progress.close_time, first_bar))?;
        let next_close = progress.close_time[first_new];
        let Some(time) = progress.waiting.take().filter(|&time| next_close <= time) else { return Ok(()) };
        Err(Refusal::Fault(LayoutFault {
            object: format!("/samples/end/{name}"),
            index: None,
            expected: format!("the last bar closed at a sample's time {time}"),
            found: format!("bar {}, though bar {} had closed at {next_close}", rows.first - 1, rows.first),
            fix: "use the last closed bar".to_owned(),
        }))
    }

    /// Takes window ends of samples, whose bars came before.
    pub(super) fn ends(&self, rows: &WindowEnds<'_>) -> Result<(), Refusal> {
        let samples = SampleIndex { time: rows.time, instrument: rows.instrument, instruments: self.instruments };
        check_samples(&samples, rows.first)?;
        let mut start = 0;
        while start < rows.ends.len() {
            let instrument = rows.instrument.get(start).copied();
            let same =
                rows.instrument[start.min(rows.instrument.len())..].iter().take_while(|&&own| Some(own) == instrument);
            let end = if instrument.is_none() { rows.ends.len() } else { start + same.count() };
            self.ends_of_instrument(rows, start..end, instrument)?;
            start = end;
        }
        Ok(())
    }

    fn ends_of_instrument(
        &self,
        rows: &WindowEnds<'_>,
        part: Range<usize>,
        instrument: Option<i32>,
    ) -> Result<(), Refusal> {
        let timeframe = &self.timeframes[rows.timeframe];
        let place = instrument.map_or(0, |instrument| instrument as usize);
        let (progress, span) = (lock(&timeframe.progress[place]), &timeframe.spans[place]);
        let (mut progress, ends) = (progress, &rows.ends[part.clone()]);
        let is_in_span = |end: &&i64| usize::try_from(**end).is_ok_and(|end| span.contains(&end));
        let held = progress.first_bar() as i64..progress.next as i64;
        if let Some(end) = ends.iter().filter(is_in_span).find(|end| !held.contains(*end)) {
            let asked = format!("a window of {} that ends with bar {end}", timeframe.description.name);
            return Err(out_of_order(asked, format!("bars {} to {} were written last", held.start, held.end - 1)));
        }
        let index = TimeframeIndex {
            sample_end: ends,
            first_sample: rows.first + part.start,
            ..index_of(timeframe.description, &progress.close_time, progress.first_bar())
        };
        let times = &rows.time[part.clone()];
        let samples = SampleIndex {
            time: times,
            instrument: rows.instrument.get(part).unwrap_or_default(),
            instruments: self.instruments,
        };
        check_piece(&index, &samples)?;
        let last = progress.next as i64 - 1;
        let at_last = ends.iter().zip(times).filter(|&(&end, _)| end == last).map(|(_, &time)| time).max();
        progress.waiting = progress.waiting.max(at_last);
        // What was written last is large; of it, little is needed from here on.
        let before = progress.close_time.len().saturating_sub(KEPT_BARS);
        progress.close_time.drain(..before);
        progress.close_time.shrink_to_fit();
        Ok(())
    }
}

impl InstrumentProgress {
    /// Place of the first bar whose close time is kept.
    fn first_bar(&self) -> usize {
        self.next - self.close_time.len()
    }
}

fn out_of_order(asked: String, found: String) -> Refusal {
    Refusal::OutOfOrder(OutOfOrder { asked, found })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bars of a timeframe from `first_bar` on, without samples.
pub(super) fn index_of<'i>(
    description: &'i TimeframeDescription,
    close_time: &'i [i64],
    first_bar: usize,
) -> TimeframeIndex<'i> {
    TimeframeIndex {
        name: &description.name,
        steps: description.steps,
        bars: description.bars,
        close_time,
        first_bar,
        sample_end: &[],
        first_sample: 0,
        instrument_start: &description.instrument_start,
        segment_start: &description.segment_start,
    }
}
