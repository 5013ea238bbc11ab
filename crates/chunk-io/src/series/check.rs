//! The rules of the series layout that concern indices and times. Writer and reader apply the same
//! ones.

use std::ops::Range;

use crate::error::LayoutFault;

/// The index arrays of one timeframe.
pub(super) struct TimeframeIndex<'a> {
    pub(super) name: &'a str,
    pub(super) steps: usize,
    /// Number of bars.
    pub(super) bars: usize,
    /// Close times of bars from `first_bar` on.
    pub(super) close_time: &'a [i64],
    pub(super) first_bar: usize,
    /// Last bars of the windows of samples from `first_sample` on.
    pub(super) sample_end: &'a [i64],
    pub(super) first_sample: usize,
    /// Empty where the file has no instruments.
    pub(super) instrument_start: &'a [i64],
    /// Empty where every instrument is one segment.
    pub(super) segment_start: &'a [i64],
}

/// Sample index that all timeframes share.
pub(super) struct SampleIndex<'a> {
    pub(super) time: &'a [i64],
    /// Empty where the file has no instruments.
    pub(super) instrument: &'a [i32],
    /// Number of instruments; `None` where the file has none.
    pub(super) instruments: Option<usize>,
}

/// Checks that every sample has an instrument. The first one has the number `first_sample`.
pub(super) fn check_samples(samples: &SampleIndex<'_>, first_sample: usize) -> Result<(), LayoutFault> {
    let Some(instruments) = samples.instruments else { return Ok(()) };
    let known = |&instrument: &i32| usize::try_from(instrument).is_ok_and(|instrument| instrument < instruments);
    let Some(n) = samples.instrument.iter().position(|instrument| !known(instrument)) else { return Ok(()) };
    Err(LayoutFault {
        object: "/samples/instrument".to_owned(),
        index: Some(first_sample + n),
        expected: format!("an instrument from 0 to {}", instruments.saturating_sub(1)),
        found: samples.instrument[n].to_string(),
        fix: "number the instruments in the order of /instruments".to_owned(),
    })
}

/// Checks one timeframe against the samples, after [`check_samples`].
pub(super) fn check_timeframe(timeframe: &TimeframeIndex<'_>, samples: &SampleIndex<'_>) -> Result<(), LayoutFault> {
    check_bars(timeframe, samples.instruments)?;
    check_piece(timeframe, samples)
}

/// Checks the bars whose close times are given, and the lists of instruments and segments.
pub(super) fn check_bars(timeframe: &TimeframeIndex<'_>, instruments: Option<usize>) -> Result<(), LayoutFault> {
    let spans = instrument_spans(timeframe, instruments)?;
    let given = timeframe.first_bar..timeframe.first_bar + timeframe.close_time.len();
    for span in &spans {
        let (start, end) = (span.start.max(given.start), span.end.min(given.end));
        check_close_times(timeframe, start..end.max(start))?;
    }
    check_segments(timeframe, &spans)
}

/// Checks the samples whose last bars are given, after [`check_samples`] and [`check_bars`].
pub(super) fn check_piece(timeframe: &TimeframeIndex<'_>, samples: &SampleIndex<'_>) -> Result<(), LayoutFault> {
    let close_time = |bar: usize| timeframe.close_time.get(bar - timeframe.first_bar).copied();
    check_piece_with(timeframe, samples, &close_time)
}

/// [`check_piece`] with `close_time` of each bar; the one after the last bar of a window may be
/// unknown.
pub(super) fn check_piece_with(
    timeframe: &TimeframeIndex<'_>,
    samples: &SampleIndex<'_>,
    close_time: &dyn Fn(usize) -> Option<i64>,
) -> Result<(), LayoutFault> {
    let spans = instrument_spans(timeframe, samples.instruments)?;
    for n in 0..samples.time.len() {
        let instrument = samples.instrument.get(n).map_or(Some(0), |&instrument| usize::try_from(instrument).ok());
        // A file that changes meanwhile may have others than were checked.
        let Some(span) = instrument.and_then(|instrument| spans.get(instrument)) else {
            return check_samples(samples, timeframe.first_sample);
        };
        let end = check_window(timeframe, n, span)?;
        let closed = close_time(end).expect("the last bar of a window is given");
        let next = Some(end + 1).filter(|next| span.contains(next)).and_then(close_time);
        check_closed(timeframe, n, samples.time[n], LastBar { end, closed, next })?;
    }
    Ok(())
}

/// Checks that the window of the `n`-th of the samples whose last bars are given lies within the
/// bars `span` of its instrument and within a segment. Returns its last bar.
pub(super) fn check_window(
    timeframe: &TimeframeIndex<'_>,
    n: usize,
    span: &Range<usize>,
) -> Result<usize, LayoutFault> {
    let end = timeframe.sample_end[n];
    let window_fits = |end: &usize| span.contains(end) && end - span.start + 1 >= timeframe.steps;
    let Some(bar) = usize::try_from(end).ok().filter(window_fits) else {
        return Err(LayoutFault {
            object: format!("/samples/end/{}", timeframe.name),
            index: Some(timeframe.first_sample + n),
            expected: format!(
                "the last bar of a window of {} bars within bars {}..{} of its instrument",
                timeframe.steps, span.start, span.end
            ),
            found: end.to_string(),
            fix: "drop samples that have no full window".to_owned(),
        });
    };
    check_window_in_segment(timeframe, n)?;
    Ok(bar)
}

/// Checks that close times of bars, which are given, increase within each instrument.
pub(super) fn check_given_close_times(timeframe: &TimeframeIndex<'_>) -> Result<(), LayoutFault> {
    let (first, end) = (timeframe.first_bar, timeframe.first_bar + timeframe.close_time.len());
    let inner = |&start: &i64| usize::try_from(start).ok().filter(|start| (first + 1..end).contains(start));
    let mut begin = first;
    for next in timeframe.instrument_start.iter().filter_map(inner).chain([end]) {
        check_close_times(timeframe, begin..next)?;
        begin = next;
    }
    Ok(())
}

/// Segments begin in order, and one begins with every instrument that has bars.
fn check_segments(timeframe: &TimeframeIndex<'_>, instruments: &[Range<usize>]) -> Result<(), LayoutFault> {
    let (starts, bars) = (timeframe.segment_start, timeframe.bars as i64);
    if starts.is_empty() {
        return Ok(());
    }
    let fault = |index, expected: String, found: String| LayoutFault {
        object: format!("/series/{}/segment_start", timeframe.name),
        index,
        expected,
        found,
        fix: "give the first bar of each segment, in order, those of the instruments among them".to_owned(),
    };
    for (i, &start) in starts.iter().enumerate() {
        let low = if i == 0 { 0 } else { starts[i - 1] + 1 };
        if start < low || start >= bars {
            return Err(fault(Some(i), format!("a bar from {low} to {}", bars - 1), start.to_string()));
        }
    }
    let begins = |instrument: &&Range<usize>| starts.binary_search(&(instrument.start as i64)).is_ok();
    match instruments.iter().filter(|instrument| !instrument.is_empty()).find(|instrument| !begins(instrument)) {
        None => Ok(()),
        Some(instrument) => {
            let expected = format!("an entry {}, where an instrument begins", instrument.start);
            Err(fault(None, expected, "none".to_owned()))
        }
    }
}

/// A window lies within one segment.
fn check_window_in_segment(timeframe: &TimeframeIndex<'_>, n: usize) -> Result<(), LayoutFault> {
    let end = timeframe.sample_end[n];
    let begun = timeframe.segment_start.partition_point(|&start| start <= end);
    let Some(start) = begun.checked_sub(1).map(|segment| timeframe.segment_start[segment]) else { return Ok(()) };
    let after = end + 1;
    if after - start >= timeframe.steps as i64 {
        return Ok(());
    }
    Err(LayoutFault {
        object: format!("/samples/end/{}", timeframe.name),
        index: Some(timeframe.first_sample + n),
        expected: format!(
            "the last bar of a window of {} bars within its segment, which begins with bar {start}",
            timeframe.steps
        ),
        found: end.to_string(),
        fix: "drop samples whose window crosses a hole between segments".to_owned(),
    })
}

/// The bars of each instrument.
pub(super) fn instrument_spans(
    timeframe: &TimeframeIndex<'_>,
    instruments: Option<usize>,
) -> Result<Vec<Range<usize>>, LayoutFault> {
    let bars = timeframe.bars;
    let Some(instruments) = instruments else { return Ok(std::iter::once(0..bars).collect()) };
    let starts = timeframe.instrument_start;
    let fault = |index, expected: String, found: String| LayoutFault {
        object: format!("/series/{}/instrument_start", timeframe.name),
        index,
        expected,
        found,
        fix: "give the first bar of each instrument and, last, the number of bars".to_owned(),
    };
    if starts.len() != instruments + 1 {
        return Err(fault(
            None,
            format!("{} entries for {instruments} instruments", instruments + 1),
            starts.len().to_string(),
        ));
    }
    for (i, &start) in starts.iter().enumerate() {
        let low = if i == 0 { 0 } else { starts[i - 1] };
        let high = if i == 0 { 0 } else { bars as i64 };
        let low = if i == instruments { high } else { low };
        if start < low || start > high {
            return Err(fault(Some(i), format!("a bar from {low} to {high}"), start.to_string()));
        }
    }
    Ok(starts.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect())
}

fn check_close_times(timeframe: &TimeframeIndex<'_>, span: Range<usize>) -> Result<(), LayoutFault> {
    let first = span.start;
    if span.is_empty() {
        return Ok(());
    }
    let times = &timeframe.close_time[first - timeframe.first_bar..span.end - timeframe.first_bar];
    let Some(i) = times.windows(2).position(|pair| pair[0] >= pair[1]) else { return Ok(()) };
    Err(LayoutFault {
        object: format!("/series/{}/close_time", timeframe.name),
        index: Some(first + i + 1),
        expected: format!("a time after {}, that of the bar before", times[i]),
        found: times[i + 1].to_string(),
        fix: "sort the bars by time and drop repeated ones".to_owned(),
    })
}

/// Last bar of a window.
struct LastBar {
    end: usize,
    closed: i64,
    /// When the next bar of the instrument closed; `None` if there is none, or if it is not
    /// written yet.
    next: Option<i64>,
}

/// A window must end with the last bar that had closed at the sample's time.
fn check_closed(
    timeframe: &TimeframeIndex<'_>,
    n: usize,
    time: i64,
    LastBar { end, closed, next }: LastBar,
) -> Result<(), LayoutFault> {
    let fault = |expected: String, found: String, fix: &str| LayoutFault {
        object: format!("/samples/end/{}", timeframe.name),
        index: Some(timeframe.first_sample + n),
        expected,
        found,
        fix: fix.to_owned(),
    };
    if closed > time {
        let found = format!("bar {end}, which closes at {closed}");
        return Err(fault(
            format!("a bar that had closed at the sample's time {time}"),
            found,
            "the sample sees the future; use the last closed bar",
        ));
    }
    if let Some(next) = next.filter(|&next| next <= time) {
        let found = format!("bar {end}, though bar {} had closed at {next}", end + 1);
        return Err(fault(
            format!("the last bar closed at the sample's time {time}"),
            found,
            "use the last closed bar",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [i64; 6] = [10, 20, 30, 11, 21, 31];

    fn check(end: i64, time: i64, starts: &[i64], instrument: &[i32]) -> String {
        let samples =
            SampleIndex { time: &[time], instrument, instruments: (!starts.is_empty()).then(|| starts.len() - 1) };
        let close_time = if starts.is_empty() { &TIMES[..3] } else { &TIMES[..] };
        let timeframe = TimeframeIndex {
            name: "M1",
            steps: 2,
            bars: close_time.len(),
            close_time,
            first_bar: 0,
            sample_end: &[end],
            first_sample: 0,
            instrument_start: starts,
            segment_start: &[],
        };
        let result = check_samples(&samples, 0).and_then(|()| check_timeframe(&timeframe, &samples));
        result.err().map_or("ok".to_owned(), |fault| fault.to_string())
    }

    #[test]
    fn a_window_ends_with_the_last_closed_bar_of_its_instrument() {
        let two = &[0, 3, 6][..];
        type Case<'a> = (i64, i64, &'a [i64], &'a [i32], &'a str);
        let cases: [Case<'_>; 14] = [
            (1, 20, &[], &[], "ok"),
            (1, 29, &[], &[], "ok"),
            (2, i64::MAX, &[], &[], "ok"),
            (
                1,
                30,
                &[],
                &[],
                "expected the last bar closed at the sample's time 30, found bar 1, though bar 2 had closed at 30",
            ),
            (
                1,
                19,
                &[],
                &[],
                "expected a bar that had closed at the sample's time 19, found bar 1, which closes at 20",
            ),
            (0, 10, &[], &[], "a window of 2 bars within bars 0..3"),
            (3, 40, &[], &[], "a window of 2 bars within bars 0..3"),
            (-1, 40, &[], &[], "found -1"),
            (i64::MIN, 40, &[], &[], "found -9223372036854775808"),
            (2, 31, two, &[0], "ok"),
            (5, 31, two, &[1], "ok"),
            (3, 11, two, &[1], "within bars 3..6 of its instrument, found 3"),
            (5, 31, two, &[2], "/samples/instrument[0]: expected an instrument from 0 to 1, found 2"),
            (5, 31, two, &[-1], "/samples/instrument[0]: expected an instrument from 0 to 1, found -1"),
        ];
        for (end, time, starts, instrument, expected) in cases {
            let found = check(end, time, starts, instrument);
            assert!(found.contains(expected), "end {end}, time {time}: {found}");
        }
    }

    #[test]
    fn instrument_starts_tile_the_bars() {
        let cases: [(&[i64], &str); 7] = [
            (&[0, 3, 6], "ok"),
            (&[0, 6], "within bars"),
            (&[1, 3, 6], "[0]: expected a bar from 0 to 0, found 1"),
            (&[0, 7, 6], "[1]: expected a bar from 0 to 6, found 7"),
            (&[0, -1, 6], "[1]: expected a bar from 0 to 6, found -1"),
            (&[0, 3, 5], "[2]: expected a bar from 6 to 6, found 5"),
            (&[0, 3, 9], "[2]: expected a bar from 6 to 6, found 9"),
        ];
        for (starts, expected) in cases {
            let found = check(if starts.len() == 2 { 9 } else { 5 }, 31, starts, &[(starts.len() as i32) - 2]);
            let joined = found.contains("close_time");
            assert!(found.contains(expected) || (starts.len() == 2 && joined), "{starts:?}: {found}");
        }
    }

    #[test]
    fn windows_stay_within_segments_that_begin_in_order() {
        let samples = SampleIndex { time: &[31], instrument: &[1], instruments: Some(2) };
        let cases: [(&[i64], i64, &str); 8] = [
            (&[0, 3], 5, "ok"),
            (&[0, 2, 3, 4], 5, "ok"),
            (&[0, 3, 5], 5, "a window of 2 bars within its segment, which begins with bar 5, found 5"),
            (&[3], 5, "an entry 0, where an instrument begins, found none"),
            (&[0, 2], 5, "an entry 3, where an instrument begins, found none"),
            (&[0, 3, 3], 5, "[2]: expected a bar from 4 to 5, found 3"),
            (&[-1, 3], 5, "[0]: expected a bar from 0 to 5, found -1"),
            (&[0, 3, 6], 5, "[2]: expected a bar from 4 to 5, found 6"),
        ];
        for (segment_start, end, expected) in cases {
            let timeframe = TimeframeIndex {
                name: "M1",
                steps: 2,
                bars: TIMES.len(),
                close_time: &TIMES,
                first_bar: 0,
                sample_end: &[end],
                first_sample: 0,
                instrument_start: &[0, 3, 6],
                segment_start,
            };
            let found = check_timeframe(&timeframe, &samples).err().map_or("ok".to_owned(), |fault| fault.to_string());
            assert!(found.contains(expected), "{segment_start:?}: {found}");
        }
    }

    #[test]
    fn close_times_increase_within_an_instrument() {
        for (times, expected) in [([1, 2, 3], None), ([1, 1, 3], Some(1)), ([1, 3, 2], Some(2))] {
            let timeframe = TimeframeIndex {
                name: "H1",
                steps: 1,
                bars: times.len(),
                close_time: &times,
                first_bar: 0,
                sample_end: &[],
                first_sample: 0,
                instrument_start: &[],
                segment_start: &[],
            };
            let samples = SampleIndex { time: &[], instrument: &[], instruments: None };
            let fault = check_timeframe(&timeframe, &samples).err();
            assert_eq!(fault.and_then(|fault| fault.index), expected);
        }
    }
}
