//! Proofs must be able to fail: each of these ways to make windows, or to fit, looks ahead.

use std::ops::ControlFlow;

use super::*;
use crate::bars::Bar;
use crate::series::binning::Binning;
use crate::series::feature::Feature;
use crate::series::scale::{Scaling, scale_rows};
use crate::series::spec::Window;
use crate::series::streamed::SeriesPlan;
use crate::series::streamed::cursor::TrackCursor;
use crate::spool::{SpoolWriter, SpooledBars};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{HOUR_NS, MINUTE_NS};

/// Two days of minutes of a wave, every seventh of which is missing.
fn bars() -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::M1, 0);
    for minute in (0..2_880).filter(|minute| minute % 7 != 3) {
        let (open, close) = (100.0 + (minute as f64 * 0.1).sin(), 100.0 + (minute as f64 * 0.1 + 0.1).sin());
        let (high, low) = (open.max(close) + 0.1, open.min(close) - 0.1);
        bars.push(Bar {
            open_time: minute * MINUTE_NS,
            open,
            high,
            low,
            close,
            volume: (minute % 5) as f64,
            ..Bar::default()
        });
    }
    bars
}

fn instrument(bars: &Bars) -> StreamedInstrument<'_> {
    StreamedInstrument { name: "WAVE", bars, pip_size: 0.01, fitted_until: None }
}

fn spec() -> SeriesSpec {
    let windows = [(Timeframe::M1, 10), (Timeframe::H1, 4)];
    SeriesSpec {
        windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
        features: vec![Feature::Body, Feature::Rsi14, Feature::LogVolume],
        horizon: 5,
        scaling: Scaling::Standard,
        ..SeriesSpec::default()
    }
}

/// 1970-01-02 12:30.
const TIME: i64 = 36 * HOUR_NS + 30 * MINUTE_NS;

fn go_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn fitted(instruments: &[StreamedInstrument<'_>], spec: &SeriesSpec) -> Scalers {
    let folder = tempfile::tempdir().unwrap();
    let plan = SeriesPlan::new(instruments, spec, None, folder.path(), &go_on).unwrap();
    plan.fit(&go_on).unwrap().scalers
}

/// Rows of one timeframe of all bars, and when each closes.
struct Rows {
    window: Window,
    values: Vec<f32>,
    close_time: Vec<i64>,
}

/// The scaled rows of every timeframe.
fn rows(bars: &Bars, scalers: &Scalers) -> Vec<Rows> {
    let spec = spec();
    let scaled = |(window, scaler): (Window, &TimeframeScaler)| {
        let mut cursor = TrackCursor::new(window, bars.timeframe, &spec, 0.01).unwrap();
        let (mut values, mut close_time) = (Vec::new(), Vec::new());
        cursor.push(bars, bars.len(), &mut values, &mut close_time).unwrap();
        scale_rows(&mut values, &scaler.center, &scaler.scale);
        Rows { window, values, close_time }
    };
    spec.checked_windows().unwrap().into_iter().zip(&scalers.timeframes).map(scaled).collect()
}

/// Windows of the sample at [`TIME`], each up to the last row that `has_closed`.
fn sight(rows: &[Rows], has_closed: impl Fn(Timeframe, i64) -> bool) -> Sight {
    let features = spec().features;
    let window = |rows: &Rows| {
        let timeframe = rows.window.timeframe;
        let after = rows.close_time.iter().filter(|&&close_time| has_closed(timeframe, close_time)).count();
        rows.values[(after - rows.window.seq_len) * features.len()..after * features.len()].to_vec()
    };
    let timeframes = rows.iter().map(|rows| rows.window.timeframe).collect();
    Sight { timeframes, windows: rows.iter().map(window).collect(), features }
}

fn has_closed(_: Timeframe, close_time: i64) -> bool {
    close_time <= TIME
}

/// The scalers that are held while bars change.
fn held() -> Scalers {
    fitted(&[instrument(&bars())], &spec())
}

/// Windows of the sample in bars.
type SeeBars<'a> = dyn Fn(&Bars) -> Result<Option<Sight>> + 'a;

/// Result of the proof at [`TIME`] for what the sample sees.
fn outcome(see: &SeeBars<'_>) -> Result<Proof> {
    let (spec, mut around) = (spec(), bars());
    // Every bin that is open at the time has closed, and two bars more.
    around.truncate(around.open_time.partition_point(|&open_time| open_time < TIME + HOUR_NS) + 2);
    let query = ProofQuery { name: "WAVE", spec: &spec, moment: Moment { time: TIME, seed: 7 } };
    query.prove(&around, &[], &|bars, _own| see(bars))
}

/// Result of the proof at [`TIME`] where what the sample sees is read by `look` off the recent
/// bars.
fn outcome_of_recent(look: &dyn Fn(&Recent, &Bars) -> Result<Option<Sight>>) -> Result<Proof> {
    let (bars, spec) = (bars(), spec());
    let query = ProofQuery { name: "WAVE", spec: &spec, moment: Moment { time: TIME, seed: 7 } };
    let mut past = Past::new(instrument(&bars), &spec, &held())?;
    let recent = query.recent(&mut past, &segments(instrument(&bars), &spec)?)?;
    assert!(recent.before > 1_000, "most bars are of the past");
    query.prove(&recent.bars, &recent.own, &|bars, _own| look(&recent, bars))
}

fn leak(see: &SeeBars<'_>) -> LookAhead {
    match outcome(see) {
        Err(Error::LookAhead(leak)) => *leak,
        other => panic!("no leak was found: {other:?}"),
    }
}

/// Windows of closed bars alone.
fn honest(bars: &Bars) -> Sight {
    sight(&rows(bars, &held()), has_closed)
}

#[test]
fn what_does_not_look_ahead_is_proven() {
    let proof = outcome(&|bars| Ok(Some(honest(bars)))).unwrap();
    let bars = bars();
    assert_eq!(proof.windows, honest(&bars).windows);
    // Of the bars of the next hour, and two more, six of seven are there.
    assert!(proof.bars < bars.len() - 500 && (50..60).contains(&proof.replaced), "{proof:?}");
}

#[test]
fn a_bar_looked_up_by_its_open_time_is_caught() {
    let has_opened = |timeframe: Timeframe, close_time: i64| match timeframe {
        Timeframe::H1 => close_time - timeframe.duration_ns() < TIME,
        _ => close_time <= TIME,
    };
    let leak = leak(&|bars| Ok(Some(sight(&rows(bars, &held()), has_opened))));
    assert_eq!(leak.perturbation, Perturbation::Values);
    let text = leak.to_string();
    assert!(
        text.starts_with("WAVE looks ahead: when the bars that close after 1970-01-02T12:30:00Z have other values, body in row 3 of the window of H1 is "),
        "{text}"
    );
}

#[test]
fn scalers_fitted_on_everything_are_caught() {
    let refitted = |bars: &Bars| fitted(&[instrument(bars)], &SeriesSpec { train_fraction: 1.0, ..spec() });
    let leak = leak(&|bars| Ok(Some(sight(&rows(bars, &refitted(bars)), has_closed))));
    assert!(matches!(leak.difference, LookAheadEffect::Value { timeframe: Timeframe::M1, row: 0, .. }));
}

#[test]
fn a_hole_seen_before_it_comes_is_caught() {
    let tells_holes = |bars: &Bars| {
        let mut rows = rows(bars, &held());
        let minutes = &mut rows[0];
        for (row, &close_time) in minutes.close_time.iter().enumerate() {
            let next = bars.open_time.partition_point(|&open_time| open_time < close_time);
            let wait = bars.open_time.get(next).map_or(0, |open_time| open_time - close_time);
            minutes.values[row * 3 + 2] = (wait / MINUTE_NS) as f32;
        }
        Ok(Some(sight(&rows, has_closed)))
    };
    let leak = leak(&tells_holes);
    assert_eq!(leak.perturbation, Perturbation::Times);
    assert!(
        leak.to_string().contains("have other values and times, log_volume in row 9 of the window of M1"),
        "{leak}"
    );
}

#[test]
fn a_sample_that_the_future_takes_away_is_caught() {
    let picky = |bars: &Bars| {
        let next = bars.open_time.partition_point(|open_time| open_time + MINUTE_NS <= TIME);
        Ok((bars.close[next] == self::bars().close[next]).then(|| honest(bars)))
    };
    let leak = leak(&picky);
    assert_eq!((&leak.difference, leak.perturbation), (&LookAheadEffect::Gone, Perturbation::Values));
    assert!(leak.to_string().ends_with("the sample at that time is gone"), "{leak}");
}

/// Recent bars, and the state of features before them, give the windows of all bars at once, and
/// what looks ahead in them is caught.
#[test]
fn the_past_is_carried_to_recent_bars_and_no_further() {
    let spec = spec();
    let all = outcome(&|bars| Ok(Some(honest(bars)))).unwrap();
    let proof = outcome_of_recent(&|recent, bars| recent.sight(bars, &recent.own, &spec)).unwrap();
    assert_eq!((&proof.windows, proof.replaced), (&all.windows, all.replaced));
    assert!(proof.bars < 400, "{}", proof.bars);
    let caught = |look: &dyn Fn(&Recent, &Bars) -> Result<Option<Sight>>| match outcome_of_recent(look) {
        Err(Error::LookAhead(leak)) => *leak,
        other => panic!("no leak was found: {other:?}"),
    };
    let later = caught(&|recent, bars| recent.sight_at(recent.sample + 1, bars, &recent.own, &spec));
    assert!(later.to_string().contains("body in row 9 of the window of M1 is "), "{later}");
    let levelled = caught(&|recent, bars| {
        let mut sight = recent.sight(bars, &recent.own, &spec)?;
        let highest = bars.high.iter().copied().fold(0.0, f64::max) as f32;
        sight.iter_mut().flat_map(|sight| &mut sight.windows[1]).for_each(|value| *value -= highest);
        Ok(sight)
    });
    assert!(matches!(levelled.difference, LookAheadEffect::Value { timeframe: Timeframe::H1, row: 0, .. }));
    let gone = caught(&|recent, bars| {
        let sight = recent.sight(bars, &recent.own, &spec)?;
        Ok(sight.filter(|_| bars.close.last() == recent.bars.close.last()))
    });
    assert_eq!(gone.difference, LookAheadEffect::Gone);
}

#[test]
fn a_time_without_a_sample_is_named() {
    let (bars, spec, scalers) = (bars(), spec(), held());
    // Within the warm-up, between two bars, in the last horizon, before and after the recording.
    for minute in [60, 2_100 + 4, 2_879, -5, 5_000] {
        let moment = Moment { time: minute * MINUTE_NS, seed: 1 };
        let error = prove_samples(instrument(&bars), &spec, &scalers, &[moment], &|_, _| Ok::<(), Error>(()));
        let error = error.unwrap_err();
        assert!(matches!(error, Error::NoSample { .. }), "{minute}: {error}");
    }
}

#[test]
fn scalers_are_proven_from_the_time_on_that_they_were_fitted() {
    let (bars, spec, folder) = (bars(), spec(), tempfile::tempdir().unwrap());
    let instruments = [instrument(&bars), StreamedInstrument { name: "OTHER", ..instrument(&bars) }];
    let scalers = fitted(&instruments, &spec);
    let prove = |scalers: &Scalers, time: i64| {
        prove_scalers(&instruments, &spec, scalers, Moment { time, seed: 3 }, folder.path(), &go_on)
    };
    prove(&scalers, scalers.fit_end_time).unwrap();
    prove(&scalers, scalers.fit_end_time + HOUR_NS).unwrap();
    let early = prove(&scalers, scalers.fit_end_time - 1).unwrap_err();
    assert!(matches!(early, Error::Invalid { key: "time", .. }), "{early}");

    let mut wrong = scalers.clone();
    wrong.timeframes[1].scale[4] *= 2.0;
    let error = prove(&wrong, scalers.fit_end_time).unwrap_err().to_string();
    assert!(error.contains("hold for OTHER rsi_14 of H1 has centre"), "{error}");

    // Scalers that say they were fitted earlier than they were.
    let ahead = |instrument: StreamedInstrument<'_>| {
        let fitted = fit_until(instrument, &spec, scalers.fit_end_time + HOUR_NS, folder.path(), &go_on)?;
        Ok(Scalers { fit_end_time: scalers.fit_end_time, ..fitted })
    };
    let moment = Moment { time: scalers.fit_end_time, seed: 3 };
    let future = Future { moment, spec: &spec, bars_min: 0 };
    let given = ahead(instrument(&bars)).unwrap();
    let error = prove_scalers_by(&ahead, &[instrument(&bars)], &spec, &given, future).unwrap_err();
    let Error::LookAhead(leak) = error else { panic!("{error}") };
    assert!(leak.to_string().contains("body of M1 has centre "), "{leak}");
    assert!(leak.to_string().starts_with("WAVE looks ahead: when the bars that close after"), "{leak}");
}

/// The minutes, with own bars of the hours that close higher than those the minutes make.
fn with_own_hours(folder: &Path) -> SpooledBars {
    let spooled = |bars: &Bars| {
        let mut writer = SpoolWriter::unnamed(folder, bars.timeframe, 0).unwrap();
        (0..bars.len()).for_each(|place| writer.push(bars.bar(place)).unwrap());
        writer.finish().unwrap()
    };
    let (minutes, mut hours) = (bars(), Bars::with_capacity(Timeframe::H1, 0));
    let mut binning = Binning::new(Timeframe::H1, Timeframe::M1, &BinClock::default(), Vec::new()).unwrap();
    for place in 0..minutes.len() {
        let take = |bin: Bar| hours.push(Bar { close: bin.close + 0.05, ..bin });
        binning.push(&minutes.bar(place), take).unwrap();
    }
    spooled(&minutes).with_own(vec![Arc::new(spooled(&hours))])
}

/// Own bars that had closed are in the windows; those that had not are replaced, and one that is
/// taken a bar early is caught.
#[test]
fn own_bars_that_had_not_closed_are_replaced() {
    let (spec, folder) = (spec(), tempfile::tempdir().unwrap());
    let bars = with_own_hours(folder.path());
    let instrument = StreamedInstrument { name: "WAVE", bars: &bars, pip_size: 0.01, fitted_until: None };
    let query = ProofQuery { name: "WAVE", spec: &spec, moment: Moment { time: TIME, seed: 7 } };
    let mut past = Past::new(instrument, &spec, &held()).unwrap();
    let recent = query.recent(&mut past, &segments(instrument, &spec).unwrap()).unwrap();
    let proof = query.prove(&recent.bars, &recent.own, &|bars, own| recent.sight(bars, own, &spec)).unwrap();
    let made = outcome(&|bars| Ok(Some(honest(bars)))).unwrap();
    assert_eq!(proof.windows[0], made.windows[0]);
    assert_ne!(proof.windows[1], made.windows[1]);
    assert!(proof.replaced > made.replaced, "{} {}", proof.replaced, made.replaced);

    let earlier = |own: &Bars| {
        let mut earlier = own.clone();
        earlier.open_time.iter_mut().for_each(|open_time| *open_time -= HOUR_NS);
        earlier
    };
    let a_bar_early = |bars: &Bars, own: &[Bars]| {
        let own: Vec<Bars> = own.iter().map(earlier).collect();
        recent.sight(bars, &own, &spec)
    };
    let Err(Error::LookAhead(leak)) = query.prove(&recent.bars, &recent.own, &a_bar_early) else {
        panic!("no leak was found")
    };
    assert_eq!(leak.perturbation, Perturbation::Values);
    assert!(leak.to_string().contains("body in row 3 of the window of H1 is "), "{leak}");
}

#[test]
fn scalers_of_own_bars_are_proven() {
    let (spec, folder) = (spec(), tempfile::tempdir().unwrap());
    let bars = with_own_hours(folder.path());
    let instrument = StreamedInstrument { name: "WAVE", bars: &bars, pip_size: 0.01, fitted_until: None };
    let scalers = fitted(&[instrument], &spec);
    assert_ne!(scalers.timeframes[1], held().timeframes[1]);
    let moment = Moment { time: scalers.fit_end_time, seed: 3 };
    prove_scalers(&[instrument], &spec, &scalers, moment, folder.path(), &go_on).unwrap();

    // Scalers with the close of the first own bar that had not closed.
    let ahead = |instrument: StreamedInstrument<'_>| {
        let own = instrument.bars.own_bars(Timeframe::H1).expect("own bars");
        let known = partition_point(&*own, |open_time| open_time + HOUR_NS <= moment.time)?;
        let mut next = Bars::with_capacity(Timeframe::H1, 1);
        own.read(known..own.len().min(known + 1), &mut next)?;
        let mut fitted = scalers.clone();
        fitted.timeframes[1].center[0] = next.close.first().copied().unwrap_or(0.0);
        Ok::<_, Error>(fitted)
    };
    let future = Future { moment, spec: &spec, bars_min: 0 };
    let given = ahead(instrument).unwrap();
    let error = prove_scalers_by(&ahead, &[instrument], &spec, &given, future).unwrap_err();
    assert!(error.to_string().contains("body of H1 has centre "), "{error}");
}
