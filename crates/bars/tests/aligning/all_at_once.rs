//! The arrays of a series are those that plain code makes of all bars at once.
//!
//! Rows come from a [`SeriesStream`], bins from a search, the places of samples and the scalers
//! from loops over whole vectors.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use megabatch_bars::{
    Bar, BarrierUnit, Bars, BinClock, ColumnFeature, ColumnRule, Error, Feature, GapPolicy, Instrument, Result,
    SampleInstants, Scalers, Scaling, Segment, SeriesPiece, SeriesPlan, SeriesSpec, SeriesStream, StreamedInstrument,
    TargetKind, Timeframe, TimeframeScaler, TripleBarrier, Weekends, Window,
};
use proptest::prelude::*;

use crate::drawn::{MINUTE_NS, bits, part};
use crate::whole::{Resampled, WholeSeries, align_usable, broker_ahead_ns, go_on, instrument, resample_on};

const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;

/// One instrument, and all that its bars give.
struct PlainInstrument<'a> {
    name: &'a str,
    bars: &'a Bars,
    pip_size: f64,
    segments: Vec<PlainSegment>,
}

/// One segment of an instrument.
struct PlainSegment {
    bars: Range<usize>,
    timeframes: Vec<PlainTimeframe>,
    /// The base bars at which all windows are full.
    full: Vec<usize>,
    /// The base bars that have a sample.
    samples: Vec<usize>,
}

/// The bars of one timeframe in a segment.
struct PlainTimeframe {
    /// When each opens, those of the warm-up included.
    open_time: Vec<i64>,
    /// Rows of those after the warm-up, before they are scaled.
    rows: Vec<f32>,
    close_time: Vec<i64>,
}

impl PlainTimeframe {
    /// Number of bars, the warm-up included, that have closed at `time`.
    fn closed(&self, time: i64) -> usize {
        self.close_time.partition_point(|&close_time| close_time <= time)
    }
}

fn look_back(spec: &SeriesSpec) -> usize {
    spec.features.iter().map(Feature::warm_up).max().unwrap()
}

/// The windows, shortest timeframe first.
fn windows(spec: &SeriesSpec) -> Vec<Window> {
    let mut windows = spec.windows.clone();
    windows.sort_by_key(|window| window.timeframe);
    windows
}

/// Scalers that change nothing.
fn neutral_scalers(name: &str, spec: &SeriesSpec) -> Scalers {
    let width = spec.features.len();
    let timeframe = |window: &Window| TimeframeScaler {
        timeframe: window.timeframe,
        center: vec![0.0; width],
        scale: vec![1.0; width],
    };
    Scalers {
        kind: Scaling::None,
        fit_end_time: 0,
        instruments: vec![name.to_owned()],
        features: spec.features.clone(),
        timeframes: spec.windows.iter().map(timeframe).collect(),
    }
}

impl<'a> PlainInstrument<'a> {
    fn new(name: &'a str, bars: &'a Bars, pip_size: f64, spec: &SeriesSpec) -> Self {
        let stream_of = Instrument { name, base: bars.timeframe, pip_size };
        let mut stream = SeriesStream::new(stream_of, spec, &neutral_scalers(name, spec)).unwrap();
        let windows = windows(spec);
        let mut segments = Vec::new();
        for range in spec.holes.segments(bars) {
            let own = part(bars, range.clone());
            let timeframe = |window: &Window| {
                let ahead_ns = |time: i64| if spec.bins.is_utc() { 0 } else { broker_ahead_ns(time) };
                let Resampled { bars, close_time } = resample_on(&own, window.timeframe, &ahead_ns);
                PlainTimeframe { open_time: bars.open_time, rows: Vec::new(), close_time }
            };
            let mut segment = PlainSegment {
                bars: range.clone(),
                timeframes: windows.iter().map(timeframe).collect(),
                full: Vec::new(),
                samples: Vec::new(),
            };
            for k in range.clone() {
                let step = stream.push(&bars.bar(k)).unwrap();
                assert_eq!((step.begins_segment, step.close_time), (k == range.start, bars.close_time(k)));
                for (place, timeframe) in segment.timeframes.iter_mut().enumerate() {
                    timeframe.rows.extend_from_slice(stream.closed(place));
                }
                segment.full.extend(step.has_full_windows.then_some(k));
            }
            for timeframe in &segment.timeframes {
                let rows = timeframe.open_time.len().saturating_sub(look_back(spec));
                assert_eq!(timeframe.rows.len(), rows * spec.features.len());
            }
            segments.push(segment);
        }
        PlainInstrument { name, bars, pip_size, segments }
    }

    fn samples(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().flat_map(|segment| segment.samples.iter().copied())
    }

    fn sample_times(&self) -> impl Iterator<Item = i64> {
        self.samples().map(|bar| self.bars.close_time(bar))
    }

    /// Rows of a timeframe that have closed with the last base bar that closes before `time`.
    fn rows_to_fit(&self, timeframe: usize, time: i64, spec: &SeriesSpec) -> Vec<f32> {
        let known = (0..self.bars.len()).filter(|&k| self.bars.close_time(k) < time).count();
        let mut rows = Vec::new();
        for segment in self.segments.iter().filter(|segment| segment.bars.start < known) {
            let last = self.bars.close_time(known.min(segment.bars.end) - 1);
            let timeframe = &segment.timeframes[timeframe];
            let count = timeframe.closed(last).saturating_sub(look_back(spec));
            rows.extend_from_slice(&timeframe.rows[..count * spec.features.len()]);
        }
        rows
    }
}

/// Puts the samples: at every stride-th bar with full windows and a horizon or, for several
/// instruments, at the bars of every stride-th time from the first full windows of any on.
fn place_samples(all: &mut [PlainInstrument<'_>], spec: &SeriesSpec) {
    let grid: Option<Vec<i64>> = (all.len() > 1 && spec.stride > 1).then(|| {
        let full = all.iter().flat_map(|one| one.segments.iter().map(move |segment| (one, segment)));
        let first = full.filter_map(|(one, segment)| Some(one.bars.open_time[*segment.full.first()?])).min();
        let times = all.iter().flat_map(|one| one.bars.open_time.iter().copied());
        let mut times: Vec<i64> = times.filter(|&time| first.is_some_and(|first| first <= time)).collect();
        times.sort_unstable();
        times.dedup();
        times.into_iter().step_by(spec.stride).collect()
    });
    for one in all {
        for segment in &mut one.segments {
            let end = segment.bars.end;
            let with_horizon = segment.full.iter().copied().filter(|bar| bar + spec.horizon < end);
            segment.samples = match &grid {
                None => with_horizon.step_by(spec.stride).collect(),
                Some(grid) => {
                    with_horizon.filter(|&bar| grid.binary_search(&one.bars.open_time[bar]).is_ok()).collect()
                }
            };
        }
    }
}

/// One nanosecond after the last sample of the first fraction of samples or, if that is earlier, of
/// instants.
fn fit_end_time(all: &[PlainInstrument<'_>], fraction: f64) -> i64 {
    let mut times: Vec<i64> = all.iter().flat_map(PlainInstrument::sample_times).collect();
    times.sort_unstable();
    let last = |times: &[i64]| {
        let trained = ((times.len() as f64 * fraction) as usize).max(1);
        let next = times.get(trained).copied().unwrap_or(i64::MAX);
        times.iter().copied().filter(|&time| time < next).max().unwrap_or(times[0])
    };
    let by_samples = last(&times);
    times.dedup();
    by_samples.min(last(&times)) + 1
}

/// Names of the instruments without a sample or, if all have some, of those with less than a window
/// of rows to fit on.
fn lacking(all: &[PlainInstrument<'_>], spec: &SeriesSpec) -> Vec<String> {
    let names = |lacks: &dyn Fn(&PlainInstrument<'_>) -> bool| -> Vec<String> {
        all.iter().filter(|one| lacks(one)).map(|one| one.name.to_owned()).collect()
    };
    let without = names(&|one| one.samples().next().is_none());
    if !without.is_empty() || spec.scaling == Scaling::None {
        return without;
    }
    let end = fit_end_time(all, spec.train_fraction);
    names(&|one| {
        windows(spec)
            .iter()
            .enumerate()
            .any(|(k, window)| one.rows_to_fit(k, end, spec).len() < window.seq_len * spec.features.len())
    })
}

/// Centre and scale of a feature by sorting.
fn plain_scaler(scaling: Scaling, feature: &Feature, mut values: Vec<f64>) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 1.0);
    }
    values.sort_by(f64::total_cmp);
    let (lowest, highest) = (values[0], values[values.len() - 1]);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let quantile = |part: f64| {
        let position = part * (count - 1.0);
        let (lower, upper) = (values[position.floor() as usize], values[position.ceil() as usize]);
        lower + (upper - lower) * position.fract()
    };
    let (center, scale) = match scaling {
        _ if feature.is_cyclic() => (0.0, 1.0),
        Scaling::None => (0.0, 1.0),
        Scaling::Standard => (mean, deviation),
        Scaling::Robust if quantile(0.75) - quantile(0.25) > 1e-12 => (quantile(0.5), quantile(0.75) - quantile(0.25)),
        Scaling::Robust => (quantile(0.5), deviation),
    };
    let is_constant = highest - lowest <= f64::max(1e-12, f64::from(f32::EPSILON) * highest.abs());
    (center, if is_constant { 1.0 } else { scale })
}

fn require_scalers(found: &Scalers, all: &[PlainInstrument<'_>], spec: &SeriesSpec) {
    assert_eq!((found.kind, found.fit_end_time), (spec.scaling, fit_end_time(all, spec.train_fraction)));
    let width = spec.features.len();
    for (k, timeframe) in found.timeframes.iter().enumerate() {
        for (row, one) in all.iter().enumerate() {
            let rows = one.rows_to_fit(k, found.fit_end_time, spec);
            for (place, feature) in spec.features.iter().enumerate() {
                let values = rows.iter().skip(place).step_by(width).map(|&value| f64::from(value)).collect();
                let (center, scale) = plain_scaler(spec.scaling, feature, values);
                let found = [timeframe.center[row * width + place], timeframe.scale[row * width + place]];
                let is_close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * scale.max(expected.abs());
                assert!(
                    is_close(found[0], center) && is_close(found[1], scale),
                    "{feature}: {found:?} {center} {scale}"
                );
            }
        }
    }
}

/// Targets of one sample.
fn plain_targets(bars: &Bars, bar: usize, pip_size: f64, spec: &SeriesSpec) -> Vec<f32> {
    let close = &bars.close;
    let target = |k: usize| match &spec.target_kind {
        TargetKind::Cumulative => (close[bar + k] - close[bar]) / pip_size,
        TargetKind::Increment => (close[bar + k] - close[bar + k - 1]) / pip_size,
        TargetKind::LogReturn => (close[bar + k] / close[bar]).ln(),
        TargetKind::Columns(targets) => bars.columns[bars.columns.len() - targets.names.len() + k - 1][bar],
        other => panic!("{other} has a decision"),
    };
    (1..=spec.targets()).map(|k| target(k) as f32).collect()
}

/// Class of a sample, and the bar that decides it.
fn plain_decision(
    one: &PlainInstrument<'_>,
    first: usize,
    bar: usize,
    horizon: usize,
    barrier: TripleBarrier,
) -> (f32, usize) {
    let bars = one.bars;
    let range = |k: usize| bars.high[k].max(bars.close[k - 1]) - bars.low[k].min(bars.close[k - 1]);
    let unit = match barrier.unit {
        BarrierUnit::Return => bars.close[bar],
        BarrierUnit::Pips => one.pip_size,
        BarrierUnit::Atr if bar < first + 14 => return (f32::NAN, bar + horizon),
        BarrierUnit::Atr => {
            let seed = (first + 1..=first + 14).map(range).sum::<f64>() / 14.0;
            (first + 15..=bar).map(range).fold(seed, |mean, range| mean + 1.0 / 14.0 * (range - mean))
        }
    };
    let (upper, lower) = (bars.close[bar] + barrier.up * unit, bars.close[bar] - barrier.down * unit);
    let up = (bar + 1..=bar + horizon).find(|&k| bars.high[k] >= upper);
    let down = (bar + 1..=bar + horizon).find(|&k| bars.low[k] <= lower);
    match (up, down) {
        (None, None) => (0.0, bar + horizon),
        (Some(up), down) if down.is_none_or(|down| up < down) => (1.0, up),
        (up, Some(down)) if up.is_none_or(|up| down < up) => (-1.0, down),
        (_, down) => {
            let bar = down.unwrap();
            let class = if bars.open[bar] >= upper { 1.0 } else { -1.0 };
            (if bars.open[bar] >= upper || bars.open[bar] <= lower { class } else { f32::NAN }, bar)
        }
    }
}

/// Compares the arrays of samples.
fn require_samples(series: &WholeSeries, all: &[PlainInstrument<'_>], spec: &SeriesSpec) {
    let (mut times, mut instruments, mut labels, mut targets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut starts, mut with_samples, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let mut weights = Vec::new();
    for (place, one) in all.iter().enumerate() {
        for segment in &one.segments {
            let first = times.len();
            let segment_open = one.bars.open_time[segment.bars.start];
            for &bar in &segment.samples {
                let time = one.bars.close_time(bar);
                times.push(time);
                instruments.push(place as i32);
                weights.extend(spec.weight.iter().map(|_| plain_weight(one.bars.close[bar])));
                if let TargetKind::TripleBarrier(barrier) = spec.target_kind {
                    let (class, end) = plain_decision(one, segment.bars.start, bar, spec.horizon, barrier);
                    labels.push(one.bars.close_time(end));
                    targets.push(class);
                } else {
                    labels.push(one.bars.close_time(bar + spec.horizon));
                    targets.extend(plain_targets(one.bars, bar, one.pip_size, spec));
                }
                let earliest = segment.timeframes.iter().zip(windows(spec)).map(|(timeframe, window)| {
                    timeframe.open_time[timeframe.closed(time) - window.seq_len - look_back(spec)]
                });
                starts.push(earliest.min().unwrap().max(segment_open));
            }
            let found = Segment {
                instrument: place as i32,
                bars: segment.bars.len(),
                open_time: segment_open,
                close_time: one.bars.close_time(segment.bars.end - 1),
                samples: first..times.len(),
            };
            if segment.samples.is_empty() { without.push(found) } else { with_samples.push(found) }
        }
    }
    assert_eq!(series.sample_time, times);
    assert_eq!(series.sample_instrument, instruments);
    assert_eq!(series.label_end_time, labels);
    assert_eq!(series.receptive_start, starts);
    assert_eq!(series.weight, weights);
    assert_eq!(bits(&series.targets), bits(&targets));
    assert_eq!((&series.header.segments, &series.header.excluded), (&with_samples, &without));
    assert_eq!(series.header.instants, instants(&times, &instruments, all.len()));
}

fn instants(times: &[i64], instruments: &[i32], count: usize) -> SampleInstants {
    let mut present: BTreeMap<i64, Vec<i32>> = BTreeMap::new();
    for (time, instrument) in times.iter().zip(instruments) {
        present.entry(*time).or_default().push(*instrument);
    }
    let mut alone = vec![0; count];
    present.values().filter(|present| present.len() == 1).for_each(|present| alone[present[0] as usize] += 1);
    let (first, last) = (*present.first_key_value().unwrap().0, *present.last_key_value().unwrap().0);
    SampleInstants { count: present.len(), first, last, alone }
}

/// Compares the arrays of one timeframe, scaled by the scalers that were found.
fn require_timeframe(series: &WholeSeries, k: usize, all: &[PlainInstrument<'_>], spec: &SeriesSpec) {
    let (scaler, width) = (&series.scalers().timeframes[k], spec.features.len());
    let (mut values, mut close_time, mut end) = (Vec::new(), Vec::new(), Vec::new());
    let (mut instrument_start, mut segment_start) = (Vec::new(), Vec::new());
    for (place, one) in all.iter().enumerate() {
        instrument_start.push(close_time.len() as i64);
        for segment in one.segments.iter().filter(|segment| !segment.samples.is_empty()) {
            let timeframe = &segment.timeframes[k];
            let first = close_time.len();
            segment_start.push(first as i64);
            for (index, &value) in timeframe.rows.iter().enumerate() {
                let column = place * width + index % width;
                values.push(((f64::from(value) - scaler.center[column]) / scaler.scale[column]) as f32);
            }
            close_time.extend(timeframe.close_time.iter().skip(look_back(spec)));
            let closed = segment.samples.iter().map(|&bar| timeframe.closed(one.bars.close_time(bar)));
            end.extend(closed.map(|closed| (first + closed - look_back(spec)) as i64 - 1));
        }
    }
    instrument_start.push(close_time.len() as i64);
    let (found, header) = (&series.timeframes[k], &series.header.timeframes[k]);
    assert_eq!((header.window, found.window), (windows(spec)[k], windows(spec)[k]));
    assert_eq!((&header.instrument_start, &header.segment_start), (&instrument_start, &segment_start));
    assert_eq!(bits(&found.values), bits(&values));
    assert_eq!((&found.close_time, &found.end), (&close_time, &end));
}

/// Compares the series of `all` with what plain code makes of them.
fn check(all: &[Bars], spec: &SeriesSpec) {
    let names: Vec<String> = (0..all.len()).map(|k| format!("I{k}")).collect();
    let pips = |k: usize| 1e-4 * (k + 1) as f64;
    let given: Vec<StreamedInstrument<'_>> =
        names.iter().zip(all).enumerate().map(|(k, (name, bars))| instrument(name, bars, pips(k))).collect();
    let found = align_usable(&given, spec);
    let each = names.iter().zip(all).enumerate();
    let mut plain: Vec<PlainInstrument<'_>> =
        each.map(|(k, (name, bars))| PlainInstrument::new(name, bars, pips(k), spec)).collect();
    let mut excluded: Vec<String> = Vec::new();
    loop {
        place_samples(&mut plain, spec);
        let lacking = lacking(&plain, spec);
        if lacking.is_empty() {
            break;
        }
        plain.retain(|one| !lacking.iter().any(|name| name == one.name));
        excluded.extend(lacking);
        if plain.is_empty() {
            let error = found.unwrap_err();
            assert!(
                matches!(error, Error::TooShort { .. } | Error::TooFewToFit { .. } | Error::Several { .. }),
                "{error}"
            );
            return;
        }
    }
    let (series, left_out) = found.unwrap();
    assert_eq!(left_out.iter().map(|one| one.symbol.clone()).collect::<Vec<_>>(), excluded);
    require_scalers(series.scalers(), &plain, spec);
    require_samples(&series, &plain, spec);
    (0..spec.windows.len()).for_each(|k| require_timeframe(&series, k, &plain, spec));
}

/// Minutes of one instrument that are missing before some of its bars.
type Gaps = Vec<(usize, i64)>;

fn bars(count: usize, begins: i64, gaps: &Gaps, seed: u32) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::M1, count);
    let (mut open_time, mut close, mut state) = (4 * DAY_NS + begins * MINUTE_NS, 1.2, seed);
    for k in 0..count {
        let missing: i64 = gaps.iter().filter(|(at, _)| *at == k).map(|(_, minutes)| minutes).sum();
        open_time += (1 + missing) * MINUTE_NS;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 16) / 65_536.0
        };
        let open = close + 1e-4 * (next() - 0.5);
        close = open + 1e-4 * (next() - 0.5);
        let (high, low) = (open.max(close) + 1e-5 * next(), open.min(close) - 1e-5 * next());
        // Most spreads are zero, so that their quartiles are one.
        let spread = if next() > 0.8 { 1e-5 * next() } else { 0.0 };
        let volume = (9.0 * next()).floor();
        bars.push(Bar { open_time, open, high, low, close, volume, spread, ..Bar::default() });
    }
    bars
}

/// Weight of a bar, by its close; none for some.
fn weight(close: f64) -> f64 {
    if close.to_bits().is_multiple_of(5) { f64::NAN } else { 1e3 * close.fract() }
}

/// Weight of a sample.
fn plain_weight(close: f64) -> f32 {
    let weight = weight(close);
    if weight.is_nan() { 0.0 } else { weight as f32 }
}

/// The bars with as many columns as the spec has. Some values of targets are not known.
fn with_columns(mut bars: Bars, spec: &SeriesSpec) -> Bars {
    let features = spec.columns().into_iter().map(|_| bars.close.iter().map(|close| close.fract()).collect());
    let known = |close: f64| if close.to_bits().is_multiple_of(7) { f64::NAN } else { 1e4 * (close - 1.2) };
    let targets = spec.target_kind.columns().iter().enumerate();
    let targets = targets.map(|(k, _)| bars.close.iter().map(|close| known(close + k as f64)).collect());
    let weights = spec.weight.iter().map(|_| bars.close.iter().map(|&close| weight(close)).collect());
    bars.columns = features.chain(weights).chain(targets).collect();
    bars
}

/// Targets that are columns, or classes.
fn own_targets(which: usize) -> TargetKind {
    let names = [
        "column:y0",
        "column:y0,column:y1",
        "triple_barrier:1.5:1:atr",
        "triple_barrier:1:2:pips",
        "triple_barrier:0.00004:0.00004:return",
    ];
    names[which].parse().unwrap()
}

fn spec(windows: &[(Timeframe, usize)], features: Vec<Feature>) -> SeriesSpec {
    SeriesSpec {
        windows: windows.iter().map(|&(timeframe, seq_len)| Window { timeframe, seq_len }).collect(),
        features,
        horizon: 3,
        ..SeriesSpec::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every array and index is that of all bars at once, bit for bit.
    #[test]
    fn agrees_with_all_bars_at_once(
        gaps in prop::collection::vec(prop::collection::vec((0usize..1500, prop_oneof![1i64..9, 100i64..140, 3000i64..3001]), 0..12), 1..5),
        counts in prop::collection::vec(prop_oneof![1usize..60, 400usize..1500], 5),
        begins in prop::collection::vec(prop_oneof![Just(0i64), 0i64..900], 5),
        features in prop::collection::vec(0..=Feature::ALL.len(), 1..6),
        stride in prop_oneof![Just(1usize), 1usize..40], horizon in 1usize..9, train_fraction in 0.01f64..=1.0,
        scaling in prop_oneof![Just(Scaling::Robust), Just(Scaling::Standard), Just(Scaling::None)],
        kind in 0usize..8, weekends in any::<bool>(), longest_hours in prop_oneof![Just(0i64), Just(2), Just(100)], windows in 0usize..3,
        is_weighted in any::<bool>(),
    ) {
        let column = || Feature::Column(ColumnFeature::new("own", ColumnRule::Last));
        let feature = |k| Feature::ALL.get(k).cloned().unwrap_or_else(column);
        let mut features: Vec<Feature> = features.into_iter().map(feature).collect();
        features.sort_by_key(|feature| feature.name().to_owned());
        features.dedup();
        let windows: &[(Timeframe, usize)] = match windows {
            0 => &[(Timeframe::M1, 7), (Timeframe::M5, 4), (Timeframe::M15, 2)],
            1 => &[(Timeframe::H1, 1), (Timeframe::M5, 9)],
            _ => &[(Timeframe::M1, 30)],
        };
        let spec = SeriesSpec {
            stride, horizon, train_fraction, scaling,
            weight: is_weighted.then(|| "w".to_owned()),
            target_kind: TargetKind::ALL.get(kind).cloned().unwrap_or_else(|| own_targets(kind - 3)),
            holes: GapPolicy {
                longest_ns: longest_hours * HOUR_NS,
                weekends: if weekends { Weekends::Spanned } else { Weekends::NotSpanned },
            },
            ..spec(windows, features)
        };
        let drawn = |(k, gaps): (usize, &Gaps)| with_columns(bars(counts[k], begins[k], gaps, 7 + k as u32), &spec);
        let all: Vec<Bars> = gaps.iter().enumerate().map(drawn).collect();
        check(&all, &spec);
    }
}

/// More bars than a piece, all features, segments that end within a bin.
#[test]
fn many_pieces_agree_with_all_bars_at_once() {
    let windows = [(Timeframe::M1, 70), (Timeframe::M5, 40), (Timeframe::H1, 12), (Timeframe::D1, 2)];
    let gaps = vec![(13_000, 7), (14_000, 130), (14_020, 119), (30_000, 9_000), (30_011, 9_000), (40_000, 2_900)];
    let all = [bars(70_000, 0, &gaps, 1), bars(40_000, 17, &vec![(20_000, 4_000)], 5)];
    for stride in [1, 7] {
        let spec = SeriesSpec {
            stride,
            ..spec(&windows, vec![Feature::Rsi14, Feature::Volatility20, Feature::DaySin, Feature::SpreadPips])
        };
        check(&all, &spec);
        check(&all[..1], &spec);
    }
    check(&[part(&all[0], 0..31_000)], &spec(&windows, Feature::ALL.to_vec()));
    // Pieces of a few hundred bars, shorter than the horizon.
    let far = SeriesSpec { horizon: 4_000, stride: 50, ..spec(&windows[..2], vec![Feature::Macd, Feature::Range]) };
    check(&all, &far);
}

/// Days of a broker's clock, one of which has 25 hours, and one 23.
#[test]
fn bins_of_a_broker_agree_with_all_bars_at_once() {
    let windows = [(Timeframe::M1, 70), (Timeframe::H1, 12), (Timeframe::H4, 3), (Timeframe::D1, 2)];
    let features = vec![Feature::LogReturn, Feature::DaySin, Feature::WeekCos];
    let bins: BinClock = "new-york+7".parse().unwrap();
    let spec = SeriesSpec { bins, stride: 7, ..spec(&windows, features) };
    // From some days before 2018-03-11 and 2018-11-04 on.
    for day in [17_598, 17_836] {
        let begins = (day - 4) * 1_440;
        let gaps = vec![(3_000, 7), (4_500, 130), (5_400, 2_000), (9_000, 9_000)];
        check(&[bars(20_000, begins, &gaps, 1), bars(12_000, begins + 17, &Vec::new(), 5)], &spec);
        check(&[bars(12_000, begins, &Vec::new(), 5)], &spec);
    }
}

#[test]
fn work_ends_where_its_observer_says_so() {
    let all = bars(2_000, 0, &Vec::new(), 3);
    let spec = spec(&[(Timeframe::M1, 5)], vec![Feature::Body]);
    let one = [instrument("A", &all, 1.0)];
    let folder = tempfile::tempdir().unwrap();
    let stop = |_| ControlFlow::Break(());
    assert!(matches!(SeriesPlan::new(&one, &spec, None, folder.path(), &stop), Err(Error::Interrupted)));
    let plan = SeriesPlan::new(&one, &spec, None, folder.path(), &go_on).unwrap();
    assert!(matches!(plan.fit(&stop), Err(Error::Interrupted)));
    let header = plan.fit(&go_on).unwrap();
    let sink = |_: &SeriesPiece| -> Result<()> { Ok(()) };
    assert!(matches!(plan.write(&header, &stop, &sink), Err(Error::Interrupted)));
}

#[test]
fn a_weight_that_is_none_is_refused_with_its_bar() {
    for (weight, shown) in [(-0.5, "-0.5"), (f64::INFINITY, "inf")] {
        let mut all = bars(2_000, 0, &Vec::new(), 3);
        all.columns = vec![vec![1.0; 2_000]];
        all.columns[0][1_000] = weight;
        let spec = SeriesSpec { weight: Some("w".to_owned()), ..spec(&[(Timeframe::M1, 5)], vec![Feature::Body]) };
        let (one, folder) = ([instrument("A", &all, 1.0)], tempfile::tempdir().unwrap());
        let plan = SeriesPlan::new(&one, &spec, None, folder.path(), &go_on).unwrap();
        let header = plan.fit(&go_on).unwrap();
        let sink = |_: &SeriesPiece| -> Result<()> { Ok(()) };
        let error = plan.write(&header, &go_on, &sink).unwrap_err().to_string();
        let expected = format!("A: the bar that opens at 1970-01-05T16:41:00Z has the weight {shown} in the column w");
        assert!(error.starts_with(&expected), "{error}");
    }
}
