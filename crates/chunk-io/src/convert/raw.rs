//! Chunks, links and attributes as they are, of whatever type: what HDF5's safe layer does not
//! offer.

use std::ffi::CString;

use hdf5::dataset::FillValue;
use hdf5::plist::DatasetCreate;
use hdf5::{Dataset, Dataspace, File, Group, Location};
use hdf5_sys::LOCK;
use hdf5_sys::h5::hsize_t;
use hdf5_sys::h5a::{H5Aclose, H5Acreate2, H5Aread, H5Awrite};
use hdf5_sys::h5d::{H5Dclose, H5Dcreate2, H5Dwrite_chunk};
use hdf5_sys::h5g::{H5Gclose, H5Gcreate2};
use hdf5_sys::h5i::hid_t;
use hdf5_sys::h5l::H5Lcopy;
use hdf5_sys::h5p::{
    H5P_CLS_GROUP_CREATE, H5P_DEFAULT, H5Pclose, H5Pcreate, H5Pget_fill_value, H5Pset_fill_value,
    H5Pset_obj_track_times,
};
use hdf5_sys::h5t::{H5T_class_t, H5Tdetect_class, H5Treclaim};

use crate::heap_references::{HeapCheck, check_heaps};
use crate::slab::checked;

/// Stores `bytes` as the chunk of `dataset` that begins with row `first_row`, filters being applied
/// already but those in `mask`.
pub(super) fn write_chunk(dataset: &Dataset, first_row: usize, mask: u32, bytes: &[u8]) -> hdf5::Result<()> {
    let mut offset: Vec<hsize_t> = vec![0; dataset.ndim()];
    offset[0] = first_row as hsize_t;
    let _guard = LOCK.lock();
    // SAFETY: the dataset is alive; `offset` has an entry for each of its axes; HDF5 reads
    // `bytes.len()` bytes of `bytes`.
    let status =
        unsafe { H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, mask, offset.as_ptr(), bytes.len(), bytes.as_ptr().cast()) };
    checked(status).map(drop)
}

/// Creates the group `name`, which does not tell when: the same conversion makes the same bytes at
/// any time.
pub(super) fn create_group(parent: &Group, name: &str) -> hdf5::Result<Group> {
    let path = c_string(name)?;
    {
        let _guard = LOCK.lock();
        // SAFETY: the parent is alive and the name ends with a zero; the handles made here are
        // closed here. The guard spans the calls.
        let status = unsafe {
            let plist = H5Pcreate(*H5P_CLS_GROUP_CREATE);
            H5Pset_obj_track_times(plist, 0);
            let created = H5Gcreate2(parent.id(), path.as_ptr(), H5P_DEFAULT, plist, H5P_DEFAULT);
            H5Pclose(plist);
            if created >= 0 { H5Gclose(created) } else { -1 }
        };
        checked(status)?;
    }
    parent.group(name)
}

/// Creates the groups that `object` is in, where there are none yet.
fn create_parents(file: &File, object: &str) -> hdf5::Result<()> {
    let mut parent = file.group("/")?;
    let names: Vec<&str> = object.split('/').filter(|name| !name.is_empty()).collect();
    for name in &names[..names.len().saturating_sub(1)] {
        parent = if parent.link_exists(name) { parent.group(name)? } else { create_group(&parent, name)? };
    }
    Ok(())
}

/// Creates the dataset `object` of `space` with the type of `like`, and its fill value, in the
/// layout of `plist`.
pub(super) fn create_like(
    file: &File,
    object: &str,
    space: &Dataspace,
    like: &Dataset,
    plist: &DatasetCreate,
) -> hdf5::Result<Dataset> {
    create_parents(file, object)?;
    let name = c_string(object)?;
    let element = like.dtype()?;
    let original = like.dcpl()?;
    let filled = original.fill_value_defined() == FillValue::UserDefined;
    let mut fill = vec![0_u8; element.size()];
    {
        let _guard = LOCK.lock();
        // SAFETY: every handle is alive; `fill` has room for one element, which holds no pointers
        // (`is_plain`); the handles made here are closed here. The guard spans the calls.
        let status = unsafe {
            // One that the library chose itself would be written to all of a contiguous dataset, if
            // it were set.
            if filled && H5Pget_fill_value(original.id(), element.id(), fill.as_mut_ptr().cast()) >= 0 {
                H5Pset_fill_value(plist.id(), element.id(), fill.as_ptr().cast());
            }
            let (element, space) = (element.id(), space.id());
            let created = H5Dcreate2(file.id(), name.as_ptr(), element, space, H5P_DEFAULT, plist.id(), H5P_DEFAULT);
            if created >= 0 { H5Dclose(created) } else { -1 }
        };
        checked(status)?;
    }
    file.dataset(object)
}

/// Copies the soft or external link `name` as it is, whether or not it leads anywhere.
pub(super) fn copy_link(from: &Group, to: &Group, name: &str) -> hdf5::Result<()> {
    let name = c_string(name)?;
    let _guard = LOCK.lock();
    // SAFETY: both groups are alive and the name ends with a zero.
    let status = unsafe { H5Lcopy(from.id(), name.as_ptr(), to.id(), name.as_ptr(), H5P_DEFAULT, H5P_DEFAULT) };
    checked(status).map(drop)
}

/// Result of copying an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Done,
    /// It holds references, which mean something in their own file only.
    References,
    /// It holds values of variable length within others, which are not checked.
    Unchecked,
}

/// Copies the attribute `name`, value and type bit for bit.
pub(super) fn copy_attribute(from: &Location, to: &Location, name: &str) -> hdf5::Result<Copied> {
    let attribute = from.attr(name)?;
    if check_heaps(&attribute)? == HeapCheck::Unchecked {
        return Ok(Copied::Unchecked);
    }
    let (kind, space) = (attribute.dtype()?, attribute.space()?);
    let mut value = vec![0_u8; kind.size() * space.size()];
    let name = c_string(name)?;
    let _guard = LOCK.lock();
    // SAFETY: every handle is alive; `value` has room for the whole attribute in its own type. What
    // HDF5 allocates for values of variable length is given back once it is written. The guard
    // spans the calls.
    let status = unsafe {
        if H5Tdetect_class(kind.id(), H5T_class_t::H5T_REFERENCE) > 0 {
            return Ok(Copied::References);
        }
        let copied = H5Acreate2(to.id(), name.as_ptr(), kind.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT);
        let status = if copied < 0 || value.is_empty() {
            copied.min(0) as i32
        } else {
            transfer(attribute.id(), copied, kind.id(), space.id(), &mut value)
        };
        if copied >= 0 {
            H5Aclose(copied);
        }
        status
    };
    checked(status)?;
    Ok(Copied::Done)
}

/// # Safety
/// Both attributes and both parts of their form are alive, `value` has the size of the whole
/// attribute, and the caller holds the lock.
unsafe fn transfer(from: hid_t, to: hid_t, kind: hid_t, space: hid_t, value: &mut [u8]) -> i32 {
    // SAFETY: as the caller says. Reclaiming touches only what reading allocated, also where the
    // type has none of it.
    unsafe {
        if H5Aread(from, kind, value.as_mut_ptr().cast()) < 0 {
            return -1;
        }
        let written = H5Awrite(to, kind, value.as_ptr().cast());
        H5Treclaim(kind, space, H5P_DEFAULT, value.as_mut_ptr().cast());
        written
    }
}

fn c_string(text: &str) -> hdf5::Result<CString> {
    CString::new(text).map_err(|_| hdf5::Error::from(format!("the name {text:?} has a zero byte")))
}
