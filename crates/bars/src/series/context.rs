//! Bars of another instrument, whose features stand beside those of a series.

use crate::bar_source::{BarSource, partition_point, pieces_of};
use crate::bars::{Bar, Bars};
use crate::context_reach::ContextReach;
use crate::error::Result;
use crate::series::binning::Binning;
use crate::series::column_feature::ColumnRule;
use crate::series::feature::Feature;
use crate::series::feature_chunks::FeatureChunks;
use crate::series::spec::{SeriesSpec, Window};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;
use crate::time::zone::Zone;

/// Rule for the time from which bars of other instruments are known beside those of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextTiming {
    /// Timeframe of the bars beside which they stand. Days and weeks that are longer open no
    /// earlier than their own time.
    pub beside: Timeframe,
    /// Clock of days and weeks that state none: it is behind UTC.
    pub day_zone: Option<Zone>,
}

impl Default for ContextTiming {
    /// No day or week opens before its own time.
    fn default() -> Self {
        ContextTiming { beside: Timeframe::M1, day_zone: None }
    }
}

/// Closed bars of one timeframe, and their features.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextBars {
    /// The bars.
    pub bars: Bars,
    /// One entry a feature: its value at each bar, NaN during the longest warm-up.
    pub features: Vec<Vec<f64>>,
}

impl ContextBars {
    /// The last bar that had closed at each of `close_times`, which ascend.
    pub fn last_closed(&self, close_times: &[i64]) -> Vec<Option<usize>> {
        let mut closed = 0;
        let last = |&time: &i64| {
            while closed < self.bars.len() && self.bars.close_time(closed) <= time {
                closed += 1;
            }
            closed.checked_sub(1)
        };
        close_times.iter().map(last).collect()
    }
}

/// The features of a series that another instrument has too: computed ones that are neither of the
/// clock nor in pips, and the columns that it has.
pub fn shared_features(features: &[Feature], has_column: &dyn Fn(&str) -> bool) -> Vec<Feature> {
    let is_shared = |feature: &&Feature| match feature {
        Feature::Column(column) => has_column(column.column()),
        Feature::Function(_) | Feature::PipChange | Feature::SpreadPips => false,
        computed => !computed.is_cyclic(),
    };
    features.iter().filter(is_shared).cloned().collect()
}

/// Name of the feature that tells how long ago the last bar of another instrument closed, in bars.
pub const AGE_IN_CONTEXT: &str = "age";

/// Names of features behind that of their instrument: its own, or that of the column. A column has
/// its rule with it where the name would be there twice, or is [`AGE_IN_CONTEXT`].
pub fn names_in_context(features: &[Feature]) -> Vec<&str> {
    let short: Vec<&str> =
        features.iter().map(|feature| feature.as_column().map_or(feature.name(), |column| column.column())).collect();
    let is_once = |name: &str| name != AGE_IN_CONTEXT && short.iter().filter(|other| **other == name).count() == 1;
    let named = features.iter().zip(&short);
    named.map(|(feature, &short)| if is_once(short) { short } else { feature.name() }).collect()
}

/// The bars of `timeframe` that end by `until`, in nanoseconds since 1970 UTC, made of the bars
/// `base` on the clock `bins`, and their `features`. Base bars that are longer stay as they are. A
/// bar that lies in two bins, such as a day at New York's midnight in two months, is of the one in
/// which it closes. Columns among the features are the first columns of `base`; of its further ones
/// a bar has the last value. Holes end nothing: features go on across them.
///
/// # Errors
/// [`Error::NotAMultiple`](crate::Error::NotAMultiple).
///
/// # Panics
/// For features in pips, and for columns of functions.
pub fn context_bars(
    base: &Bars,
    features: &[Feature],
    timeframe: Timeframe,
    bins: &BinClock,
    until: i64,
) -> Result<ContextBars> {
    let timeframe = timeframe.max(base.timeframe);
    let spec = context_spec(features, timeframe);
    let mut rules = spec.column_rules();
    rules.resize(base.columns.len(), ColumnRule::Last);
    let base_ns = base.timeframe.duration_ns();
    let closed = partition_point(base, |open_time| open_time + base_ns <= until)?;
    let mut binning = Binning::new(timeframe, base.timeframe, bins, rules)?;
    let mut bars = binning.no_bars();
    bars.ensure_columns(base.columns.len());
    let mut bar = Bar::default();
    for index in 0..closed {
        base.copy_into(index, &mut bar);
        binning.push_by_close(&bar, |bin| bars.push(bin));
    }
    binning.close_by(until, |bin| bars.push(bin));
    let mut rows = Vec::new();
    let without_row = FeatureChunks::new(binning.no_bars(), &spec, 1.0).push(&bars, &mut rows);
    let column = |place: usize| {
        let values = rows.iter().skip(place).step_by(features.len()).map(|&value| f64::from(value));
        std::iter::repeat_n(f64::NAN, without_row).chain(values).collect()
    };
    Ok(ContextBars { features: (0..features.len()).map(column).collect(), bars })
}

fn context_spec(features: &[Feature], timeframe: Timeframe) -> SeriesSpec {
    let windows = vec![Window { timeframe, seq_len: 1 }];
    SeriesSpec { windows, features: features.to_vec(), ..SeriesSpec::default() }
}

/// Place among `open_times`, those of bars `base` of another instrument, of the first bar that its
/// `features` read beside a bar of `timeframe` which closes at `close_time`. They read the last bar
/// that [`context_bars`] has closed by then, and those of the longest warm-up before it, as far as
/// there are.
///
/// # Errors
/// [`Error::NotAMultiple`](crate::Error::NotAMultiple).
pub fn context_start(
    base: Timeframe,
    open_times: &[i64],
    features: &[Feature],
    timeframe: Timeframe,
    bins: &BinClock,
    close_time: i64,
) -> Result<usize> {
    let timeframe = timeframe.max(base);
    let mut needed = context_spec(features, timeframe).look_back() + 1;
    let mut binning = Binning::new(timeframe, base, bins, Vec::new())?;
    let opened = open_times.partition_point(|&open_time| open_time < close_time);
    let mut last_end = None;
    for (place, &open_time) in open_times[..opened].iter().enumerate().rev() {
        let end = binning.closing_bin(open_time).end;
        if end > close_time || last_end == Some(end) {
            continue;
        }
        if needed == 0 {
            return Ok(place + 1);
        }
        (needed, last_end) = (needed - 1, Some(end));
    }
    Ok(0)
}

/// Reach of the `features` of another instrument, `symbol`, at the bars that [`context_bars`] makes
/// of bars `base` which open at `open_times`. They read the bars of the longest warm-up before
/// their own, from the first base bar of each on: one that lies in two bins opens before its bin.
///
/// # Errors
/// [`Error::NotAMultiple`](crate::Error::NotAMultiple).
pub fn context_reach(
    symbol: &str,
    base: Timeframe,
    open_times: &[i64],
    features: &[Feature],
    timeframe: Timeframe,
    bins: &BinClock,
) -> Result<ContextReach> {
    let timeframe = timeframe.max(base);
    let warm_up = context_spec(features, timeframe).look_back();
    let mut binning = Binning::new(timeframe, base, bins, Vec::new())?;
    let (mut close_times, mut first_opens) = (Vec::new(), Vec::new());
    for &open_time in open_times {
        let close_time = binning.closing_bin(open_time).end;
        if close_times.last() != Some(&close_time) {
            close_times.push(close_time);
            first_opens.push(open_time);
        }
    }
    Ok(ContextReach::new(symbol.to_owned(), close_times, first_opens).with_warm_up(warm_up))
}

/// Number of `bars` that close after the last bar of another instrument, `context`: 0 unless more
/// of them see that one than any before it, or see it for longer.
///
/// # Errors
/// As [`BarSource::read`].
pub fn bars_after_context(bars: &dyn BarSource, context: &Bars) -> Result<usize> {
    let (Some(last), Some(last_context)) = (bars.len().checked_sub(1), context.len().checked_sub(1)) else {
        return Ok(0);
    };
    let until = context.close_time(last_context);
    let mut piece = Bars::with_capacity(bars.timeframe(), 0);
    bars.read(last..bars.len(), &mut piece)?;
    if piece.close_time(0) <= until {
        return Ok(0);
    }
    let (mut closed, mut seen, mut age) = (0, 0, 0);
    let (mut most_seen, mut oldest, mut after) = (0, 0, 0);
    for range in pieces_of(0..bars.len()) {
        bars.read(range, &mut piece)?;
        for bar in 0..piece.len() {
            let close_time = piece.close_time(bar);
            while closed < context.len() && context.close_time(closed) <= close_time {
                closed += 1;
                seen = 0;
            }
            if closed == 0 {
                continue;
            }
            seen += 1;
            age = close_time - context.close_time(closed - 1);
            if close_time > until {
                after += 1;
            } else {
                most_seen = most_seen.max(seen);
                oldest = oldest.max(age);
            }
        }
    }
    Ok(if seen > most_seen || age > oldest { after } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::column_feature::ColumnFeature;
    use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};

    /// A bar a minute from minute 0 on, but for those of `missing`.
    fn minutes(count: i64, missing: &[i64]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for minute in (0..count).filter(|minute| !missing.contains(minute)) {
            let (open_time, price) = (minute * MINUTE_NS, 100.0 + minute as f64);
            let columns = Box::new([minute as f64, -price]);
            bars.push(Bar { open_time, open: price, high: price, low: price, close: price, columns, ..Bar::default() });
        }
        bars
    }

    /// Days from 1970-01-01 on that begin at 05:00 UTC.
    fn days_at_five(count: i64) -> Bars {
        let mut days = Bars::with_capacity(Timeframe::D1, 0);
        for day in 0..count {
            let (open_time, price) = (day * DAY_NS + 5 * HOUR_NS, 100.0 + day as f64);
            let bar = Bar { open_time, open: price, high: price, low: price, close: price, ..Bar::default() };
            days.push(Bar { volume: 1.0, ..bar });
        }
        days
    }

    /// Reach of `features` by bins in UTC.
    fn reach(bars: &Bars, features: &[Feature], timeframe: Timeframe) -> ContextReach {
        context_reach("X", bars.timeframe, &bars.open_time, features, timeframe, &BinClock::default()).unwrap()
    }

    #[test]
    fn names_tell_columns_apart() {
        let column = |name: &str, rule: ColumnRule| Feature::Column(ColumnFeature::new(name, rule));
        let [x, sum] = [ColumnRule::Last, ColumnRule::Sum].map(|rule| column("x", rule));
        let own = [x.clone(), Feature::Body, column("age", ColumnRule::Last)];
        assert_eq!(names_in_context(&own), ["x", "body", own[2].name()]);
        let features = [x, sum];
        assert_eq!(names_in_context(&features), [features[0].name(), features[1].name()]);
        assert_ne!(features[0].name(), features[1].name());
    }

    #[test]
    fn a_bin_is_there_once_it_has_ended() {
        let features = [Feature::Column(ColumnFeature::new("x", ColumnRule::Sum)), Feature::LogReturn];
        let seen = |bars: &Bars, until: i64| {
            context_bars(bars, &features, Timeframe::M5, &BinClock::default(), until * MINUTE_NS).unwrap()
        };
        // The last minute of the bin is missing: nothing comes into it once it has ended.
        for (until, bins) in [(4, 0), (5, 1), (9, 1), (10, 2), (12, 2)] {
            let found = seen(&minutes(12, &[4]), until);
            // NaN is equal to nothing.
            let alone = format!("{:?}", seen(&minutes(until, &[4]), until));
            assert_eq!((found.bars.len(), format!("{found:?}")), (bins, alone), "{until}");
        }
        let ContextBars { bars, features } = seen(&minutes(12, &[4]), 12);
        assert_eq!((&bars.close[..], &bars.columns[1][..]), (&[103.0, 109.0][..], &[-103.0, -109.0][..]));
        assert_eq!(features[0][1], 35.0);
        assert!(features.iter().all(|values| values[0].is_nan()));
        assert_eq!(features[1][1], f64::from((109.0f64 / 103.0).ln() as f32));
    }

    #[test]
    fn a_bar_is_looked_up_once_it_has_closed() {
        let context =
            context_bars(&minutes(12, &[]), &[Feature::Body], Timeframe::M5, &BinClock::default(), 12 * MINUTE_NS)
                .unwrap();
        let close_times = [4, 5, 9, 10, 12].map(|minute| minute * MINUTE_NS);
        assert_eq!(context.last_closed(&close_times), [None, Some(0), Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn features_begin_with_the_bars_of_their_warm_up() {
        let opens = minutes(22, &[]).open_time;
        let start = |feature: Feature, timeframe: Timeframe, close: i64| {
            let bins = BinClock::default();
            context_start(Timeframe::M1, &opens, &[feature], timeframe, &bins, close * MINUTE_NS).unwrap()
        };
        for (feature, close, place) in [
            (Feature::Body, 4, 0),
            (Feature::Body, 5, 0),
            (Feature::Body, 9, 0),
            (Feature::Body, 10, 5),
            (Feature::Body, 19, 10),
            (Feature::LogReturn, 10, 0),
            (Feature::LogReturn, 20, 10),
            (Feature::LogReturn, 99, 15),
            (Feature::LogReturn12, 22, 0),
        ] {
            assert_eq!(start(feature.clone(), Timeframe::M5, close), place, "{feature} {close}");
        }
        assert_eq!(start(Feature::LogReturn, Timeframe::M1, 20), 18);
    }

    /// The bars before those beside which another instrument stands were left out, and as many rows
    /// had no value as its features read.
    #[test]
    fn values_are_those_of_all_bars() {
        let (few, days) = (minutes(400, &[9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 25]), days_at_five(400));
        let features = [Feature::Body, Feature::LogReturn, Feature::LogReturn12];
        for (base, timeframe) in [
            (&few, Timeframe::M1),
            (&few, Timeframe::M5),
            (&few, Timeframe::M15),
            (&days, Timeframe::D1),
            (&days, Timeframe::W1),
            (&days, Timeframe::MN1),
        ] {
            let (bins, opens) = (BinClock::default(), &base.open_time);
            let all = context_bars(base, &features, timeframe, &bins, i64::MAX).unwrap();
            for bar in 12..all.bars.len() {
                let close_time = all.bars.close_time(bar);
                let start = context_start(base.timeframe, opens, &features, timeframe, &bins, close_time).unwrap();
                let part = base.part(start..base.len());
                let found = context_bars(&part, &features, timeframe, &bins, i64::MAX).unwrap();
                let place = found.last_closed(&[close_time])[0].unwrap();
                assert_eq!(place, 12, "{timeframe} {bar}");
                let row = |context: &ContextBars, place: usize| -> Vec<u64> {
                    context.features.iter().map(|values| values[place].to_bits()).collect()
                };
                assert_eq!(row(&found, place), row(&all, bar), "{timeframe} {bar}");
            }
        }
    }

    #[test]
    fn features_reach_over_their_warm_up() {
        // A return reads the bar before its own, a body none.
        for (feature, opens) in
            [(Feature::Body, [None, Some(0), Some(5)]), (Feature::LogReturn, [None, Some(0), Some(0)])]
        {
            let reach = reach(&minutes(12, &[]), &[feature], Timeframe::M5);
            let opens = opens.map(|minute: Option<i64>| minute.map(|minute| minute * MINUTE_NS));
            assert_eq!([4, 9, 10].map(|minute| reach.open_time(minute * MINUTE_NS)), opens);
        }
    }

    /// Its bins began as many as 19 hours after the day that was read.
    #[test]
    fn a_bar_that_lies_in_two_bins_is_reached_from_its_open_on() {
        let days = days_at_five(60);
        for (timeframe, closes, opens) in [
            // 1970-01-01 was a Thursday.
            (Timeframe::W1, [4, 11], [0, 3]),
            (Timeframe::MN1, [31, 59], [0, 30]),
        ] {
            let reach = reach(&days, &[Feature::Body], timeframe);
            let open_times = opens.map(|day| Some(day * DAY_NS + 5 * HOUR_NS));
            assert_eq!(closes.map(|day| reach.open_time(day * DAY_NS)), open_times, "{timeframe}");
        }
    }

    #[test]
    fn reach_has_the_bars_that_are_looked_up() {
        let (few, days) = (minutes(400, &[9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 25]), days_at_five(60));
        for (bars, timeframe) in [
            (&few, Timeframe::M1),
            (&few, Timeframe::M5),
            (&few, Timeframe::H1),
            (&days, Timeframe::D1),
            (&days, Timeframe::W1),
            (&days, Timeframe::MN1),
        ] {
            for clock in ["utc", "new-york+7"] {
                let clock: BinClock = clock.parse().unwrap();
                let made = context_bars(bars, &[Feature::Body], timeframe, &clock, i64::MAX).unwrap().bars;
                let reach =
                    context_reach("X", bars.timeframe, &bars.open_time, &[Feature::Body], timeframe, &clock).unwrap();
                let closes: Vec<i64> = (0..made.len()).map(|bar| made.close_time(bar)).collect();
                assert_eq!(reach.last_close_time(), closes.last().copied());
                for (bar, &close_time) in closes.iter().enumerate() {
                    let first = reach.open_time(close_time).unwrap();
                    assert!(bars.open_time.contains(&first) && first < close_time, "{timeframe} {bar}");
                    assert!(bar == 0 || first >= closes[bar - 1] - bars.timeframe.duration_ns(), "{timeframe} {bar}");
                    // It is another bar's a moment before.
                    assert_ne!(reach.open_time(close_time - 1), Some(first), "{timeframe} {bar}");
                }
            }
        }
    }

    /// Its last values were seen without a word.
    #[test]
    fn bars_after_the_end_of_another_instrument_are_counted() {
        let five = |count: i64| {
            let until = count * MINUTE_NS;
            context_bars(&minutes(count, &[]), &[], Timeframe::M5, &BinClock::default(), until).unwrap().bars
        };
        // Five bars see each of the other instrument; the next of its bars ends at minute 20.
        for (bars, after) in [(14, 0), (15, 0), (19, 0), (20, 5), (21, 6)] {
            assert_eq!(bars_after_context(&minutes(bars, &[]), &five(15)).unwrap(), after, "{bars}");
        }
        let all = minutes(60, &[]);
        for (bars, context, after) in [(&all, &all, 0), (&all, &minutes(59, &[]), 1), (&all, &minutes(0, &[]), 0)] {
            assert_eq!(bars_after_context(bars, context).unwrap(), after);
        }
        // A hole of two bars may come again, and no longer one.
        for (bars, after) in [(12, 0), (13, 3)] {
            assert_eq!(bars_after_context(&minutes(bars, &[]), &minutes(10, &[3, 4])).unwrap(), after, "{bars}");
        }
        // Few bars, but longer than ever.
        let few = minutes(40, &[10, 11, 12, 13, 14, 15, 16, 17, 18, 19]).part(0..11);
        assert_eq!(bars_after_context(&few, &minutes(10, &[3, 4])).unwrap(), 1);
    }

    /// Days at New York's midnights were refused beside windows of months.
    #[test]
    fn a_bar_that_lies_in_two_bins_is_of_the_one_in_which_it_closes() {
        let days = days_at_five(60);
        let months = |until: i64| {
            context_bars(&days, &[Feature::Body], Timeframe::MN1, &BinClock::default(), until).unwrap().bars
        };
        // From 1970-01-01 on: the day that begins on 31 January ends in February.
        let found = months(61 * DAY_NS);
        assert_eq!(found.open_time, [0, 31 * DAY_NS]);
        assert_eq!((&found.open[..], &found.close[..]), (&[100.0, 130.0][..], &[129.0, 157.0][..]));
        assert_eq!(found.volume, [30.0, 28.0]);
        for (until, bins) in [(31 * DAY_NS - 1, 0), (31 * DAY_NS, 1), (59 * DAY_NS - 1, 1), (59 * DAY_NS, 2)] {
            assert_eq!(months(until).close, &found.close[..bins], "{until}");
        }
    }

    #[test]
    fn longer_bars_stay_as_they_are() {
        let found =
            context_bars(&minutes(7, &[]), &[Feature::Body], Timeframe::M1, &BinClock::default(), 3 * MINUTE_NS)
                .unwrap();
        assert_eq!((found.bars, &found.features[0][..]), (minutes(3, &[]), &[0.0; 3][..]));
        let five = context_bars(&minutes(7, &[]), &[Feature::Body], Timeframe::M5, &BinClock::default(), 7 * MINUTE_NS)
            .unwrap()
            .bars;
        let again = context_bars(&five, &[Feature::Body], Timeframe::M1, &BinClock::default(), 7 * MINUTE_NS).unwrap();
        assert_eq!(again.bars, five);
    }
}
