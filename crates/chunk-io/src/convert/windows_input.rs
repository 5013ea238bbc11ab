//! A windows file as input of a conversion: names, times, instruments, and the order of its
//! samples.

use std::ops::Range;

use hdf5::Dataset;

use super::chains::TrackedTimeframe;
use super::overlap::WindowForm;
use super::row_source::DatasetRows;
use super::{ConversionJob, ConvertOptions};
use crate::error::{Error, LayoutFault, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{ElementKind, Expect};
use crate::timeframe::{CloseGrid, name_problem};
use crate::windows::WindowsFile;

const INSTRUMENTS: Expect = Expect { what: "integers [N]", kinds: &[ElementKind::Integer], ranks: 1..=1 };
/// Name for a timeframe without one.
const UNNAMED: &str = "features";

/// Description of the windows file.
#[derive(Debug)]
pub(super) struct WindowsInput {
    pub(super) file: WindowsFile,
    /// Name of each timeframe in the series.
    pub(super) names: Vec<String>,
    /// True if the one timeframe has no name in the file.
    pub(super) unnamed: bool,
    pub(super) forms: Vec<WindowForm>,
    pub(super) instruments: Option<NamedInstruments>,
    /// Row of each sample in order of time; `None` if the file is in that order.
    pub(super) order: Option<Vec<usize>>,
    datasets: Vec<Dataset>,
}

/// The instruments that a windows file names, as one made of a series does.
#[derive(Debug)]
pub(super) struct NamedInstruments {
    pub(super) names: Vec<String>,
    /// By row.
    pub(super) sample_instruments: Vec<i32>,
}

impl WindowsInput {
    pub(super) fn open(job: &ConversionJob<'_>) -> Result<Self> {
        let input = job.input;
        let file = WindowsFile::from_file(input.clone(), job.scope)?;
        let (mut datasets, mut forms) = (Vec::new(), Vec::new());
        for table in file.features() {
            let failed = || input.failed(&table.object, "open the dataset");
            let dataset = input.root.dataset(&table.object).map_err(failed())?;
            let element_bytes = dataset.dtype().map_err(failed())?.size();
            forms.push(WindowForm { steps: table.shape[1], row_bytes: table.shape[2] * element_bytes });
            datasets.push(dataset);
        }
        let unnamed = file.shape().timeframes[0].name.is_none();
        let names = names(&file, job.options)?;
        let instruments = instruments(input, file.shape().samples)?;
        let order = file.sample_times().and_then(|times| order(times, instruments.as_ref()));
        Ok(WindowsInput { file, names, unnamed, forms, instruments, order, datasets })
    }

    pub(super) fn samples(&self) -> usize {
        self.file.shape().samples
    }

    /// Path in the file of a timeframe's windows.
    pub(super) fn object(&self, timeframe: usize) -> &str {
        &self.file.features()[timeframe].object
    }

    pub(super) fn dataset(&self, timeframe: usize) -> &Dataset {
        &self.datasets[timeframe]
    }

    /// The row of the sample at a position.
    pub(super) fn row(&self, position: usize) -> usize {
        self.order.as_ref().map_or(position, |order| order[position])
    }

    /// Positions of the samples of `rows`, each with its row.
    pub(super) fn positions_of(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        // A file in the order of its times has the positions as rows.
        let positions = if self.order.is_some() { 0..self.samples() } else { rows.clone() };
        positions.map(move |position| (position, self.row(position))).filter(move |(_, row)| rows.contains(row))
    }

    /// The time of the sample at a position; the position where there are no times.
    pub(super) fn time(&self, position: usize) -> i64 {
        self.file.sample_times().map_or(position as i64, |times| times[self.row(position)])
    }

    pub(super) fn instrument(&self, position: usize) -> Option<i32> {
        self.instruments.as_ref().map(|instruments| instruments.sample_instruments[self.row(position)])
    }

    /// Close times of the bars of each timeframe, where its name gives its duration.
    pub(super) fn close_grids(&self) -> Vec<Option<CloseGrid>> {
        self.names.iter().map(|name| CloseGrid::from_timeframe(name)).collect()
    }

    pub(super) fn tracked(&self) -> Vec<TrackedTimeframe> {
        let timed = self.file.sample_times().is_some();
        let grids = self.close_grids().into_iter().map(|grid| grid.filter(|_| timed));
        self.forms.iter().zip(grids).map(|(&form, grid)| TrackedTimeframe { form, grid }).collect()
    }

    /// The windows of a timeframe by position.
    pub(super) fn window_rows(&self, timeframe: usize) -> DatasetRows<'_> {
        DatasetRows {
            order: self.order.as_deref(),
            ..DatasetRows::new(self.file.path(), self.datasets[timeframe].clone())
        }
    }

    /// Bytes of all windows.
    pub(super) fn windows_bytes(&self) -> u64 {
        self.forms.iter().map(|form| form.bytes() as u64).sum::<u64>() * self.samples() as u64
    }
}

fn names(file: &WindowsFile, options: &ConvertOptions) -> Result<Vec<String>> {
    let fault = |found: &str| {
        let fault = LayoutFault {
            object: "/features".to_owned(),
            index: None,
            expected: "a name for the timeframe such as M5".to_owned(),
            found: found.to_owned(),
            fix: "give a name to a timeframe that has none, and no other".to_owned(),
        };
        Err(Error::invalid(file.path(), fault))
    };
    let timeframes = &file.shape().timeframes;
    let named: Option<Vec<String>> = timeframes.iter().map(|timeframe| timeframe.name.clone()).collect();
    match (named, &options.timeframe) {
        (Some(names), None) => Ok(names),
        (Some(_), Some(name)) => fault(&format!("{name} beside the names in the file")),
        (None, name) => {
            let name = name.clone().unwrap_or_else(|| UNNAMED.to_owned());
            name_problem(&name).map_or(Ok(vec![name]), fault)
        }
    }
}

fn instruments(input: &InputFile, samples: usize) -> Result<Option<NamedInstruments>> {
    if !input.has_dataset("/instruments") || !input.has_dataset("/samples/instrument") {
        return Ok(None);
    }
    let names = input.texts("/instruments", None)?;
    let table = input.table("/samples/instrument", &INSTRUMENTS)?;
    table.require_rows(samples, "/targets")?;
    let sample_instruments: Vec<i32> = table.read_vec()?;
    match sample_instruments
        .iter()
        .position(|&instrument| usize::try_from(instrument).map_or(true, |place| place >= names.len()))
    {
        None => Ok(Some(NamedInstruments { names, sample_instruments })),
        Some(n) => {
            let expected = format!("an instrument from 0 to {}", names.len().saturating_sub(1));
            Err(table.fault(Some(n), &expected, &sample_instruments[n].to_string()))
        }
    }
}

/// Rows by instrument and time; `None` if the times of each instrument are in order already.
/// Without instruments, a few steps back in time are taken for the starts of further instruments.
fn order(times: &[i64], instruments: Option<&NamedInstruments>) -> Option<Vec<usize>> {
    let mut last = vec![i64::MIN; instruments.map_or(1, |instruments| instruments.names.len())];
    let instrument = |row: usize| instruments.map_or(0, |instruments| instruments.sample_instruments[row]);
    let mut descents = 0;
    for (row, &time) in times.iter().enumerate() {
        let last = &mut last[instrument(row) as usize];
        descents += usize::from(time < *last);
        *last = time;
    }
    let few = if instruments.is_some() { 0 } else { times.len() / 8 };
    if descents <= few {
        return None;
    }
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&row| (instrument(row), times[row]));
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shuffled_samples_are_put_in_order() {
        let named = |sample_instruments: &[i32]| {
            Some(NamedInstruments {
                names: vec!["A".to_owned(), "B".to_owned()],
                sample_instruments: sample_instruments.to_vec(),
            })
        };
        type Case<'a> = (&'a [i64], Option<NamedInstruments>, Option<&'a [usize]>);
        let cases: [Case<'_>; 6] = [
            (&[1, 2, 2, 3], None, None),
            (&[1, 2, 3, 4, 1, 2, 3, 4], None, None),
            (&[3, 1, 2, 4], None, Some(&[1, 2, 0, 3])),
            (&[1, 2, 1, 2], named(&[0, 0, 1, 1]), None),
            (&[1, 1, 2, 2], named(&[0, 1, 0, 1]), None),
            (&[2, 1, 1, 2], named(&[0, 1, 0, 1]), Some(&[2, 0, 1, 3])),
        ];
        for (times, instruments, expected) in cases {
            assert_eq!(order(times, instruments.as_ref()).as_deref(), expected, "{times:?}");
        }
    }
}
