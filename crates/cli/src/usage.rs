//! What this process took of the machine.

/// Peak resident memory of the process (`VmHWM` of proc_pid_status(5)); `None` where the system has
/// no such file.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// Processor time of the process so far in seconds, of all its threads, in the program and in the
/// kernel (`utime` and `stime` of proc_pid_stat(5), in ticks of a hundredth); `None` where the
/// system has no such file.
pub(crate) fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the program's name, may hold blanks; the fields after it do not. utime and
    // stime are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_and_memory() {
        let before = processor_seconds().unwrap();
        let mut sum = 0_u64;
        while processor_seconds().unwrap() < before + 0.05 {
            sum = (0..100_000).fold(sum, |sum, k| std::hint::black_box(sum ^ k));
        }
        assert!(peak_rss_bytes().unwrap() > 1 << 20);
    }
}
