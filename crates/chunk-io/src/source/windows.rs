use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use megabatch_gpu_core::{Buffer, Scope};
use rayon::prelude::*;

use super::SourceOptions;
use crate::cost::ReadCost;
use crate::error::Result;
use crate::numeric_dataset::NumericDataset;
use crate::read::RowSelection;
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
        self.held = Some(ResidentTables { features, targets: read(self.file.targets())? });
        Ok(())
    }

    pub(super) fn file(&self) -> &WindowsFile {
        &self.file
    }

    pub(super) fn is_resident(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn read(&self, samples: Range<usize>, out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        self.read_selected(&RowSelection::Range(samples.clone()), out, stop, |rows, row_len, out| {
            out.copy_from_slice(&rows[samples.start * row_len..samples.end * row_len]);
        })
    }

    pub(super) fn gather(&self, samples: &[usize], out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        self.read_selected(&RowSelection::List(samples), out, stop, |rows, _, out| gather_held(rows, samples, out))
    }

    /// Reads `selection` of each table. `copy` takes it from the rows of a table in memory and the
    /// length of each.
    fn read_selected(
        &self,
        selection: &RowSelection<'_>,
        out: SampleSlices<'_>,
        stop: &AtomicBool,
        copy: impl Fn(&[f32], usize, &mut [f32]),
    ) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        for (i, (table, out)) in self.tables().zip(slices(out)).enumerate() {
            cost += match self.resident_rows(i) {
                Some(rows) => copied(|| copy(rows, table.row_len(), out)),
                None => table.read_f32_until(stop, selection, out, &self.staging)?,
            };
        }
        Ok(cost)
    }

    /// The targets of the samples of a list, `[samples, K]`.
    pub(super) fn read_targets(&self, samples: &[usize], out: &mut [f32]) -> Result<()> {
        match &self.held {
            Some(held) => gather_held(held.targets.as_slice(), samples, out),
            None => drop(self.file.targets().read_f32(&RowSelection::List(samples), out, &self.staging)?),
        }
        Ok(())
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
