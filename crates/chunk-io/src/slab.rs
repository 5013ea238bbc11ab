//! Rows of a dataset to and from the caller's memory. HDF5's C functions are called here, in
//! `stored`, `heap_references` and `convert/raw`, and nowhere else.

#![allow(unsafe_code, reason = "HDF5 is a library of C")]

use std::ffi::c_int;
use std::ops::Range;

use bytemuck::Pod;
use half::f16;
use hdf5::{Dataset, Dataspace, Datatype, H5Type, Hyperslab, SliceOrIndex};
use hdf5_sys::LOCK;
use hdf5_sys::h5d::{H5Dread, H5Dwrite};
use hdf5_sys::h5p::H5P_DEFAULT;

/// A number that HDF5 converts from any other number type when it reads and to it when it writes.
pub(crate) trait Element: H5Type + Pod {}
impl Element for f16 {}
impl Element for f32 {}
impl Element for f64 {}
impl Element for i32 {}
impl Element for i64 {}
impl Element for u64 {}

/// Reads `rows` of the first axis into `out`, converted to `T` in native byte order.
///
/// # Panics
/// If `out` has another length than the rows.
pub(crate) fn read_rows<T: Element>(dataset: &Dataset, rows: &Range<usize>, out: &mut [T]) -> hdf5::Result<()> {
    read(dataset, rows, &Datatype::from_type::<T>()?, bytemuck::cast_slice_mut(out))
}

/// Writes `values` to `rows` of the first axis.
///
/// # Panics
/// If `values` has another length than the rows.
pub(crate) fn write_rows<T: Element>(dataset: &Dataset, rows: &Range<usize>, values: &[T]) -> hdf5::Result<()> {
    write(dataset, rows, &Datatype::from_type::<T>()?, bytemuck::cast_slice(values))
}

/// Reads `rows` of the first axis into `out` without any conversion: the elements' bytes in the
/// file's type and byte order. Pointers to values of variable length are the caller's to give back.
///
/// # Panics
/// If `out` has another length than the rows.
pub(crate) fn read_stored_rows(dataset: &Dataset, rows: &Range<usize>, out: &mut [u8]) -> hdf5::Result<()> {
    read(dataset, rows, &dataset.dtype()?, out)
}

/// Writes `bytes`, elements in the type of `dataset`, which must hold no pointers, to `rows` of the
/// first axis.
///
/// # Panics
/// If `bytes` has another length than the rows.
pub(crate) fn write_stored_rows(dataset: &Dataset, rows: &Range<usize>, bytes: &[u8]) -> hdf5::Result<()> {
    write(dataset, rows, &dataset.dtype()?, bytes)
}

fn read(dataset: &Dataset, rows: &Range<usize>, element: &Datatype, out: &mut [u8]) -> hdf5::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let RowTransfer { memory, file } = RowTransfer::new(dataset, rows)?;
    assert_eq!(memory.size() * element.size(), out.len(), "the caller's memory must hold exactly the rows");
    let _guard = LOCK.lock();
    // SAFETY: all four handles are alive until the end of this function. `memory` spans as many
    // elements of the type `element` as `out` has room for, as asserted, so that HDF5 writes `out`
    // and nothing else; any bits are valid for the caller, who reads bytes. The guard keeps other
    // threads out of the library.
    let status =
        unsafe { H5Dread(dataset.id(), element.id(), memory.id(), file.id(), H5P_DEFAULT, out.as_mut_ptr().cast()) };
    checked(status).map(drop)
}

fn write(dataset: &Dataset, rows: &Range<usize>, element: &Datatype, bytes: &[u8]) -> hdf5::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let RowTransfer { memory, file } = RowTransfer::new(dataset, rows)?;
    assert_eq!(memory.size() * element.size(), bytes.len(), "the values must be exactly the rows");
    let _guard = LOCK.lock();
    // SAFETY: as in `read`, with HDF5 reading `bytes`.
    let status =
        unsafe { H5Dwrite(dataset.id(), element.id(), memory.id(), file.id(), H5P_DEFAULT, bytes.as_ptr().cast()) };
    checked(status).map(drop)
}

/// The rows in the file, and contiguous memory of the same shape. A scalar is one row.
struct RowTransfer {
    memory: Dataspace,
    file: Dataspace,
}

impl RowTransfer {
    fn new(dataset: &Dataset, rows: &Range<usize>) -> hdf5::Result<Self> {
        let mut shape = dataset.shape();
        if shape.is_empty() {
            return Ok(RowTransfer { memory: Dataspace::try_new(())?, file: dataset.space()? });
        }
        let mut axes = vec![SliceOrIndex::from(..); shape.len()];
        axes[0] = SliceOrIndex::SliceCount { start: rows.start, step: 1, count: rows.len(), block: 1 };
        shape[0] = rows.len();
        Ok(RowTransfer { memory: Dataspace::try_new(shape)?, file: dataset.space()?.select(Hyperslab::from(axes))? })
    }
}

/// Result of a call, or its error. Must be called under the lock that the call held: the error
/// stack is the library's last.
pub(crate) fn checked(status: c_int) -> hdf5::Result<c_int> {
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(status) }
}
