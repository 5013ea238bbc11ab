//! A series file written piece by piece, by several threads, with the bytes that
//! [`write_series`](super::write_series) gives a file of contiguous datasets.
//!
//! ```text
//! create   every object in the order of `write_series`; the first row of a dataset gives it its
//!          place, so that the order of later rows decides nothing
//! write    rows of each instrument in order, of several at once, until every row was written once;
//!          the rules of the layout are checked and blocks hashed on the way
//! finish   the mark of verification
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hdf5::Dataset;

use super::description::{BarRows, SampleRows, SeriesDescription, TimeframeDescription, WindowEnds};
use super::mark::{
    INSTRUMENT, MarkWriter, MarkedSeries, SAMPLE_TIME, TARGETS, close_time_of, sample_end_of, values_of,
};
use super::rule_checker::{OutOfOrder, Refusal, RuleChecker};
use super::write::{
    check_description, check_scaler_numbers, check_targets, check_values, write_attributes, write_description,
};
use crate::atomic::write_atomically;
use crate::error::{Error, LayoutFault, Result};
use crate::slab::Element;
use crate::spans::{LABEL_END, REACH, check_label_end, check_reach};
use crate::storage::{OutputFile, Storage};
use crate::text::AttributeValue;
use crate::weights::{WEIGHT, check_weights};

/// Writes a series file of contiguous datasets, whose bars and samples `fill` gives: those of each
/// instrument in order, window ends after the bars up to the last that had closed, instruments in
/// any order and at once.
///
/// The file appears whole or not at all: an error of `fill` leaves what was at the path. It has a
/// mark of verification ([`SeriesFile::fingerprint`](crate::SeriesFile::fingerprint)).
///
/// # Errors
/// As `fill`; [`Error::Invalid`] if something breaks a rule of the layout; [`Error::BadRequest`] if
/// rows are missing or out of order; [`Error::NotWritable`], [`Error::Io`] and
/// [`Error::Hdf5`] as they say.
pub fn write_series_in_pieces<E: From<Error>>(
    path: impl AsRef<Path>,
    description: &SeriesDescription,
    fill: impl FnOnce(&SeriesWriter<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let path = path.as_ref();
    check_description(description).map_err(|fault| Error::invalid(path, fault))?;
    write_atomically(path, |file| {
        let writer = SeriesWriter::create(OutputFile { path, file, storage: Storage::Contiguous }, description)?;
        fill(&writer)?;
        writer.require_complete()?;
        // After the bars, of which the first that cannot be says more.
        let checked = description.timeframes.iter().try_for_each(check_scaler_numbers);
        checked.map_err(|fault| Error::invalid(path, fault))?;
        writer.mark.finish(&MarkedSeries::from_description(description))?;
        Ok(())
    })
}

/// Takes bars and samples of a series file from any thread. Made by [`write_series_in_pieces`].
#[derive(Debug)]
pub struct SeriesWriter<'a> {
    output: OutputFile<'a>,
    description: &'a SeriesDescription,
    timeframes: Vec<TimeframeDatasets>,
    time: Dataset,
    reach_time: Dataset,
    label_end_time: Dataset,
    weight: Option<Dataset>,
    targets: Dataset,
    instrument: Option<Dataset>,
    samples: AtomicUsize,
    rules: RuleChecker<'a>,
    mark: MarkWriter<'a>,
}

#[derive(Debug)]
struct TimeframeDatasets {
    values: Dataset,
    close_time: Dataset,
    sample_end: Dataset,
    bars: AtomicUsize,
    ends: AtomicUsize,
}

impl<'a> SeriesWriter<'a> {
    fn create(output: OutputFile<'a>, description: &'a SeriesDescription) -> Result<Self> {
        let rules = RuleChecker::new(description).map_err(|fault| Error::invalid(output.path, fault))?;
        write_attributes(&output, &description.attributes)?;
        let create = |timeframe| TimeframeDatasets::create(&output, timeframe, description.samples);
        let timeframes = description.timeframes.iter().map(create).collect::<Result<Vec<_>>>()?;
        let samples = [description.samples];
        let time = place::<i64>(&output, "/samples/time", &samples)?;
        let reach_time = place::<i64>(&output, REACH, &samples)?;
        let label_end_time = place::<i64>(&output, LABEL_END, &samples)?;
        let weight = description.has_weights.then(|| place::<f32>(&output, WEIGHT, &samples)).transpose()?;
        let targets = place::<f32>(&output, "/targets", &[description.samples, description.horizons])?;
        let instrument = match &description.instruments {
            None => None,
            Some(names) => {
                output.write_texts("/instruments", names)?;
                Some(place::<i32>(&output, "/samples/instrument", &samples)?)
            }
        };
        let samples = AtomicUsize::new(0);
        let mark = MarkWriter::create(output.path, output.file, MarkedSeries::from_description(description).arrays())?;
        Ok(SeriesWriter {
            output,
            description,
            timeframes,
            time,
            reach_time,
            label_end_time,
            weight,
            targets,
            instrument,
            samples,
            rules,
            mark,
        })
    }

    /// Writes the next bars of an instrument.
    ///
    /// # Errors
    /// [`Error::Invalid`] for values that are not finite and times out of order;
    /// [`Error::BadRequest`] for bars that are not the next ones; [`Error::Hdf5`].
    ///
    /// # Panics
    /// When the lengths do not fit together, or there are no such rows.
    pub fn write_bars(&self, rows: &BarRows<'_>) -> Result<()> {
        let BarRows { timeframe, first, values, close_time } = *rows;
        let (described, datasets) = (&self.description.timeframes[timeframe], &self.timeframes[timeframe]);
        assert!(values.len() == close_time.len() * described.feature_names.len(), "bars have values and times");
        let checked = check_values(described, values, close_time, first).map_err(Refusal::Fault);
        checked.and_then(|()| self.rules.bars(rows)).map_err(|refusal| self.refused(refusal))?;
        self.output.write_rows(&datasets.values, first, values)?;
        self.mark.add(&values_of(&described.name), first, values)?;
        self.output.write_rows(&datasets.close_time, first, close_time)?;
        self.mark.add(&close_time_of(&described.name), first, close_time)?;
        datasets.bars.fetch_add(close_time.len(), Relaxed);
        Ok(())
    }

    /// Writes the last bars of windows of consecutive samples in one timeframe.
    ///
    /// # Errors
    /// [`Error::Invalid`] for windows that break a rule; [`Error::BadRequest`] for windows whose
    /// bars are not those written last; [`Error::Hdf5`].
    ///
    /// # Panics
    /// When the lengths do not fit together, or there are no such samples.
    pub fn write_ends(&self, rows: &WindowEnds<'_>) -> Result<()> {
        let WindowEnds { timeframe, first, ends, time, .. } = *rows;
        assert!(ends.len() == time.len(), "samples have times and ends");
        let datasets = &self.timeframes[timeframe];
        self.rules.ends(rows).map_err(|refusal| self.refused(refusal))?;
        self.output.write_rows(&datasets.sample_end, first, ends)?;
        self.mark.add(&sample_end_of(&self.description.timeframes[timeframe].name), first, ends)?;
        datasets.ends.fetch_add(ends.len(), Relaxed);
        Ok(())
    }

    /// Writes samples.
    ///
    /// # Errors
    /// [`Error::Invalid`] for infinite targets, spans that cannot be and weights that are none;
    /// [`Error::Hdf5`].
    ///
    /// # Panics
    /// When the lengths do not fit together, or there are no such samples.
    pub fn write_samples(&self, rows: &SampleRows<'_>) -> Result<()> {
        let SampleRows { first, time, reach_time, label_end_time, weight, targets, instrument } = *rows;
        let horizons = self.description.horizons;
        assert!(targets.len() == time.len() * horizons, "samples have targets");
        assert!(self.weight.is_none() || weight.len() == time.len(), "samples have weights");
        let in_file = |fault: LayoutFault| LayoutFault { index: fault.index.map(|index| index + first), ..fault };
        let checked = check_reach(reach_time, time, first)
            .and_then(|()| check_label_end(label_end_time, time, first))
            .and_then(|()| check_weights(weight, first))
            .and_then(|()| check_targets(targets, horizons).map_err(in_file));
        checked.map_err(|fault| Error::invalid(self.output.path, fault))?;
        for (object, dataset, times) in [
            (SAMPLE_TIME, &self.time, time),
            (REACH, &self.reach_time, reach_time),
            (LABEL_END, &self.label_end_time, label_end_time),
        ] {
            self.output.write_rows(dataset, first, times)?;
            self.mark.add(object, first, times)?;
        }
        if let Some(dataset) = &self.weight {
            self.output.write_rows(dataset, first, weight)?;
            self.mark.add(WEIGHT, first, weight)?;
        }
        self.output.write_rows(&self.targets, first, targets)?;
        self.mark.add(TARGETS, first, targets)?;
        if let Some(dataset) = &self.instrument {
            self.output.write_rows(dataset, first, instrument)?;
            self.mark.add(INSTRUMENT, first, instrument)?;
        }
        self.samples.fetch_add(time.len(), Relaxed);
        Ok(())
    }

    /// True if the file names instruments.
    pub fn names_instruments(&self) -> bool {
        self.instrument.is_some()
    }

    fn refused(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Fault(fault) => Error::invalid(self.output.path, fault),
            Refusal::OutOfOrder(OutOfOrder { asked, found }) => Error::BadRequest {
                path: self.output.path.to_owned(),
                asked,
                found,
                fix: "write the rows of an instrument in order, and windows after their bars".to_owned(),
            },
        }
    }

    fn require_complete(&self) -> Result<()> {
        let samples = self.description.samples;
        let counted = [("samples".to_owned(), self.samples.load(Relaxed), samples)].into_iter();
        let timeframe_counts =
            self.timeframes.iter().zip(&self.description.timeframes).flat_map(|(found, timeframe)| {
                let name = &timeframe.name;
                [
                    (format!("bars of {name}"), found.bars.load(Relaxed), timeframe.bars),
                    (format!("ends of {name}"), found.ends.load(Relaxed), samples),
                ]
            });
        match counted.chain(timeframe_counts).find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((rows, found, expected)) => Err(Error::BadRequest {
                path: self.output.path.to_owned(),
                asked: format!("a file of {expected} {rows}"),
                found: format!("{found} were written"),
                fix: "write every row once".to_owned(),
            }),
        }
    }
}

impl TimeframeDatasets {
    fn create(output: &OutputFile<'_>, timeframe: &TimeframeDescription, samples: usize) -> Result<Self> {
        let TimeframeDescription { name, feature_names, bars, .. } = timeframe;
        let values = place::<f32>(output, &format!("/series/{name}/values"), &[*bars, feature_names.len()])?;
        output.write_attribute(&values, "seq_len", &AttributeValue::Int(timeframe.steps as i64))?;
        let close_time = place::<i64>(output, &format!("/series/{name}/close_time"), &[*bars])?;
        let sample_end = place::<i64>(output, &format!("/samples/end/{name}"), &[samples])?;
        write_description(output, timeframe)?;
        Ok(TimeframeDatasets { values, close_time, sample_end, bars: AtomicUsize::new(0), ends: AtomicUsize::new(0) })
    }
}

/// A new dataset, and its place in the file.
fn place<T: Element>(output: &OutputFile<'_>, object: &str, shape: &[usize]) -> Result<Dataset> {
    let dataset = output.create::<T>(object, shape)?;
    output.write_rows(&dataset, 0, &vec![T::zeroed(); shape[1..].iter().product()])?;
    Ok(dataset)
}
