//! The windows layout: every sample's window stored whole.

mod open;
mod write;

pub(crate) use open::WindowsFile;
pub use write::{WindowsHeader, WindowsWriter, write_windows};
