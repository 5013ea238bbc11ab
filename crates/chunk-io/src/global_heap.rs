//! Global heap collections, where HDF5 keeps values of variable length: checked before the library
//! follows them, as it walks one without end where an object takes no bytes (HDF5 2.2.0,
//! `H5HG__cache_heap_deserialize`).
//!
//! HDF5 File Format Specification, III.E.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

const SIGNATURE: [u8; 4] = *b"GCOL";
const VERSION: u8 = 1;
/// Shorter collections are never written.
const COLLECTION_BYTES_MIN: u64 = 4096;
const ALIGNMENT: u64 = 8;

/// The forms of numbers in a file: a property of its superblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileForm {
    /// Bytes of the user block, from whose end addresses count.
    pub(crate) base: u64,
    /// Bytes of an address.
    pub(crate) address_bytes: usize,
    /// Bytes of a length.
    pub(crate) length_bytes: usize,
}

impl FileForm {
    /// Bytes of a reference to a value of variable length: its length and its address.
    pub(crate) fn reference_bytes(self) -> usize {
        4 + self.address_bytes + 4
    }

    /// The address of the collection that a reference leads to; `None` for an empty value.
    pub(crate) fn address(self, reference: &[u8]) -> Option<u64> {
        let address = little_endian(&reference[4..4 + self.address_bytes]);
        let is_undefined = reference[4..4 + self.address_bytes].iter().all(|&byte| byte == 0xff);
        (address != 0 && !is_undefined).then_some(address)
    }
}

/// Checks the collections at `addresses`: the library can walk each to its end.
///
/// # Errors
/// The fault of the first damaged collection, in words.
pub(crate) fn check_collections(
    file: &mut (impl Read + Seek),
    form: FileForm,
    addresses: &BTreeSet<u64>,
) -> io::Result<Result<(), String>> {
    let file_bytes = file.seek(SeekFrom::End(0))?;
    // Overlapping collections would have the same bytes read again and again.
    let mut left_bytes = file_bytes;
    for &address in addresses {
        let start = form.base.saturating_add(address);
        let checked = check_collection(file, form, start, left_bytes.min(file_bytes.saturating_sub(start)))?;
        match checked {
            Ok(bytes) => left_bytes -= bytes,
            Err(fault) => return Ok(Err(format!("the global heap at byte {start}: {fault}"))),
        }
    }
    Ok(Ok(()))
}

/// The collection's length, which is at most `bytes_max`.
fn check_collection(
    file: &mut (impl Read + Seek),
    form: FileForm,
    start: u64,
    bytes_max: u64,
) -> io::Result<Result<u64, String>> {
    let header_bytes = aligned(8 + form.length_bytes as u64).expect("a few bytes");
    if bytes_max < COLLECTION_BYTES_MIN {
        return Ok(Err("it does not fit into the file".to_owned()));
    }
    file.seek(SeekFrom::Start(start))?;
    let mut header = vec![0; header_bytes as usize];
    file.read_exact(&mut header)?;
    if header[..4] != SIGNATURE || header[4] != VERSION {
        return Ok(Err("expected its signature and version 1, found something else".to_owned()));
    }
    let bytes = little_endian(&header[8..8 + form.length_bytes]);
    if !(COLLECTION_BYTES_MIN..=bytes_max).contains(&bytes) {
        return Ok(Err(format!("expected {COLLECTION_BYTES_MIN} to {bytes_max} bytes, found {bytes}")));
    }
    let mut objects = vec![0; (bytes - header_bytes) as usize];
    file.read_exact(&mut objects)?;
    Ok(check_objects(&objects, form).map(|()| bytes))
}

/// Walks the objects as the library does.
fn check_objects(mut objects: &[u8], form: FileForm) -> Result<(), String> {
    let header_bytes = aligned(8 + form.length_bytes as u64).expect("a few bytes");
    // A rest too short for an object is free space.
    while objects.len() as u64 >= header_bytes {
        let index = little_endian(&objects[..2]);
        let bytes = little_endian(&objects[8..8 + form.length_bytes]);
        // Object 0 is free space, whose length includes its header.
        let taken =
            if index == 0 { Some(bytes) } else { aligned(bytes).and_then(|bytes| bytes.checked_add(header_bytes)) };
        match taken.filter(|taken| (header_bytes..=objects.len() as u64).contains(taken)) {
            Some(taken) => objects = &objects[taken as usize..],
            None => return Err(format!("object {index} cannot have {bytes} bytes, as {} are left", objects.len())),
        }
    }
    Ok(())
}

fn aligned(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ALIGNMENT)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// [`check_collections`] of the file that HDF5 has open.
pub(crate) fn check(file: &File, form: FileForm, addresses: &BTreeSet<u64>) -> hdf5::Result<()> {
    let mut file = file;
    match check_collections(&mut file, form, addresses) {
        Ok(checked) => checked.map_err(hdf5::Error::from),
        Err(error) => Err(hdf5::Error::from(format!("the global heap cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const FORM: FileForm = FileForm { base: 0, address_bytes: 8, length_bytes: 8 };

    fn object(index: u16, bytes: u64) -> Vec<u8> {
        [&index.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0], &bytes.to_le_bytes()].concat()
    }

    /// A collection with an object of 5 bytes, free space and what the test adds after the first
    /// object.
    fn collection(second: &[u8]) -> Vec<u8> {
        let mut all = [&b"GCOL\x01\0\0\0"[..], &4096_u64.to_le_bytes(), &object(1, 5), b"hello\0\0\0", second].concat();
        all.resize(4096, 0);
        all
    }

    fn check(bytes: &[u8], addresses: &[u64]) -> Result<(), String> {
        let addresses = addresses.iter().copied().collect();
        check_collections(&mut Cursor::new(bytes), FORM, &addresses).unwrap()
    }

    #[test]
    fn a_walk_that_would_not_end_is_refused() {
        let whole = collection(&object(0, 4096 - 16 - 24));
        check(&whole, &[0]).unwrap();
        check(&[&whole[..], &whole].concat(), &[0, 4096]).unwrap();
        let huge = |index| object(index, u64::MAX - 15);
        for (second, fault) in [
            (object(0, 0), "object 0 cannot have 0 bytes"),
            (object(0, 8), "object 0 cannot have 8 bytes"),
            (object(0, 4096), "object 0 cannot have 4096 bytes"),
            (huge(2), "object 2 cannot have"),
            (object(2, u64::MAX), "object 2 cannot have"),
        ] {
            let refused = check(&collection(&second), &[0]).unwrap_err();
            assert!(refused.contains(fault), "{refused}");
        }
    }

    #[test]
    fn collections_that_lie_about_their_length_or_place_are_refused() {
        let whole = collection(&object(0, 4096 - 16 - 24));
        let changed = |place: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            bytes
        };
        let longer = [&whole[..], &whole[..100]].concat();
        for (bytes, addresses, fault) in [
            (changed(0, b'X'), vec![0], "expected its signature"),
            (changed(4, 2), vec![0], "expected its signature"),
            (changed(9, 0x20), vec![0], "expected 4096 to 4096 bytes"),
            (changed(9, 0x0f), vec![0], "expected 4096 to 4096 bytes"),
            (whole.clone(), vec![8], "does not fit"),
            (whole.clone(), vec![u64::MAX], "does not fit"),
            (longer, vec![0, 100], "does not fit"),
        ] {
            let refused = check(&bytes, &addresses).unwrap_err();
            assert!(refused.contains(fault), "{refused}");
        }
    }
}
