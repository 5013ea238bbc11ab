use std::ops::ControlFlow;

use megabatch_bars::{
    Bar, Bars, BinClock, Error, Feature, Moment, Scalers, Scaling, SeriesSpec, StreamedInstrument, Timeframe, Window,
    prove_scalers,
};
use proptest::prelude::*;

use crate::drawn::{Draw, MINUTE_NS, bars, bits, instrument, sight, torn_draws, torn_spec};
use crate::whole::{HOUR_NS, align, align_until, broker_ahead_ns, go_on, prove};

/// One to three timeframes, any horizon and stride.
fn specs() -> impl Strategy<Value = SeriesSpec> {
    let timeframes =
        prop::sample::subsequence(vec![Timeframe::M1, Timeframe::M5, Timeframe::M15, Timeframe::M30], 1..4);
    (timeframes, 1usize..4, 1usize..9, 1usize..5).prop_map(|(timeframes, seq_len, horizon, stride)| SeriesSpec {
        windows: timeframes.into_iter().map(|timeframe| Window { timeframe, seq_len }).collect(),
        horizon,
        stride,
        ..torn_spec(Scaling::Standard)
    })
}

proptest! {
    /// Every sample can be proven, and the proof holds what the series holds.
    #[test]
    fn samples_are_proven(draws in torn_draws(), spec in specs(), part in 0.0f64..1.0, seed in any::<u64>()) {
        let bars = bars(&draws);
        let series = match align(&[instrument(&bars)], &spec) {
            Ok(series) => series,
            Err(error) => {
                prop_assert!(matches!(error, Error::TooShort { .. }), "{}", error);
                return Ok(());
            }
        };
        let n = (part * series.len() as f64) as usize;
        let moment = Moment { time: series.sample_time[n], seed };
        let proof = prove(instrument(&bars), &spec, series.scalers(), moment).unwrap();
        prop_assert_eq!(proof.windows.iter().map(|window| bits(window)).collect::<Vec<_>>(), sight(&series, n));
        prop_assert!(proof.replaced >= spec.horizon && proof.replaced < proof.bars && proof.bars <= bars.len());
    }

    /// From the time on up to which they were fitted, nothing changes scalers, however many
    /// instruments and holes there are. Wrong ones are refused.
    #[test]
    fn scalers_are_proven(
        first in torn_draws(), second in torn_draws(), spec in specs(), wait in 0i64..1_000, seed in any::<u64>(),
        wrong in any::<prop::sample::Index>(),
    ) {
        let bars: [_; 2] = [bars(&first), bars(&second)];
        let named = |name, bars| StreamedInstrument { name, ..instrument(bars) };
        let instruments = [named("FIRST", &bars[0]), named("SECOND", &bars[1])];
        let Ok(series) = align(&instruments, &spec) else { return Ok(()) };
        let scalers = series.scalers();
        let moment = Moment { time: scalers.fit_end_time + wait * 10_000_000_000, seed };
        let folder = tempfile::tempdir().unwrap();
        let prove = |scalers: &Scalers| prove_scalers(&instruments, &spec, scalers, moment, folder.path(), &go_on);
        prove(scalers).unwrap();
        let mut changed = scalers.clone();
        let timeframe = wrong.index(changed.timeframes.len());
        let scale = &mut changed.timeframes[timeframe].scale;
        let place = wrong.index(scale.len());
        scale[place] *= 2.0;
        let refused = prove(&changed).unwrap_err();
        prop_assert!(matches!(refused, Error::Scalers { .. }), "{}", refused);
        let stop = |_| ControlFlow::Break(());
        let stopped = prove_scalers(&instruments, &spec, scalers, moment, folder.path(), &stop);
        prop_assert!(matches!(stopped, Err(Error::Interrupted)), "{:?}", stopped);
    }
}

/// Samples of 40 days around changes of a broker's clock, made of half hours of all days, or of its
/// own bars of four hours from Monday to Friday.
#[test]
fn samples_by_the_clock_of_a_broker_are_proven() {
    const DAY_NS: i64 = 1_440 * MINUTE_NS;
    let features = vec![Feature::LogReturn, Feature::Body, Feature::DayCos];
    let bins: BinClock = "new-york+7".parse().unwrap();
    for (base, windows) in [
        (Timeframe::M30, vec![(Timeframe::M30, 9), (Timeframe::H4, 3), (Timeframe::D1, 2), (Timeframe::W1, 1)]),
        (Timeframe::H4, vec![(Timeframe::H4, 9), (Timeframe::D1, 4), (Timeframe::W1, 1)]),
    ] {
        let windows = windows.into_iter().map(|(timeframe, seq_len)| Window { timeframe, seq_len }).collect();
        let spec =
            SeriesSpec { windows, bins: bins.clone(), features: features.clone(), horizon: 5, ..SeriesSpec::default() };
        for day in [17_580, 17_818] {
            let mut bars = Bars::with_capacity(base, 0);
            let base_ns = base.duration_ns();
            for k in 0..40 * DAY_NS / base_ns {
                let shown = day * DAY_NS + k * base_ns;
                // Between the change on Sunday and the next bar lie some hours.
                let open_time = match base {
                    Timeframe::M30 => shown,
                    _ => shown - broker_ahead_ns(shown - 2 * HOUR_NS),
                };
                // 1970-01-01 was a Thursday.
                if base == Timeframe::H4 && (shown / DAY_NS + 3) % 7 > 4 {
                    continue;
                }
                let open = 1.2 + (k % 13) as f64 * 1e-3;
                let close = open + 1e-3 * (k as f64 * 0.3).sin();
                bars.push(Bar { open_time, open, high: 1.3, low: 1.1, close, volume: 1.0, ..Bar::default() });
            }
            let series = align(&[instrument(&bars)], &spec).unwrap();
            // Samples around the change, and at the end of the week after it, and some others.
            let near = [20..23, 28..29].map(|days| (day + days.start) * DAY_NS..(day + days.end) * DAY_NS);
            let is_near = |time: i64| near.iter().any(|near| near.contains(&time));
            for n in (0..series.len()).filter(|&n| is_near(series.sample_time[n]) || n % 37 == 0) {
                let moment = Moment { time: series.sample_time[n], seed: n as u64 };
                let proof = prove(instrument(&bars), &spec, series.scalers(), moment).unwrap();
                let windows: Vec<_> = proof.windows.iter().map(|window| bits(window)).collect();
                assert_eq!(windows, sight(&series, n), "sample {n} of {base}");
            }
        }
    }
}

/// A proof aligns the segment up to the sample and a little more, and no other.
#[test]
fn a_proof_is_cheap() {
    let mut draws: Vec<Draw> =
        (0..9_000).map(|k| (1, (f64::from(k) * 0.3).sin(), 0.1, 0.2, f64::from(k % 7))).collect();
    (1..9).for_each(|segment| draws[segment * 1_000].0 = 60);
    let (bars, spec) = (bars(&draws), torn_spec(Scaling::Robust));
    let series = align(&[instrument(&bars)], &spec).unwrap();
    assert_eq!(series.header.segments.len(), 9);
    let n = series.header.segments[4].samples.start;
    let moment = Moment { time: series.sample_time[n], seed: 1 };
    let proof = prove(instrument(&bars), &spec, series.scalers(), moment).unwrap();
    // 17 bars of M15, up to 15 minutes in the first of which nothing was, and the 15 minutes that
    // follow and two bars.
    assert!((240 + 17..=255 + 17).contains(&proof.bars) && proof.replaced == 17, "{} {}", proof.bars, proof.replaced);
}

/// A bin that closes in a hole is whole or not by the time of the next bar, which scalers fitted up
/// to the hole cannot know.
#[test]
fn a_bin_that_closes_in_a_hole_is_not_fitted_on() {
    let scalers = |next: i64| {
        let mut draws: Vec<Draw> =
            (0..800).map(|k| (1, (f64::from(k) * 0.3).sin(), 0.1, 0.2, f64::from(k % 7))).collect();
        // The last bar before the hole closes at minute 1,000,394; its bins of M5 and M15 close at
        // minute 1,000,395.
        draws[393].0 = next - 1_000_393;
        let (bars, spec) = (bars(&draws), torn_spec(Scaling::Standard));
        let series = align_until(&[instrument(&bars)], &spec, Some(1_000_396 * MINUTE_NS)).unwrap();
        series.scalers().clone()
    };
    // Holes of three minutes, which is spanned, and of six, which is not.
    assert_eq!(scalers(1_000_397), scalers(1_000_400));
}
