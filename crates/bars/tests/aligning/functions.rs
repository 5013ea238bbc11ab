//! Functions as features: their values stand where they belong, and those that look ahead are
//! found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_bars::{
    BarFunctions, BarSource as _, Bars, ColumnTargets, ContextReach, Error, Feature, FunctionBars, FunctionCall,
    FunctionColumn, FunctionFault, FunctionProof, FunctionStream, FunctionTargets, Instrument, OnError, Result,
    Scaling, SeriesSpec, SeriesStream, StreamedInstrument, TargetKind, TargetOrigin, Timeframe, WithFunctions,
    prove_functions,
};
use proptest::prelude::*;

use crate::drawn::{Draw, MINUTE_NS, PIP, bars, bits, draws, instrument, part, torn_draws, torn_spec};
use crate::whole::{align, go_on};

type Values = Box<dyn Fn(&Bars) -> Vec<f64> + Sync>;

/// A function of features, and perhaps one of targets with the ends of labels.
struct Given {
    feature: Values,
    target: Option<[Values; 2]>,
    needs_all_bars: bool,
}

impl Given {
    fn feature(feature: impl Fn(&Bars) -> Vec<f64> + Sync + 'static) -> Self {
        Given { feature: Box::new(feature), target: None, needs_all_bars: true }
    }

    fn bars(&self, bars: &Bars, spec: &SeriesSpec, on_error: OnError) -> Result<WithFunctions> {
        let folder = tempfile::tempdir().unwrap();
        let seen = FunctionBars::read("DRAWN", bars, spec, &[])?;
        let answers = seen.call(self)?;
        seen.with_columns(&answers, spec, on_error, folder.path())
    }

    fn prove(&self, bars: &Bars) -> Result<FunctionProof> {
        let seen = FunctionBars::read("DRAWN", bars, &plain_spec(), &[])?;
        let answers = seen.call(self)?;
        prove_functions(&seen, &answers, self, 5, 1, 7, &go_on)
    }
}

fn column(name: &str, values: Vec<f64>) -> FunctionColumn {
    FunctionColumn { function: "given".to_owned(), name: name.to_owned(), values, is_single: false }
}

impl BarFunctions for Given {
    fn columns(&self, call: &FunctionCall<'_>) -> Result<Vec<FunctionColumn>> {
        Ok(vec![column("x", (self.feature)(call.bars))])
    }

    fn needs_all_bars(&self) -> bool {
        self.needs_all_bars
    }

    fn has_targets(&self) -> bool {
        self.target.is_some()
    }

    fn targets(&self, call: &FunctionCall<'_>) -> Result<FunctionTargets> {
        let [target, end] = self.target.as_ref().expect("a function of targets");
        Ok(FunctionTargets {
            columns: vec![column("y", target(call.bars))],
            label_end: Some(column("label_end", end(call.bars))),
        })
    }

    fn frames(&self) -> &str {
        "bars"
    }

    fn fingerprints(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Two features that read one bar each, without functions.
fn plain_spec() -> SeriesSpec {
    SeriesSpec { features: vec![Feature::Range, Feature::Body], ..torn_spec(Scaling::None) }
}

fn with_function(spec: &SeriesSpec) -> SeriesSpec {
    let features = spec.features.iter().cloned().chain([Feature::from_function("x")]).collect();
    SeriesSpec { features, ..spec.clone() }
}

/// The range of each bar after the first `warm_up`, as a function computes it; in longer
/// timeframes than `longest`, of every bar.
fn range_after(warm_up: usize, longest: Timeframe) -> impl Fn(&Bars) -> Vec<f64> + Sync {
    move |bars| {
        let warm_up = if bars.timeframe > longest { 0 } else { warm_up };
        let range = |t: usize| (bars.high[t] - bars.low[t]) / bars.close[t];
        (0..bars.len()).map(|t| if t < warm_up { f64::NAN } else { range(t) }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A function that computes a built-in feature gives its values, bit for bit, in every
    /// timeframe and around every hole. Only bars of the warm-up are missing.
    #[test]
    fn values_stand_at_their_bars(draws in torn_draws(), warm_up in 0usize..6, only_base in any::<bool>()) {
        let function = range_after(warm_up, if only_base { Timeframe::M1 } else { Timeframe::M15 });
        let bars = bars(&draws);
        let (plain, spec) = (plain_spec(), with_function(&plain_spec()));
        let (Ok(before), Ok(with)) =
            (align(&[instrument(&bars)], &plain), Given::feature(function).bars(&bars, &plain, OnError::Fail))
        else {
            return Ok(());
        };
        prop_assert_eq!(with.warm_up + with.bars.len(), bars.len());
        prop_assert!(with.warm_up >= warm_up && (warm_up > 0 || with.warm_up == 0));
        let mut rest = Bars::with_capacity(Timeframe::M1, 0);
        with.bars.read(0..with.bars.len(), &mut rest).unwrap();
        let Ok(series) = align(&[instrument(&rest)], &spec) else { return Ok(()) };
        for (own, all) in series.timeframes.iter().zip(&before.timeframes) {
            for (row, close_time) in own.values.chunks_exact(3).zip(&own.close_time) {
                prop_assert_eq!(row[2].to_bits(), row[0].to_bits());
                // Segments without samples have no rows before.
                if let Ok(place) = all.close_time.binary_search(close_time) {
                    prop_assert_eq!(bits(&row[..2]), bits(&all.values[2 * place..2 * place + 2]));
                }
            }
        }
    }

    /// A target of a function is the target of its bar, and its label ends where it says.
    #[test]
    fn targets_stand_at_their_bars(draws in draws(400)) {
        let mut bars = bars(&draws);
        bars.columns = vec![bars.close.iter().map(|close| close.fract()).collect()];
        let target: Values = Box::new(|bars| next_change(bars, 1));
        let end: Values = Box::new(|bars| close_times(bars, 1));
        let given = Given { target: Some([target, end]), ..Given::feature(range_after(0, Timeframe::M1)) };
        let plain = SeriesSpec { horizon: 1, weight: Some("w".to_owned()), ..plain_spec() };
        let with = given.bars(&bars, &plain, OnError::Fail).unwrap();
        let mut rest = Bars::with_capacity(Timeframe::M1, 0);
        with.bars.read(0..with.bars.len(), &mut rest).unwrap();
        let (names, label_end) = (vec!["y".to_owned()], Some("label_end".to_owned()));
        let target_kind = TargetKind::Columns(ColumnTargets { names, label_end, origin: TargetOrigin::Function });
        let expected = align(&[instrument(&bars)], &plain);
        // Bars with a label were lost for a horizon that no label has.
        for horizon in [1, 8] {
            let spec = SeriesSpec { horizon, target_kind: target_kind.clone(), ..with_function(&plain) };
            match (align(&[instrument(&rest)], &spec), &expected) {
                (Ok(found), Ok(expected)) => {
                    prop_assert_eq!(bits(&found.targets), bits(&expected.targets));
                    prop_assert_eq!(bits(&found.weight), bits(&expected.weight));
                    prop_assert_eq!(&found.label_end_time, &expected.label_end_time);
                }
                (found, expected) => prop_assert_eq!(found.is_err(), expected.is_err()),
            }
        }
    }
}

/// The change of the close `after` bars later, in the pips of drawn bars.
fn next_change(bars: &Bars, after: usize) -> Vec<f64> {
    let change =
        |t: usize| bars.close.get(t + after).map_or(f64::NAN, |next| (next - bars.close[t]) / crate::drawn::PIP);
    (0..bars.len()).map(change).collect()
}

fn close_times(bars: &Bars, after: usize) -> Vec<f64> {
    (0..bars.len()).map(|t| if t + after < bars.len() { bars.close_time(t + after) as f64 } else { f64::NAN }).collect()
}

/// Bars without any hole.
fn steady() -> Bars {
    let draw = |k: usize| -> Draw { (1, ((k * 7919) % 101) as f64 / 100.0 - 0.5, 0.1, 0.2, (k % 13) as f64) };
    bars(&(0..900).map(draw).collect::<Vec<_>>())
}

/// Bars of other instruments that samples saw lay in training.
#[test]
fn samples_reach_back_to_the_bars_of_other_instruments() {
    let (all, spec) = (steady(), with_function(&plain_spec()));
    let given = Given::feature(range_after(0, Timeframe::M1));
    let series = |reach: Vec<ContextReach>| {
        let bars = given.bars(&all, &plain_spec(), OnError::Fail).unwrap().bars;
        let bars = bars.with_context_reach(Arc::new(BTreeMap::from([(Timeframe::M15, reach)])));
        align(&[StreamedInstrument { name: "DRAWN", bars: &bars, pip_size: PIP, fitted_until: None }], &spec).unwrap()
    };
    // A bar closes every 100 minutes, and its features read 500.
    let closes: Vec<i64> = (0..9).map(|k| all.open_time[0] + 100 * k * MINUTE_NS).collect();
    let opens = |close: &i64| close - 500 * MINUTE_NS;
    let found = series(vec![ContextReach::new("DXY".to_owned(), closes.clone(), closes.iter().map(opens).collect())]);
    let before = series(Vec::new());
    let quarters = before.timeframes.iter().find(|own| own.window.timeframe == Timeframe::M15).unwrap();
    for n in 0..before.len() {
        let first = quarters.close_time[quarters.end[n] as usize + 1 - quarters.window.seq_len];
        let seen = closes.iter().rfind(|&&close| close <= first).unwrap();
        assert_eq!(found.receptive_start[n], opens(seen).min(before.receptive_start[n]), "{n}");
        assert!(found.receptive_start[n] <= first - 500 * MINUTE_NS, "{n}");
    }
    assert_eq!((&found.sample_time, &found.label_end_time), (&before.sample_time, &before.label_end_time));
    assert_eq!((bits(&found.targets), found.timeframes), (bits(&before.targets), before.timeframes));
}

fn fault(result: Result<impl std::fmt::Debug>) -> FunctionFault {
    match result.unwrap_err() {
        Error::Function { function, instrument, fault, .. } => {
            assert_eq!((function.as_str(), instrument.as_str()), ("given", "DRAWN"));
            *fault
        }
        other => panic!("{other}"),
    }
}

#[test]
fn answers_that_are_no_features_are_named() {
    let bars = steady();
    let add = |feature: fn(&Bars) -> Vec<f64>| Given::feature(feature).bars(&bars, &plain_spec(), OnError::Fail);
    let short = fault(add(|bars| vec![0.0; bars.len() - 1]));
    assert_eq!(short, FunctionFault::Len { column: "x".to_owned(), found: 899, bars: 900 });
    assert_eq!(fault(add(|bars| vec![f64::NAN; bars.len()])), FunctionFault::NoValue { column: "x".to_owned() });
    for wrong in [f64::NAN, f64::INFINITY] {
        let given = Given::feature(move |bars| (0..bars.len()).map(|t| if t == 30 { wrong } else { 1.0 }).collect());
        match fault(given.bars(&bars, &plain_spec(), OnError::Fail)) {
            FunctionFault::Value { place: 30, open_time, found, to_the_end: false, .. } => {
                assert_eq!((open_time, found.to_bits()), (bars.open_time[30], wrong.to_bits()));
            }
            other => panic!("{other}"),
        }
        // Bar 30 of M1, and all base bars of bar 30 of M5 and M15.
        let with = given.bars(&bars, &plain_spec(), OnError::Skip).unwrap();
        assert_eq!((with.warm_up, with.without_value), (0, 1 + 5 + 15));
    }
    // As `shift(-2)` gives them.
    let early = |bars: &Bars| (0..bars.len()).map(|t| if t + 2 < bars.len() { 1.0 } else { f64::NAN }).collect();
    let early = fault(add(early));
    assert!(matches!(early, FunctionFault::Value { place: 898, to_the_end: true, .. }), "{early}");
    assert!(early.to_string().contains("looks ahead"), "{early}");
    let other_names = |call: &FunctionCall<'_>| column(call.bars.timeframe.name(), vec![0.0; call.bars.len()]);
    struct Named<F>(F);
    impl<F: Fn(&FunctionCall<'_>) -> FunctionColumn + Sync> BarFunctions for Named<F> {
        fn columns(&self, call: &FunctionCall<'_>) -> Result<Vec<FunctionColumn>> {
            Ok(vec![self.0(call)])
        }
        fn has_targets(&self) -> bool {
            false
        }
        fn targets(&self, _call: &FunctionCall<'_>) -> Result<FunctionTargets> {
            unreachable!("it gives none")
        }
        fn frames(&self) -> &str {
            "bars"
        }
        fn fingerprints(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }
    let seen = FunctionBars::read("DRAWN", &bars, &plain_spec(), &[]).unwrap();
    let (found, expected) = (vec!["M5".to_owned()], vec!["M1".to_owned()]);
    assert_eq!(fault(seen.call(&Named(other_names))), FunctionFault::Columns { found, expected });
}

#[test]
fn functions_that_look_ahead_are_found() {
    let bars = steady();
    let looks_ahead: [fn(&Bars) -> Vec<f64>; 6] = [
        // The next close, the last close of all, the number of bars, a mean of all.
        |bars| (0..bars.len()).map(|t| bars.close[(t + 1).min(bars.len() - 1)]).collect(),
        |bars| bars.close.iter().map(|close| close / bars.close[bars.len() - 1]).collect(),
        |bars| (0..bars.len()).map(|t| t as f64 / bars.len() as f64).collect(),
        |bars| {
            let mean = bars.close.iter().sum::<f64>() / bars.len() as f64;
            bars.close.iter().map(|close| close - mean).collect()
        },
        // One bar of a hundred.
        |bars| {
            let next = |t: usize| bars.close.get(t + 1).copied().unwrap_or(0.0);
            (0..bars.len()).map(|t| if bars.volume[t] == 12.0 { next(t) } else { 0.0 }).collect()
        },
        // Sums from the end.
        |bars| {
            bars.close
                .iter()
                .rev()
                .scan(0.0, |sum, close| {
                    *sum += close;
                    Some(*sum)
                })
                .collect()
        },
    ];
    for (place, feature) in looks_ahead.into_iter().enumerate() {
        let found = fault(Given::feature(feature).prove(&bars));
        assert!(matches!(found, FunctionFault::LookAhead { .. }), "{place}: {found}");
    }
}

#[test]
fn functions_that_do_not_are_not() {
    let honest: [fn(&Bars) -> Vec<f64>; 3] = [
        |bars| (0..bars.len()).map(|t| if t < 9 { f64::NAN } else { bars.close[t] / bars.close[t - 9] }).collect(),
        |bars| {
            bars.close
                .iter()
                .scan(0.0, |mean, close| {
                    *mean += 0.1 * (close - *mean);
                    Some(*mean)
                })
                .collect()
        },
        // Rounding that depends on the number of bars.
        |bars| bars.close.iter().map(|close| close * (1.0 + bars.len() as f64 * 1e-14)).collect(),
    ];
    for feature in honest {
        let proof = Given::feature(feature).prove(&steady()).unwrap();
        assert!(proof.cuts > 300 && proof.calls > proof.cuts, "{proof:?}");
    }
}

#[test]
fn two_answers_are_named() {
    let calls = AtomicUsize::new(0);
    let given = Given::feature(move |bars| vec![calls.fetch_add(1, Relaxed) as f64; bars.len()]);
    assert!(matches!(fault(given.prove(&steady())), FunctionFault::TwoAnswers { .. }));
}

#[test]
fn targets_end_with_their_labels() {
    let given = |after: usize, ends: usize| {
        let target: Values = Box::new(move |bars| next_change(bars, after));
        let end: Values = Box::new(move |bars| close_times(bars, ends));
        Given { target: Some([target, end]), ..Given::feature(range_after(0, Timeframe::M1)) }
    };
    given(20, 20).prove(&steady()).unwrap();
    given(20, 25).prove(&steady()).unwrap();
    match fault(given(20, 19).prove(&steady())) {
        FunctionFault::LookAhead { column, .. } => assert_eq!(column, "y"),
        other => panic!("{other}"),
    }
}

/// Bars that come one by one give the rows of all bars at once. A fall from the highest close was
/// that of the last bars alone, as these had been enough while prices rose.
#[test]
fn bars_that_come_give_the_same_rows() {
    let mut bars = steady();
    for index in 0..bars.len() {
        let factor = 1.0 + index.min(1600 - index) as f64 / 100.0;
        for prices in [&mut bars.open, &mut bars.high, &mut bars.low, &mut bars.close] {
            prices[index] *= factor;
        }
    }
    // A mean of ten bars, one that forgets half in fourteen, a sum of all, and the fall from the
    // highest.
    type Feature = fn(&Bars) -> Vec<f64>;
    let cases: [Feature; 4] = [
        |bars| {
            let mean = |t: usize| bars.close[t - 9..=t].iter().sum::<f64>() / 10.0;
            (0..bars.len()).map(|t| if t < 9 { f64::NAN } else { mean(t) }).collect()
        },
        |bars| smoothed(bars, 0.05),
        |bars| smoothed(bars, 1.0),
        |bars| {
            let mut highest = 0.0_f64;
            let fall = |close: &f64| {
                highest = highest.max(*close);
                close / highest - 1.0
            };
            bars.close.iter().map(fall).collect()
        },
    ];
    let (plain, spec) = (plain_spec(), with_function(&plain_spec()));
    for feature in cases {
        let seen = FunctionBars::read("DRAWN", &part(&bars, 0..800), &plain, &[]).unwrap();
        let given = Given::feature(feature);
        let features = seen.call(&given).unwrap().features;
        let mut functions = FunctionStream::new(&seen, &features, &given);
        let all = FunctionBars::read("DRAWN", &bars, &plain, &[]).unwrap();
        let expected = all.followed(&all.call(&given).unwrap().features, &plain, OnError::Fail).unwrap();
        let series = align(&[instrument(&expected)], &spec).unwrap();
        let drawn = Instrument { name: "DRAWN", base: Timeframe::M1, pip_size: crate::drawn::PIP };
        let mut stream = SeriesStream::with_columns(drawn, &spec, series.scalers(), &[]).unwrap();
        let history = seen.followed(&features, &plain, OnError::Fail).unwrap();
        for index in 0..history.len() {
            stream.push(&history.bar(index)).unwrap();
        }
        for index in 800..bars.len() {
            let mut bar = bars.bar(index);
            functions.widen(&mut bar);
            let step = stream.push_with(&bar, &mut |timeframe, closed| functions.complete(timeframe, closed)).unwrap();
            for (place, timeframe) in series.timeframes.iter().enumerate() {
                let Ok(row) = timeframe.close_time.binary_search(&step.close_time) else { continue };
                let (found, expected) = (stream.closed(place), &timeframe.values[3 * row..3 * row + 3]);
                assert_eq!(bits(&found[..3]), bits(expected));
            }
        }
    }
}

/// Other instruments were looked up at all bars for each that came.
#[test]
fn functions_that_do_not_need_all_bars_get_the_new_one() {
    let (bars, plain) = (steady(), plain_spec());
    let seen = FunctionBars::read("DRAWN", &part(&bars, 0..800), &plain, &[]).unwrap();
    let lacking = bars.open_time[802];
    // The number of bars of the call.
    let count = move |bars: &Bars| -> Vec<f64> {
        let value = |&open_time: &i64| if open_time == lacking { f64::NAN } else { bars.len() as f64 };
        bars.open_time.iter().map(value).collect()
    };
    for (needs_all_bars, expected) in [(true, [801.0, 802.0]), (false, [1.0, 1.0])] {
        let given = Given { needs_all_bars, ..Given::feature(count) };
        let mut functions = FunctionStream::new(&seen, &seen.call(&given).unwrap().features, &given);
        let mut value_at = |index: usize| {
            let mut bar = bars.bar(index);
            functions.widen(&mut bar);
            functions.complete(0, &mut bar).map(|()| bar.columns[0])
        };
        assert_eq!([800, 801].map(|index| value_at(index).unwrap()), expected);
        let found = fault(value_at(802));
        assert!(matches!(found, FunctionFault::Value { open_time, .. } if open_time == lacking), "{found}");
    }
}

/// A value that moves by a part of the distance to each close; with the part 1, the sum of closes.
fn smoothed(bars: &Bars, part: f64) -> Vec<f64> {
    let next = |state: &mut f64, close: &f64| {
        *state += if part == 1.0 { *close } else { part * (close - *state) };
        Some(*state)
    };
    bars.close.iter().scan(bars.close[0], next).collect()
}
