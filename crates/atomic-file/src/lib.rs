#![doc = include_str!("../README.md")]
mod new_file;
mod sibling;
mod stale;
mod target;

pub use new_file::{NewFile, WriteError, remove_unfinished, write};
pub use sibling::{beside, is_at, open_sibling};
pub use stale::{remove_stale, remove_stale_in};
pub use target::{check_replaceable, folder_of, resolve_target, sync_folder};
