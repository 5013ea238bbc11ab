use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::cuda::CopyStream;
use crate::device::Scope;
use crate::error::Result;

/// Tables on a device that any thread may fill beside the device's work; nobody reads them
/// meanwhile. Two sets take turns: one is filled while the device works on the other.
///
/// ```
/// use megabatch_gpu_core::{Device, VacantTables};
///
/// let mut vacant = VacantTables::<f32>::new(&Device::cpu().scope("example"), &[2, 3])?;
/// vacant.fill(1, &[1.0, 2.0])?;
/// let filled = vacant.into_filled();
/// assert_eq!(filled.table(1).to_vec()?, [1.0, 2.0, 0.0]);
/// // To be filled anew, after the work on them.
/// let vacant = filled.release()?;
/// # drop(vacant);
/// # Ok::<(), megabatch_gpu_core::Error>(())
/// ```
#[derive(Debug)]
pub struct VacantTables<T: Pod> {
    tables: Vec<Buffer<T>>,
    /// On a GPU.
    lane: Option<CopyStream>,
}

/// Tables that were filled, for the device to read.
#[derive(Debug)]
pub struct FilledTables<T: Pod> {
    tables: Vec<Buffer<T>>,
    lane: Option<CopyStream>,
}

impl<T: Pod> VacantTables<T> {
    /// Tables of `lens` elements, zero at first, on the device of `scope`.
    ///
    /// # Errors
    /// As [`Buffer::zeros`]; [`Error::Driver`](crate::Error::Driver) for a GPU that fails.
    pub fn new(scope: &Scope, lens: &[usize]) -> Result<Self> {
        let tables = lens.iter().map(|&len| Buffer::zeros(scope, len)).collect::<Result<Vec<Buffer<T>>>>()?;
        let lane = tables.iter().find_map(Buffer::gpu).map(CopyStream::new).transpose()?;
        // Whatever used that memory before is to be done first.
        FilledTables { tables, lane }.release()
    }

    /// Copies `values` to the first elements of table `k`, after the work that was submitted before
    /// the release of the tables, and waits for the copy. Page-locked memory
    /// ([`Scope::page_locked`]) goes without a detour. Commands that are recorded for a capture
    /// meanwhile are not disturbed.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a GPU that fails.
    ///
    /// # Panics
    /// If there is no such table, or it has fewer elements.
    pub fn fill(&mut self, k: usize, values: &[T]) -> Result<()> {
        let table = &mut self.tables[k];
        assert!(values.len() <= table.len(), "{} values for a table of {}", values.len(), table.len());
        match (&self.lane, table.gpu()) {
            _ if values.is_empty() => Ok(()),
            (Some(lane), Some(gpu)) => lane.send_aside(gpu, bytemuck::cast_slice(values), RELEASED, table.address()),
            _ => table.copy_from_at(0, values),
        }
    }

    /// The tables, for the device to read.
    pub fn into_filled(self) -> FilledTables<T> {
        let VacantTables { tables, lane } = self;
        FilledTables { tables, lane }
    }
}

impl<T: Pod> FilledTables<T> {
    /// Table `k`.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn table(&self, k: usize) -> &Buffer<T> {
        &self.tables[k]
    }

    /// Allows the tables to be filled anew, after the work submitted to the default stream so far.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a GPU that fails.
    pub fn release(self) -> Result<VacantTables<T>> {
        let FilledTables { tables, lane } = self;
        if let (Some(lane), Some(gpu)) = (&lane, tables.iter().find_map(Buffer::gpu)) {
            lane.release(gpu, RELEASED)?;
        }
        Ok(VacantTables { tables, lane })
    }
}

/// The block of a [`CopyStream`] that stands for all tables.
const RELEASED: usize = 0;
