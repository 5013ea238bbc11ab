//! Rows of a dataset to and from the caller's memory: with `stored`, the only file that calls HDF5's C functions.

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

/// Reads `rows` of the first axis into `out`, converted to `T` in native byte order.
///
/// # Panics
/// If `out` has another length than the rows.
pub(crate) fn read_rows<T: Element>(dataset: &Dataset, rows: &Range<usize>, out: &mut [T]) -> hdf5::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let slab = Slab::<T>::new(dataset, rows)?;
    assert_eq!(slab.memory.size(), out.len(), "the caller's memory must hold exactly the rows");
    let _guard = LOCK.lock();
    // SAFETY: all four handles are alive until the end of this function. `memory` spans `out.len()` elements of the type
    // `element`, which is `T`'s own, so that HDF5 writes `out` and nothing else; any bits are a valid `T: Pod`. The guard
    // keeps other threads out of the library.
    let status = unsafe {
        let (element, memory, file) = (slab.element.id(), slab.memory.id(), slab.file.id());
        H5Dread(dataset.id(), element, memory, file, H5P_DEFAULT, out.as_mut_ptr().cast())
    };
    checked(status)
}

/// Writes `values` to `rows` of the first axis.
///
/// # Panics
/// If `values` has another length than the rows.
pub(crate) fn write_rows<T: Element>(dataset: &Dataset, rows: &Range<usize>, values: &[T]) -> hdf5::Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let slab = Slab::<T>::new(dataset, rows)?;
    assert_eq!(slab.memory.size(), values.len(), "the values must be exactly the rows");
    let _guard = LOCK.lock();
    // SAFETY: as in `read_rows`, with HDF5 reading `values`.
    let status = unsafe {
        let (element, memory, file) = (slab.element.id(), slab.memory.id(), slab.file.id());
        H5Dwrite(dataset.id(), element, memory, file, H5P_DEFAULT, values.as_ptr().cast())
    };
    checked(status)
}

/// What both directions hand to HDF5: the rows in the file, and contiguous memory of the same shape.
struct Slab<T> {
    element: Datatype,
    memory: Dataspace,
    file: Dataspace,
    marker: std::marker::PhantomData<T>,
}

impl<T: Element> Slab<T> {
    fn new(dataset: &Dataset, rows: &Range<usize>) -> hdf5::Result<Self> {
        let mut shape = dataset.shape();
        let mut axes = vec![SliceOrIndex::from(..); shape.len()];
        axes[0] = SliceOrIndex::SliceCount { start: rows.start, step: 1, count: rows.len(), block: 1 };
        shape[0] = rows.len();
        Ok(Slab {
            element: Datatype::from_type::<T>()?,
            memory: Dataspace::try_new(shape)?,
            file: dataset.space()?.select(Hyperslab::from(axes))?,
            marker: std::marker::PhantomData,
        })
    }
}

/// Must be called under the lock that the failed call held: the error stack is the library's last.
fn checked(status: i32) -> hdf5::Result<()> {
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(()) }
}
