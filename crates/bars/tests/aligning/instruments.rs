use megabatch_bars::{Bars, Error, Scaling, SeriesSpec, StreamedInstrument};
use proptest::prelude::*;

use crate::drawn::{Draw, bars, bits, draws, spec, torn_draws, torn_spec};
use crate::whole::{WholeSeries, align, align_until, align_with, instrument};

const NAMES: [&str; 3] = ["EURUSD", "GBPUSD", "USDJPY"];
const PIPS: [f64; 3] = [0.0001, 0.0002, 0.01];

fn instruments(bars: &[Bars]) -> Vec<StreamedInstrument<'_>> {
    (0..bars.len()).map(|k| instrument(NAMES[k], &bars[k], PIPS[k])).collect()
}

fn plain_spec(scaling: Scaling) -> SeriesSpec {
    SeriesSpec { features: torn_spec(scaling).features, ..spec(scaling) }
}

/// The rows of one instrument in a timeframe, as bits.
fn rows(series: &WholeSeries, timeframe: usize, instrument: usize) -> Vec<u32> {
    let starts = &series.header.timeframes[timeframe].instrument_start;
    let found = &series.timeframes[timeframe];
    let [start, end] = [0, 1].map(|k| starts[instrument + k] as usize * found.width);
    bits(&found.values[start..end])
}

/// Compares one instrument of a series with the same when it is aligned alone.
fn assert_same(together: &WholeSeries, instrument: usize, alone: &WholeSeries) {
    let samples: Vec<usize> =
        (0..together.len()).filter(|&n| together.sample_instrument[n] as usize == instrument).collect();
    assert_eq!(samples.len(), alone.len());
    let k = together.targets.len() / together.len();
    for (n, &sample) in samples.iter().enumerate() {
        assert_eq!(together.sample_time[sample], alone.sample_time[n]);
        assert_eq!(bits(&together.targets[sample * k..(sample + 1) * k]), bits(&alone.targets[n * k..(n + 1) * k]));
    }
    for (k, (a, b)) in together.timeframes.iter().zip(&alone.timeframes).enumerate() {
        assert_eq!(rows(together, k, instrument), rows(alone, k, 0));
        let own = instrument * a.width..(instrument + 1) * a.width;
        let (own_scaler, scaler) = (&together.scalers().timeframes[k], &alone.scalers().timeframes[k]);
        assert_eq!((&own_scaler.center[own.clone()], &own_scaler.scale[own]), (&scaler.center[..], &scaler.scale[..]));
        for (n, &sample) in samples.iter().enumerate() {
            assert_eq!(a.end[sample] - together.header.timeframes[k].instrument_start[instrument], b.end[n]);
            assert_eq!(bits(a.window(sample)), bits(b.window(n)));
        }
    }
}

proptest! {
    /// Together, instruments are what each is alone when its scalers are fitted up to the same
    /// time.
    #[test]
    fn instruments_are_strangers_to_each_other(
        first in draws(700), second in draws(500), torn in torn_draws(), holes in any::<bool>(),
    ) {
        let bars = [bars(&first), bars(&second), bars(&torn)];
        let spec = if holes { torn_spec(Scaling::Robust) } else { plain_spec(Scaling::Standard) };
        let instruments = instruments(&bars);
        let Ok(together) = align(&instruments, &spec) else { return Ok(()) };
        prop_assert_eq!(together.header.instruments(), NAMES);
        for (k, instrument) in instruments.iter().enumerate() {
            let alone = std::slice::from_ref(instrument);
            let fit_end_time = together.scalers().fit_end_time;
            assert_same(&together, k, &align_until(alone, &spec, Some(fit_end_time)).unwrap());
            let own: Vec<i64> = together.header.segments.iter().filter(|segment| segment.instrument as usize == k)
                .map(|segment| segment.open_time).collect();
            prop_assert!(own.is_sorted() && !own.is_empty());
        }
        let mut again = align_with(&instruments, &spec, together.scalers()).unwrap();
        again.header.warnings.clone_from(&together.header.warnings);
        prop_assert_eq!(again, together);
    }

    /// The training span ends before the time that the first sample after the fraction has,
    /// whoever's samples those are.
    #[test]
    fn the_training_span_is_one_for_all(
        first in draws(500), second in draws(600), fraction in 0.5f64..=1.0,
    ) {
        let bars = [bars(&first), bars(&second)];
        let spec = SeriesSpec { train_fraction: fraction, ..plain_spec(Scaling::None) };
        let series = align(&instruments(&bars), &spec).unwrap();
        let mut times = series.sample_time.clone();
        times.sort_unstable();
        let last = |times: &[i64]| {
            let validation_start = times.get((fraction * times.len() as f64) as usize).copied().unwrap_or(i64::MAX);
            times.iter().copied().filter(|&time| time < validation_start).max().unwrap()
        };
        let by_samples = last(&times);
        times.dedup();
        prop_assert_eq!(series.scalers().fit_end_time, by_samples.min(last(&times)) + 1);
    }
}

/// Plain minutes from the `start`-th on.
fn minutes(start: i64, len: usize) -> Bars {
    let mut draws: Vec<Draw> = (0..len).map(|k| (1, (k as f64 * 0.3).sin(), 0.1, 0.2, 1.0 + (k % 7) as f64)).collect();
    draws[0].0 += start;
    bars(&draws)
}

#[test]
fn an_instrument_without_a_past_is_refused_by_name() {
    // Training ends within the first 1,000 minutes, before the second instrument has a window of
    // M15.
    let bars = [minutes(0, 1_000), minutes(640, 400)];
    let error = align(&instruments(&bars), &plain_spec(Scaling::Robust)).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::TooFewToFit { bars: 0, needed: 3, .. }), "{message}");
    assert!(message.starts_with("GBPUSD: it begins too late: only 0 of its M15 bars"), "{message}");
    assert!(message.contains("leave GBPUSD out, give more of its past"), "{message}");
    // Unscaled it has nothing to be fitted.
    let series = align(&instruments(&bars), &plain_spec(Scaling::None)).unwrap();
    assert_eq!(series.sample_instrument.last(), Some(&1));
    assert!(series.scalers().timeframes[2].scale.iter().all(|&scale| scale == 1.0));
}

#[test]
fn an_instrument_without_samples_is_refused_by_name() {
    let bars = [minutes(0, 1_000), minutes(0, 200)];
    let message = align(&instruments(&bars), &plain_spec(Scaling::Robust)).unwrap_err().to_string();
    assert!(message.starts_with("GBPUSD: too few bars for one sample: before the last 5"), "{message}");
}

#[test]
fn messages_about_several_instruments_name_one() {
    let mut bars = [minutes(0, 1_000), minutes(0, 1_000)];
    bars[1].volume.fill(0.0);
    let series = align(&instruments(&bars), &plain_spec(Scaling::Robust)).unwrap();
    let named: Vec<_> = series.header.warnings.iter().filter(|warning| warning.contains("log_volume")).collect();
    assert_eq!(named.len(), 1, "{:?}", series.header.warnings);
    let expected = "log_volume is constant over the training span in GBPUSD M1, GBPUSD M5, GBPUSD M15: it carries";
    assert!(named[0].starts_with(expected), "{}", named[0]);
}
