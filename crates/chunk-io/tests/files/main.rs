//! Files of samples are written, read, checked and converted; one program, because each links HDF5.

mod bad_files;
mod convert;
mod flipped_bits;
mod inspection;
mod latest;
mod loading;
#[path = "../made/mod.rs"]
mod made;
mod mark;
mod pieces;
mod reading;
mod rechunk;
#[path = "../recorded/mod.rs"]
mod recorded;
