#![forbid(unsafe_code)]

use std::fs::read_to_string;

/// What the kernel deems available, or what the control group of a container leaves, whichever is less.
pub(crate) fn free_bytes() -> Option<usize> {
    let available = bytes_of("MemAvailable:", &read_to_string("/proc/meminfo").ok()?)?;
    let left = group().map(|(limit, used)| limit.saturating_sub(used));
    Some(left.map_or(available, |left| left.min(available)))
}

/// What the machine has, or the limit of the control group, whichever is less.
pub(crate) fn total_bytes() -> Option<usize> {
    let total = bytes_of("MemTotal:", &read_to_string("/proc/meminfo").ok()?)?;
    Some(group().map_or(total, |(limit, _)| limit.min(total)))
}

/// Limit and use in bytes of the process's control group, where it has a limit. Within a container the process sees its own group
/// at the root of the hierarchy, version 2 or 1.
fn group() -> Option<(usize, usize)> {
    let read = |limit: &str, used: &str| limit_and_use(&read_to_string(limit).ok()?, &read_to_string(used).ok()?);
    read("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current").or_else(|| {
        let folder = "/sys/fs/cgroup/memory/memory";
        read(&format!("{folder}.limit_in_bytes"), &format!("{folder}.usage_in_bytes"))
    })
}

/// A line of /proc/meminfo (proc_meminfo(5)), which is in units of 1024 bytes.
fn bytes_of(name: &str, meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Limit and use of a control group; `None` where it sets no limit, which version 2 writes as `max`.
fn limit_and_use(limit: &str, used: &str) -> Option<(usize, usize)> {
    Some((limit.trim().parse().ok()?, used.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let meminfo = "MemTotal:       24602432 kB\nMemFree:         1000 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(bytes_of("MemAvailable:", meminfo), Some(23_000_000 * 1024));
        assert_eq!(bytes_of("MemTotal:", meminfo), Some(24_602_432 * 1024));
        assert_eq!(bytes_of("MemAvailable:", "MemTotal: 1 kB\n"), None);
        assert!(0 < free_bytes().unwrap() && free_bytes().unwrap() <= total_bytes().unwrap());
    }

    #[test]
    fn a_group_without_a_limit_leaves_everything() {
        assert_eq!(limit_and_use("max\n", "5\n"), None);
        assert_eq!(limit_and_use("100\n", "30\n"), Some((100, 30)));
    }
}
