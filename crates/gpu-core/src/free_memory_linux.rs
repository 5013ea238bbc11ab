#![forbid(unsafe_code)]

use std::fs::read_to_string;

/// What the kernel deems available, or what the control group of a container leaves, whichever is less.
pub(crate) fn free_bytes() -> Option<usize> {
    let available = available_bytes(&read_to_string("/proc/meminfo").ok()?)?;
    // Within a container the process sees its own group at the root of the hierarchy, version 2 or 1.
    let group = |limit: &str, used: &str| group_free_bytes(&read_to_string(limit).ok()?, &read_to_string(used).ok()?);
    let left = group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current").or_else(|| {
        let folder = "/sys/fs/cgroup/memory/memory";
        group(&format!("{folder}.limit_in_bytes"), &format!("{folder}.usage_in_bytes"))
    });
    Some(left.map_or(available, |left| left.min(available)))
}

/// `MemAvailable` of /proc/meminfo (proc_meminfo(5)), which is in units of 1024 bytes.
fn available_bytes(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// What a control group has left; `None` where it sets no limit, which version 2 writes as `max`.
fn group_free_bytes(limit: &str, used: &str) -> Option<usize> {
    let limit: usize = limit.trim().parse().ok()?;
    Some(limit.saturating_sub(used.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let meminfo = "MemTotal:       24602432 kB\nMemFree:         1000 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(available_bytes(meminfo), Some(23_000_000 * 1024));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
        assert!(free_bytes().unwrap() > 0);
    }

    #[test]
    fn a_group_without_a_limit_leaves_everything() {
        assert_eq!(group_free_bytes("max\n", "5\n"), None);
        assert_eq!(group_free_bytes("100\n", "30\n"), Some(70));
        assert_eq!(group_free_bytes("100\n", "130\n"), Some(0));
    }
}
