use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::bars::{Bar, Bars};
use crate::clean::gap::{GapPolicy, Weekends};
use crate::series::AlignedSeries;
use crate::series::align::align_usable;
use crate::series::feature::Feature;
use crate::series::instrument::Instrument;
use crate::series::target::TargetKind;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};

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
        bars.push(Bar { open_time, open, high, low, close, volume: (9.0 * next()).floor(), spread });
    }
    bars
}

/// The arrays of a series as its pieces make them, in place of those of `like`.
fn written(plan: &SeriesPlan<'_>, like: &AlignedSeries) -> (SeriesHeader, AlignedSeries, Vec<i64>) {
    let observe = |_| ControlFlow::Continue(());
    let header = plan.fit(&observe).unwrap();
    let mut series = like.clone();
    let width = header.features().len();
    let samples = header.samples;
    series.sample_time = vec![0; samples];
    series.sample_instrument = vec![-1; samples];
    series.label_end_time = vec![0; samples];
    series.targets = vec![f32::NAN; samples * plan.spec.horizon];
    series.instruments = header.instruments().to_vec();
    series.segments.clone_from(&header.segments);
    series.excluded.clone_from(&header.excluded);
    series.warnings.clone_from(&header.warnings);
    series.fit_end_time = header.scalers.fit_end_time;
    for ((timeframe, found), scaler) in
        series.timeframes.iter_mut().zip(&header.timeframes).zip(&header.scalers.timeframes)
    {
        timeframe.values = vec![f32::NAN; found.rows * width];
        timeframe.close_time = vec![0; found.rows];
        timeframe.end = vec![0; samples];
        timeframe.instrument_start.clone_from(&found.instrument_start);
        timeframe.segment_start.clone_from(&found.segment_start);
        timeframe.center.clone_from(&scaler.center);
        timeframe.scale.clone_from(&scaler.scale);
    }
    let starts = vec![0; samples];
    let both = Mutex::new((series, starts));
    let sink = |piece: &SeriesPiece| -> Result<()> {
        let (series, starts) = &mut *both.lock().unwrap();
        let (first, last) = (piece.first_sample, piece.first_sample + piece.sample_time.len());
        series.sample_time[first..last].copy_from_slice(&piece.sample_time);
        series.sample_instrument[first..last].copy_from_slice(&piece.sample_instrument);
        series.label_end_time[first..last].copy_from_slice(&piece.label_end_time);
        starts[first..last].copy_from_slice(&piece.receptive_start);
        let horizon = plan.spec.horizon;
        series.targets[first * horizon..last * horizon].copy_from_slice(&piece.targets);
        for (timeframe, piece) in series.timeframes.iter_mut().zip(&piece.timeframes) {
            let rows = piece.first_row..piece.first_row + piece.close_time.len();
            timeframe.close_time[rows.clone()].copy_from_slice(&piece.close_time);
            timeframe.values[rows.start * width..rows.end * width].copy_from_slice(&piece.values);
            timeframe.end[first..last].copy_from_slice(&piece.end);
        }
        Ok(())
    };
    plan.write(&header, &observe, &sink).unwrap();
    let (series, starts) = both.into_inner().unwrap();
    (header, series, starts)
}

fn instants(series: &AlignedSeries) -> SampleInstants {
    let mut of: std::collections::BTreeMap<i64, Vec<i32>> = std::collections::BTreeMap::new();
    for (time, instrument) in series.sample_time.iter().zip(&series.sample_instrument) {
        of.entry(*time).or_default().push(*instrument);
    }
    let mut alone = vec![0; series.instruments.len()];
    of.values().filter(|present| present.len() == 1).for_each(|present| alone[present[0] as usize] += 1);
    let (first, last) = (*of.first_key_value().unwrap().0, *of.last_key_value().unwrap().0);
    SampleInstants { count: of.len(), first, last, alone }
}

/// Compares the series of `all` with that of all bars at once.
fn check(all: &[Bars], spec: &SeriesSpec) {
    let names: Vec<String> = (0..all.len()).map(|k| format!("I{k}")).collect();
    let pips = |k: usize| 1e-4 * (k + 1) as f64;
    let whole: Vec<Instrument<'_>> = names
        .iter()
        .zip(all)
        .enumerate()
        .map(|(k, (name, bars))| Instrument { name, bars, pip_size: pips(k) })
        .collect();
    let streamed: Vec<StreamedInstrument<'_>> = names
        .iter()
        .zip(all)
        .enumerate()
        .map(|(k, (name, bars))| StreamedInstrument { name, bars, pip_size: pips(k), fitted_until: None })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let plan = SeriesPlan::of_usable(&streamed, spec, None, folder.path(), &|_| ControlFlow::Continue(()));
    let (expected, left_out) = match align_usable(&whole, spec) {
        Ok(series) => series,
        Err(error) => {
            assert_eq!(plan.err().map(|error| error.to_string()), Some(error.to_string()));
            return;
        }
    };
    let (plan, excluded) = plan.unwrap();
    assert_eq!(
        excluded.iter().map(ToString::to_string).collect::<Vec<_>>(),
        left_out.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    let (header, series, starts) = written(&plan, &expected);
    assert_eq!(header.scalers, expected.scalers());
    assert_eq!(header.instants, instants(&expected));
    assert_eq!(starts, expected.receptive_starts());
    assert_eq!(series, expected);
    let bits = |series: &AlignedSeries| -> Vec<u32> {
        let values = series.timeframes.iter().flat_map(|timeframe| &timeframe.values);
        values.chain(&series.targets).map(|value| value.to_bits()).collect()
    };
    assert_eq!(bits(&series), bits(&expected));
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

    /// Every array, index, scaler and warning is that of all bars at once, bit for bit.
    #[test]
    fn agrees_with_all_bars_at_once(
        gaps in prop::collection::vec(prop::collection::vec((0usize..1500, prop_oneof![1i64..9, 100i64..140, 3000i64..3001]), 0..12), 1..5),
        counts in prop::collection::vec(prop_oneof![1usize..60, 400usize..1500], 5),
        begins in prop::collection::vec(prop_oneof![Just(0i64), 0i64..900], 5),
        features in prop::collection::vec(0..Feature::ALL.len(), 1..6),
        stride in prop_oneof![Just(1usize), 1usize..40], horizon in 1usize..9, train_fraction in 0.01f64..=1.0,
        scaling in prop_oneof![Just(Scaling::Robust), Just(Scaling::Standard), Just(Scaling::None)],
        kind in 0usize..3, weekends in any::<bool>(), longest_hours in prop_oneof![Just(0i64), Just(2), Just(100)], windows in 0usize..3,
    ) {
        let mut features: Vec<Feature> = features.into_iter().map(|k| Feature::ALL[k]).collect();
        features.sort_by_key(|feature| feature.name());
        features.dedup();
        let windows: &[(Timeframe, usize)] = match windows {
            0 => &[(Timeframe::M1, 7), (Timeframe::M5, 4), (Timeframe::M15, 2)],
            1 => &[(Timeframe::H1, 1), (Timeframe::M5, 9)],
            _ => &[(Timeframe::M1, 30)],
        };
        let spec = SeriesSpec {
            stride, horizon, train_fraction, scaling,
            target_kind: TargetKind::ALL[kind],
            holes: GapPolicy {
                longest_ns: longest_hours * HOUR_NS,
                weekends: if weekends { Weekends::Spanned } else { Weekends::NotSpanned },
            },
            ..spec(windows, features)
        };
        let of = |(k, gaps): (usize, &Gaps)| bars(counts[k], begins[k], gaps, 7 + k as u32);
        let all: Vec<Bars> = gaps.iter().enumerate().map(of).collect();
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
    check(&all[..1], &spec(&windows, Feature::ALL.to_vec()));
    // Pieces of a few hundred bars, shorter than the horizon.
    let far = SeriesSpec { horizon: 4_000, stride: 50, ..spec(&windows[..2], vec![Feature::Macd, Feature::Range]) };
    check(&all, &far);
}

#[test]
fn work_ends_where_its_observer_says_so() {
    let all = bars(2_000, 0, &Vec::new(), 3);
    let spec = spec(&[(Timeframe::M1, 5)], vec![Feature::Body]);
    let one = [StreamedInstrument { name: "A", bars: &all, pip_size: 1.0, fitted_until: None }];
    let folder = tempfile::tempdir().unwrap();
    let (go_on, stop) = (|_| ControlFlow::Continue(()), |_| ControlFlow::Break(()));
    assert!(matches!(SeriesPlan::of(&one, &spec, None, folder.path(), &stop), Err(Error::Interrupted)));
    let plan = SeriesPlan::of(&one, &spec, None, folder.path(), &go_on).unwrap();
    assert!(matches!(plan.fit(&stop), Err(Error::Interrupted)));
    let header = plan.fit(&go_on).unwrap();
    let sink = |_: &SeriesPiece| -> Result<()> { Ok(()) };
    assert!(matches!(plan.write(&header, &stop, &sink), Err(Error::Interrupted)));
}
