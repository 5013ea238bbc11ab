//! Files read whole, where the system maps none.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;

use super::FileBytes;

/// There are none.
#[derive(Debug)]
pub(crate) struct Mapping(Infallible);

pub(super) fn map(mut file: File) -> io::Result<FileBytes> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(FileBytes::owned(&bytes))
}

impl Mapping {
    pub(super) fn file_len(&self) -> io::Result<u64> {
        match self.0 {}
    }

    pub(super) fn private(&self) -> io::Result<PrivateMapping> {
        match self.0 {}
    }
}

/// There are none.
#[derive(Debug)]
pub(crate) struct PrivateMapping(Infallible);

impl PrivateMapping {
    pub(super) fn address(&self) -> usize {
        match self.0 {}
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.0 {}
    }
}
