use std::fs::read_to_string;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Bytes that the kernel deems available, that the control groups of the process leave, or that
/// its address space holds, whichever is least.
pub(crate) fn free_bytes() -> Option<usize> {
    let available = bytes_of("MemAvailable:", &read_to_string("/proc/meminfo").ok()?)?;
    Some(limits().into_iter().map(CgroupLimit::left).chain(address_space_share()).fold(available, usize::min))
}

/// Bytes of the machine, the limit of a control group of the process, or what its address space
/// holds, whichever is least.
pub(crate) fn total_bytes() -> Option<usize> {
    let total = bytes_of("MemTotal:", &read_to_string("/proc/meminfo").ok()?)?;
    Some(limits().into_iter().map(|limit| limit.bytes).chain(address_space_share()).fold(total, usize::min))
}

/// Half of the process's address space if it is limited (`ulimit -v`, getrlimit(2)): the other half
/// is for code, stacks and mapped files.
fn address_space_share() -> Option<usize> {
    let limit_bytes = getrlimit(Resource::As).current?;
    usize::try_from(limit_bytes / 2).ok()
}

/// The limit of one control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CgroupLimit {
    bytes: usize,
    used: usize,
    /// Page cache of files within the used memory, which the kernel takes back when memory is
    /// short.
    cached: usize,
}

impl CgroupLimit {
    fn left(self) -> usize {
        self.bytes.saturating_sub(self.used.saturating_sub(self.cached))
    }
}

/// The limits on the way from the process's control group up to the root, in version 2 and in
/// version 1. Within a container the process may see its own group at the root, and the path that
/// /proc tells may lead nowhere.
fn limits() -> Vec<CgroupLimit> {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let ways = [("0::", CgroupVersion::Two), (":memory:", CgroupVersion::One)];
    let ways = ways.into_iter().flat_map(|(mark, version)| {
        let path = groups.lines().find_map(|line| line.split_once(mark)).map_or("/", |(_, path)| path);
        Path::new(path).ancestors().map(move |folder| (folder.to_owned(), version)).collect::<Vec<_>>()
    });
    ways.filter_map(|(folder, version)| version.limit_of(&folder)).collect()
}

/// A hierarchy of control groups: where it is and what its files are called (cgroups(7)).
#[derive(Clone, Copy)]
enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    fn limit_of(self, group: &Path) -> Option<CgroupLimit> {
        let (root, limit, used, cached) = match self {
            CgroupVersion::One => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file ", "total_active_file "],
            ),
            CgroupVersion::Two => {
                ("/sys/fs/cgroup", "memory.max", "memory.current", ["inactive_file ", "active_file "])
            }
        };
        let folder = Path::new(root).join(group.strip_prefix("/").unwrap_or(group));
        let read = |name: &str| read_to_string(folder.join(name)).ok();
        let statistics = read("memory.stat").unwrap_or_default();
        limit_and_use(&read(limit)?, &read(used)?, cached.map(|name| number_of(name, &statistics)))
    }
}

/// A line of /proc/meminfo (proc_meminfo(5)), which is in units of 1024 bytes.
fn bytes_of(name: &str, meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Limit and use of a control group; `None` where it sets no limit, which version 2 writes as
/// `max`.
fn limit_and_use(limit: &str, used: &str, cached: [Option<usize>; 2]) -> Option<CgroupLimit> {
    let cached = cached.iter().flatten().sum();
    Some(CgroupLimit { bytes: limit.trim().parse().ok()?, used: used.trim().parse().ok()?, cached })
}

/// The number behind `name` in lines of a name and a number.
fn number_of(name: &str, lines: &str) -> Option<usize> {
    lines.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
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
        assert_eq!(limit_and_use("max\n", "5\n", [None, None]), None);
        let limit = limit_and_use("100\n", "30\n", [Some(4), None]).unwrap();
        assert_eq!((limit, limit.left()), (CgroupLimit { bytes: 100, used: 30, cached: 4 }, 74));
    }

    #[test]
    fn the_cache_of_files_is_found_among_the_statistics() {
        let statistics = "inactive_anon 8\ninactive_file 5\ntotal_inactive_file 7\n";
        assert_eq!(number_of("inactive_file ", statistics), Some(5));
        assert_eq!(number_of("active_file ", statistics), None);
    }
}
