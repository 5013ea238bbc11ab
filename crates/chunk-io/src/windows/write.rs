use std::collections::BTreeMap;
use std::path::Path;

use hdf5::Dataset;

use crate::atomic::write_atomically;
use crate::error::{Error, LayoutFault, Result};
use crate::shape::{SampleBlock, Shape};
use crate::storage::{OutputFile, WriteOptions};
use crate::text::AttributeValue;
use crate::timeframe::name_problem;

/// Properties of a windows file known before its first sample is written.
#[derive(Clone, Debug)]
pub struct WindowsHeader<'a> {
    /// Dimensions; timeframes in any order, all of them named or one of them unnamed.
    pub shape: &'a Shape,
    /// Time of each sample, `[N]`, ns since 1970 UTC.
    pub sample_times: Option<&'a [i64]>,
    /// Root attributes.
    pub attributes: &'a BTreeMap<String, AttributeValue>,
}

/// Writes a windows file (docs/reference/formats.md), its samples in batches: `fill` pushes exactly
/// N of them.
///
/// The file appears whole or not at all, as with [`write_series`](crate::write_series): an error of
/// `fill` leaves what was at the path.
///
/// # Errors
/// As `fill`; [`Error::Invalid`] if the header or the number of samples pushed breaks a rule of the
/// layout; [`Error::NotWritable`], [`Error::Io`] and [`Error::Hdf5`] as they say.
pub fn write_windows<E: From<Error>>(
    path: impl AsRef<Path>,
    header: &WindowsHeader<'_>,
    options: &WriteOptions,
    fill: impl FnOnce(&mut WindowsWriter<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let path = path.as_ref();
    check_header(header).map_err(|fault| Error::invalid(path, fault))?;
    write_atomically(path, |file| {
        let output = OutputFile { path, file, storage: options.storage };
        let mut writer = WindowsWriter::create(output, header)?;
        fill(&mut writer)?;
        writer.require_complete()?;
        Ok(())
    })
}

/// Takes the samples of a windows file in order. Made by [`write_windows`].
#[derive(Debug)]
pub struct WindowsWriter<'a> {
    output: OutputFile<'a>,
    shape: &'a Shape,
    features: Vec<Dataset>,
    targets: Dataset,
    written: usize,
}

impl<'a> WindowsWriter<'a> {
    fn create(output: OutputFile<'a>, header: &WindowsHeader<'a>) -> Result<Self> {
        let shape = header.shape;
        for (name, value) in header.attributes {
            output.write_attribute(output.file, name, value)?;
        }
        let mut features = Vec::new();
        for timeframe in &shape.timeframes {
            let object = timeframe.name.as_ref().map_or("/features".to_owned(), |name| format!("/features/{name}"));
            features.push(output.create::<f32>(&object, &[shape.samples, timeframe.steps, timeframe.features])?);
        }
        if let Some(times) = header.sample_times {
            output.write("/timestamps", &[shape.samples], times)?;
        }
        let targets = output.create::<f32>("/targets", &[shape.samples, shape.horizons])?;
        Ok(WindowsWriter { output, shape, features, targets, written: 0 })
    }

    /// Appends the samples of `block`, whose timeframes are in the order of the header's.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the block has other dimensions or more samples than are left;
    /// [`Error::Hdf5`].
    pub fn push(&mut self, block: &SampleBlock) -> Result<()> {
        let left = self.shape.samples - self.written;
        let lengths: Vec<usize> = block.features.iter().map(Vec::len).collect();
        let expected: Vec<usize> =
            self.shape.timeframes.iter().map(|timeframe| timeframe.window_len() * block.samples).collect();
        if block.samples > left || lengths != expected || block.targets.len() != block.samples * self.shape.horizons {
            return Err(Error::BadRequest {
                path: self.output.path.to_owned(),
                asked: format!(
                    "a block of {} samples, features {lengths:?}, targets {}",
                    block.samples,
                    block.targets.len()
                ),
                found: format!("{left} samples are left and their features have {expected:?} values"),
                fix: "push blocks of the header's shape, N samples in all".to_owned(),
            });
        }
        for (dataset, values) in self.features.iter().zip(&block.features) {
            self.output.write_rows(dataset, self.written, values)?;
        }
        self.output.write_rows(&self.targets, self.written, &block.targets)?;
        self.written += block.samples;
        Ok(())
    }

    fn require_complete(&self) -> Result<()> {
        if self.written == self.shape.samples {
            return Ok(());
        }
        Err(Error::BadRequest {
            path: self.output.path.to_owned(),
            asked: format!("a file of {} samples", self.shape.samples),
            found: format!("{} were pushed", self.written),
            fix: "push as many samples as the header says".to_owned(),
        })
    }
}

fn check_header(header: &WindowsHeader<'_>) -> Result<(), LayoutFault> {
    let Shape { samples, timeframes, horizons } = header.shape;
    let fault = |object: &str, expected: &str, found: String| LayoutFault {
        object: object.to_owned(),
        index: None,
        expected: expected.to_owned(),
        found,
        fix: "the file was not written; correct the header".to_owned(),
    };
    let names: Vec<&str> = timeframes.iter().filter_map(|timeframe| timeframe.name.as_deref()).collect();
    let one_unnamed = timeframes.len() == 1 && names.is_empty();
    if !one_unnamed && (names.is_empty() || names.len() != timeframes.len()) {
        return Err(fault("/features", "named timeframes, or a single one without a name", format!("{names:?}")));
    }
    for (i, name) in names.iter().enumerate() {
        let problem = name_problem(name).or(names[..i].contains(name).then_some("a name given twice"));
        if let Some(problem) = problem {
            return Err(fault("/features", "timeframe names such as M5", problem.to_owned()));
        }
    }
    let empty = timeframes.iter().any(|timeframe| timeframe.window_len() == 0);
    if empty || *samples == 0 || *horizons == 0 {
        return Err(fault("/", "N, T, F and K of at least 1", format!("{:?}", header.shape)));
    }
    match header.sample_times {
        Some(times) if times.len() != *samples => {
            Err(fault("/timestamps", &format!("{samples} entries"), times.len().to_string()))
        }
        _ => Ok(()),
    }
}
