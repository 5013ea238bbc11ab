//! Resource usage of this process.

/// Peak resident memory of the process (`VmHWM` of proc_pid_status(5)); `None` where the system has
/// no such file.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// CPU time of the process so far in seconds, of all its threads, user and system; `None` where the
/// system has no /proc/self/stat.
pub(crate) fn cpu_seconds() -> Option<f64> {
    cpu_seconds_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// User and system time of a line of /proc/PID/stat (proc_pid_stat(5), fields 14 and 15), which
/// counts in hundredths of a second. The second field is the program's name in parentheses, which
/// may hold anything.
fn cpu_seconds_in(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 1 18446744073709551615";
        assert_eq!(cpu_seconds_in(line), Some(3.0));
        assert_eq!((cpu_seconds_in(""), cpu_seconds_in("7 (x) S 1")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_takes_cpu_time_and_memory() {
        let before = cpu_seconds().unwrap();
        let mut sum = 0_u64;
        while cpu_seconds().unwrap() < before + 0.05 {
            sum = (0..100_000).fold(sum, |sum, k| std::hint::black_box(sum ^ k));
        }
        assert!(peak_rss_bytes().unwrap() > 1 << 20);
    }
}
