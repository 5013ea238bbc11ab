//! Mark of verification of a series file: checksums of blocks of each array, and two hashes of
//! them, in the group `/checksums` (docs/reference/formats.md).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hdf5::{Dataset, File};
use megabatch_gpu_core::Scope;
use xxhash_rust::xxh3::Xxh3;

use super::SeriesDescription;
use crate::checksums::{BlockSums, Blocks, TableChecksums, little_endian};
use crate::error::{Error, LayoutFault, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{CHANGED, ElementKind, Expect};
use crate::slab::{Element, read_rows};
use crate::spans::{LABEL_END, REACH};
use crate::storage::{OutputFile, Storage};
use crate::text::AttributeValue;
use crate::timeframe::timeframe_order;
use crate::weights::WEIGHT;

/// Group of the mark.
pub(crate) const GROUP: &str = "/checksums";
/// Version of blocks, hashes and rules.
const VERSION: i64 = 1;
/// First characters of a fingerprint that is computed from checksums of blocks.
const FINGERPRINT_PREFIX: &str = "blocks-";
/// Checksums that are read at once.
const SUMS_AT_ONCE: usize = 1 << 16;

const SUMS: Expect = Expect { what: "a list of integers, one a block", kinds: &[ElementKind::Integer], ranks: 1..=1 };

/// Dimensions and short lists of a series, from which its mark is computed.
#[derive(Clone, Debug)]
pub(super) struct MarkedSeries<'a> {
    pub(super) samples: usize,
    pub(super) horizons: usize,
    pub(super) timeframes: Vec<MarkedTimeframe<'a>>,
    pub(super) has_reach: bool,
    pub(super) has_label_end: bool,
    pub(super) has_weights: bool,
    pub(super) has_instruments: bool,
}

#[derive(Clone, Debug)]
pub(super) struct MarkedTimeframe<'a> {
    pub(super) name: &'a str,
    pub(super) steps: usize,
    pub(super) features: usize,
    pub(super) bars: usize,
    pub(super) instrument_start: &'a [i64],
    pub(super) segment_start: &'a [i64],
}

/// An array with checksums.
#[derive(Clone, Debug)]
pub(super) struct MarkedArray {
    object: String,
    blocks: Blocks,
    /// Bytes of an element as it is hashed.
    element_bytes: usize,
}

impl<'a> MarkedSeries<'a> {
    pub(super) fn from_description(description: &'a SeriesDescription) -> Self {
        let timeframes = description.timeframes.iter().map(|timeframe| MarkedTimeframe {
            name: &timeframe.name,
            steps: timeframe.steps,
            features: timeframe.feature_names.len(),
            bars: timeframe.bars,
            instrument_start: &timeframe.instrument_start,
            segment_start: &timeframe.segment_start,
        });
        MarkedSeries {
            samples: description.samples,
            horizons: description.horizons,
            timeframes: timeframes.collect(),
            has_reach: true,
            has_label_end: true,
            has_weights: description.has_weights,
            has_instruments: description.instruments.is_some(),
        }
    }

    /// The timeframes, shortest first.
    fn in_order(&self) -> Vec<&MarkedTimeframe<'a>> {
        let mut timeframes: Vec<_> = self.timeframes.iter().collect();
        timeframes.sort_by(|a, b| timeframe_order(a.name, b.name));
        timeframes
    }

    /// The arrays, in the order in which their checksums lie in the file.
    pub(super) fn arrays(&self) -> Vec<MarkedArray> {
        let array = |object: String, rows: usize, width: usize, element_bytes: usize| MarkedArray {
            object,
            blocks: Blocks::new(rows, width * element_bytes),
            element_bytes,
        };
        let (f32_bytes, i64_bytes, samples) = (size_of::<f32>(), size_of::<i64>(), self.samples);
        let mut arrays = Vec::new();
        for MarkedTimeframe { name, features, bars, .. } in self.in_order() {
            arrays.push(array(values_of(name), *bars, *features, f32_bytes));
            arrays.push(array(close_time_of(name), *bars, 1, i64_bytes));
            arrays.push(array(sample_end_of(name), samples, 1, i64_bytes));
        }
        arrays.push(array(SAMPLE_TIME.to_owned(), samples, 1, i64_bytes));
        let spans = [(REACH, self.has_reach), (LABEL_END, self.has_label_end)];
        let spans = spans.iter().filter(|(_, is_there)| *is_there);
        arrays.extend(spans.map(|(object, _)| array((*object).to_owned(), samples, 1, i64_bytes)));
        arrays.extend(self.has_instruments.then(|| array(INSTRUMENT.to_owned(), samples, 1, size_of::<i32>())));
        arrays.extend(self.has_weights.then(|| array(WEIGHT.to_owned(), samples, 1, f32_bytes)));
        arrays.push(array(TARGETS.to_owned(), samples, self.horizons, f32_bytes));
        arrays
    }

    /// The hashes of the mark, from the checksums that `sums` gives of an array, in order; it is
    /// asked for each array once.
    pub(super) fn hashes<E>(
        &self,
        mut sums: impl FnMut(&str, &mut dyn FnMut(&[u64])) -> Result<(), E>,
    ) -> Result<Hashes, E> {
        let mut update = |hash: &mut Xxh3, object: &str| sums(object, &mut |part| hash.update(&little_endian(part)));
        let mut numbers = Xxh3::new();
        numbers.update(format!("series of {} samples, {} targets\n", self.samples, self.horizons).as_bytes());
        update(&mut numbers, SAMPLE_TIME)?;
        for timeframe in self.in_order() {
            let MarkedTimeframe { name, steps, features, bars, .. } = timeframe;
            numbers.update(format!("{name}: windows of {steps}, {features} features, {bars} bars\n").as_bytes());
            update(&mut numbers, &values_of(name))?;
            update(&mut numbers, &sample_end_of(name))?;
            numbers.update(&little_endian(&all_segment_starts(timeframe.segment_start, timeframe.instrument_start)));
        }
        update(&mut numbers, TARGETS)?;
        if self.has_weights {
            numbers.update(b"weights\n");
            update(&mut numbers, WEIGHT)?;
        }
        let fingerprint = format!("{FINGERPRINT_PREFIX}{:032x}", numbers.digest128());

        let mut all = Xxh3::new();
        all.update(fingerprint.as_bytes());
        for MarkedTimeframe { name, instrument_start, segment_start, .. } in self.in_order() {
            update(&mut all, &close_time_of(name))?;
            for starts in [instrument_start, segment_start] {
                all.update(&(starts.len() as u64).to_le_bytes());
                all.update(&little_endian(starts));
            }
        }
        let others = [(REACH, self.has_reach), (LABEL_END, self.has_label_end), (INSTRUMENT, self.has_instruments)];
        for (object, _) in others.iter().filter(|(_, is_there)| *is_there) {
            all.update(object.as_bytes());
            update(&mut all, object)?;
        }
        Ok(Hashes { fingerprint, digest: format!("{:032x}", all.digest128()) })
    }
}

/// First bar of each segment: as stated, or else of each instrument that has bars.
pub(super) fn all_segment_starts(segment_start: &[i64], instrument_start: &[i64]) -> Vec<i64> {
    match segment_start {
        [] => instrument_start.windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| pair[0]).collect(),
        given => given.to_vec(),
    }
}

/// Hashes of checksums.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hashes {
    /// Hash of the numbers of the samples.
    pub(crate) fingerprint: String,
    /// Hash of the fingerprint and of everything else that the rules of the layout are about.
    pub(crate) digest: String,
}

pub(super) const SAMPLE_TIME: &str = "/samples/time";
pub(super) const INSTRUMENT: &str = "/samples/instrument";
pub(super) const TARGETS: &str = "/targets";

pub(super) fn values_of(timeframe: &str) -> String {
    format!("/series/{timeframe}/values")
}

pub(super) fn close_time_of(timeframe: &str) -> String {
    format!("/series/{timeframe}/close_time")
}

pub(super) fn sample_end_of(timeframe: &str) -> String {
    format!("/samples/end/{timeframe}")
}

/// True for a fingerprint that is computed from checksums of blocks.
pub fn is_fingerprint_of_blocks(fingerprint: &str) -> bool {
    fingerprint.starts_with(FINGERPRINT_PREFIX)
}

/// Writes the mark of a series while its arrays are written. The caller checks the rules.
#[derive(Debug)]
pub(super) struct MarkWriter<'a> {
    output: OutputFile<'a>,
    arrays: BTreeMap<String, ArraySums>,
}

#[derive(Debug)]
struct ArraySums {
    sums: BlockSums,
    dataset: Dataset,
}

impl<'a> MarkWriter<'a> {
    /// Makes room for the checksums of arrays in `file`.
    pub(super) fn create(path: &'a Path, file: &'a File, arrays: Vec<MarkedArray>) -> Result<Self> {
        let output = OutputFile { path, file, storage: Storage::Contiguous };
        let create = |array: MarkedArray| -> Result<_> {
            let dataset = output.create::<u64>(&format!("{GROUP}{}", array.object), &[array.blocks.count()])?;
            // The first element gives the dataset its place in the file.
            output.write_rows(&dataset, 0, &[0_u64])?;
            Ok((array.object, ArraySums { sums: BlockSums::new(array.blocks), dataset }))
        };
        let arrays = arrays.into_iter().map(create).collect::<Result<_>>()?;
        Ok(MarkWriter { output, arrays })
    }

    /// Takes rows of the array `object` from `first` on.
    pub(super) fn add<T: Element>(&self, object: &str, first: usize, values: &[T]) -> Result<()> {
        let ArraySums { sums, dataset } = &self.arrays[object];
        let complete = sums.add(first, values);
        complete.iter().try_for_each(|part| self.output.write_rows(dataset, part.first, &part.sums))
    }

    /// Writes checksums of the array `object` from that of block `first` on.
    pub(super) fn write_sums(&self, object: &str, first: usize, sums: &[u64]) -> Result<()> {
        self.output.write_rows(&self.arrays[object].dataset, first, sums)
    }

    /// Ends the mark of `series`, all rows being there and checked.
    pub(super) fn finish(&self, series: &MarkedSeries<'_>) -> Result<()> {
        let path = self.output.path;
        let mut part = Vec::new();
        let hashes = series.hashes(|object, each| {
            let dataset = &self.arrays[object].dataset;
            let count = dataset.size();
            for first in (0..count).step_by(SUMS_AT_ONCE) {
                let rows = first..count.min(first + SUMS_AT_ONCE);
                part.resize(rows.len(), 0);
                read_rows(dataset, &rows, &mut part).map_err(Error::hdf5(path, object, "read the checksums"))?;
                each(&part);
            }
            Ok::<(), Error>(())
        })?;
        self.write_attributes(&hashes)
    }

    /// Writes the attributes that make the checksums a mark.
    pub(super) fn write_attributes(&self, hashes: &Hashes) -> Result<()> {
        let OutputFile { path, file, .. } = self.output;
        let group = file.group(GROUP).map_err(Error::hdf5(path, GROUP, "open the group"))?;
        self.output.write_attribute(&group, "version", &VERSION.into())?;
        self.output.write_attribute(&group, "fingerprint", &hashes.fingerprint.as_str().into())?;
        self.output.write_attribute(&group, "digest", &hashes.digest.as_str().into())
    }
}

/// Mark of a file that is open.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) hashes: Hashes,
    checksums: BTreeMap<String, Arc<TableChecksums>>,
}

impl Mark {
    /// The mark of `series` in `file`, its checksums in memory booked on `scope`; `None` if it has
    /// none, or one of another version.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a mark that is not of this series.
    pub(super) fn read(file: &InputFile, series: &MarkedSeries<'_>, scope: &Scope) -> Result<Option<Self>> {
        if !file.has_group(GROUP) || file.attribute(GROUP, "version")? != Some(AttributeValue::Int(VERSION)) {
            return Ok(None);
        }
        let mut checksums = BTreeMap::new();
        for MarkedArray { object, blocks, element_bytes } in series.arrays() {
            let table = file.table(&format!("{GROUP}{object}"), &SUMS)?;
            table.require_rows(blocks.count(), &format!("{object} in blocks of {} rows", blocks.block_rows))?;
            let sums = table.read_buffer::<u64>(scope)?;
            checksums.insert(object, Arc::new(TableChecksums::new(blocks, sums, element_bytes)));
        }
        let hashes = series.hashes(|object, each| {
            each(checksums[object].sums.as_slice());
            Ok::<(), Error>(())
        })?;
        for (name, expected) in [("fingerprint", &hashes.fingerprint), ("digest", &hashes.digest)] {
            let found = file.attribute(GROUP, name)?;
            if found != Some(AttributeValue::Text(expected.clone())) {
                return Err(Error::invalid(&file.path, not_of_these(name, expected, found)));
            }
        }
        Ok(Some(Mark { hashes, checksums }))
    }

    /// Checksums of an array.
    pub(super) fn checksums_of(&self, object: &str) -> Option<Arc<TableChecksums>> {
        self.checksums.get(object).cloned()
    }
}

fn not_of_these(name: &str, expected: &str, found: Option<AttributeValue>) -> LayoutFault {
    LayoutFault {
        object: format!("{GROUP}@{name}"),
        index: None,
        expected: format!("{expected}, the hash of the checksums and lists in the file"),
        found: found.map_or("no such attribute".to_owned(), |found| found.to_string()),
        fix: CHANGED.to_owned(),
    }
}
