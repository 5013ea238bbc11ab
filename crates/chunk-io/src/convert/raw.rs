//! Chunks, links and attributes as they are, of whatever type: what HDF5's safe layer does not
//! offer.

#![allow(unsafe_code, reason = "HDF5 is a library of C")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Range;

use hdf5::dataset::FillValue;
use hdf5::plist::DatasetCreate;
use hdf5::{Dataset, Dataspace, Datatype, File, Group, Location};
use hdf5_sys::LOCK;
use hdf5_sys::h5::hsize_t;
use hdf5_sys::h5a::{H5Aclose, H5Acreate2, H5Aread, H5Awrite};
use hdf5_sys::h5d::{H5Dclose, H5Dcreate2, H5Dwrite_chunk};
use hdf5_sys::h5g::{H5Gclose, H5Gcreate2};
use hdf5_sys::h5i::hid_t;
use hdf5_sys::h5l::H5Lcopy;
use hdf5_sys::h5o::H5Ocopy;
use hdf5_sys::h5p::{
    H5P_CLS_GROUP_CREATE, H5P_DEFAULT, H5Pclose, H5Pcreate, H5Pget_fill_value, H5Pset_fill_value,
    H5Pset_obj_track_times,
};
use hdf5_sys::h5t::{
    H5T_class_t, H5Tclose, H5Tdetect_class, H5Tget_class, H5Tget_size, H5Tget_super, H5Tis_variable_str, H5Treclaim,
};

use crate::heap_references::{HeapCheck, check_heaps};
use crate::slab::{checked, read_stored_rows};

/// Bytes of a dataset that are compared at once.
const COMPARED_BYTES: usize = 4 << 20;

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

/// Copies the object `name`, which the process must not have open: HDF5 2.2.0 copies an open
/// dataset, chunks of which it decoded before, past the end of its buffers.
pub(super) fn copy_object(from: &Group, to: &Group, name: &str) -> hdf5::Result<()> {
    let name = c_string(name)?;
    let _guard = LOCK.lock();
    // SAFETY: both groups are alive and the name ends with a zero. No handle of the object is open,
    // as the caller sees to.
    let status = unsafe { H5Ocopy(from.id(), name.as_ptr(), to.id(), name.as_ptr(), H5P_DEFAULT, H5P_DEFAULT) };
    checked(status).map(drop)
}

/// True if a type holds references to objects of its file.
pub(super) fn has_references(kind: &Datatype) -> bool {
    let _guard = LOCK.lock();
    // SAFETY: the type is alive.
    unsafe { H5Tdetect_class(kind.id(), H5T_class_t::H5T_REFERENCE) > 0 }
}

/// True if a copied dataset holds the values of the one it was made from. Values of variable length
/// must not be within others.
pub(super) fn has_same_values(old: &Dataset, new: &Dataset) -> hdf5::Result<bool> {
    let (kind, elements) = (old.dtype()?, old.space()?.size());
    if old.shape() != new.shape() || new.dtype()?.size() != kind.size() || new.space()?.size() != elements {
        return Ok(false);
    }
    let rows = if elements == 0 { 0 } else { old.shape().first().copied().unwrap_or(1) };
    let row_len = elements.checked_div(rows).unwrap_or(0);
    let rows_at_once = (COMPARED_BYTES / (row_len * kind.size()).max(1)).max(1);
    for first in (0..rows).step_by(rows_at_once) {
        let part = first..rows.min(first + rows_at_once);
        if !StoredValues::read(old, &part, row_len)?.equals(&StoredValues::read(new, &part, row_len)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Values of a dataset in memory, with what HDF5 allocated for those of variable length.
struct StoredValues {
    kind: Datatype,
    count: usize,
    bytes: Vec<u8>,
}

/// Form of an element in memory.
#[derive(Clone, Copy)]
enum ElementForm {
    Plain,
    /// A pointer to a string that ends with a zero.
    Text,
    /// A length in elements, and a pointer to them. An element has this number of bytes.
    List(usize),
}

impl StoredValues {
    fn read(dataset: &Dataset, rows: &Range<usize>, row_len: usize) -> hdf5::Result<Self> {
        let (kind, count) = (dataset.dtype()?, rows.len() * row_len);
        let mut bytes = Vec::new();
        let total = count.saturating_mul(kind.size());
        let no_memory = |_| hdf5::Error::from(format!("no memory for {total} bytes of a row"));
        bytes.try_reserve_exact(total).map_err(no_memory)?;
        bytes.resize(total, 0);
        let mut values = StoredValues { bytes, kind, count };
        read_stored_rows(dataset, rows, &mut values.bytes)?;
        Ok(values)
    }

    fn form(&self) -> ElementForm {
        let _guard = LOCK.lock();
        let id = self.kind.id();
        // SAFETY: `id` is a live type, of the class that each function is for; the base type is
        // closed here.
        unsafe {
            match H5Tget_class(id) {
                H5T_class_t::H5T_STRING if H5Tis_variable_str(id) > 0 => ElementForm::Text,
                H5T_class_t::H5T_VLEN => {
                    let base = H5Tget_super(id);
                    let bytes = H5Tget_size(base);
                    H5Tclose(base);
                    ElementForm::List(bytes)
                }
                _ => ElementForm::Plain,
            }
        }
    }

    /// True if `other`, of the same type, has the same values.
    fn equals(&self, other: &Self) -> bool {
        let form = self.form();
        let pairs = |bytes: usize| self.bytes.chunks_exact(bytes).zip(other.bytes.chunks_exact(bytes));
        match form {
            ElementForm::Plain => self.bytes == other.bytes,
            // SAFETY: HDF5 wrote each element as this form says, and what it points to lives as
            // long as these values.
            _ => unsafe { pairs(self.kind.size()).all(|(a, b)| value(form, a) == value(form, b)) },
        }
    }
}

impl Drop for StoredValues {
    fn drop(&mut self) {
        let Ok(space) = Dataspace::try_new([self.count]) else { return };
        let _guard = LOCK.lock();
        // SAFETY: type and space are alive and are those of the bytes, which HDF5 wrote, or which
        // are zeros. Reclaiming touches only what reading allocated.
        unsafe { H5Treclaim(self.kind.id(), space.id(), H5P_DEFAULT, self.bytes.as_mut_ptr().cast()) };
    }
}

/// The value of variable length that `element` points to.
///
/// # Safety
/// HDF5 wrote `element` in that form, and what it points to is alive for `'a`.
unsafe fn value<'a>(form: ElementForm, element: &[u8]) -> &'a [u8] {
    const WORD: usize = size_of::<usize>();
    let word = |place: usize| -> [u8; WORD] { std::array::from_fn(|byte| element[place * WORD + byte]) };
    let pointer = |place: usize| usize::from_ne_bytes(word(place)) as *const c_void;
    // SAFETY: as the caller says; a null pointer is no value.
    unsafe {
        match form {
            ElementForm::Text if !pointer(0).is_null() => CStr::from_ptr(pointer(0).cast::<c_char>()).to_bytes(),
            ElementForm::List(bytes) if !pointer(1).is_null() => {
                std::slice::from_raw_parts(pointer(1).cast::<u8>(), usize::from_ne_bytes(word(0)) * bytes)
            }
            _ => &[],
        }
    }
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

#[cfg(test)]
mod tests {
    use hdf5::H5Type;
    use hdf5::types::{VarLenArray, VarLenUnicode};

    use super::*;

    fn dataset<T: H5Type>(file: &File, name: &str, values: &[T]) -> Dataset {
        let dataset = file.new_dataset::<T>().shape([values.len()]).create(name).unwrap();
        dataset.write_raw(values).unwrap();
        dataset
    }

    #[test]
    fn datasets_are_compared_by_value_whatever_their_type() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("file.h5")).unwrap();
        let text = |text: &str| -> VarLenUnicode { text.parse().unwrap() };
        let texts: Vec<Dataset> = [["a", "", "bcd"], ["a", "", "bcd"], ["a", "", "bce"], ["", "a", "bcd"]]
            .iter()
            .enumerate()
            .map(|(i, texts)| dataset(&file, &format!("texts_{i}"), &texts.map(text)))
            .collect();
        let list = |values: &[i16]| VarLenArray::from_slice(values);
        let lists: Vec<Dataset> = [[&[1, 2][..], &[]], [&[1, 2], &[]], [&[1, 3], &[]], [&[1], &[2]]]
            .iter()
            .enumerate()
            .map(|(i, lists)| dataset(&file, &format!("lists_{i}"), &lists.map(list)))
            .collect();
        let numbers: Vec<Dataset> = [[1.0, f32::NAN], [1.0, f32::NAN], [1.0, -f32::NAN], [2.0, f32::NAN]]
            .iter()
            .enumerate()
            .map(|(i, numbers)| dataset(&file, &format!("numbers_{i}"), numbers))
            .collect();
        for datasets in [texts, lists, numbers] {
            let equal: Vec<bool> = datasets.iter().map(|other| has_same_values(&datasets[0], other).unwrap()).collect();
            assert_eq!(equal, [true, true, false, false], "{}", datasets[0].name());
        }
        let scalar = |name: &str, value: i32| {
            let dataset = file.new_dataset::<i32>().shape(()).create(name).unwrap();
            dataset.write_scalar(&value).unwrap();
            dataset
        };
        let [one, same, other] = [("one", 1), ("same", 1), ("other", 2)].map(|(name, value)| scalar(name, value));
        assert!(has_same_values(&one, &same).unwrap() && !has_same_values(&one, &other).unwrap());
        assert!(!has_same_values(&one, &dataset(&file, "list", &[1, 1])).unwrap());
        let empty = |name: &str| file.new_dataset::<u8>().shape([0, 5]).create(name).unwrap();
        assert!(has_same_values(&empty("empty"), &empty("void")).unwrap());
    }
}
