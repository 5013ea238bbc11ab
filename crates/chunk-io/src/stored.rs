//! Storage properties of a dataset that the safe layer over HDF5 does not offer.

#![allow(unsafe_code, reason = "HDF5 is a library of C")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, Datatype};
use hdf5_sys::LOCK;
use hdf5_sys::h5d::{H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, H5D_fill_time_t, H5D_fill_value_t, H5Dget_chunk_index_type};
use hdf5_sys::h5f::H5Fget_vfd_handle;
use hdf5_sys::h5p::{
    H5P_DEFAULT, H5Pfill_value_defined, H5Pget_chunk_opts, H5Pget_fill_time, H5Pget_fill_value, H5Pget_filter2,
    H5Pget_nfilters,
};
use hdf5_sys::h5t::{H5T_norm_t, H5T_order_t, H5Tget_ebias, H5Tget_fields, H5Tget_norm, H5Tget_order};
use hdf5_sys::h5z::H5Zfilter_avail;

use crate::decode::{ByteOrder, FloatType, FloatWidth};
use crate::slab::checked;

/// `H5D_CHUNK_IDX_EARRAY` of H5Dpublic.h, which the bindings leave out.
const H5D_CHUNK_IDX_EARRAY: c_uint = 4;

/// A filter of a dataset's pipeline, as its header has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFilter {
    /// Number under which The HDF Group registers it.
    pub(crate) id: i32,
    /// Name that its writer gave it.
    pub(crate) name: String,
    /// `cd_values` of the file format.
    pub(crate) parameters: Vec<u32>,
    /// True if the library can undo it.
    pub(crate) available: bool,
}

/// The float type, if it is IEEE 754 binary16, 32 or 64 of either byte order, and not, say,
/// bfloat16, which is as wide as the first.
pub(crate) fn ieee_float(dtype: &Datatype) -> Option<FloatType> {
    if !matches!(dtype.to_descriptor(), Ok(TypeDescriptor::Float(_))) {
        return None;
    }
    let [mut sign, mut exponent, mut exponent_bits, mut mantissa, mut mantissa_bits] = [0; 5];
    let _guard = LOCK.lock();
    let id = dtype.id();
    // SAFETY: `dtype` is a live float type, as checked above; HDF5 writes to the five distinct
    // locals and keeps no pointer.
    let (status, bias, order, norm) = unsafe {
        let status = H5Tget_fields(id, &mut sign, &mut exponent, &mut exponent_bits, &mut mantissa, &mut mantissa_bits);
        (status, H5Tget_ebias(id), H5Tget_order(id), H5Tget_norm(id))
    };
    let width = match (dtype.size(), sign, exponent, exponent_bits, mantissa, mantissa_bits, bias) {
        (2, 15, 10, 5, 0, 10, 15) => FloatWidth::F16,
        (4, 31, 23, 8, 0, 23, 127) => FloatWidth::F32,
        (8, 63, 52, 11, 0, 52, 1023) => FloatWidth::F64,
        _ => return None,
    };
    let order = match order {
        H5T_order_t::H5T_ORDER_LE => ByteOrder::Little,
        H5T_order_t::H5T_ORDER_BE => ByteOrder::Big,
        _ => return None,
    };
    (status >= 0 && norm == H5T_norm_t::H5T_NORM_IMPLIED).then_some(FloatType { width, order })
}

/// The dataset's filters in the order in which they are applied when writing.
pub(crate) fn filters(dataset: &Dataset) -> hdf5::Result<Vec<StoredFilter>> {
    let properties = dataset.dcpl()?;
    let _guard = LOCK.lock();
    // SAFETY: `properties` is a live property list until the end of this function, as for every
    // call below.
    let count = checked(unsafe { H5Pget_nfilters(properties.id()) })?;
    (0..count as c_uint).map(|k| filter(properties.id(), k)).collect()
}

/// Must be called under the lock.
fn filter(properties: i64, k: c_uint) -> hdf5::Result<StoredFilter> {
    let (mut flags, mut config) = (0, 0);
    let mut parameters = vec![0; 32];
    let mut count = parameters.len();
    let mut name = [0_u8; 256];
    // SAFETY: HDF5 writes at most `count` parameters and `name.len()` bytes of name, and to the
    // three integers.
    let id = unsafe {
        let (values, text) = (parameters.as_mut_ptr(), name.as_mut_ptr().cast::<c_char>());
        H5Pget_filter2(properties, k, &mut flags, &mut count, values, name.len(), text, &mut config)
    };
    checked(id)?;
    parameters.truncate(count);
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    // SAFETY: takes a number and looks it up.
    let available = unsafe { H5Zfilter_avail(id) } > 0;
    Ok(StoredFilter { id, name: String::from_utf8_lossy(name).into_owned(), parameters, available })
}

/// True if chunks that pass the edge of the dataset are stored without filters though their masks
/// do not say so.
pub(crate) fn leaves_edges_unfiltered(dataset: &Dataset) -> hdf5::Result<bool> {
    let properties = dataset.dcpl()?;
    let mut options = 0;
    let _guard = LOCK.lock();
    // SAFETY: `properties` is alive and a list for a chunked dataset; HDF5 writes the integer.
    checked(unsafe { H5Pget_chunk_opts(properties.id(), &mut options) })?;
    Ok(options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS != 0)
}

/// True if HDF5 lists the places of chunks wrongly: its iteration over an extensible array, the
/// index of a dataset that is unlimited along one axis, takes that axis for the first (HDF5 2.2.0,
/// `H5D__earray_idx_iterate_cb`). Reading through the library is not affected.
pub(crate) fn misplaces_chunks(dataset: &Dataset) -> hdf5::Result<bool> {
    let first_is_unlimited = dataset.space()?.maxdims().first() == Some(&None);
    let mut kind = 0;
    let _guard = LOCK.lock();
    // SAFETY: `dataset` is alive and chunked; HDF5 writes the number.
    checked(unsafe { H5Dget_chunk_index_type(dataset.id(), &mut kind) })?;
    Ok(kind == H5D_CHUNK_IDX_EARRAY && !first_is_unlimited)
}

/// Fill value of places that were never written: the bytes of one element in the dataset's own
/// type, `None` for zeros because the dataset declares no fill value or never to use it.
pub(crate) fn fill_bytes(dataset: &Dataset) -> hdf5::Result<Option<Vec<u8>>> {
    let properties = dataset.dcpl()?;
    let dtype = dataset.dtype()?;
    let mut bytes = vec![0_u8; dtype.size()];
    let mut defined = H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
    let mut time = H5D_fill_time_t::H5D_FILL_TIME_NEVER;
    let _guard = LOCK.lock();
    // SAFETY: both handles are alive; HDF5 writes the two enums, and one element of the type
    // `dtype` to `bytes`, which is as long.
    unsafe {
        checked(H5Pfill_value_defined(properties.id(), &mut defined))?;
        checked(H5Pget_fill_time(properties.id(), &mut time))?;
        if defined == H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED || time == H5D_fill_time_t::H5D_FILL_TIME_NEVER {
            return Ok(None);
        }
        checked(H5Pget_fill_value(properties.id(), dtype.id(), bytes.as_mut_ptr().cast::<c_void>()))?;
    }
    Ok(Some(bytes))
}

/// A second handle of the file that HDF5 itself reads `file` from, to tell it from another file of
/// that name.
///
/// # Errors
/// If HDF5 does not read it by plain system calls.
pub(crate) fn file_of_hdf5(file: &hdf5::File) -> io::Result<File> {
    let mut handle: *mut c_void = std::ptr::null_mut();
    let _guard = LOCK.lock();
    // SAFETY: `file` is a live file of the sec2 driver, as the caller has made sure of; its handle
    // is a file descriptor that lives as long as the file, and is duplicated while the lock keeps
    // others from closing it.
    unsafe {
        if H5Fget_vfd_handle(file.id(), H5P_DEFAULT, &mut handle) < 0 || handle.is_null() {
            return Err(io::Error::other("HDF5 does not tell its file descriptor"));
        }
        let descriptor: RawFd = *handle.cast::<c_int>();
        BorrowedFd::borrow_raw(descriptor).try_clone_to_owned().map(File::from)
    }
}
