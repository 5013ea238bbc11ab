//! References to values of variable length in a file, read without following them.

#![allow(unsafe_code, reason = "HDF5 is a library of C")]

use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

use hdf5::{Container, Location};
use hdf5_sys::LOCK;
use hdf5_sys::h5::herr_t;
use hdf5_sys::h5a::H5Aread;
use hdf5_sys::h5d::H5Dread;
use hdf5_sys::h5i::{H5I_type_t, H5Iget_type, hid_t};
use hdf5_sys::h5p::H5P_DEFAULT;
use hdf5_sys::h5s::H5S_ALL;
use hdf5_sys::h5t::{
    H5T_cdata_t, H5T_class_t, H5T_pers_t, H5Tclose, H5Tcreate, H5Tget_class, H5Tget_member_type, H5Tget_nmembers,
    H5Tget_super, H5Tis_variable_str, H5Tregister, H5Tvlen_create,
};

use crate::global_heap::{FileForm, check};
use crate::slab::checked;
use crate::stored::file_of_hdf5;

/// Most bytes of references read at once: a file may claim any number.
const REFERENCE_BYTES_MAX: usize = 1 << 28;

/// Extent to which the values of a dataset or attribute could be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapCheck {
    /// They are in no heap, or in one that the library can read.
    Sound,
    /// They have values of variable length within others, which are not checked.
    Unchecked,
}

/// Checks the heaps of all values of `container`, so that the library can be given them to read.
///
/// # Errors
/// If a heap is damaged, in words.
pub(crate) fn check_heaps(container: &Container) -> hdf5::Result<HeapCheck> {
    let dtype = container.dtype()?;
    match variable_length(dtype.id())? {
        VariablePlace::Nowhere => return Ok(HeapCheck::Sound),
        VariablePlace::Within => return Ok(HeapCheck::Unchecked),
        VariablePlace::Whole => {}
    }
    let file = container.file()?;
    let sizes = file.fcpl()?.get_sizes()?;
    let form = FileForm {
        base: file.userblock(),
        address_bytes: sizes.sizeof_addr as usize,
        length_bytes: sizes.sizeof_size as usize,
    };
    if form.address_bytes > 8 || form.length_bytes > 8 {
        return Err(hdf5::Error::from("addresses and lengths of more than 8 bytes are not supported"));
    }
    let references = read_references(container, form.reference_bytes())?;
    let addresses: BTreeSet<u64> =
        references.chunks_exact(form.reference_bytes()).filter_map(|reference| form.address(reference)).collect();
    let handle = file_of_hdf5(&file).map_err(|error| hdf5::Error::from(error.to_string()))?;
    check(&handle, form, &addresses)?;
    Ok(HeapCheck::Sound)
}

/// [`check_heaps`] of all attributes of an object.
///
/// # Errors
/// As [`check_heaps`].
pub(crate) fn check_attributes(location: &Location) -> hdf5::Result<HeapCheck> {
    for name in location.attr_names()? {
        if check_heaps(&*location.attr(&name)?)? == HeapCheck::Unchecked {
            return Ok(HeapCheck::Unchecked);
        }
    }
    Ok(HeapCheck::Sound)
}

/// Places of values of variable length in a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariablePlace {
    Nowhere,
    Whole,
    Within,
}

/// The place of variable length in the live type `id`.
fn variable_length(id: hid_t) -> hdf5::Result<VariablePlace> {
    let _guard = LOCK.lock();
    // SAFETY: `id` is a live type.
    let class = unsafe { H5Tget_class(id) };
    // SAFETY: `id` is a live type, of the class that each function is for; the types that are made
    // are closed by `part`.
    unsafe {
        match class {
            H5T_class_t::H5T_STRING if checked(H5Tis_variable_str(id))? > 0 => Ok(VariablePlace::Whole),
            H5T_class_t::H5T_VLEN => Ok(if part(H5Tget_super(id))? == VariablePlace::Nowhere {
                VariablePlace::Whole
            } else {
                VariablePlace::Within
            }),
            H5T_class_t::H5T_ARRAY => part(H5Tget_super(id)),
            H5T_class_t::H5T_COMPOUND => {
                let count = checked(H5Tget_nmembers(id))? as c_uint;
                for k in 0..count {
                    if part(H5Tget_member_type(id, k))? == VariablePlace::Within {
                        return Ok(VariablePlace::Within);
                    }
                }
                Ok(VariablePlace::Nowhere)
            }
            _ => Ok(VariablePlace::Nowhere),
        }
    }
}

/// The place of variable length in the type `id`, which is a part of another type and is closed
/// here.
fn part(id: hid_t) -> hdf5::Result<VariablePlace> {
    if id < 0 {
        return Err(hdf5::Error::query()?);
    }
    let place = variable_length(id);
    // SAFETY: the caller made the type and gives it away.
    unsafe { H5Tclose(id) };
    Ok(if place? == VariablePlace::Nowhere { VariablePlace::Nowhere } else { VariablePlace::Within })
}

/// The references of all values, as they stand in the file: `bytes` each.
fn read_references(container: &Container, bytes: usize) -> hdf5::Result<Vec<u8>> {
    let count = container.space()?.size();
    let total = count.checked_mul(bytes).filter(|&total| total <= REFERENCE_BYTES_MAX);
    let total = total.ok_or_else(|| hdf5::Error::from(format!("{count} values of variable length are too many")))?;
    let mut references = vec![0_u8; total];
    if total == 0 {
        return Ok(references);
    }
    let _guard = LOCK.lock();
    register_conversion()?;
    // SAFETY: the container is alive, and is an attribute or a dataset; `references` has room for
    // `bytes` of each of its values, which is the size of the type that is made and closed here.
    // The guard spans the calls.
    let status = unsafe {
        let opaque = H5Tcreate(H5T_class_t::H5T_OPAQUE, bytes);
        let (id, out) = (container.id(), references.as_mut_ptr().cast::<c_void>());
        let status = match H5Iget_type(id) {
            H5I_type_t::H5I_ATTR => H5Aread(id, opaque, out),
            _ => H5Dread(id, opaque, H5S_ALL, H5S_ALL, H5P_DEFAULT, out),
        };
        H5Tclose(opaque);
        status
    };
    checked(status)?;
    Ok(references)
}

/// Registers a conversion that reads values of variable length as opaque bytes. Must be called
/// under the lock.
fn register_conversion() -> hdf5::Result<()> {
    static STATUS: OnceLock<herr_t> = OnceLock::new();
    let status = *STATUS.get_or_init(|| {
        // SAFETY: the types are made and closed here; a soft conversion is for all types of their
        // classes. The function lives as long as the program. The name ends with a zero.
        unsafe {
            let one = H5Tcreate(H5T_class_t::H5T_OPAQUE, 1);
            let many = H5Tvlen_create(one);
            let name = c"references of variable length".as_ptr();
            let status = H5Tregister(H5T_pers_t::H5T_PERS_SOFT, name, many, one, Some(keep_references));
            H5Tclose(many);
            H5Tclose(one);
            status
        }
    });
    checked(status).map(drop)
}

/// The conversion: source and target are the same bytes in the same place.
extern "C" fn keep_references(
    _src: hid_t,
    _dst: hid_t,
    _data: *mut H5T_cdata_t,
    _count: usize,
    _stride: usize,
    _background_stride: usize,
    _buffer: *mut c_void,
    _background: *mut c_void,
    _transfer: hid_t,
) -> herr_t {
    0
}
