//! Memory of samples in huge pages.

#![allow(unsafe_code, reason = "the system is called")]

use std::mem::MaybeUninit;

/// Bytes of a huge page of x86-64 and ARM. Less memory has no use for one.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A vector without values, with room for `len`, whose memory the system backs with huge pages
/// where it can: to fill small ones, and to read them, takes longer.
pub fn vec_in_huge_pages<T>(len: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(len);
    prefer_huge_pages(values.spare_capacity_mut());
    values
}

#[cfg(target_os = "linux")]
fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let page_bytes = rustix::param::page_size();
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(page_bytes);
    let Some(bytes) = size_of_val(memory).checked_sub(skipped).map(|bytes| bytes / page_bytes * page_bytes) else {
        return;
    };
    if bytes < HUGE_PAGE_BYTES {
        return;
    }
    // SAFETY: the range is that of whole pages within `memory`, and the advice changes the size of
    // pages, not their bytes. A system without huge pages refuses it, and the pages are small.
    let _ = unsafe { rustix::mm::madvise(start.add(skipped).cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages<T>(_memory: &mut [MaybeUninit<T>]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_room_for_what_was_asked_for() {
        for len in [0, 3, HUGE_PAGE_BYTES / 4 - 1, HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES / 4 + 7] {
            let mut values = vec_in_huge_pages::<f32>(len);
            assert!(values.is_empty() && values.capacity() >= len, "{len}");
            let before = values.as_ptr();
            values.resize(len, 1.0);
            assert_eq!((values.as_ptr(), values.iter().sum::<f32>()), (before, len as f32), "{len}");
        }
    }

    /// Bytes in huge pages of the mapping at `address`.
    #[cfg(target_os = "linux")]
    fn huge_bytes(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_mapping = false;
        for line in maps.lines() {
            if let Some((start, rest)) = line.split_once('-')
                && let (Ok(start), Ok(end)) = (
                    usize::from_str_radix(start, 16),
                    usize::from_str_radix(rest.split(' ').next().unwrap_or_default(), 16),
                )
            {
                is_mapping = (start..end).contains(&address);
            }
            if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| is_mapping) {
                return 1024 * size.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            }
        }
        0
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_of_large_memory_are_huge_where_the_system_has_them() {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let mut values = vec_in_huge_pages::<u8>(16 << 20);
        values.resize(16 << 20, 1);
        let found = huge_bytes(values.as_ptr() as usize + (8 << 20));
        if setting.contains("[madvise]") || setting.contains("[always]") {
            assert!(found > 0, "no page is huge");
        } else {
            assert_eq!(found, 0);
        }
    }
}
