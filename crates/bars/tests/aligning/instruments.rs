use megabatch_bars::{
    AlignedSeries, Bars, Error, Instrument, Scalers, Scaling, SeriesSpec, TimeframeSeries, align, align_with,
};
use proptest::prelude::*;

use crate::made_up::{Draw, bars, bits, draws, spec, torn_draws, torn_spec};

const NAMES: [&str; 3] = ["EURUSD", "GBPUSD", "USDJPY"];
const PIPS: [f64; 3] = [0.0001, 0.0002, 0.01];

fn instruments(bars: &[Bars]) -> Vec<Instrument<'_>> {
    (0..bars.len()).map(|k| Instrument { name: NAMES[k], bars: &bars[k], pip_size: PIPS[k] }).collect()
}

fn plain_spec(scaling: Scaling) -> SeriesSpec {
    SeriesSpec { features: torn_spec(scaling).features, ..spec(scaling) }
}

/// The rows of one instrument, as bits.
fn rows_of(series: &TimeframeSeries, instrument: usize) -> Vec<u32> {
    let [start, end] = [0, 1].map(|k| series.instrument_start[instrument + k] as usize * series.features.len());
    bits(&series.values[start..end])
}

/// True if one instrument of a series is what it is when it is aligned alone.
fn assert_same(together: &AlignedSeries, instrument: usize, alone: &AlignedSeries) {
    let samples: Vec<usize> =
        (0..together.len()).filter(|&n| together.sample_instrument[n] as usize == instrument).collect();
    assert_eq!(samples.len(), alone.len());
    let k = together.targets.len() / together.len();
    for (n, &sample) in samples.iter().enumerate() {
        assert_eq!(together.sample_time[sample], alone.sample_time[n]);
        assert_eq!(bits(&together.targets[sample * k..(sample + 1) * k]), bits(&alone.targets[n * k..(n + 1) * k]));
    }
    for (a, b) in together.timeframes.iter().zip(&alone.timeframes) {
        assert_eq!(rows_of(a, instrument), rows_of(b, 0));
        let width = a.features.len();
        let own = instrument * width..(instrument + 1) * width;
        assert_eq!((&a.center[own.clone()], &a.scale[own]), (&b.center[..], &b.scale[..]));
        for (n, &sample) in samples.iter().enumerate() {
            assert_eq!(a.end[sample] - a.instrument_start[instrument], b.end[n]);
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
        prop_assert_eq!(&together.instruments, &NAMES);
        for (k, instrument) in instruments.iter().enumerate() {
            let alone = std::slice::from_ref(instrument);
            let scalers = Scalers::fit(alone, &spec, together.fit_end_time).unwrap();
            assert_same(&together, k, &align_with(alone, &spec, &scalers).unwrap());
            let own: Vec<i64> = together.segments.iter().filter(|segment| segment.instrument as usize == k)
                .map(|segment| segment.open_time).collect();
            prop_assert!(own.is_sorted() && !own.is_empty());
        }
        let fitted = Scalers::fit(&instruments, &spec, together.fit_end_time).unwrap();
        prop_assert_eq!(fitted, together.scalers());
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
        prop_assert_eq!(series.fit_end_time, by_samples.min(last(&times)) + 1);
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
    assert!(series.timeframes[2].scale.iter().all(|&scale| scale == 1.0));
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
    let named: Vec<_> = series.warnings.iter().filter(|warning| warning.contains("log_volume")).collect();
    assert_eq!(named.len(), 1, "{:?}", series.warnings);
    let expected = "log_volume is constant over the training span in GBPUSD M1, GBPUSD M5, GBPUSD M15: it carries";
    assert!(named[0].starts_with(expected), "{}", named[0]);
}
