//! Memory of the system, total and free, asked of each platform in the file named for it.

#[cfg(target_os = "linux")]
#[path = "free_memory_linux.rs"]
mod platform;

#[cfg(not(target_os = "linux"))]
mod platform {
    /// No portable call tells; `None` says so.
    pub(crate) fn free_bytes() -> Option<usize> {
        None
    }

    /// No portable call tells; `None` says so.
    pub(crate) fn total_bytes() -> Option<usize> {
        None
    }
}

pub(crate) use platform::{free_bytes, total_bytes};
