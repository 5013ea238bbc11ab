//! Made-up windows files, cut out of made-up recordings sample by sample.

use std::path::Path;

const MINUTE_NS: i64 = 60_000_000_000;
/// The first Monday of 1970.
const MONDAY_MINUTE: usize = 4 * 24 * 60;

/// Recording of one instrument.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) samples: usize,
    /// Base bars from one sample to the next.
    pub(crate) stride: usize,
    /// Steps from a sample to the next that are other ones: 0 repeats the sample, large ones leave
    /// a hole.
    pub(crate) odd: Vec<(usize, usize)>,
    /// Minutes since 1970 at which it begins.
    pub(crate) start: usize,
}

impl Default for Recording {
    fn default() -> Self {
        Recording { samples: 20, stride: 1, odd: Vec::new(), start: 25_000_000 }
    }
}

/// Dimensions of a made-up timeframe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeframePlan {
    pub(crate) name: &'static str,
    /// Base bars in a bar.
    pub(crate) base_bars: usize,
    /// Window length T.
    pub(crate) steps: usize,
    /// Number of features F.
    pub(crate) features: usize,
}

pub(crate) const fn timeframe(name: &'static str, base_bars: usize, steps: usize, features: usize) -> TimeframePlan {
    TimeframePlan { name, base_bars, steps, features }
}

/// One row of a windows file.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) time: i64,
    /// `[T, F]` of each timeframe.
    pub(crate) windows: Vec<Vec<f32>>,
    pub(crate) targets: [f32; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) timeframes: Vec<TimeframePlan>,
    pub(crate) rows: Vec<Row>,
    pub(crate) timed: bool,
}

/// A finite number of any bits, -0.0 often among them.
fn feature(instrument: usize, timeframe: usize, bar: usize, feature: usize) -> f32 {
    let any = value(instrument, timeframe, bar, feature);
    if any.is_finite() { any } else { f32::from_bits(any.to_bits() ^ 1 << 30) }
}

/// A number of any bits but an infinity, NaN of any payload and -0.0 often among them.
fn value(instrument: usize, timeframe: usize, bar: usize, feature: usize) -> f32 {
    let seed = ((instrument * 4 + timeframe) * 100_000_000 + bar) as u64 * 8 + feature as u64;
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    match mixed >> 60 {
        0 => -0.0,
        1 => f32::from_bits(0x7fc0_0000 | (mixed & 0x3f_ffff) as u32),
        2 => f32::from_bits(0xff80_0001 | (mixed & 0xffff) as u32),
        _ => Some(f32::from_bits((mixed >> 20) as u32)).filter(|any| !any.is_infinite()).unwrap_or(1.0),
    }
}

impl Windows {
    pub(crate) fn new(recordings: &[Recording], timeframes: &[TimeframePlan]) -> Self {
        let mut rows = Vec::new();
        for (instrument, recording) in recordings.iter().enumerate() {
            let mut minute = recording.start;
            for n in 0..recording.samples {
                if n > 0 {
                    let odd = recording.odd.iter().find(|(at, _)| *at == n);
                    minute += odd.map_or(recording.stride, |&(_, step)| if step == 4 { 500 } else { step });
                }
                rows.push(row(instrument, minute, timeframes));
            }
        }
        Windows { timeframes: timeframes.to_vec(), rows, timed: true }
    }

    /// Writes the file as other programs do: chunked, without attributes; a timeframe named "" is
    /// `/features` itself.
    pub(crate) fn write(&self, path: &Path) {
        let file = hdf5::File::create(path).unwrap();
        let n = self.rows.len();
        for (k, &TimeframePlan { name, steps, features, .. }) in self.timeframes.iter().enumerate() {
            let values: Vec<f32> = self.rows.iter().flat_map(|row| row.windows[k].iter().copied()).collect();
            let object = if name.is_empty() { "features".to_owned() } else { format!("features/{name}") };
            let dataset = file.new_dataset::<f32>().chunk([3.min(n), steps, features]).shape([n, steps, features]);
            dataset.create(&*object).unwrap().write_raw(&values).unwrap();
        }
        let targets: Vec<f32> = self.rows.iter().flat_map(|row| row.targets).collect();
        file.new_dataset::<f32>().shape([n, 2]).create("targets").unwrap().write_raw(&targets).unwrap();
        if self.timed {
            let times: Vec<i64> = self.rows.iter().map(|row| row.time).collect();
            file.new_dataset::<i64>().shape([n]).create("timestamps").unwrap().write_raw(&times).unwrap();
        }
    }
}

fn row(instrument: usize, minute: usize, timeframes: &[TimeframePlan]) -> Row {
    let window = |(k, timeframe): (usize, &TimeframePlan)| {
        let TimeframePlan { name, base_bars: per, steps, features } = *timeframe;
        let last = (minute - if name == "W1" { MONDAY_MINUTE } else { 0 }) / per;
        let bars = last + 1 - steps..=last;
        bars.flat_map(|bar| (0..features).map(move |place| feature(instrument, k, bar, place))).collect()
    };
    Row {
        time: minute as i64 * MINUTE_NS,
        windows: timeframes.iter().enumerate().map(window).collect(),
        targets: [value(instrument, 3, minute, 0), value(instrument, 3, minute, 1)],
    }
}
