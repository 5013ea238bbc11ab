use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use megabatch_gpu_core::{Buffer, Scope};
use rayon::prelude::*;

use super::SourceOptions;
use crate::cost::ReadCost;
use crate::error::Result;
use crate::numeric_dataset::NumericDataset;
use crate::read::{NonFinite, RowSelection, UNSTOPPED};
use crate::shape::SampleSlices;
use crate::windows::WindowsFile;

/// A windows file, held in memory if it is small.
#[derive(Debug)]
pub(super) struct WindowsSource {
    file: WindowsFile,
    held: Option<ResidentTables>,
    scope: Scope,
    staging: Scope,
}

#[derive(Debug)]
struct ResidentTables {
    features: Vec<Buffer<f32>>,
    targets: Buffer<f32>,
    /// True if all numbers that are asked for have been checked.
    is_checked: bool,
}

impl WindowsSource {
    pub(super) fn open(file: WindowsFile, scope: &Scope, options: SourceOptions) -> Result<Self> {
        let mut source = WindowsSource { file, held: None, scope: scope.clone(), staging: scope.child("staging") };
        if source.file.shape().windows_bytes() <= options.resident_bytes_max as u64 {
            source.load_resident()?;
        }
        Ok(source)
    }

    /// Reads all windows into memory.
    pub(super) fn load_resident(&mut self) -> Result<()> {
        let read = |table: &NumericDataset| table.read_f32_buffer(&self.scope);
        let features = self.file.features().iter().map(read).collect::<Result<_>>()?;
        self.held = Some(ResidentTables { features, targets: read(self.file.targets())?, is_checked: true });
        Ok(())
    }

    /// As [`WindowsSource::load_resident`]; numbers are checked when samples are asked for.
    pub(super) fn load_resident_unchecked(&mut self) -> Result<()> {
        let read = |table: &NumericDataset| table.allowing_all().read_f32_buffer(&self.scope);
        let features = self.file.features().iter().map(read).collect::<Result<_>>()?;
        self.held = Some(ResidentTables { features, targets: read(self.file.targets())?, is_checked: false });
        Ok(())
    }

    /// Checks the numbers of samples in memory. Those of others are not checked any more.
    pub(super) fn check_resident(&mut self, samples: impl Iterator<Item = Range<usize>>) -> Result<()> {
        for run in samples {
            let selection = RowSelection::Range(run.clone());
            for (i, table) in self.tables().enumerate() {
                let Some(rows) = self.resident_rows(i) else { continue };
                let row_len = table.row_len();
                table.require_allowed_in(&selection, &rows[run.start * row_len..run.end * row_len])?;
            }
        }
        if let Some(held) = &mut self.held {
            held.is_checked = true;
        }
        Ok(())
    }

    pub(super) fn file(&self) -> &WindowsFile {
        &self.file
    }

    pub(super) fn is_resident(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn read(&self, samples: Range<usize>, out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        let selection = RowSelection::Range(samples.clone());
        self.read_selected(&selection, out, stop, NonFinite::Fail, |rows, row_len, out| {
            out.copy_from_slice(&rows[samples.start * row_len..samples.end * row_len]);
        })
    }

    pub(super) fn gather(&self, samples: &[usize], out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        let copy = |rows: &[f32], _: usize, out: &mut [f32]| gather_held(rows, samples, out);
        self.read_selected(&RowSelection::List(samples), out, stop, NonFinite::Fail, copy)
    }

    /// As [`WindowsSource::gather`], of any numbers.
    pub(super) fn gather_unchecked(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost> {
        let copy = |rows: &[f32], _: usize, out: &mut [f32]| gather_held(rows, samples, out);
        self.read_selected(&RowSelection::List(samples), out, &UNSTOPPED, NonFinite::Pass, copy)
    }

    /// Reads `selection` of each table, whose numbers are those that the table may have unless
    /// `non_finite` lets all pass. `copy` takes it from the rows of a table in memory and the
    /// length of each.
    fn read_selected(
        &self,
        selection: &RowSelection<'_>,
        out: SampleSlices<'_>,
        stop: &AtomicBool,
        non_finite: NonFinite,
        copy: impl Fn(&[f32], usize, &mut [f32]),
    ) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        let is_checked = self.held.as_ref().is_some_and(|held| held.is_checked) || non_finite == NonFinite::Pass;
        for (i, (table, out)) in self.tables().zip(slices(out)).enumerate() {
            cost += match self.resident_rows(i) {
                Some(rows) => {
                    let cost = copied(|| copy(rows, table.row_len(), out));
                    if !is_checked {
                        table.require_allowed_in(selection, out)?;
                    }
                    cost
                }
                None if non_finite == NonFinite::Pass => {
                    table.allowing_all().read_f32_until(stop, selection, out, &self.staging)?
                }
                None => table.read_f32_until(stop, selection, out, &self.staging)?,
            };
        }
        Ok(cost)
    }

    /// The targets of the samples of a list, `[samples, K]`.
    pub(super) fn read_targets(&self, samples: &[usize], out: &mut [f32]) -> Result<()> {
        let (table, selection) = (self.file.targets(), RowSelection::List(samples));
        let Some(held) = &self.held else { return table.read_f32(&selection, out, &self.staging).map(drop) };
        gather_held(held.targets.as_slice(), samples, out);
        if held.is_checked { Ok(()) } else { table.require_allowed_in(&selection, out) }
    }

    /// Features by timeframe, then the targets.
    pub(super) fn tables(&self) -> impl Iterator<Item = &NumericDataset> {
        self.file.features().iter().chain([self.file.targets()])
    }

    pub(super) fn resident_rows(&self, i: usize) -> Option<&[f32]> {
        let held = self.held.as_ref()?;
        Some(held.features.get(i).unwrap_or(&held.targets).as_slice())
    }
}

/// Cost of `copy`, which moves values within memory.
fn copied(copy: impl FnOnce()) -> ReadCost {
    let started = Instant::now();
    copy();
    ReadCost { copy: started.elapsed(), ..ReadCost::default() }
}

/// Values that one thread copies at a time. A large batch is copied by several: one would be slower
/// than a GPU that trains on it.
const COPIED_AT_ONCE: usize = 1 << 18;

fn gather_held(rows: &[f32], samples: &[usize], out: &mut [f32]) {
    let Some(row_len) = out.len().checked_div(samples.len()).filter(|&row_len| row_len > 0) else { return };
    let pieces = out.par_chunks_exact_mut(row_len).zip_eq(samples);
    pieces.with_min_len(COPIED_AT_ONCE.div_ceil(row_len)).for_each(|(row, &sample)| {
        row.copy_from_slice(&rows[sample * row_len..(sample + 1) * row_len]);
    });
}

fn slices(out: SampleSlices<'_>) -> impl Iterator<Item = &mut [f32]> {
    out.features.into_iter().chain([out.targets])
}
