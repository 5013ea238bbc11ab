use std::path::Path;

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::{Error, LayoutFault, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{AllowedNumbers, ElementKind, Expect, NumericDataset};
use crate::read::NonFinite;
use crate::shape::{Shape, TimeframeShape};
use crate::spans::{LABEL_END, REACH, SpanTimes, TimeUnit, horizon_bars};
use crate::text::AttributeValue;
use crate::timeframe::timeframe_order;
use crate::weights::{read_weights, weights_table};

const FEATURES: Expect = Expect { what: "floats [N, T, F]", kinds: &[ElementKind::Float], ranks: 3..=3 };
const TARGETS: Expect = Expect {
    what: "numbers [N], [N, K] or [N, K, 1]",
    kinds: &[ElementKind::Float, ElementKind::Integer, ElementKind::Boolean],
    ranks: 1..=3,
};
const TIMESTAMPS: Expect =
    Expect { what: "integers [N], ns since 1970 UTC", kinds: &[ElementKind::Integer], ranks: 1..=1 };

const SAMPLE_INSTRUMENT: &str = "/samples/instrument";
const INSTRUMENTS: Expect = Expect { what: "integers [N]", kinds: &[ElementKind::Integer], ranks: 1..=1 };

/// A windows file, open and checked: its datasets are there, of the right kinds and ranks, and
/// agree on N.
#[derive(Debug)]
pub(crate) struct WindowsFile {
    file: InputFile,
    shape: Shape,
    features: Vec<NumericDataset>,
    targets: NumericDataset,
    timestamps: Option<Buffer<i64>>,
    span_times: SpanTimes,
    instruments: Vec<String>,
    sample_instrument: Option<Buffer<i32>>,
    weights: Option<Buffer<f32>>,
}

impl WindowsFile {
    /// Checks an open file; the timestamps, if any, are read into memory booked on `scope`.
    pub(crate) fn from_file(file: InputFile, scope: &Scope) -> Result<Self> {
        let mut named = open_features(&file)?;
        let samples = named[0].1.rows();
        for (_, table) in &named {
            table.require_rows(samples, &named[0].1.object)?;
            table.require_elements()?;
        }
        let mut targets = open_targets(&file)?;
        targets.require_rows(samples, &named[0].1.object)?;
        targets.require_elements()?;
        if file.reading.options.non_finite == NonFinite::Fail {
            for (_, table) in &mut named {
                table.allow(AllowedNumbers::FiniteInWindows(table.shape[2]));
            }
            targets.allow(AllowedNumbers::FiniteOrNanInWindows);
        }
        let timestamps = if file.has_dataset("/timestamps") {
            let table = file.table("/timestamps", &TIMESTAMPS)?;
            table.require_rows(samples, &named[0].1.object)?;
            let timestamps: Buffer<i64> = table.read_buffer(scope)?;
            check_unit(timestamps.as_slice()).map_err(|fault| Error::invalid(&file.path, fault))?;
            Some(timestamps)
        } else {
            None
        };
        let span_times = match &timestamps {
            Some(timestamps) => SpanTimes::open(&file, "/timestamps", timestamps.as_slice(), scope)?,
            None => SpanTimes::default(),
        };
        let (names, sample_instrument) = match file.has_dataset("/instruments") && file.has_dataset(SAMPLE_INSTRUMENT) {
            true => {
                let table = file.table(SAMPLE_INSTRUMENT, &INSTRUMENTS)?;
                table.require_rows(samples, &named[0].1.object)?;
                let instruments: Buffer<i32> = table.read_buffer(scope)?;
                let names = file.texts("/instruments", None)?;
                let known = |&instrument: &i32| usize::try_from(instrument).is_ok_and(|place| place < names.len());
                if let Some(n) = instruments.as_slice().iter().position(|instrument| !known(instrument)) {
                    let expected = format!("an instrument from 0 to {}", names.len().saturating_sub(1));
                    return Err(table.fault(Some(n), &expected, &instruments.as_slice()[n].to_string()));
                }
                (names, Some(instruments))
            }
            false => (Vec::new(), None),
        };
        let weights = weights_table(&file, samples, &named[0].1.object)?;
        let weights = weights.map(|table| read_weights(&table, &file, scope)).transpose()?;
        let shape_of = |(name, table): &(Option<String>, NumericDataset)| TimeframeShape {
            name: name.clone(),
            steps: table.shape[1],
            features: table.shape[2],
        };
        let shape = Shape { samples, timeframes: named.iter().map(shape_of).collect(), horizons: targets.row_len() };
        let features = named.into_iter().map(|(_, table)| table).collect();
        Ok(WindowsFile {
            file,
            shape,
            features,
            targets,
            timestamps,
            span_times,
            instruments: names,
            sample_instrument,
            weights,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Time of each sample, `[N]`, ns since 1970 UTC, if the file has them.
    pub(crate) fn sample_times(&self) -> Option<&[i64]> {
        self.timestamps.as_ref().map(Buffer::as_slice)
    }

    /// Times between which each sample and its targets read bars.
    pub(crate) fn span_times(&self) -> &SpanTimes {
        &self.span_times
    }

    /// The first list of [`WindowsFile::span_times`] that the file has and that is not read, as it
    /// has no `/timestamps`.
    pub(crate) fn untimed_span_list(&self) -> Option<&'static str> {
        let has_list = |list: &&str| self.timestamps.is_none() && self.file.has_dataset(list);
        [LABEL_END, REACH].into_iter().find(has_list)
    }

    /// Base bars from a sample to the end of its farthest target, if the file has the attribute
    /// `horizon_bars`.
    pub(crate) fn horizon_bars(&self) -> Result<Option<usize>> {
        horizon_bars(&self.file)
    }

    /// Names of the instruments, `[I]`; empty where the file names none.
    pub(crate) fn instruments(&self) -> &[String] {
        &self.instruments
    }

    /// Number of each sample's instrument, `[N]`, if the file names instruments, as one made of a
    /// series does.
    pub(crate) fn sample_instruments(&self) -> Option<&[i32]> {
        self.sample_instrument.as_ref().map(Buffer::as_slice)
    }

    /// Weight of each sample in the loss of training, `[N]`; `None` where all count alike.
    pub(crate) fn sample_weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().map(Buffer::as_slice)
    }

    pub(crate) fn attribute(&self, name: &str) -> Result<Option<AttributeValue>> {
        self.file.attribute("/", name)
    }

    pub(crate) fn features(&self) -> &[NumericDataset] {
        &self.features
    }

    pub(crate) fn targets(&self) -> &NumericDataset {
        &self.targets
    }
}

/// Refuses times of another unit: as nanoseconds they would all lie in January 1970, where each
/// purge is too short.
fn check_unit(timestamps: &[i64]) -> Result<(), LayoutFault> {
    let ends = timestamps.iter().min().zip(timestamps.iter().max());
    let Some((first, unit)) = ends.and_then(|(&first, &last)| Some((first, TimeUnit::mistaken_for_ns(first, last)?)))
    else {
        return Ok(());
    };
    Err(LayoutFault {
        object: "/timestamps".to_owned(),
        index: None,
        expected: "ns since 1970 UTC".to_owned(),
        found: format!("times from {first} on, which look like {}: as ns they all lie in January 1970", unit.name),
        fix: format!("multiply them by {}", unit.ns),
    })
}

/// `/features`, or one dataset a timeframe below `/features` or `/sequences`, in the fixed order.
fn open_features(file: &InputFile) -> Result<Vec<(Option<String>, NumericDataset)>> {
    if file.has_dataset("/features") {
        return Ok(vec![(None, file.table("/features", &FEATURES)?)]);
    }
    let Some(group) = ["/features", "/sequences"].into_iter().find(|group| file.has_group(group)) else {
        return Err(file.missing("/features", FEATURES.what));
    };
    let mut names = file.datasets_in(group)?;
    if names.is_empty() {
        return Err(file.broken(group, "one dataset [N, T, F] a timeframe", "a group without datasets"));
    }
    names.sort_by(|a, b| timeframe_order(a, b));
    let open = |name: String| file.table(&format!("{group}/{name}"), &FEATURES).map(|table| (Some(name), table));
    names.into_iter().map(open).collect()
}

fn open_targets(file: &InputFile) -> Result<NumericDataset> {
    let targets = file.table("/targets", &TARGETS)?;
    match targets.shape[..] {
        [_] | [_, _] | [_, _, 1] => Ok(targets),
        _ => Err(targets.fault(None, TARGETS.what, &format!("shape {:?}", targets.shape))),
    }
}
